"""Fetching one partition from one position on: a task that keeps one fetch open, as long as there is room.

Of many partitions those that are read to their end are watched together instead (`record_watch.py`).

    begun ──where to?──► looked up (earliest, latest) ──► fetching ──► … until it is cancelled
                 └─ nobody said: NoOffsetReset, the end     │  └─ OffsetOutOfRange, the topic made anew: where to?
                                                            └─ diverged: back to where the logs part, or LogTruncated

What must stay true:
- Chunks come in order, each beginning where the one before ended, or, after a reset, where that says.
- It lives for one generation of its partition's position: another position is another task, so what was open or had
  been fetched for the old one is never handed over.
- A fetch carries the leader's epoch and the epoch of the last batch before the offset (rule 11, KIP-320).
- Every failure is retried, after a pause or newer metadata; those that only people can mend are told too.
- What arrives damaged is told to the leader, and fetched again from it or from the next one (rule 1). Only where the
  leader says that its copy is damaged and the only one, the reading ends, in RecordUnreadable.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.wait_notices import LoopNotices
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.messages import Done
from raylog.actors.protocol.replication_messages import EARLIEST, NO_EPOCH, EpochEnd, Fetch, Fetched, SuspectBatch
from raylog.api.connection.leader_requests import FIRST_PAUSE_SECONDS, NO_OFFSET, after_failure, ask_offset, leader_of
from raylog.api.connection.records import TopicPartition
from raylog.api.consumer.fetching.local_reads import read_slice
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.consumer.rules.fetch_room import Grant
from raylog.api.consumer.rules.fetched import ChainEnd, Chunk, Failed, Item, Located, PartitionMarks, check_chain
from raylog.api.consumer.rules.positions import UNKNOWN, Start
from raylog.errors import (
    ClusterUnreachable,
    CorruptBatch,
    LogDamaged,
    LogTruncated,
    NoOffsetReset,
    OffsetOutOfRange,
    OnlyCopyDamaged,
    PeerNotAdmitted,
    RaylogError,
    RecordUnreadable,
    UnknownTopic,
)
from raylog.storage.format.record_batch import Bytes

_FIRST_SUSPICION_SECONDS: Final = 0.1  # the pauses before a leader is told again
_LONGEST_SUSPICION_SECONDS: Final = 2.7
_NO_FILES_SECONDS: Final = 10.0  # after a slice that was not what it should be
_FINAL: Final = (NoOffsetReset, LogTruncated, RecordUnreadable)
_TELL_AT_ONCE: Final = (UnknownTopic, PeerNotAdmitted, ClusterUnreachable)
_BACKOFFS: Final = 10  # of retry_backoff_ms: the longest pause
_PEOPLE_SECONDS: Final = 1.0  # the least pause where only people can help

_log = logging.getLogger(__name__)


def waiting_for(partition: TopicPartition) -> str:
    """Return what a wait of the partition's fetcher is called."""
    return f"records of {partition}"


class Outlet(Protocol):
    """The place where a fetcher puts what it has."""

    notices: LoopNotices

    def put(self, item: Item) -> None: ...
    def mark(self, partition: TopicPartition, marks: PartitionMarks) -> None: ...
    async def until_arrival(self, leader: PartitionLeader, offset: int) -> None:
        """Wait until a fetch from this end of the log on is worth while, or do nothing. RaylogError: look anew."""

    async def room(self, partition: TopicPartition) -> Grant:
        """Wait until something may be fetched: how much, and whether the fetch may wait at the leader."""

    def settled(self, partition: TopicPartition, grant: Grant) -> None:
        """Take note that the fetch is over, whatever came of it."""


class PartitionFetcher:
    """`run` is the task."""

    def __init__(
        self,
        link: ClusterLink,
        options: ConsumerOptions,
        partition: TopicPartition,
        start: Start,
        outlet: Outlet,
        topic_id: bytes = b"",
    ) -> None:
        """`topic_id`: of the topic that the position is of; empty: whichever has that name first."""
        self._link = link
        self._options = options
        self._partition = partition
        self._generation = start.generation
        self._offset = start.offset
        self._epoch = start.epoch
        self._look_for = start.look_for
        self._outlet = outlet
        self._loop = asyncio.get_running_loop()
        self._topic_id = topic_id
        self._suspicions = start.suspicions
        self._no_files_until = self._loop.time() + _NO_FILES_SECONDS if start.suspicions else 0.0
        longest = _BACKOFFS * options.retry_backoff_ms / 1000
        self._backoff = Backoff(FIRST_PAUSE_SECONDS, longest, link.env.random)
        self._suspicion_backoff = Backoff(_FIRST_SUSPICION_SECONDS, _LONGEST_SUSPICION_SECONDS, link.env.random)
        self._failures = 0
        self._failing_since = 0.0
        self._is_waiting = False
        self._is_at_end = False  # of what the leader showed last
        self._timeout = options.request_timeout_ms / 1000

    async def run(self) -> None:
        while True:
            leader = self._link.leader(*self._partition)
            try:
                await self._wait_at_end(leader)
                grant = None if self._offset == UNKNOWN else await self._outlet.room(self._partition)
                try:
                    leader = await leader_of(self._link, self._partition, self._timeout)
                    if leader is None:
                        self._wait("it has no leader")
                        continue
                    await self._step(leader, grant)
                finally:
                    if grant is not None:
                        self._outlet.settled(self._partition, grant)
                self._went_well()
            except _FINAL as error:
                self._outlet.put(Failed(self._partition, self._generation, error, is_final=True))
                return
            except RaylogError as error:
                await self._after(error, leader)

    async def _wait_at_end(self, leader: PartitionLeader | None) -> None:
        """Wait for records where all were read. Once: then a fetch looks, whatever became of the wait."""
        if self._is_at_end and leader is not None and leader.broker >= 0:
            self._is_at_end = False
            await self._outlet.until_arrival(leader, self._offset)

    def _went_well(self) -> None:
        self._failures = 0
        if self._is_waiting:
            self._is_waiting = False
            self._outlet.notices.over(waiting_for(self._partition))

    # --- one step -------------------------------------------------------------------------------------------------

    async def _step(self, leader: PartitionLeader, grant: Grant | None) -> None:
        if self._topic_id != leader.topic_id:
            if self._topic_id:  # nothing of the new topic has been read
                self._reset("its topic was deleted and made anew", EARLIEST)
            self._topic_id = leader.topic_id
        if self._offset == UNKNOWN or grant is None:
            await self._locate(leader)
            return
        if self._suspicions:
            await self._tell_suspicion(leader)
        try:
            await self._fetch(leader, grant)
        except (CorruptBatch, LogDamaged):
            self._suspicions = 1
            raise
        except OffsetOutOfRange as error:
            reason = f"offset {error.offset} is not among {error.start} to {error.end}"
            self._reset(reason, self._options.reset_to)

    async def _locate(self, leader: PartitionLeader) -> None:
        if self._look_for is None:
            raise NoOffsetReset(*self._partition, "it has no position, and auto_offset_reset is none")
        found = await ask_offset(
            self._link, leader, self._look_for, self._options.reads_committed, timeout=self._timeout
        )
        if found.offset == NO_OFFSET:
            raise NoOffsetReset(*self._partition, f"there is no record at or after time {self._look_for}")
        self._move(found.offset, NO_EPOCH)

    async def _fetch(self, leader: PartitionLeader, grant: Grant) -> None:
        options = self._options
        wait_ms = options.fetch_max_wait_ms if grant.may_wait else 0
        message = Fetch(
            self._offset,
            leader.epoch,
            self._epoch,
            options.fetch_min_bytes,
            grant.most,
            wait_ms,
            options.reads_committed,
            self._node_id(leader),
        )
        timeout = self._timeout + wait_ms / 1000
        response = await self._link.ask(leader, message, expect=Fetched, timeout=timeout)
        answer = response.message
        marks = (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset, answer.leader_epoch)
        self._outlet.mark(self._partition, PartitionMarks(*marks))
        if answer.diverged is not None:
            self._diverged(answer.diverged)
        elif answer.file is not None:
            read = await read_slice(self._link.env, answer.file, answer.next_offset, self._offset)
            if read is None:
                self._no_files_until = self._loop.time() + _NO_FILES_SECONDS
            else:
                self._put(read.data, read.end, answer)
        elif response.payload:
            self._put(response.payload, check_chain(response.payload, self._offset), answer)
        shown = answer.last_stable_offset if options.reads_committed else answer.high_watermark
        self._is_at_end = self._offset >= shown

    async def _tell_suspicion(self, leader: PartitionLeader) -> None:
        """The leader looks into its own copy, and lets another one lead where that is damaged (rule 1)."""
        if self._suspicions > 1:
            await asyncio.sleep(self._suspicion_backoff.after(self._suspicions))
        try:
            suspicion = SuspectBatch(leader.epoch, self._offset)
            await self._link.ask(leader, suspicion, expect=Done, timeout=self._timeout)
        except OnlyCopyDamaged as error:
            raise RecordUnreadable(*self._partition, self._offset, error.next_offset, str(error)) from error
        except OffsetOutOfRange as error:  # it was deleted meanwhile, and the fetch says so
            _log.debug("%s: %s", self._partition, error)
        self._suspicions = 0

    def _node_id(self, leader: PartitionLeader) -> str:
        """Return what lets the leader answer with a piece of a file."""
        may = self._options.use_local_files and self._loop.time() >= self._no_files_until
        return self._link.node_id if may and self._link.node_id == leader.node_id else ""

    def _put(self, data: Bytes, end: ChainEnd, answer: Fetched) -> None:
        aborted = answer.aborted if self._options.reads_committed else None
        chunk = Chunk(self._partition, self._generation, self._offset, end.next_offset, data, aborted)
        self._offset, self._epoch = end.next_offset, end.epoch
        self._outlet.put(chunk)

    # --- another position -----------------------------------------------------------------------------------------

    def _move(self, offset: int, epoch: int) -> None:
        self._offset, self._epoch = offset, epoch
        self._outlet.put(Located(self._partition, self._generation, offset))

    def _reset(self, reason: str, look_for: int | None) -> None:
        """Start where `auto_offset_reset` says, where it allows that."""
        if self._options.reset_to is None:
            raise NoOffsetReset(*self._partition, reason)
        _log.warning("%s: %s; it goes on by auto_offset_reset.", self._partition, reason)
        self._offset, self._epoch, self._look_for = UNKNOWN, NO_EPOCH, look_for

    def _diverged(self, found: EpochEnd) -> None:
        """Records that were read, or passed over, are not in the log any more: an unclean election, or lost disks."""
        epoch, end = found
        safe = min(end, self._offset)
        if self._options.reset_to is None:
            raise LogTruncated(*self._partition, self._offset, safe)
        _log.warning("%s: the log was truncated to %d; it is read on from there.", self._partition, safe)
        self._move(safe, epoch)

    # --- failures -------------------------------------------------------------------------------------------------

    async def _after(self, error: RaylogError, leader: PartitionLeader | None) -> None:
        now = self._loop.time()
        if self._failures == 0:
            self._failing_since = now
        self._failures += 1
        self._wait(error)
        pause = self._backoff.after(self._failures)
        if isinstance(error, _TELL_AT_ONCE):
            self._tell(error)
            await asyncio.sleep(max(pause, _PEOPLE_SECONDS))
            return
        if now - self._failing_since >= self._timeout:
            self._failing_since = now
            if not error.retriable:
                self._tell(error)
        try:
            await after_failure(self._link, leader, error, pause, self._timeout)
        except RaylogError as newer:
            self._tell(newer)
            await asyncio.sleep(max(pause, _PEOPLE_SECONDS))

    def _wait(self, why: RaylogError | str) -> None:
        self._is_waiting = True
        self._outlet.notices.waits(waiting_for(self._partition), why)

    def _tell(self, error: RaylogError) -> None:
        self._outlet.put(Failed(self._partition, self._generation, error, is_final=False))
