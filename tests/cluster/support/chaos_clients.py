"""A writer and a reader of one partition of a real cluster, on an event loop of their own, who note all they hear.

Both know what any client knows. A `LeaderWatch` keeps a question for newer metadata open at every broker, so it hears
of a new leader from whichever broker hears of it first; what is under way to the leader before is then given up, since
its outcome is unknown for good (rule 27). The writer sends one batch after the other under one producer id, and repeats
a batch, unchanged, until it is acknowledged (rule 19). What they hear goes into a `PartitionHistory`, which knows
better than the system what has to be there in the end.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeVar

import uvloop

from raylog.actors.kernel.stream_interface import Response, Stream
from raylog.actors.kernel.stream_requests import refuse_all
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.actors.machine.real_environment import Place, RealEnvironment
from raylog.actors.protocol.control_messages import GetMetadata, Metadata
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.replication_messages import (
    LATEST,
    NO_EPOCH,
    Append,
    Appended,
    Fetch,
    Fetched,
    ListedOffset,
    ListOffset,
)
from raylog.errors import RaylogError, RequestTimedOut, UnknownPartition
from raylog.storage.format.batch_codec import decode_batch, encode_batch
from raylog.storage.format.record_batch import read_header, split_batches
from tests.cluster.support.namespaces import enter
from tests.simulator.checks.history import PartitionHistory

ACKS_ALL: Final = -1
_ASK_SECONDS: Final = 5.0
_METADATA_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 0.02
_BROKER_AGAIN_SECONDS: Final = 0.1
_READ_SECONDS: Final = 50.0
_FETCH_BYTES: Final = 4 * 2**20
_T = TypeVar("_T")


class ClientLoop:
    """An event loop on a thread of the test's own process; with a namespace, on that host."""

    def __init__(self, namespace: str = "") -> None:
        self._namespace = namespace
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="clients", daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, _T], timeout: float = 60.0) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def close(self) -> None:
        """uvloop waits for ever for what is still open, so nothing may be."""
        self.do(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10.0)
        self._loop.close()

    async def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(_AGAIN_SECONDS)  # so that closed connections are gone

    def _turn(self) -> None:
        if self._namespace:
            enter(self._namespace)
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


class LeaderWatch:
    """The partition's leader, by the newest word of any broker. Made on its loop."""

    def __init__(self, env: RealEnvironment, brokers: Sequence[Endpoint], topic: str, partition: int) -> None:
        self.env = env
        self.topic_id = b""
        self.epoch = NO_EPOCH
        self.endpoint: Endpoint | None = None
        self.partition = partition
        self.is_news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._topic = topic
        self._version = -1
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._listed = {str(broker) for broker in brokers}
        self._listed_at = -1
        for broker in brokers:
            self._ask_at(broker)

    async def changed(self, timeout: float) -> None:
        """Wait for another leader, at most so long."""
        await asyncio.wait([self.is_news], timeout=timeout)

    def _ask_at(self, broker: Endpoint) -> None:
        if str(broker) not in self._asking:
            self._asking[str(broker)] = asyncio.ensure_future(self._keep_asking(broker))

    async def _keep_asking(self, broker: Endpoint) -> None:
        """Ask also one that has gone, which may come back, until the brokers that are there have another address."""
        while str(broker) in self._listed:
            try:
                stream = await self.env.dial(broker, "client", refuse_all)
                await self._ask_over(stream)
            except RaylogError:
                await asyncio.sleep(_BROKER_AGAIN_SECONDS)
        del self._asking[str(broker)]

    async def _ask_over(self, stream: Stream) -> None:
        version = -1
        try:
            while True:
                question = GetMetadata((self._topic,), version, int(500 * _METADATA_SECONDS))
                answer = (await stream.request(question, timeout=_METADATA_SECONDS)).message
                assert isinstance(answer, Metadata)
                version = answer.version
                self._learn(answer)
        finally:
            await stream.close(0.0)

    def _learn(self, answer: Metadata) -> None:
        if answer.version >= self._listed_at and answer.brokers:
            self._listed_at = answer.version
            self._listed = {broker.endpoints[-1] for broker in answer.brokers}
        for broker in answer.brokers:
            self._ask_at(Endpoint.parse(broker.endpoints[-1]))
        for topic in answer.topics:
            for each in topic.partitions:
                # A leader of before would not know what a client has seen since.
                is_newer = (each.leader_epoch, answer.version) > (self.epoch, self._version)
                if topic.name == self._topic and each.partition == self.partition and is_newer:
                    self._version = answer.version
                    serves = each.leader >= 0 and each.endpoints
                    endpoint = Endpoint.parse(each.endpoints[-1]) if serves else None
                    if (each.leader_epoch, endpoint) != (self.epoch, self.endpoint):
                        self.topic_id, self.epoch, self.endpoint = topic.topic_id, each.leader_epoch, endpoint
                        self._tell()

    def _tell(self) -> None:
        news, self.is_news = self.is_news, asyncio.get_running_loop().create_future()
        news.set_result(None)


class LeaderCalls:
    """Requests to whoever leads."""

    def __init__(self, watch: LeaderWatch) -> None:
        self.watch = watch
        self._stream: Stream | None = None
        self._epoch = NO_EPOCH

    async def ask(self, message: Message, payload: bytes | bytearray = b"") -> Response:
        """UnknownPartition: there is no leader to ask. StreamError: the outcome is not known, and never will be."""
        stream = await self._leader()
        watch = self.watch
        answer: asyncio.Future[Any] = stream.request(
            message, payload, topic_id=watch.topic_id, partition=watch.partition, timeout=_ASK_SECONDS
        )
        news: asyncio.Future[Any] = watch.is_news
        if watch.epoch == self._epoch:
            await asyncio.wait([answer, news], return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            answer.cancel()
            await self.forget()
            raise RequestTimedOut(stream.peer, int(1000 * _ASK_SECONDS))
        try:
            response: Response = answer.result()
            return response
        except RaylogError:
            await self.forget()
            raise

    async def forget(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close(0.0)

    async def connect(self) -> int:
        """Have a stream to the leader. Its epoch."""
        await self._leader()
        return self._epoch

    async def _leader(self) -> Stream:
        watch = self.watch
        if self._stream is None or self._stream.closed.done() or self._epoch != watch.epoch:
            await self.forget()
            endpoint, epoch = watch.endpoint, watch.epoch
            if endpoint is None:
                raise UnknownPartition("the topic", watch.partition)
            self._stream, self._epoch = await watch.env.dial(endpoint, "client", refuse_all), epoch
        return self._stream


class Writer:
    """`acknowledged` holds when, and at which offset, each batch was acknowledged."""

    def __init__(self, watch: LeaderWatch, history: PartitionHistory, producer_id: int, pause: float) -> None:
        self.acknowledged: list[tuple[float, int]] = []
        self.last_error = ""
        self.is_stopped = False
        self.calls = LeaderCalls(watch)
        self._history = history
        self._producer_id = producer_id
        self._pause = pause
        self._sequence = 0

    async def run(self) -> None:
        while not self.is_stopped:
            values = [b"%d-%d" % (self._producer_id, self._sequence + number) for number in range(3)]
            self._history.will_send(b"%d" % self._producer_id, values, ordered=True)
            if not await self._write(values):
                return
            self._sequence += len(values)
            await asyncio.sleep(self._pause)

    async def _write(self, values: list[bytes]) -> bool:
        """Write until it is acknowledged. False: it was stopped before that."""
        while not self.is_stopped:
            try:
                answer = await self._send(values)
            except RaylogError as error:
                self.last_error = str(error)
                await self.calls.watch.changed(_AGAIN_SECONDS)
                continue
            self._history.was_acknowledged(values, answer.base_offset)
            self.acknowledged.append((time.monotonic(), answer.base_offset))
            return True
        return False

    async def _send(self, values: list[bytes]) -> Appended:
        epoch = await self.calls.connect()
        batch = encode_batch(
            values, timestamps=self.calls.watch.env.wall_ms(), producer_id=self._producer_id, producer_epoch=0,
            base_sequence=self._sequence,
        )  # fmt: skip
        answer = (await self.calls.ask(Append(epoch, ACKS_ALL, int(1000 * _ASK_SECONDS)), batch)).message
        assert isinstance(answer, Appended)
        return answer


class Reader:
    """Reads on from where it was, and looks at the end in between."""

    def __init__(self, watch: LeaderWatch, history: PartitionHistory) -> None:
        self.is_stopped = False
        self.offset = 0
        self.last_error = ""
        self.calls = LeaderCalls(watch)
        self._history = history
        self._last_epoch = NO_EPOCH
        self._end = 0

    async def run(self) -> None:
        while not self.is_stopped:
            try:
                await self.look_at_end()
                for offset, value in await self.read_on():
                    self._history.was_read(offset, value)
            except RaylogError as error:
                self.last_error = str(error)
                await self.calls.watch.changed(_AGAIN_SECONDS)

    async def look_at_end(self) -> int:
        epoch = await self.calls.connect()
        answer = (await self.calls.ask(ListOffset(LATEST, epoch, False))).message
        assert isinstance(answer, ListedOffset)
        self._end, before = answer.offset, self._end
        self._history.end_was_seen(self._end, before)
        return self._end

    async def read_on(self) -> list[tuple[int, bytes]]:
        """(offset, value) of the next records."""
        epoch = await self.calls.connect()
        asked = Fetch(self.offset, epoch, self._last_epoch, 1, _FETCH_BYTES, 200, False, "")
        response = await self.calls.ask(asked)
        answer = response.message
        assert isinstance(answer, Fetched)
        if answer.diverged is not None:
            self._history.has_diverged(self.offset)
        found = [each for each in records_of(response.payload) if each[0] >= self.offset]
        if found and found[0][0] != self.offset:
            self._history.was_out_of_order(self.offset, found[0][0])
        if found:
            self.offset = found[-1][0] + 1
            self._last_epoch = read_header(split_batches(response.payload)[-1]).leader_epoch
        return found

    async def read_all(self) -> list[tuple[int, bytes]]:
        """Read from the beginning to the present end, however often that has to be begun."""
        found: list[tuple[int, bytes]] = []
        end = -1
        while self.offset < end or end < 0:
            try:
                end = end if end >= 0 else await self.look_at_end()
                if self.offset < end:
                    found += await self.read_on()
            except RaylogError as error:
                self.last_error = str(error)
                await self.calls.watch.changed(_AGAIN_SECONDS)
        return found


@dataclass
class Tally:
    """The fate of the records that were acknowledged."""

    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0

    def add(self, history: PartitionHistory, records: list[tuple[int, bytes]]) -> None:
        """Count a partition, of which `records` is all that is there. InvariantBroken."""
        found = {value: offset for offset, value in records}
        lost = sum(found.get(value) != offset for value, offset in history.acknowledged.items())
        doubled = len(records) - len(found)
        self.acknowledged += len(history.acknowledged)
        self.lost += lost
        self.doubled += doubled
        if not lost and not doubled:
            history.check_final(records, 0, records[-1][0] + 1 if records else 0)


class Clients:
    """Some writers and a reader of one partition, at work from the beginning to `finish`.

    `reads=False` for what others wrote, of which the history knows nothing: it is read by `finish` only.
    """

    def __init__(
        self,
        access: ClusterAccess,
        topic: str,
        partition: int = 0,
        *,
        writers: int = 1,
        reads: bool = True,
        pause: float = 0.005,
        producer_id: int = 1001,
        history: PartitionHistory | None = None,
        host: str = "127.0.0.1",
        namespace: str = "",
    ) -> None:
        self.history = PartitionHistory(f"{topic}-{partition}") if history is None else history
        self._producer_id = producer_id
        self._loop = ClientLoop(namespace)
        self._place = Place(access.cluster_id, access.secrets, host)
        self._brokers = [Endpoint.parse(address.endpoints[-1]) for address in access.brokers.values()]
        self._partition = topic, partition
        self._loop.do(self._start(writers, reads, pause))

    async def _start(self, writers: int, reads: bool, pause: float) -> None:
        env = RealEnvironment(self._place, None)
        self.watch = LeaderWatch(env, self._brokers, *self._partition)
        self.writers = [
            Writer(self.watch, self.history, self._producer_id + number, pause) for number in range(writers)
        ]
        readers = [Reader(self.watch, self.history)] if reads else []
        self._clients: list[Writer | Reader] = [*self.writers, *readers]
        self._tasks = [asyncio.ensure_future(each.run()) for each in self._clients]

    @property
    def writer(self) -> Writer:
        return self.writers[0]

    def acknowledged(self) -> int:
        """Return how many batches are acknowledged so far. Raises what has ended a client."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error
        return sum(len(each.acknowledged) for each in self.writers)

    def until_acknowledged(self, batches: int, seconds: float = 30.0) -> None:
        """Wait for so many more."""
        wanted = self.acknowledged() + batches
        deadline = time.monotonic() + seconds
        while self.acknowledged() < wanted:
            assert time.monotonic() < deadline, f"nothing is acknowledged any more: {self.writer.last_error}"
            time.sleep(_AGAIN_SECONDS)

    def longest_silence(self, since: float, until: float) -> float:
        return longest_silence([at for at, _ in self.writer.acknowledged], since, until)

    def reckon(self) -> Tally:
        """`finish`, and check what was read. InvariantBroken."""
        tally = Tally()
        tally.add(self.history, self.finish())
        return tally

    def finish(self) -> list[tuple[int, bytes]]:
        """Stop writing, read the whole partition from its beginning, and return its records, unchecked."""
        try:
            return self._loop.do(self._finish())
        finally:
            self._loop.close()

    async def _finish(self) -> list[tuple[int, bytes]]:
        for client in self._clients:
            client.is_stopped = True
        await asyncio.wait_for(asyncio.gather(*self._tasks), 30.0)
        reader = Reader(self.watch, self.history)
        records = await asyncio.wait_for(reader.read_all(), _READ_SECONDS)
        for client in (*self._clients, reader):
            await client.calls.forget()
        return records


def records_of(data: bytes | bytearray | memoryview) -> list[tuple[int, bytes]]:
    """(offset, value) of all records in some batches."""
    found = []
    for batch in split_batches(data) if data else ():
        decoded = decode_batch(batch)
        found += [(offset, value or b"") for offset, value in zip(decoded.offsets, decoded.values, strict=True)]
    return found


def longest_silence(times: Sequence[float], since: float, until: float) -> float:
    """The longest time without an acknowledgement in there; one that has begun before is counted whole."""
    before = [at for at in times if at < since][-1:]
    after = [at for at in times if at > until][:1]
    marks = [*before, *(at for at in times if since <= at <= until), *after]
    return max((late - early for early, late in pairwise(marks)), default=until - since)
