"""The one way in which the controller changes the state of the cluster: decide, append, apply, tell after the commit.

    decision(state, live) ──records──► writer.append ──► own state ──committed──► answers, and what follows from it

What must stay true:
- Decisions are made on the state with all that was appended before them, also what is not committed yet; so they fit
  on to each other in the order of the log.
- Nothing of a change gets out before it is committed, neither an answer nor an order. That includes the answer that
  nothing had to be done: what it rests on may not be committed yet.
- Where the outcome of an append is unknown, this controller is over, and its state with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from raylog.actors.cluster.control_counters import ControlCounters
from raylog.actors.cluster.metadata_fold import MetadataFold
from raylog.actors.cluster.partition import PartitionId
from raylog.actors.cluster.state import ClusterState, Liveness, ReplicaKey
from raylog.actors.metadata_log.writer import MetadataWriter, Recovered
from raylog.actors.protocol.control_messages import ReplicaMarks
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import PartitionChanged, TopicDeleted
from raylog.errors import RaylogError

_ASK_AGAIN_SECONDS: Final = 0.5  # for what changes without a change of the state

_log = logging.getLogger(__name__)


class ReplicaChange(NamedTuple):
    """A partition's replicas, by broker, before and after a change. After a deletion there are none."""

    topic: str
    partition: PartitionId
    before: tuple[int, ...]
    after: tuple[int, ...]


class ClusterChanges:
    """The state of the cluster, and its changes on their way into the log.

    `on_committed` is called with each change that is committed, in order."""

    def __init__(self, writer: MetadataWriter, on_committed: Callable[[Sequence[ReplicaChange]], None]) -> None:
        self._writer = writer
        self._on_committed = on_committed
        self._fold = MetadataFold()
        self.counters = ControlCounters()
        self._last: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._brokers: set[int] = set()
        self._replicas: dict[ReplicaKey, int] = {}
        self._full: set[int] = set()
        self._sound: dict[ReplicaKey, int] = {}
        self._marks: dict[ReplicaKey, ReplicaMarks] = {}
        self.marks_heard = 0  # heartbeats that told of changes
        self.live = Liveness(self._brokers, self._replicas, self._full, self._sound, self._marks)

    @property
    def state(self) -> ClusterState:
        """The state, with what is not committed yet; for decisions only."""
        return self._fold.state

    @property
    def is_committed(self) -> bool:
        """Whether nothing is under way: the state is that of the committed version."""
        return self._fold.version == self._writer.version == self._writer.tail.end_offset

    @property
    def epoch(self) -> int:
        return self._writer.epoch

    @property
    def version(self) -> int:
        """Committed."""
        return self._writer.version

    def begin(self, recovered: Recovered) -> None:
        """Start from what is committed, and believe everybody alive who is not known dead."""
        self._fold.replace(recovered.state, recovered.state_version, recovered.epoch)
        for batch in recovered.batches:
            self._fold.apply_batch(batch)
        self._last.set_result(recovered.version)
        believed = self.state.believed_live()
        self._brokers |= believed.brokers
        self._replicas |= believed.replicas

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the top of this file: the place of the state in the log, and who is alive."""
        yield from self._writer.broken_invariants()
        if self._fold.version > self._writer.tail.end_offset:
            yield f"the state stands at {self._fold.version}, the log ends at {self._writer.tail.end_offset}"
        strangers = [key for key in (*self._replicas, *self._marks) if key.broker_id not in self._brokers]
        if strangers:
            yield f"{strangers} are taken for alive, and their brokers are not"

    # --- what is alive --------------------------------------------------------------------------------------------

    def broker_lives(self, broker_id: int) -> None:
        self._brokers.add(broker_id)

    def broker_is_gone(self, broker_id: int) -> None:
        """Forget a broker and all its replicas."""
        self._brokers.discard(broker_id)
        self._full.discard(broker_id)
        self._forget_marks(broker_id)
        for key in [key for key in self._replicas if key.broker_id == broker_id]:
            del self._replicas[key]

    def disk_heard_of(self, broker_id: int, *, is_full: bool) -> None:
        if is_full:
            self._full.add(broker_id)
        else:
            self._full.discard(broker_id)

    def replica_lives(self, key: ReplicaKey, incarnation: int) -> None:
        self._replicas[key] = incarnation

    def replica_is_gone(self, key: ReplicaKey, incarnation: int) -> None:
        """Forget a process and its marks. A later incarnation may have told its own already."""
        if self._replicas.get(key) == incarnation:
            del self._replicas[key]
        marks = self._marks.get(key)
        if marks is not None and marks.incarnation <= incarnation:
            del self._marks[key]

    def take_marks(self, broker_id: int, told: Iterable[ReplicaMarks], *, are_all: bool) -> None:
        """Take over the marks that have changed. They stay valid until they change, or the replica is lost."""
        self.marks_heard += 1
        if are_all:
            self._forget_marks(broker_id)
        for each in told:
            self._marks[ReplicaKey(each.topic_id, each.partition, broker_id)] = each

    def _forget_marks(self, broker_id: int) -> None:
        for key in [key for key in self._marks if key.broker_id == broker_id]:
            del self._marks[key]

    def found_sound(self, key: ReplicaKey, incarnation: int) -> None:
        """Take note that all of this copy was read."""
        self._sound[key] = incarnation

    def forget_sound(self, partition: PartitionId) -> None:
        for key in [key for key in self._sound if key[:2] == partition]:
            del self._sound[key]

    # --- changing -------------------------------------------------------------------------------------------------

    def submit(self, records: Sequence[Message]) -> asyncio.Future[int]:
        """Append one atomic change, decided on `state` just now. The future has its version once it is committed.

        Without records: the version that holds all they were decided on. TooManyBytesInFlight: nothing was changed.
        Many share the future, so it must not be cancelled: await `commit` instead.
        """
        if records:
            committed = self._writer.append(records)
            self._last = committed
            if not committed.done():  # else this controller is over
                changes = self._replica_changes(records)
                self._fold.apply(records, self._writer.tail.end_offset - len(records), self._writer.epoch)
                self._forget_taken_away(changes)
                committed.add_done_callback(lambda done: self._committed(done, changes))
        return self._last

    async def commit(self, records: Sequence[Message]) -> int:
        """Submit a change; its version once it is committed. A caller that is cancelled takes nothing from others."""
        committed = self.submit(records)
        await asyncio.wait([committed])
        return committed.result()

    def _forget_taken_away(self, changes: Sequence[ReplicaChange]) -> None:
        """A replica that is wanted again later has to register again, even if its process never ended."""
        for change in changes:
            for broker_id in set(change.before) - set(change.after):
                self._replicas.pop(ReplicaKey(*change.partition, broker_id), None)
                self._marks.pop(ReplicaKey(*change.partition, broker_id), None)

    async def until(self, holds: Callable[[], bool], timeout: float) -> bool:
        """Whether it holds before the time is over, asked after each commit and now and then; and is committed.

        Raises what ended this controller, if that was before the commit.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            if holds():
                last = self._last  # others may be appended while this one is waited for
                await asyncio.wait([last], timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
                if last.done():
                    last.result()
                return last.done()
            rest = deadline - asyncio.get_running_loop().time()
            if rest <= 0:
                return False
            await asyncio.wait([self._news], timeout=min(rest, _ASK_AGAIN_SECONDS))

    def _committed(self, done: asyncio.Future[int], changes: Sequence[ReplicaChange]) -> None:
        if done.cancelled() or done.exception() is not None:
            return  # the writer has said so in `fenced`, or was closed
        self._on_committed(changes)
        news, self._news = self._news, asyncio.get_running_loop().create_future()
        news.set_result(None)
        self._keep_snapshot()

    def _keep_snapshot(self) -> None:
        if self._writer.snapshot_due:
            self.snapshot()

    def snapshot(self) -> None:
        if self.is_committed:
            try:
                self._writer.snapshot(self.state.to_records(), self._writer.version)
            except RaylogError as error:
                _log.warning("No snapshot of the metadata at version %d: %s", self._writer.version, error)

    def _replica_changes(self, records: Sequence[Message]) -> list[ReplicaChange]:
        """The changes of replicas that these records bring. Call it before they are applied."""
        changes: list[ReplicaChange] = []
        names = {getattr(record, "topic_id", b""): getattr(record, "name", "") for record in records}
        for record in records:
            if isinstance(record, PartitionChanged):
                partition = record.topic_id, record.partition
                before = self.state.partitions.get(partition)
                topic = self.state.topics.get(record.topic_id)
                name = names[record.topic_id] if topic is None else topic.name
                replicas = () if before is None else before.replicas
                if before is not None:
                    self.counters.count(before, record)
                changes.append(ReplicaChange(name, partition, replicas, record.replicas))
            elif isinstance(record, TopicDeleted):
                for before in list(self.state.partitions_of(record.topic_id)):
                    changes.append(ReplicaChange(record.name, before.id, before.replicas, ()))
        return changes
