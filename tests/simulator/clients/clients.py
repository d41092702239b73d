"""Clients of a simulated cluster: they know what any client knows, and tell a `PartitionHistory` what they hear.

A writer under acks=1 is promised nothing: it has no producer id, and never repeats what it has sent.

A writer sends numbered batches under a producer id, several in flight. After a refusal or an unknown outcome it waits
until nothing of it is in flight, and sends the unresolved batches again in their order, unchanged (rules 19, 27). A
reader reads on from where it was, with the epoch of what it has read last, and looks at the end of the partition in
between; now and then one deletes what it has read.

Where records were lost, because that was more than was promised to survive, a leader may not know a producer's last
sequences any more. Then that producer gives up what is unresolved, and goes on as another one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Request, Response, Stream
from raylog.actors.protocol.control_messages import GetMetadata, Metadata
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.replication_messages import (
    EARLIEST,
    LATEST,
    NO_EPOCH,
    Append,
    Appended,
    DeleteRecords,
    Fetch,
    Fetched,
    ListedOffset,
    ListOffset,
    RecordsDeleted,
    SuspectBatch,
)
from raylog.errors import BatchError, OffsetOutOfRange, OutOfOrderSequence, RaylogError, RemoteFailed, UnknownPartition
from raylog.storage.format.batch_codec import decode_batch, encode_batch
from raylog.storage.format.record_batch import first_unsound, read_header, split_batches
from tests.simulator.checks.history import PartitionHistory

ACKS_ALL: Final = -1
_ASK_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 0.15
_MAX_IN_FLIGHT: Final = 3
_PAUSES: Final = 0.15
_OTHER_PRODUCER: Final = 10_000
_DELETES: Final = 0.1
_EARLIEST: Final = -1  # as a reader's offset: it has to ask where the log begins


def refuse(request: Request) -> None:
    raise AssertionError(f"Nobody asks a client: {request.message}")


class PartitionClient:
    """Finds the leader of a partition, and keeps a stream to it for as long as that works."""

    def __init__(self, env: Environment, brokers: Callable[[], list[Endpoint]], topic: str, partition: int) -> None:
        self.env = env
        self.topic_id = b""
        self.leader_epoch = NO_EPOCH
        self._brokers = brokers
        self._topic = topic
        self._partition = partition
        self._stream: Stream | None = None
        self._asked: dict[Endpoint, Stream] = {}  # brokers

    async def leader(self) -> Stream:
        if self._stream is None or self._stream.closed.done():
            self._stream = await self._find()
        return self._stream

    async def forget(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close(0)

    def request(
        self, stream: Stream, message: Message, payload: bytes | bytearray = b""
    ) -> asyncio.Future[Response]:
        return stream.request(
            message, payload, topic_id=self.topic_id, partition=self._partition, timeout=_ASK_SECONDS
        )

    async def _find(self) -> Stream:
        """Ask one broker after the other; the answer of the newest metadata version names the leader."""
        brokers = self._brokers()
        await self._forget_brokers_except(brokers)
        answers = [answer for endpoint in brokers if (answer := await self._ask(endpoint)) is not None]
        newest = max(answers, key=lambda answer: answer.version, default=None)
        for topic in newest.topics if newest is not None else ():
            for each in topic.partitions:
                # A leader of before would not know what this client has seen since (KIP-320).
                is_current = each.leader_epoch >= self.leader_epoch and each.leader >= 0 and bool(each.endpoints)
                if topic.name == self._topic and each.partition == self._partition and is_current:
                    self.topic_id, self.leader_epoch = topic.topic_id, each.leader_epoch
                    return await self.env.dial(Endpoint.parse(each.endpoints[-1]), "client", refuse)
        raise UnknownPartition(self._topic, self._partition)

    async def _ask(self, endpoint: Endpoint) -> Metadata | None:
        stream = self._asked.get(endpoint)
        try:
            if stream is None:
                stream = self._asked[endpoint] = await self.env.dial(endpoint, "client", refuse)
            answer = (await stream.request(GetMetadata((self._topic,), -1, 0), timeout=1.0)).message
        except RaylogError:
            await self._forget_brokers_except([other for other in self._asked if other != endpoint])
            return None
        assert isinstance(answer, Metadata)
        return answer

    async def _forget_brokers_except(self, brokers: list[Endpoint]) -> None:
        for endpoint in [each for each in self._asked if each not in brokers]:
            await self._asked.pop(endpoint).close(0)


@dataclass
class _Batch:
    values: list[bytes]
    sequence: int
    future: asyncio.Future[Response] | None = None


@dataclass
class Writer:
    """One idempotent producer on one partition."""

    client: PartitionClient
    history: PartitionHistory
    producer_id: int
    random: Random
    acks: int = ACKS_ALL
    is_stopped: bool = False
    acknowledged: int = 0
    last_error: str = ""
    _sequence: int = 0
    _is_known: bool = False  # its present producer id has had something acknowledged
    _unresolved: deque[_Batch] = field(default_factory=deque)

    @property
    def unresolved(self) -> int:
        return len(self._unresolved)

    async def run(self) -> None:
        while not (self.is_stopped and not self._unresolved):
            try:
                await self._fill()
                await self._resolve()
            except RaylogError as error:
                self.last_error = str(error)
                await self._start_over()
                if self.history.may_have_lost and isinstance(_cause(error), OutOfOrderSequence):
                    self._go_on_as_another()
            await asyncio.sleep(_PAUSE_SECONDS * self.random.random())

    def _next_batch(self) -> _Batch:
        count = self.random.choice((1, 1, 2, 5))
        values = [b"%d-%d" % (self.producer_id, self._sequence + number) for number in range(count)]
        batch = _Batch(values, self._sequence)
        self._sequence += count
        self.history.will_send(b"%d" % self.producer_id, values, ordered=self.acks == ACKS_ALL)
        return batch

    async def _fill(self) -> None:
        """Have up to so many batches in flight, the unresolved ones first."""
        stream = await self.client.leader()
        # A leader takes the first batch of a producer that it does not know at any sequence (KIP-360). So nothing
        # may be in flight behind the first one: were that refused, the second would take its place.
        most = self.random.randint(1, _MAX_IN_FLIGHT) if self._is_known else 1
        while not self.is_stopped and len(self._unresolved) < most:
            self._unresolved.append(self._next_batch())
        for batch in self._unresolved:
            if batch.future is None:
                data = self._encode(batch)
                batch.future = self.client.request(stream, Append(self.client.leader_epoch, self.acks, 1_000), data)
                if self.random.random() < _PAUSES:  # so that those in flight meet different states of a leader
                    await asyncio.sleep(_PAUSE_SECONDS * self.random.random())

    def _encode(self, batch: _Batch) -> bytearray:
        now_ms = self.client.env.wall_ms()
        if self.acks != ACKS_ALL:
            return encode_batch(batch.values, timestamps=now_ms)
        return encode_batch(
            batch.values, timestamps=now_ms, producer_id=self.producer_id, producer_epoch=0,
            base_sequence=batch.sequence,
        )  # fmt: skip

    async def _resolve(self) -> None:
        if not self._unresolved:
            return
        first = self._unresolved[0]
        assert first.future is not None
        answer = (await first.future).message
        assert isinstance(answer, Appended)
        self._unresolved.popleft()
        if self.acks == ACKS_ALL:
            self.history.was_acknowledged(first.values, answer.base_offset)
        self.acknowledged += len(first.values)
        self._is_known = True

    async def _start_over(self) -> None:
        """Nothing of this writer is in flight any more when it sends again, or only where nobody hears its answer."""
        await self.client.forget()
        for batch in self._unresolved:
            if batch.future is not None:
                await asyncio.wait([batch.future])
                batch.future.exception()
                batch.future = None
        if self.acks != ACKS_ALL:
            self._unresolved.clear()

    def _go_on_as_another(self) -> None:
        self._unresolved.clear()
        self.producer_id += _OTHER_PRODUCER
        self._sequence = 0
        self._is_known = False


@dataclass
class Reader:
    """One consumer of one partition, from its beginning, over and over."""

    client: PartitionClient
    history: PartitionHistory
    random: Random
    may_delete: bool = False
    is_stopped: bool = False
    offset: int = 0
    last_epoch: int = NO_EPOCH  # of the last batch that it has read, if it has read the one before `offset`
    end_seen: int = 0
    last_error: str = ""

    async def run(self) -> None:
        while not self.is_stopped:
            try:
                if self.random.random() < 0.7:
                    await self._look_at_end()
                await self._read_on()
                if self.may_delete and self.random.random() < _DELETES:
                    await self._delete()
            except RaylogError as error:
                self.last_error = str(error)
                if isinstance(_cause(error), OffsetOutOfRange):
                    self.history.was_out_of_range(self.offset)
                    self.last_epoch = NO_EPOCH
                    self.offset = _EARLIEST
                await self.client.forget()
            await asyncio.sleep(2 * _PAUSE_SECONDS * self.random.random())

    def loses_from(self, offset: int) -> None:
        """Note that all it has seen from there on is known to be lost."""
        self.end_seen = min(self.end_seen, offset)
        if self.offset > offset:
            self.offset, self.last_epoch = 0, NO_EPOCH

    async def _look_at_end(self) -> None:
        self.end_seen, before = await self._list(LATEST), self.end_seen
        self.history.end_was_seen(self.end_seen, before)

    async def _list(self, which: int) -> int:
        stream = await self.client.leader()
        answer = (await self.client.request(stream, ListOffset(which, self.client.leader_epoch, False))).message
        assert isinstance(answer, ListedOffset)
        return answer.offset

    async def _read_on(self) -> None:
        if self.offset == _EARLIEST:
            self.offset = await self._list(EARLIEST)
        stream = await self.client.leader()
        asked = Fetch(self.offset, self.client.leader_epoch, self.last_epoch, 1, 64 * 1024, 300, False, "")
        response = await self.client.request(stream, asked)
        assert isinstance(response.message, Fetched)
        if self.offset == asked.offset:  # else it has been told meanwhile to begin again
            try:
                self._take(response.message, response.payload)
            except BatchError:
                await self._tell_suspicion(stream, first_unsound(response.payload, self.offset))
                raise
        if self.random.random() < 0.05:
            self.offset, self.last_epoch = 0, NO_EPOCH

    async def _tell_suspicion(self, stream: Stream, offset: int) -> None:
        """Tell the leader that its bytes are damaged (rule 1)."""
        await self.client.request(stream, SuspectBatch(self.client.leader_epoch, offset))

    def _take(self, answer: Fetched, data: bytes | bytearray | memoryview) -> None:
        if answer.diverged is not None:
            self.history.has_diverged(self.offset)
            self.offset, self.last_epoch = 0, NO_EPOCH
            return
        expected = self.offset
        for offset, value in records_of(data):
            if offset >= self.offset:
                if offset != expected:
                    self.history.was_out_of_order(expected, offset)
                self.history.was_read(offset, value)
                expected = offset + 1
        if data:
            self.last_epoch = read_header(split_batches(data)[-1]).leader_epoch
        self.offset = max(self.offset, answer.next_offset)

    async def _delete(self) -> None:
        before = self.random.randint(0, self.offset)
        self.history.will_delete(before)
        stream = await self.client.leader()
        answer = (await self.client.request(stream, DeleteRecords(before, 1_000))).message
        assert isinstance(answer, RecordsDeleted)
        self.history.was_deleted(answer.log_start_offset)


def _cause(error: RaylogError) -> BaseException | None:
    return error.error if isinstance(error, RemoteFailed) else error


def records_of(data: bytes | bytearray | memoryview) -> list[tuple[int, bytes]]:
    """(offset, value) of all records in some batches."""
    found = []
    for batch in split_batches(data) if data else ():
        decoded = decode_batch(batch)
        found += [(offset, value or b"") for offset, value in zip(decoded.offsets, decoded.values, strict=True)]
    return found
