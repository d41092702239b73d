"""Telling a data directory that was restored from a backup from the directory that it is a copy of.

    broker: mark + 1 on its disk  →  MarkDirectory  →  controller: DirectoryMarked  →  again in about a minute

A directory from a backup says who it is as the original does, and has forgotten what was promised, synced and
acknowledged since. Its mark is lower than the one in the metadata log, and that is how it is recognised.

What must stay true:
- A mark is on the broker's disk before the controller hears of it, and it only rises. So no directory that lost
  nothing ever has less than is recorded.
- It rises only under a registration. An older copy that raised its mark by itself would soon pass for the newer one.
- A directory with less registers nowhere, and its promise counts for no controller (rules 7, 17).

A copy that is younger than the last mark, two minutes old at most, is not recognised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Response
from raylog.actors.metadata_log.rules.quorum import PromisedLog
from raylog.actors.protocol.control_messages import MarkDirectory
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_quorum_records import Voter
from raylog.actors.protocol.metadata_records import BrokerRegistration, DirectoryMarked
from raylog.errors import DiskError, RaylogError

MARK_SECONDS: Final = 60.0
_FIRST_SECONDS: Final = 120.0
_RETRY_SECONDS: Final = 15.0

_log = logging.getLogger(__name__)


def recorded_marks(records: Iterable[Message]) -> dict[Voter, int]:
    """The newest mark of each directory, by what a metadata log says."""
    marks: dict[Voter, int] = {}
    for record in records:
        if type(record) is DirectoryMarked:
            marks[record.broker_id, record.directory_id] = record.mark
        elif type(record) is BrokerRegistration:
            marks.setdefault((record.broker_id, record.directory_id), 0)
    return marks


def outdated_voters(promised: Collection[PromisedLog], marks: dict[Voter, int]) -> set[Voter]:
    """Voters with a directory older than the log says it was: they have forgotten promises and synced batches."""
    return {log.voter for log in promised if log.mark < marks.get(log.voter, 0)}


class DirectoryMarks:
    """Raises the mark of one broker. `raise_mark` puts it on its disk, `ask` carries it to the controller."""

    def __init__(
        self,
        env: Environment,
        own: Voter,
        raise_mark: Callable[[], Awaitable[int]],
        ask: Callable[[Message], Awaitable[Response]],
        is_registered: Callable[[], bool],
    ) -> None:
        self._env = env
        self._own = own
        self._raise_mark = raise_mark
        self._ask = ask
        self._is_registered = is_registered

    async def run(self) -> None:
        """Raise the mark for ever, and again after a failure. Without that fewer copies are recognised, no more."""
        await asyncio.sleep(_FIRST_SECONDS)
        pause = 0.0
        while True:
            await asyncio.sleep(pause)
            if not self._is_registered():
                pause = _RETRY_SECONDS
                continue
            pause = MARK_SECONDS * (0.5 + self._env.random.random())
            try:
                await self._ask(MarkDirectory(*self._own, await self._raise_mark()))
            except DiskError as error:
                _log.warning("The directory of broker %d keeps its mark for now: %s", self._own[0], error)
            except RaylogError:
                pause = _RETRY_SECONDS
