"""Feeds brokers: brings one broker's copy up to date with the controller's log, and keeps it so.

What must stay true:
- One request is under way at a time, with all batches since the last one. So a busy log is synced in groups, and a slow
  broker holds up nobody. A feed keeps no data: the batches that it has yet to send are in the controller's log.
- A place counts as agreed once the broker has said so. After an error the outcome is unknown (rule 27): it asks again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from random import Random
from typing import Final, NamedTuple, Protocol

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.stream_interface import Stream, expected
from raylog.actors.metadata_log.rules.quorum import common_end
from raylog.actors.metadata_log.rules.tail import LogTail
from raylog.actors.protocol.control_messages import AppendMetadata, InstallSnapshot, MetadataAppended
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_quorum_records import Voter
from raylog.config import MIB
from raylog.errors import ControllerFenced, DirectoryOutdated, RaylogError, RemoteFailed, StreamClosed, StreamNotOpen

_log = logging.getLogger(__name__)

_MAX_BYTES: Final = 1 * MIB
_IDLE_SECONDS: Final = 1.0  # an idle controller hears so late that another has taken over
_QUESTION_SECONDS: Final = 0.2  # it does not ask more often whether the broker obeys, however many want to know
_REQUEST_SECONDS: Final = 5.0
_SNAPSHOT_SECONDS: Final = 30.0
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 2.0


class FeedSource(Protocol):
    """The writer, as its feeds see it."""

    @property
    def tail(self) -> LogTail: ...
    @property
    def epoch(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def marks(self) -> Mapping[Voter, int]:
        """The marks of directories that are in its log; never changed, but replaced."""

    def synced(self, member: Voter, end_offset: int) -> None:
        """Take note that a broker holds everything below `end_offset`, synced if it is a voter."""

    def fence(self, epoch: int) -> None:
        """Stop: a broker has promised this higher epoch."""

    def feed_ended(self, feed: BrokerFeed) -> None:
        """Forget a feed whose stream has ended."""


class _Outgoing(NamedTuple):
    message: Message
    payload: bytes
    end_offset: int  # up to here the broker agrees, if it accepts
    version: int  # and up to here it knows what is committed
    timeout: float


class BrokerFeed:
    """Feeds one broker over one stream."""

    def __init__(self, broker_id: int, stream: Stream, source: FeedSource, random: Random) -> None:
        self.broker_id = broker_id
        self.stream = stream
        self.member: Voter | None = None  # with its directory, once it has answered
        self.agreed_end = 0  # below it the broker's log is ours, as it has said over this stream
        self.obeyed_at = -math.inf  # it has answered what was sent then, so it obeyed nobody else so far
        self._source = source
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, random)
        self._place = source.tail.end_offset  # to be sent next
        self._is_agreed = False  # the logs are the same up to there
        self._told_version = -1
        self._snapshot_version = source.tail.start_offset  # it cuts its log at the next snapshot
        self._loop = asyncio.get_running_loop()
        self._sent_at = -math.inf
        self._has_question = False
        self._news: asyncio.Future[None] = self._loop.create_future()
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(self._ended)

    def wake(self) -> None:
        """Send at once: there is something new."""
        if not self._news.done():
            self._news.set_result(None)

    def ask_whether_obeyed(self) -> None:
        """Send something soon, so that `obeyed_at` moves on."""
        if self._loop.time() - self._sent_at >= _QUESTION_SECONDS:
            self._has_question = True
            self.wake()

    def stop(self) -> None:
        self._task.cancel()

    async def stopped(self) -> None:
        """Wait until nothing of it runs any more."""
        await asyncio.wait({self._task}, timeout=_REQUEST_SECONDS)

    # --- the loop -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        is_idle = False
        while not self.stream.closed.done():
            outgoing = self._next(say_hello=is_idle or self._has_question)
            is_idle = self._has_question = False
            if outgoing is None:
                is_idle = await self._wait_for_news()
            elif not await self._send(outgoing):
                break

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            if (error := task.exception()) is not None:
                _log.critical("Feeding broker %d failed: %r", self.broker_id, error, exc_info=error)
            self._source.feed_ended(self)

    async def _wait_for_news(self) -> bool:
        """Wait for something to send. True: it took so long that the broker has to be asked whether it still obeys."""
        await asyncio.wait({self._news, self.stream.closed}, timeout=_IDLE_SECONDS, return_when="FIRST_COMPLETED")
        if not self._news.done():
            return True
        self._news = self._loop.create_future()
        return False

    async def _send(self, outgoing: _Outgoing) -> bool:
        """Send the next request; returns whether to go on."""
        sent_at, marks = self._loop.time(), self._source.marks
        self._sent_at = sent_at
        try:
            told = await self.stream.request(outgoing.message, outgoing.payload, timeout=outgoing.timeout)
            answer = expected(told.message, MetadataAppended, self.stream.peer)
            self._check_mark(answer, marks)
        except (StreamClosed, StreamNotOpen):
            return False
        except RaylogError as error:
            if isinstance(error, RemoteFailed) and isinstance(error.error, ControllerFenced):
                self._source.fence(error.error.current)
                return False
            await self._pause_after(error)
            return True
        self._backoff.reset()
        self.obeyed_at = sent_at
        self.member = member = self.broker_id, answer.directory_id
        if answer.accepted:
            self._accepted(outgoing, member)
        else:
            self._refused(answer)
        return True

    def _check_mark(self, answer: MetadataAppended, marks: Mapping[Voter, int]) -> None:
        """DirectoryOutdated: an older copy of a directory has answered. Its promises and syncs go with it (rule 17)."""
        recorded = marks.get((self.broker_id, answer.directory_id), 0)
        if answer.mark < recorded:
            raise DirectoryOutdated(f"at {self.stream.peer}", self.broker_id, answer.mark, recorded)

    async def _pause_after(self, error: RaylogError) -> None:
        self._is_agreed = False
        if self._backoff.failures == 0:
            _log.warning("Broker %d does not take the metadata log, and is tried again: %s", self.broker_id, error)
        await asyncio.wait({self.stream.closed}, timeout=self._backoff.next())

    # --- what to send ---------------------------------------------------------------------------------------------

    def _next(self, *, say_hello: bool) -> _Outgoing | None:
        source, tail = self._source, self._source.tail
        version = source.version
        place = tail.boundary_before(self._place)
        if place is None or (self._is_agreed and self._snapshot_version < tail.start_offset):
            return self._snapshot()
        payload, end = tail.read(place, _MAX_BYTES) if self._is_agreed else (b"", place)
        if self._is_agreed and not payload and self._told_version >= version and not say_hello:
            return None
        previous_epoch = tail.epoch_before(place)
        assert previous_epoch is not None  # `place` is where a batch begins
        self._place = place
        message = AppendMetadata(source.epoch, place, previous_epoch, version)
        return _Outgoing(message, payload, end, min(version, end), _REQUEST_SECONDS)

    def _snapshot(self) -> _Outgoing:
        snapshot = self._source.tail.snapshot
        message = InstallSnapshot(self._source.epoch, snapshot.version, snapshot.epoch)
        return _Outgoing(message, snapshot.data, snapshot.version, snapshot.version, _SNAPSHOT_SECONDS)

    # --- what was answered ----------------------------------------------------------------------------------------

    def _accepted(self, outgoing: _Outgoing, member: Voter) -> None:
        if type(outgoing.message) is InstallSnapshot:
            self._snapshot_version = outgoing.message.offset
            self._place = max(self._place, outgoing.end_offset) if self._is_agreed else outgoing.end_offset
        else:
            self._place = outgoing.end_offset
        self._is_agreed = True
        self._told_version = max(self._told_version, outgoing.version)
        self.agreed_end = max(self.agreed_end, outgoing.end_offset)
        self._source.synced(member, outgoing.end_offset)

    def _refused(self, answer: MetadataAppended) -> None:
        self._is_agreed = False
        own = self._source.tail.epoch_end(answer.last_epoch)
        place = common_end(own, (answer.last_epoch, answer.end_offset))
        self._place = -1 if place is None else place  # before the log's start: a snapshot
