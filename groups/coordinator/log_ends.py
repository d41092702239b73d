"""Ends of the logs that groups read, and beginnings of those that they have not begun, for the lag of groups as a
metric: asked of their leaders every few seconds.

What must stay true: nobody is asked unless somebody reads the metrics, and no more than `_MOST` logs are followed. What
is told is as old as the last answer: good enough for people and autoscalers, and not for refusing a commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, TypeAlias

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.replication_messages import EARLIEST, LATEST
from raylog.errors import RaylogError

Place: TypeAlias = tuple[str, int]  # topic, partition

PERIOD_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 2.0
_MOST: Final = 1_000
_AT_ONCE: Final = 50

_log = logging.getLogger(__name__)


class LogEnds:
    """`places` are those that groups have committed offsets of, `unread` those that only members have: of these the
    beginnings are asked too. `follow` runs until it is cancelled.
    """

    def __init__(
        self, link: ClusterLink, places: Callable[[], Iterable[Place]], unread: Callable[[], Iterable[Place]]
    ) -> None:
        self._link = link
        self._places = places
        self._unread = unread
        self._known: dict[Place, int] = {}
        self._begins: dict[Place, int] = {}
        self._is_read = asyncio.Event()

    def end(self, place: Place) -> int | None:
        """None: no leader has told it yet."""
        self._is_read.set()
        return self._known.get(place)

    def size(self, place: Place) -> int | None:
        """Return how many offsets the log of an unread place holds. None: no leader has told it yet."""
        end, begin = self.end(place), self._begins.get(place)
        return None if end is None or begin is None else max(0, end - begin)

    async def follow(self) -> None:
        while True:
            await self._is_read.wait()
            self._is_read.clear()
            unread = set(self._unread())
            places = sorted(islice(dict.fromkeys((*self._places(), *sorted(unread))), _MOST))
            self._known = {each: self._known[each] for each in places if each in self._known}
            self._begins = {each: self._begins[each] for each in unread if each in self._begins}
            await self._ask_all(places, LATEST, self._known)
            await self._ask_all([each for each in places if each in unread], EARLIEST, self._begins)
            await asyncio.sleep(PERIOD_SECONDS)

    async def _ask_all(self, places: Sequence[Place], timestamp: int, known: dict[Place, int]) -> None:
        for first in range(0, len(places), _AT_ONCE):
            await asyncio.gather(*[self._ask(each, timestamp, known) for each in places[first : first + _AT_ONCE]])

    async def _ask(self, place: Place, timestamp: int, known: dict[Place, int]) -> None:
        leader = self._link.leader(*place)
        if leader is None or leader.broker < 0:
            return
        try:
            told = await self._link.offset_at(leader, timestamp, False, _ANSWER_SECONDS)
        except RaylogError as error:  # it is asked again with the next round; until then the last answer stands
            _log.debug("Where %s-%d begins or ends is not known just now: %s", *place, error)
            return
        if told.offset >= 0:
            known[place] = told.offset
