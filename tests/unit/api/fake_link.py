"""A cluster of one make-believe leader per partition, behind the face of `ClusterLink`, with failures from a seed.

The logs are plain lists of batches. What a reader gets is made by plain rules here, without raylog's reading code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Response
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import PartitionLeader, TopicView
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.replication_messages import (
    EARLIEST,
    LATEST,
    Fetch,
    Fetched,
    FileSlice,
    ListedOffset,
    ListOffset,
    RecordsArrived,
    SuspectBatch,
    WatchedPartition,
    WatchRecords,
)
from raylog.errors import (
    InspectionUnderWay,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    OnlyCopyDamaged,
    PeerUnreachable,
    RaylogError,
    RequestTimedOut,
    StaleLeaderEpoch,
    StreamClosed,
    TooManyBytesInFlight,
    TooManyWatches,
    UnknownLeaderEpoch,
    UnknownTopic,
)
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.control_records import Marker, MarkerType, encode_marker
from raylog.storage.format.record_batch import Bytes, filler, next_offset_of, read_header, split_batches, stamp

NODE = "node of all"
TIME = 1_700_000_000_000
_BEFORE = b"what stands before a slice"


@dataclass
class ModelLog:
    """One partition."""

    batches: list[bytes] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])  # epoch, where it begins
    start: int = 0
    high_watermark: int = 0
    last_stable: int | None = None
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first, last
    knows_end: bool = True
    is_rotten: bool = False  # the leader's copy: whatever is read of it is damaged

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else self.start

    @property
    def epoch(self) -> int:
        return self.epochs[-1][0]

    def append(self, *values: bytes | None, producer_id: int = -1, keys: list[bytes | None] | None = None) -> None:
        """A batch, readable at once."""
        batch = encode_batch(
            values, keys=keys, timestamps=TIME, producer_id=producer_id, transactional=producer_id >= 0,
            producer_epoch=0 if producer_id >= 0 else -1, base_sequence=0 if producer_id >= 0 else -1,
        )  # fmt: skip
        self._add(batch)

    def end_transaction(self, producer_id: int, kind: MarkerType) -> None:
        self._add(encode_marker(Marker(kind, 0), producer_id, 0, TIME))

    def add_filler(self, count: int) -> None:
        self._add(filler(0, count, self.epoch))

    def add_batch(self, batch: bytearray) -> None:
        self._add(batch)

    def _add(self, batch: bytearray) -> None:
        stamp(batch, self.end, self.epoch)
        self.batches.append(bytes(batch))
        self.high_watermark = self.end

    def new_epoch(self) -> None:
        self.epochs.append((self.epoch + 1, self.end))

    def truncate(self, offset: int) -> None:
        """As an unclean election does: a new epoch begins there."""
        self.batches = [each for each in self.batches if read_header(each).next_offset <= offset]
        kept = [each for each in self.epochs if each[1] < self.end] or [(0, 0)]
        self.epochs = [*kept, (self.epoch + 1, self.end)]
        self.high_watermark = self.end

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch that is not above this one, and where it ends."""
        found = [number for number, _ in self.epochs if number <= epoch]
        later = [start for number, start in self.epochs if number > epoch]
        return (found[-1] if found else epoch), (min(later) if later else self.end)

    def visible_end(self, committed: bool) -> int:
        return self.high_watermark if not committed or self.last_stable is None else self.last_stable

    def read(self, offset: int, most: int, committed: bool) -> tuple[int, bytes]:
        """(where the first batch begins, whole batches)."""
        found: list[bytes] = []
        end = self.visible_end(committed)
        for each in self.batches:
            header = read_header(each)
            if header.next_offset <= offset or header.next_offset > end:
                continue
            if found and sum(map(len, found)) + len(each) > most:
                break
            found.append(each)
        return (read_header(found[0]).base_offset if found else offset), b"".join(found)


@dataclass
class Faults:
    """How often what goes wrong, from 0 to 1."""

    refusals: float = 0.0
    silence: float = 0.0
    damage: float = 0.0
    wrong_files: float = 0.0


class FakeLink:
    """`as_link` is what a fetcher takes. All is on the running loop."""

    def __init__(self, env: Environment, random: Random, node_id: str = "") -> None:
        self.env = env
        self.random = random
        self.node_id = node_id
        self.faults = Faults()
        self.logs: dict[tuple[str, int], ModelLog] = {}
        self.ids: dict[str, bytes] = {}
        self.error: RaylogError | None = None  # what each question ends in
        self.asked: list[Message] = []
        self.files_read = 0
        self.is_alone = False  # nobody else could lead where a leader's copy is rotten
        self.hides_until_others_are_heard: set[str] = set()  # topics that the first broker does not know of
        self.refuses_watches = False
        self.watches: dict[int, dict[tuple[bytes, int], WatchedPartition]] = {}
        self._watch_turns: dict[int, int] = {}
        self._callbacks: list[Callable[[], None]] = []
        self._news = asyncio.get_running_loop().create_future()
        self._known: dict[str, TopicView] = {}

    @property
    def as_link(self) -> ClusterLink:
        return cast("ClusterLink", self)

    def add_topic(self, name: str, partitions: int) -> list[ModelLog]:
        self.ids.setdefault(name, bytes([len(self.ids)]) * 16)
        for number in range(partitions):
            self.logs.setdefault((name, number), ModelLog())
        self.publish()
        return [self.logs[name, number] for number in range(partitions)]

    def remove_topic(self, name: str) -> None:
        for key in [key for key in self.logs if key[0] == name]:
            del self.logs[key]
        self.publish()

    def publish(self) -> None:
        """Let clients know what is."""
        self._known = {}
        for name in {name for name, _ in self.logs}:
            count = sum(1 for key in self.logs if key[0] == name)
            leaders = tuple(self._leader(name, number) for number in range(count))
            self._known[name] = TopicView(name, self.ids[name], leaders)
        for callback in list(self._callbacks):
            callback()
        news, self._news = self._news, asyncio.get_running_loop().create_future()
        news.set_result(None)

    def _leader(self, name: str, number: int) -> PartitionLeader:
        return PartitionLeader(name, self.ids[name], number, 1, self.logs[name, number].epoch, (), NODE)

    # --- the face of ClusterLink ----------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicView | None:
        return self._known.get(name)

    def leader(self, topic: str, partition: int) -> PartitionLeader | None:
        view = self._known.get(topic)
        return view.partitions[partition] if view is not None and partition < len(view.partitions) else None

    async def find_topic(self, name: str, timeout: float) -> TopicView:
        await self._pause()
        if (view := self._known.get(name)) is None:
            raise UnknownTopic(name)
        return view

    async def list_topics(self, timeout: float) -> tuple[TopicView, ...]:
        await self._pause()
        return tuple(view for name, view in self._known.items() if name not in self.hides_until_others_are_heard)

    async def hear_others(self) -> None:
        self.hides_until_others_are_heard.clear()

    async def refresh(self, timeout: float) -> None:
        await self._pause()
        self.publish()

    async def changed(self, timeout: float) -> bool:
        await asyncio.wait([news := self._news], timeout=timeout)
        return news.done()

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    async def ask(
        self, leader: PartitionLeader, message: Message, payload: Bytes = b"", *, expect: type[Any], timeout: float
    ) -> Response:
        self.asked.append(message)
        await self._pause()
        if self.random.random() < self.faults.silence:
            await asyncio.sleep(timeout)
            raise RequestTimedOut("leader", round(timeout * 1000))
        if self.random.random() < self.faults.refusals:
            raise self._refusal(leader)
        if isinstance(message, ListOffset):
            return self._list(leader, message)
        if isinstance(message, SuspectBatch):
            return self._inspect(leader, message)
        assert isinstance(message, Fetch)
        return await self._fetch(leader, message)

    async def offset_at(self, leader: PartitionLeader, timestamp: int, committed: bool, timeout: float) -> ListedOffset:
        question = ListOffset(timestamp, leader.epoch, committed)
        answer = (await self.ask(leader, question, expect=ListedOffset, timeout=timeout)).message
        assert isinstance(answer, ListedOffset)
        return answer

    async def ask_process(
        self, leader: PartitionLeader, message: Message, *, expect: type[Any], timeout: float
    ) -> Response:
        """Watch partitions of this one process, which leads all."""
        self.asked.append(message)
        assert isinstance(message, WatchRecords)
        if message.is_over:
            self.watches.pop(message.number, None)
            return Response(RecordsArrived(()))
        await self._pause()
        if self.random.random() < self.faults.refusals:
            raise self._refusal(leader)
        if self.refuses_watches:
            raise TooManyWatches(256)
        watched = self.watches.setdefault(message.number, {})
        for key in message.removed:
            watched.pop(key, None)
        watched.update({(each.topic_id, each.partition): each for each in message.added})
        turn = self._watch_turns[message.number] = self._watch_turns.get(message.number, 0) + 1
        waited = 0
        while True:
            arrived = tuple(key for key, each in watched.items() if self._has_more(each, message.committed))
            if arrived or turn != self._watch_turns[message.number] or waited >= message.max_wait_ms:
                break
            await asyncio.sleep(0.01)
            waited += 10
        for key in arrived:
            del watched[key]
        return Response(RecordsArrived(arrived))

    def _has_more(self, watched: WatchedPartition, committed: bool) -> bool:
        name = next(name for name, topic_id in self.ids.items() if topic_id == watched.topic_id)
        log = self.logs.get((name, watched.partition))
        return log is None or log.epoch != watched.leader_epoch or watched.offset < log.visible_end(committed)

    async def _pause(self) -> None:
        await asyncio.sleep(0.0005 * self.random.random())
        if self.error is not None:
            raise self.error

    def _refusal(self, leader: PartitionLeader) -> RaylogError:
        return self.random.choice(
            [
                NotLeader(leader.topic, leader.partition, -1, leader.epoch),
                StreamClosed("leader", "it broke"),
                PeerUnreachable("leader", "nobody there"),
                TooManyBytesInFlight(1, 2, 3),
                UnknownLeaderEpoch(leader.epoch, leader.epoch - 1),
            ]
        )

    def _log(self, leader: PartitionLeader, epoch: int) -> ModelLog:
        log = self.logs.get((leader.topic, leader.partition))
        if log is None or self.ids[leader.topic] != leader.topic_id:
            raise NotLeader(leader.topic, leader.partition, -1, -1)
        if epoch < log.epoch:
            raise StaleLeaderEpoch(epoch, log.epoch)
        return log

    def _list(self, leader: PartitionLeader, message: ListOffset) -> Response:
        log = self._log(leader, message.leader_epoch)
        if message.timestamp == EARLIEST:
            return Response(ListedOffset(log.start, -1, 0))
        if not log.knows_end:
            raise OffsetNotAvailable(leader.topic, leader.partition)
        if message.timestamp == LATEST:
            return Response(ListedOffset(log.visible_end(message.committed), -1, 0))
        if message.timestamp <= TIME and log.batches:
            return Response(ListedOffset(log.start, TIME, 0))
        return Response(ListedOffset(-1, -1, -1))

    async def _fetch(self, leader: PartitionLeader, message: Fetch) -> Response:
        waited = 0
        while True:
            log = self._log(leader, message.leader_epoch)
            if message.last_epoch >= 0:
                epoch, end = log.epoch_end(message.last_epoch)
                if epoch != message.last_epoch or end < message.offset:
                    return Response(self._fetched(log, message, message.offset, diverged=(epoch, end)))
            if not log.start <= message.offset <= log.end:
                raise OffsetOutOfRange(message.offset, log.start, log.high_watermark)
            first, data = log.read(message.offset, message.max_bytes, message.committed)
            if len(data) >= max(1, message.min_bytes) or waited >= message.max_wait_ms:
                break
            await asyncio.sleep(0.01)
            waited += 10
        end = next_offset_of(data) if data else first
        if data and log.is_rotten:
            data = self._damaged(data)
        if data and message.node_id == NODE:
            return self._as_file(leader, log, message, (first, end), data)
        if data and self.random.random() < self.faults.damage:
            data = self._damaged(data)
        return Response(self._fetched(log, message, message.offset), bytearray(data))

    def _inspect(self, leader: PartitionLeader, message: SuspectBatch) -> Response:
        """As a leader does whose log is rotten from that offset on: it asks to be relieved, or is alone."""
        log = self._log(leader, message.leader_epoch)
        if not log.is_rotten:
            return Response(Done())
        if self.is_alone:
            place = (leader.topic, leader.partition, message.offset, message.offset + 1)
            raise OnlyCopyDamaged(*place, "/data/topic-0/0.log", 61, "CRC")
        asyncio.get_running_loop().call_later(0.05, self._relieve, log)
        raise InspectionUnderWay(leader.topic, leader.partition)

    def _relieve(self, log: ModelLog) -> None:
        log.is_rotten = False
        log.new_epoch()
        self.publish()

    def _damaged(self, data: bytes) -> bytes:
        changed = bytearray(data)
        changed[self.random.randrange(len(changed))] ^= 1 << self.random.randrange(8)
        return bytes(changed)

    def _as_file(
        self, leader: PartitionLeader, log: ModelLog, message: Fetch, span: tuple[int, int], data: bytes
    ) -> Response:
        first, end = span
        path = f"{leader.topic}-{leader.partition}-{log.epoch}-{first}-{len(data)}.log"
        inode = self._write(path, data)
        length = len(data)
        if self.random.random() < self.faults.wrong_files:
            wrong = self.random.randrange(6)
            inode += wrong == 0
            length += wrong == 1
            first += wrong == 2
            path += "gone" * (wrong == 3)
            if wrong == 4:
                path, length = path + "other", len(data := _other_values(data))
                self._write(path, data)
            if wrong == 5:
                path += f"damaged {len(self.asked)}"
                inode = self._write(path, self._damaged(data))
        self.files_read += 1
        return Response(self._fetched(log, message, first, file=(path, inode, len(_BEFORE), length, end)))

    def _write(self, path: str, data: bytes) -> int:
        """The inode."""
        disk = self.env.disk
        if not disk.exists(path):
            disk.write_file(path, _BEFORE + data)
        file = disk.open(path)
        inode = file.inode()
        file.close()
        return inode

    def _fetched(
        self,
        log: ModelLog,
        message: Fetch,
        next_offset: int,
        diverged: tuple[int, int] | None = None,
        file: FileSlice | None = None,
    ) -> Fetched:
        aborted = tuple((producer, first) for producer, first, last in log.aborted if last >= message.offset)
        stable = log.high_watermark if log.last_stable is None else log.last_stable
        return Fetched(
            next_offset, log.high_watermark, stable, log.start, log.epoch, diverged,
            aborted if message.committed else (), file,
        )  # fmt: skip


def _other_values(data: bytes) -> bytes:
    """Batches of the same offsets that hold something else, as of another log."""
    found = b""
    for each in split_batches(data):
        header = read_header(each)
        batch = encode_batch([b"of another log"] * (header.last_offset_delta + 1), timestamps=TIME)
        stamp(batch, header.base_offset, header.leader_epoch)
        found += batch
    return found
