"""The partition that a coordinator keeps its state in, as its one writer (rule 25).

    made ──claim──► claimed ──replay──► replayed ──append, append, …──► ended (fenced, or an error that no retry mends)

What must stay true:
- Nothing is replayed before the claim is committed: from then on no older coordinator adds anything.
- One batch is under way at a time. After an unknown outcome the same batch goes again, unchanged (rules 18, 27), so the
  order of appends is the order in the log, and each is there once.
- What is not replayed was never answered for. All that a coordinator has appended was made by `coordinator_records.py`,
  and is under a CRC. So a record that no version of it can have made is another program's, from before internal topics
  were closed to producers. It is logged and left out: it would end every later coordinator too. A record that a later
  raylog wrote may be a promise, and ends the coordinator. So may a batch that is damaged: the leader is told of it
  (rule 1), and the coordinator ends where no other replica has it.
- A record of an append is answered for only once the batch is committed (acks=all). Once `ended` is done, what was not
  answered is of unknown outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from raylog.actors.cluster.coordinator_state import FENCING_EPOCH
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.stream_interface import Told
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.questions import until_answered
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.actors.protocol.coordinator_records import CLAIM_KEY, Entry, claim_entry
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.metadata_records import NO_RETIRED_ID
from raylog.actors.protocol.replication_messages import (
    EARLIEST,
    NO_EPOCH,
    Append,
    Appended,
    Fetch,
    Fetched,
    ListedOffset,
    ListOffset,
    SuspectBatch,
)
from raylog.config import KIB, MIB
from raylog.errors import (
    CoordinatorRecordUnknown,
    CoordinatorStopped,
    CorruptBatch,
    FrameInvalid,
    LogTruncated,
    MessageUnknown,
    NotLeader,
    RaylogError,
    StreamError,
    UnknownTopic,
)
from raylog.storage.format.batch_codec import decode_batch, encode_batch
from raylog.storage.format.record_batch import Bytes, first_unsound, read_header, split_batches

_ACKS_ALL: Final = -1
_ASK_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.05
_CLAIM_AGAIN_SECONDS: Final = 3600.0
_NOT_URGENT_SECONDS: Final = 0.02
_BATCH_BYTES: Final = 512 * KIB
_FETCH_BYTES: Final = 4 * MIB
_FETCH_WAIT_MS: Final = 500
_LAST_SEQUENCE: Final = 2**31 - 1
_MOST_SUSPICIONS: Final = 20
_STRAYS_TOLD: Final = 20

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer", bound=Message)


class Replayed(NamedTuple):
    key: bytes
    value: bytes | None  # None: a tombstone
    offset: int


class _Submitted(NamedTuple):
    entries: Sequence[Entry]
    size: int
    done: asyncio.Future[None]


class CoordinatorLog:
    """Made on its loop; `claim`, then `replay`, then `append`; in the end `close`."""

    def __init__(
        self,
        link: ClusterLink,
        topic: str,
        partition: int,
        producer_id: int,
        epoch: int,
        retired_id: int = NO_RETIRED_ID,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[RaylogError] = self._loop.create_future()  # why
        self._link = link
        self._topic = topic
        self._partition = partition
        self._producer_id = producer_id
        self._epoch = epoch
        self._retired_id = retired_id
        self._sequence = 0
        self._strays = 0
        self._last_refusal = ""
        self._submitted: deque[_Submitted] = deque()
        self._has_work = asyncio.Event()  # something is submitted that waits for nothing more
        self._soon: asyncio.TimerHandle | None = None  # when it is, for what is not urgent
        self._taken: list[_Submitted] = []  # what is in the batch that is under way
        self._last: asyncio.Future[None] | None = None  # of what was submitted last
        self._writing: asyncio.Task[None] | None = None

    # --- beginning ------------------------------------------------------------------------------------------------

    async def claim(self) -> int:
        """Keep every earlier coordinator from writing here. Everything below the returned offset is to be replayed.

        Takes as long as the partition takes to have a leader. ProducerFenced: there is a newer coordinator.
        """
        if self._retired_id != NO_RETIRED_ID:
            await self._deliver(self._encode([claim_entry(FENCING_EPOCH)], self._retired_id, FENCING_EPOCH, 0))
        end = await self._deliver(self._encode([claim_entry(self._epoch)], self._producer_id, self._epoch, 0)) + 1
        self._sequence = 1
        self._writing = self._loop.create_task(self._write())
        self._writing.add_done_callback(self._write_over)
        return end

    async def replay(self, end: int) -> AsyncIterator[list[Replayed]]:
        """All below `end` that compaction has left, in its order, some at a time."""
        offset = await self._start_offset()
        last_epoch, suspicions = NO_EPOCH, 0
        while offset < end:
            question = Fetch(offset, NO_EPOCH, last_epoch, 1, _FETCH_BYTES, _FETCH_WAIT_MS, False, "")
            response = await self._ask(question, Fetched)
            answer = response.message
            if answer.diverged is not None:
                raise LogTruncated(self._topic, self._partition, offset, answer.diverged[1])
            batches = list(split_batches(response.payload)) if response.payload else []
            if batches:  # the leader's own epoch says nothing here: the next leader may not know it
                last_epoch = read_header(batches[-1]).leader_epoch
            try:
                entries = _entries(batches, offset, end)
            except CorruptBatch as error:
                suspicions += 1
                if suspicions > _MOST_SUSPICIONS:
                    raise
                await self._tell_suspicion(first_unsound(response.payload, offset), error)
                continue
            yield entries
            offset = max(offset, answer.next_offset)

    async def _tell_suspicion(self, offset: int, error: CorruptBatch) -> None:
        """The leader looks into its own copy, and lets another one lead where that is damaged (rule 1)."""
        _log.warning("%s-%d: at offset %d it is damaged: %s", self._topic, self._partition, offset, error)
        await self._ask(SuspectBatch(NO_EPOCH, offset), Done)
        await asyncio.sleep(_PAUSE_SECONDS)

    def cannot_read(self, offset: int, error: FrameInvalid | MessageUnknown) -> None:
        """Leave out what was replayed from there, unless a later raylog wrote it: CoordinatorRecordUnknown."""
        if isinstance(error, MessageUnknown):
            raise CoordinatorRecordUnknown(self._topic, self._partition, offset, error.kind, error.version) from error
        self._strays += 1
        if self._strays <= _STRAYS_TOLD:
            _log.error(
                "%s-%d holds at offset %d a record that no coordinator wrote, and that is left out: %s Nothing that "
                "raylog has acknowledged is lost. Find the program that wrote it, and give it a topic of its own.%s",
                self._topic, self._partition, offset, error.describe(),
                "" if self._strays < _STRAYS_TOLD else " More of them are left out without a word.",
            )  # fmt: skip

    async def _start_offset(self) -> int:
        return (await self._ask(ListOffset(EARLIEST, NO_EPOCH, False), ListedOffset)).message.offset

    # --- appending ------------------------------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry], *, is_urgent: bool = True) -> asyncio.Future[None]:
        """Done once they are committed, all in one batch. CoordinatorStopped where this coordinator is over.

        What is not urgent goes with what is appended next; where nothing is, by itself a moment later.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        if self.ended.done() or self._writing is None:
            done.set_exception(self._stopped())
            return done
        size = sum(len(key) + len(value or b"") for key, value in entries)
        self._submitted.append(_Submitted(entries, size, done))
        self._last = done
        if is_urgent:
            self._has_work.set()
        elif self._soon is None:
            self._soon = self._loop.call_later(_NOT_URGENT_SECONDS, self._has_work.set)
        return done

    async def settled(self) -> None:
        """Wait until all that was submitted is committed. CoordinatorStopped."""
        last = self._last  # more may be submitted while this one is waited for
        if last is not None:
            if self._submitted:
                self._has_work.set()
            await asyncio.wait([last])
            last.result()

    async def confirm(self) -> None:
        """Make sure that no other coordinator has claimed the partition since. CoordinatorStopped."""
        await self.append([claim_entry(self._epoch)])

    def give_up(self, reason: BaseException) -> None:
        """End the log: its owner cannot go on."""
        _log.error("The coordinator of %s-%d ends: %r", self._topic, self._partition, reason)
        self._end(self._stopped())

    async def close(self) -> None:
        """End the log. The outcome of what is under way stays unknown."""
        self._end(self._stopped())
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing], timeout=1.0)

    async def _write(self) -> None:
        while not self.ended.done():
            self._taken = await self._next()
            entries = [entry for each in self._taken for entry in each.entries] or [claim_entry(self._epoch)]
            batch = self._encode(entries, self._producer_id, self._epoch, self._sequence)
            await self._deliver(batch)
            # Sequences wrap as in the log: from the largest to 0.
            self._sequence = (self._sequence + len(entries)) & _LAST_SEQUENCE
            for each in self._taken:
                if not each.done.done():
                    each.done.set_result(None)

    async def _next(self) -> list[_Submitted]:
        """Wait for what goes into the next batch. Nothing: it was idle for so long that it has to claim again."""
        if not self._has_work.is_set():
            idle = self._loop.call_later(_CLAIM_AGAIN_SECONDS, self._has_work.set)
            try:
                await self._has_work.wait()
            finally:
                idle.cancel()
        if self.ended.done():
            raise self._stopped()
        if not self._submitted:
            self._has_work.clear()
            return []
        taken = [self._submitted.popleft()]
        size = taken[0].size
        while self._submitted and size + self._submitted[0].size <= _BATCH_BYTES:
            size += self._submitted[0].size
            taken.append(self._submitted.popleft())
        if not self._submitted:
            self._has_work.clear()
            self._end_soon()
        return taken

    def _end_soon(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def _write_over(self, task: asyncio.Task[None]) -> None:
        """End the log, for whatever reason the writing ended: no request may wait for what is never written."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, RaylogError):
            _log.critical("The log of %s-%d ends after a mistake.", self._topic, self._partition, exc_info=error)
        self._end(error if isinstance(error, RaylogError) else self._stopped())

    def _stopped(self) -> CoordinatorStopped:
        return CoordinatorStopped(self._topic, self._partition, self._epoch)

    def _end(self, error: RaylogError) -> None:
        if not self.ended.done():
            self.ended.set_result(error)
        self._end_soon()
        unanswered = [*self._taken, *self._submitted]
        self._submitted.clear()
        for each in unanswered:
            if not each.done.done():
                each.done.set_exception(self._stopped())
                each.done.exception()  # the requester may have gone

    # --- the leader -----------------------------------------------------------------------------------------------

    async def _deliver(self, batch: Bytes) -> int:
        """Append it, however often that has to be tried. Its base offset."""
        message = Append(NO_EPOCH, _ACKS_ALL, int(1000 * _ASK_SECONDS))
        return (await self._ask(message, Appended, batch)).message.base_offset

    async def _ask(self, message: Message, expect: type[_Answer], payload: Bytes = b"") -> Told[_Answer]:
        """Ask the leader until it answers. What no retry mends ends this log."""
        self._last_refusal = ""
        try:
            return await until_answered(
                partial(self._ask_leader, message, expect, payload),
                Backoff(_PAUSE_SECONDS, _PAUSE_SECONDS, self._link.env.random),
                is_final=_is_final,
                failed=self._note_refusal,
                pause=self._link.changed,
            )
        except RaylogError as error:
            self._end(error)
            raise

    async def _ask_leader(self, message: Message, expect: type[_Answer], payload: Bytes, _: float) -> Told[_Answer]:
        leader = self._link.leader(self._topic, self._partition)
        if leader is not None and leader.endpoints:
            return await self._link.ask(leader, message, payload, expect=expect, timeout=_ASK_SECONDS)
        await self._link.find_topic(self._topic, _ASK_SECONDS)
        raise NotLeader(self._topic, self._partition, NO_LEADER, NO_EPOCH)

    def _note_refusal(self, error: RaylogError) -> None:
        if str(error) != self._last_refusal:
            self._last_refusal = str(error)
            _log.info("%s-%d: asked again: %s", self._topic, self._partition, error)

    def _encode(self, entries: Sequence[Entry], producer_id: int, epoch: int, sequence: int) -> bytearray:
        return encode_batch(
            [value for _, value in entries],
            keys=[key for key, _ in entries],
            timestamps=self._link.env.wall_ms(),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )


def _is_final(error: RaylogError) -> bool:
    return not (error.retriable or isinstance(error, (StreamError, UnknownTopic)))


def _entries(batches: Sequence[Bytes], start: int, end: int) -> list[Replayed]:
    found = []
    for batch in batches:
        records = decode_batch(batch)
        if records.header.is_control:
            continue
        for key, value, offset in zip(records.keys, records.values, records.offsets, strict=True):
            if start <= offset < end and key is not None and key != CLAIM_KEY:
                found.append(Replayed(key, value, offset))
    return found
