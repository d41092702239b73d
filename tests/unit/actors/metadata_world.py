"""Brokers and controllers of a metadata log on one virtual clock, and who checks them from outside.

Everything that could be late is late by what the seed says, so messages overtake each other also on one stream, which
is worse than streams are. A broker that is killed loses its memory and its open files; its disk stays.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, NoReturn, TypeVar, cast

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Request, Response, Stream
from raylog.actors.metadata_log.copy import MetadataCopy
from raylog.actors.metadata_log.files import MetadataFiles
from raylog.actors.metadata_log.rules.tail import MetadataSnapshot
from raylog.actors.metadata_log.writer import MetadataWriter
from raylog.actors.protocol.messages import Message, message, pack, unpack
from raylog.actors.protocol.metadata_quorum_records import Voter, Voters
from raylog.actors.protocol.metadata_records import CommittedBatch
from raylog.actors.protocol.remote_errors import failure_of, remote_failed
from raylog.errors import RaylogError, RequestTimedOut, StreamClosed, StreamNotOpen
from raylog.storage.format.record_batch import Bytes
from tests.simulator.world.faulty_disk import FaultyDisk, SimulatedCrash

_T = TypeVar("_T")
DATA = "/data"
START_MS = 1_700_000_000_000


@message(kind=251)
@dataclass(frozen=True, slots=True)
class Note(Message):
    """A record that stands for any of the controller's."""

    text: str


def named(*brokers: int) -> tuple[Voter, ...]:
    """These as voters, each with its first directory."""
    return tuple(voter_of(broker_id) for broker_id in sorted(brokers))


def voter_of(broker_id: int) -> Voter:
    return broker_id, f"directory-{broker_id}"


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Time passes when there is nothing else to do, and at once."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_NoSelector(self))

    def time(self) -> float:
        return self._now

    def pass_by(self, seconds: float | None) -> None:
        if seconds is None:
            raise AssertionError("Everybody waits for ever.")
        self._now += seconds


class _NoSelector(selectors.BaseSelector):
    """Nothing ever happens on the one socket that asyncio makes for itself."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def register(self, fileobj: object, events: int, data: object = None) -> selectors.SelectorKey:
        return cast(selectors.SelectorKey, None)

    def unregister(self, fileobj: object) -> selectors.SelectorKey:
        return cast(selectors.SelectorKey, None)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.pass_by(timeout)
        return []

    def get_key(self, fileobj: object) -> NoReturn:
        raise KeyError(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run to the end on a clock of its own; whatever else is still there is dropped."""
    with virtual_loop() as loop:
        return loop.run_until_complete(main)


@contextmanager
def virtual_loop() -> Iterator[VirtualTimeLoop]:
    loop = VirtualTimeLoop()
    try:
        yield loop
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=60))
        loop.close()


async def pause(seconds: float) -> None:
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    await asyncio.wait({over}, timeout=seconds)


class FakeEnvironment:
    """What a copy and a writer use of an Environment."""

    def __init__(self, random: Random, disk: FaultyDisk | None = None, slowest: float = 0.0) -> None:
        self.random = random
        self.disk = disk or FaultyDisk()
        self.slowest = slowest
        self.on_crash: Callable[[], None] | None = None
        self.is_dead = False
        if not self.disk.exists(DATA):
            self.disk.make_directory(DATA)
            self.disk.sync_directory("/")

    @property
    def real(self) -> Environment:
        return cast(Environment, self)

    def wall_ms(self) -> int:
        return START_MS + int(asyncio.get_running_loop().time() * 1000)

    async def off_loop(self, work: Callable[[], _T]) -> _T:
        if self.slowest:
            await pause(self.random.uniform(0, self.slowest))
        if not self.is_dead:
            try:
                return work()
            except SimulatedCrash:
                assert self.on_crash is not None
                self.on_crash()
        await asyncio.get_running_loop().create_future()  # nobody is there any more
        raise AssertionError("The dead have awoken.")


@dataclass
class NetworkFaults:
    """Seconds, and chances of 1."""

    slowest: float = 0.0
    lost: float = 0.0


class FakeStream:
    """From a controller to a broker."""

    def __init__(self, broker: Broker, random: Random, faults: NetworkFaults) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.peer = f"broker {broker.broker_id}"
        self.bytes_in_flight = 0
        self._broker = broker
        self._copy = broker.copy
        self._random = random
        self._faults = faults
        self._in_flight: set[asyncio.Future[Response]] = set()

    @property
    def real(self) -> Stream:
        return cast(Stream, self)

    def request(
        self, message: Message, payload: Bytes = b"", *, timeout: float | None = None, **_: Any
    ) -> asyncio.Future[Response]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response] = loop.create_future()
        if self.closed.done():
            answer.set_exception(StreamNotOpen(self.peer, "it is closed"))
            answer.exception()
            return answer
        seconds = timeout or 30.0
        timer = loop.call_later(seconds, _refuse, answer, RequestTimedOut(self.peer, int(seconds * 1000)))
        answer.add_done_callback(lambda _: timer.cancel())
        answer.add_done_callback(self._in_flight.discard)
        self._in_flight.add(answer)
        self._later(lambda: self._deliver(message, bytes(payload), answer))
        return answer

    def close(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
        for answer in list(self._in_flight):
            _refuse(answer, StreamClosed(self.peer, "it broke"))

    def _later(self, do: Callable[[], None]) -> None:
        if self._random.random() >= self._faults.lost:
            asyncio.get_running_loop().call_later(self._random.uniform(0, self._faults.slowest), do)

    def _deliver(self, message: Message, payload: bytes, answer: asyncio.Future[Response]) -> None:
        if self._broker.copy is not self._copy or self._copy is None:
            self.close()
            return
        kind, version, data = pack(message)
        request = Request(unpack(kind, version, data), bytearray(payload), b"", 0, self.real, 1, 0)
        handled = self._copy.handle(request)
        handled.add_done_callback(lambda done: done.cancelled() or done.exception())  # the answer may be lost
        handled.add_done_callback(lambda done: self._later(lambda: self._answer(done, answer)))

    def _answer(self, done: asyncio.Future[Response], answer: asyncio.Future[Response]) -> None:
        error = StreamNotOpen(self.peer, "it was killed") if done.cancelled() else done.exception()
        if answer.done():
            return
        if isinstance(error, RaylogError):
            _refuse(answer, remote_failed(self.peer, failure_of(error)))
        elif error is None:
            response = done.result()
            kind, version, data = pack(response.message)
            answer.set_result(Response(unpack(kind, version, data), bytes(response.payload)))


def _refuse(answer: asyncio.Future[Response], error: RaylogError) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()


class Truth:
    """What was once committed, as far as anybody said so: it never changes, and each epoch has one author.

    What contradicts is kept for the end, since whoever is told here may be somewhere from where it does not get out.
    """

    def __init__(self) -> None:
        self.batches: dict[int, CommittedBatch] = {}
        self.notes: dict[int, tuple[Note, ...]] = {0: ()}
        self.authors: dict[int, str] = {}
        self.lies: list[str] = []

    def committed(self, batch: CommittedBatch) -> None:
        known = self.batches.setdefault(batch.version, batch)
        self.require(known == batch, f"{known} was replaced by {batch}")
        for note in notes_in(batch.records):
            author = note.text.partition(" ")[0]
            known_author = self.authors.setdefault(batch.epoch, author)
            self.require(known_author == author, f"{known_author} and {author} wrote in epoch {batch.epoch}")

    def reached(self, version: int, notes: tuple[Note, ...]) -> None:
        self.require(self.notes.setdefault(version, notes) == notes, f"two states at version {version}")

    def require(self, fact: bool, otherwise: str) -> None:
        if not fact:
            self.lies.append(otherwise)

    def check(self) -> None:
        """States follow on each other, no change is in them twice, and nobody said otherwise."""
        assert not self.lies
        before: tuple[Note, ...] = ()
        for _, notes in sorted(self.notes.items()):
            assert notes[: len(before)] == before
            before = notes
        assert len(set(before)) == len(before)


def notes_in(records: Iterable[Message]) -> tuple[Note, ...]:
    return tuple(record for record in records if isinstance(record, Note))


class Broker:
    """A broker process with a copy of the log, which folds the notes that are committed."""

    def __init__(self, broker_id: int, random: Random, truth: Truth, slowest: float = 0.0) -> None:
        self.broker_id = broker_id
        self.env = FakeEnvironment(random, slowest=slowest)
        self.truth = truth
        self.directory_id = voter_of(broker_id)[1]
        self.copy: MetadataCopy | None = None
        self.notes: tuple[Note, ...] = ()
        self.version = 0
        self._streams: list[FakeStream] = []

    async def start(self) -> None:
        self.notes, self.version = (), 0
        self.env = FakeEnvironment(self.env.random, self.env.disk, self.env.slowest)
        self.env.on_crash = self.kill
        env, files = self.env.real, MetadataFiles(self.env.real.disk, DATA, "cluster")
        loaded = await env.off_loop(partial(files.load, env.wall_ms()))
        self.copy = MetadataCopy(env, files, loaded, self.voter, self._on_committed, self._on_snapshot)

    @property
    def voter(self) -> Voter:
        return self.broker_id, self.directory_id

    @property
    def alive(self) -> MetadataCopy:
        assert self.copy is not None
        return self.copy

    def kill(self, *, machine: bool = False) -> None:
        """Nothing of it goes on; un-synced bytes go with the machine."""
        copy, self.copy = self.copy, None
        self.env.is_dead = True
        self.env.disk.clear_faults()
        if copy is not None and copy._worker is not None:
            copy._worker.cancel()
        if machine:
            self.env.disk.crash_machine(self.env.random)
        else:
            self.env.disk.crash_process()
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    def replace_disk(self) -> None:
        """By a blank one, while it does not run."""
        self.directory_id += " replaced"
        self.env = FakeEnvironment(self.env.random, slowest=self.env.slowest)

    def put_back(self, disk: FaultyDisk) -> FaultyDisk:
        """Kill it and give it this disk instead; returns the one that it had."""
        self.kill()
        before = self.env.disk
        self.env = FakeEnvironment(self.env.random, disk, self.env.slowest)
        return before

    def stream(self, random: Random, faults: NetworkFaults) -> FakeStream:
        stream = FakeStream(self, random, faults)
        self._streams.append(stream)
        return stream

    def _on_committed(self, batch: CommittedBatch) -> None:
        self.truth.require(batch.version > self.version, f"broker {self.broker_id} went back to {batch.version}")
        self.version = batch.version
        self.notes += notes_in(batch.records)
        self.truth.committed(batch)
        self.truth.reached(self.version, self.notes)

    def _on_snapshot(self, snapshot: MetadataSnapshot) -> None:
        self.truth.require(snapshot.version > self.version, f"broker {self.broker_id} went back to {snapshot.version}")
        self.truth.require(type(snapshot.records[0]) is Voters, "a snapshot names no voters")
        self.version = snapshot.version
        self.notes = notes_in(snapshot.records)
        self.truth.reached(self.version, self.notes)


async def until(done: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until it is true."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not done():
        assert loop.time() < deadline, "it does not happen"
        await pause(0.01)


class Cluster:
    """Brokers, and streams of one controller after the other to those that live and are not cut off."""

    def __init__(self, brokers: int = 4, seed: int = 0) -> None:
        self.random = Random(seed)
        self.truth = Truth()
        self.faults = NetworkFaults(0.001)
        self.brokers = [Broker(each, self.random, self.truth, 0.001) for each in range(brokers)]

    async def start(self) -> None:
        for broker in self.brokers:
            await broker.start()

    def links(self, only: Iterable[int] | None = None) -> Links:
        return Links(self, only)

    def writer(self, name: str = "one", **options: int) -> MetadataWriter:
        return MetadataWriter(FakeEnvironment(self.random).real, name, **options)

    async def formed(self, voters: tuple[int, ...] = (0, 1, 2)) -> tuple[MetadataWriter, Links]:
        await self.start()
        writer, links = self.writer(), self.links()
        await writer.form(links, voters, [Note("one first")])
        return writer, links

    async def all_at(self, version: int) -> None:
        await until(lambda: all(broker.version == version for broker in self.brokers if broker.copy is not None))


class Links:
    """One controller's streams."""

    def __init__(self, cluster: Cluster, only: Iterable[int] | None = None) -> None:
        self.only = set(range(len(cluster.brokers))) if only is None else set(only)
        self._cluster = cluster
        self._streams: dict[int, FakeStream] = {}

    def __call__(self) -> list[tuple[int, Stream]]:
        found = []
        for broker in self._cluster.brokers:
            if broker.copy is not None and broker.broker_id in self.only:
                stream = self._streams.get(broker.broker_id)
                if stream is None or stream.closed.done():
                    stream = broker.stream(self._cluster.random, self._cluster.faults)
                    self._streams[broker.broker_id] = stream
                found.append((broker.broker_id, stream.real))
        return found

    def cut(self, broker_id: int) -> None:
        self.only.discard(broker_id)
        if broker_id in self._streams:
            self._streams[broker_id].close()

    def reconnect(self, writer: MetadataWriter) -> None:
        for broker_id, stream in self():
            writer.connect(broker_id, stream)
