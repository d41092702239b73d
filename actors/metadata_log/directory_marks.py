"""Telling a data directory that was restored from a backup from the directory that it is a copy of.

    registered  →  broker: mark + 1 on its disk  →  MarkDirectory  →  controller: DirectoryMarked
                                 ▲                                          └─ again in about a minute, and at
                                 └───────────────────────────────────────────  the next registration

A directory from a backup says who it is as the original does, and has forgotten what was promised, synced and
acknowledged since. Its mark is lower than the one in the metadata log, and that is how it is recognised.

What must stay true:
- A mark is on the broker's disk before the controller hears of it, and it only rises. So no directory that lost
  nothing ever has less than is recorded, wherever a crash comes in between.
- It rises only under a registration. An older copy that raised its mark by itself would soon pass for the newer one.
- It rises as a broker registers after its start, and soon after it registers with another controller. So a copy from
  before the last start is recognised, however young it is.
- A directory with less registers nowhere, its promise counts for no controller, and what it syncs commits nothing
  (rules 7, 17). A request is compared with the marks that were recorded when it was sent: they were on the disk then.

What is left is a copy of a directory in use that is younger than its last mark, a minute and a half at most. Nothing
can tell it: what the original has done since then is written nowhere else. What a voter has acknowledged is known to
itself and to a controller, which may be gone. So each acknowledgement would have to wait for another disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from itertools import chain
from typing import Final

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Response
from raylog.actors.metadata_log.rules.quorum import PromisedLog
from raylog.actors.metadata_log.rules.tail import LogTail
from raylog.actors.protocol.control_messages import MarkDirectory
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_quorum_records import Voter
from raylog.actors.protocol.metadata_records import DirectoryMarked
from raylog.errors import DiskError, RaylogError

MARK_SECONDS: Final = 60.0
_SPREAD_SECONDS: Final = 1.0  # after a registration with another controller
_RETRY_SECONDS: Final = 15.0

_log = logging.getLogger(__name__)


def recorded_marks(records: Iterable[Message]) -> dict[Voter, int]:
    """The newest mark of each directory, by what a metadata log says. A directory without one is not in it."""
    marked = (record for record in records if type(record) is DirectoryMarked)
    return {(record.broker_id, record.directory_id): record.mark for record in marked}


def marks_in(tail: LogTail) -> dict[Voter, int]:
    """The newest mark of each directory, by a whole metadata log."""
    batches = tail.batches_from(tail.start_offset)
    return recorded_marks(chain(tail.snapshot.records, *(batch.records for batch in batches)))


def outdated_voters(promised: Collection[PromisedLog], marks: Mapping[Voter, int]) -> set[Voter]:
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
        self._is_new = asyncio.Event()
        self._spread_seconds = 0.0

    def registered(self) -> None:
        """Take note of a registration."""
        self._is_new.set()

    async def run(self) -> None:
        """Raise the mark for ever, and again after a failure. Without that fewer copies are recognised, no more."""
        pause = _RETRY_SECONDS
        while True:
            await self._wait(pause)
            pause = _RETRY_SECONDS
            if not self._is_registered():
                continue
            try:
                await self._ask(MarkDirectory(*self._own, await self._raise_mark()))
                pause = MARK_SECONDS * (0.5 + self._env.random.random())
            except DiskError as error:
                _log.warning("The directory of broker %d keeps its mark for now: %s", self._own[0], error)
            except RaylogError as error:
                _log.info("The mark of the directory of broker %d is not recorded yet: %s", self._own[0], error)

    async def _wait(self, seconds: float) -> None:
        """Wait for so long, or until the next registration: the first one at once, later ones a little.

        All brokers register with a new controller in one go, and elections come first.
        """
        try:
            await asyncio.wait_for(self._is_new.wait(), seconds)
        except asyncio.TimeoutError:
            return
        self._is_new.clear()
        await asyncio.sleep(self._spread_seconds * self._env.random.random())
        self._spread_seconds = _SPREAD_SECONDS
