"""Ends of the logs that groups read: asked of their leaders every few seconds, for the lag of groups as a metric.

What must stay true: nobody is asked unless somebody reads the metrics, and no more than `_MOST` logs are followed. What
is told is as old as the last answer: good enough for people and autoscalers, and not for refusing a commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, TypeAlias

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.replication_messages import LATEST, ListedOffset, ListOffset
from raylog.errors import RaylogError

Place: TypeAlias = tuple[str, int]  # topic, partition

PERIOD_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 2.0
_MOST: Final = 1_000
_AT_ONCE: Final = 50

_log = logging.getLogger(__name__)


class LogEnds:
    """`places` are those that groups have committed offsets of. `follow` runs until it is cancelled."""

    def __init__(self, link: ClusterLink, places: Callable[[], Iterable[Place]]) -> None:
        self._link = link
        self._places = places
        self._known: dict[Place, int] = {}
        self._is_read = asyncio.Event()

    def end(self, place: Place) -> int | None:
        """None: no leader has told it yet."""
        self._is_read.set()
        return self._known.get(place)

    async def follow(self) -> None:
        while True:
            await self._is_read.wait()
            self._is_read.clear()
            places = sorted(islice(dict.fromkeys(self._places()), _MOST))
            self._known = {each: self._known[each] for each in places if each in self._known}
            for first in range(0, len(places), _AT_ONCE):
                await asyncio.gather(*map(self._ask, places[first : first + _AT_ONCE]))
            await asyncio.sleep(PERIOD_SECONDS)

    async def _ask(self, place: Place) -> None:
        leader = self._link.leader(*place)
        if leader is None or leader.broker < 0:
            return
        try:
            message = ListOffset(LATEST, leader.epoch, False)
            told = await self._link.ask(leader, message, expect=ListedOffset, timeout=_ANSWER_SECONDS)
        except RaylogError as error:  # it is asked again with the next round; until then the last answer stands
            _log.debug("Where %s-%d ends is not known just now: %s", *place, error)
            return
        if told.message.offset >= 0:
            self._known[place] = told.message.offset
