"""The controller's side of its brokers: who is registered, whose lease runs, what their replicas are reported to do.

    unknown ──RegisterBroker──► live ──no heartbeat for a whole lease──► fenced ──RegisterBroker──► live
                                  └─ its stream may end and another one begin meanwhile: the lease goes on

What must stay true:
- A lease is counted from the last sign of life (rule 29). It only speeds up failover: safety rests on what is recorded.
- A new controller gives every broker that was not fenced a full lease before it decides that any is gone.
- A heartbeat is answered after all that it reported is committed; until then the broker repeats it.
- What is told of many replicas at once is decided on one state and recorded as one change. So no partition is in it
  twice: what is decided on a partition follows from its own records, and from the brokers' (`replica_registration.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, TypeVar

from raylog.actors.cluster.broker_membership import (
    check_broker_epoch,
    fence_broker,
    register_broker,
    replicas_not_running,
)
from raylog.actors.cluster.election.replica_registration import is_wanted, replica_lost, replica_registered
from raylog.actors.cluster.election.standing_down import stand_down
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.controller.changes import ClusterChanges
from raylog.actors.controller.isr_proposals import MOST_AT_ONCE, IsrProposals
from raylog.actors.kernel.background import SILENCE_SECONDS, SilenceWatch, Timers
from raylog.actors.kernel.stream_interface import Response, Stream
from raylog.actors.metadata_log.writer import MetadataWriter
from raylog.actors.protocol.control_messages import (
    BrokerHeartbeat,
    BrokerRegistered,
    ProposeIsr,
    RegisterBroker,
    ReplicaLoss,
    ReplicaReport,
    StandDown,
)
from raylog.actors.protocol.messages import Message
from raylog.errors import IneligibleReplica, StaleBrokerEpoch, StaleIncarnation, TooManyBytesInFlight, UnknownTopic

_LEASE_OVER: Final = f"no heartbeat for {SILENCE_SECONDS} s"
_FENCE_AGAIN_MS: Final = 100
_NO_BROKER: Final = -1

_log = logging.getLogger(__name__)

_Told = TypeVar("_Told", ReplicaReport, ReplicaLoss)


class ReplicaEvents(NamedTuple):
    """The calls that say what becomes of replicas: (replica, incarnation)."""

    registered: Callable[[ReplicaKey, int], None]
    lost: Callable[[ReplicaKey, int], None]
    unwanted: Callable[[ReplicaKey], None]  # it runs where no record wants one
    broker_registered: Callable[[int], None]
    hosts_heard: Callable[[int, tuple[int, ...], int], None]  # of a broker: which run, how many more it wants


class BrokerSession:
    """A broker as it registered over one stream, and what it said last."""

    __slots__ = ("broker_id", "free_bytes", "is_registered", "stream", "total_bytes")

    def __init__(self, broker_id: int, stream: Stream) -> None:
        self.broker_id = broker_id
        self.stream = stream
        self.is_registered = False
        self.free_bytes = 0
        self.total_bytes = 0


class BrokerSessions:
    def __init__(self, changes: ClusterChanges, writer: MetadataWriter, timers: Timers, events: ReplicaEvents) -> None:
        self._changes = changes
        self._writer = writer
        self._timers = timers
        self._events = events
        self._proposals = IsrProposals(changes)
        self._sessions: dict[int, BrokerSession] = {}
        self._by_stream: dict[Stream, BrokerSession] = {}
        self._present: set[int] = set()  # under this controller, and their leases run
        self._leases: SilenceWatch[int] = SilenceWatch(timers, self._lease_over)

    def begin(self) -> None:
        """Give a full lease to all who are believed alive."""
        for broker_id in sorted(self._changes.live.brokers):
            self._leases.watch(broker_id)

    def close(self) -> None:
        self._leases.close()

    # --- who is there ---------------------------------------------------------------------------------------------

    def get(self, broker_id: int) -> BrokerSession | None:
        """The session of a broker: its stream is open, its registration is committed; its lease may be over."""
        session = self._sessions.get(broker_id)
        return session if session is not None and session.is_registered else None

    def all(self) -> list[BrokerSession]:
        return list(self._sessions.values())

    def is_live(self, broker_id: int) -> bool:
        return broker_id in self._changes.live.brokers

    @property
    def registered(self) -> AbstractSet[int]:
        """The brokers that have registered here and whose leases run. Others are believed alive at most."""
        return self._present

    # --- what brokers say -----------------------------------------------------------------------------------------

    async def register(self, request: RegisterBroker, stream: Stream) -> Response:
        """WrongCluster, DuplicateBroker."""
        broker_id = request.broker_id
        records = register_broker(self._changes.state, self._changes.live, request)
        is_new_run = bool(records)
        self._changes.submit(records)
        session = self._take(broker_id, stream)
        # A broker that was started again has none yet: that is no news of a replica.
        level = logging.INFO if is_new_run else logging.WARNING
        self._lost(broker_id, replicas_not_running(self._changes.state, request), level)
        self._registered(broker_id, request.replicas)
        epoch = self._changes.state.brokers[broker_id].epoch
        await self._changes.commit(())
        session.is_registered = True
        if self.is_live(broker_id):
            self._present.add(broker_id)
        if is_new_run:
            _log.info("Broker %d on %s registered as %d.", broker_id, request.host, epoch)
        self._events.broker_registered(broker_id)
        return Response(BrokerRegistered(self._changes.epoch, epoch))

    async def heartbeat(self, beat: BrokerHeartbeat, stream: Stream) -> Response | None:
        """StaleBrokerEpoch: register again."""
        session = self._checked(stream, beat.broker_epoch)
        broker_id = session.broker_id
        self._leases.heard(broker_id)
        session.free_bytes, session.total_bytes = beat.free_bytes, beat.total_bytes
        self._changes.disk_heard_of(broker_id, is_full=beat.has_full_disk)
        if beat.marks or beat.marks_are_all:
            self._changes.take_marks(broker_id, beat.marks, are_all=beat.marks_are_all)
        self._events.hosts_heard(broker_id, beat.hosts, beat.hosts_wanted)
        self._lost(broker_id, beat.lost)
        self._registered(broker_id, beat.started)
        if beat.lost or beat.started:
            await self._changes.commit(())
        return None

    async def propose_isr(self, proposal: ProposeIsr, stream: Stream) -> Response | None:
        """Raises what `isr_changes.propose_isr` does; StaleBrokerEpoch where another broker than the leader's asks."""
        session = self._by_stream.get(stream)
        if session is None or session.broker_id != proposal.leader:
            raise StaleBrokerEpoch(proposal.leader, _NO_BROKER, _NO_BROKER)
        state = self._changes.state
        check_broker_epoch(state, session.broker_id, state.broker(session.broker_id).epoch)
        await self._proposals.carry(proposal)
        return None

    async def stand_down(self, asked: StandDown, stream: Stream) -> Response | None:
        """Raises what `standing_down.stand_down` does; StaleBrokerEpoch where it is another broker's replica."""
        session = self._by_stream.get(stream)
        if session is None or session.broker_id != asked.broker:
            raise StaleBrokerEpoch(asked.broker, _NO_BROKER, _NO_BROKER)
        await self._changes.commit(stand_down(self._changes.state, self._changes.live, asked))
        return None

    # --- sessions and leases --------------------------------------------------------------------------------------

    def _take(self, broker_id: int, stream: Stream) -> BrokerSession:
        before = self._sessions.pop(broker_id, None)
        session = BrokerSession(broker_id, stream)
        if before is not None:
            self._by_stream.pop(before.stream, None)
        self._sessions[broker_id] = self._by_stream[stream] = session
        stream.closed.add_done_callback(lambda _: self._stream_ended(session))
        self._changes.broker_lives(broker_id)
        self._leases.watch(broker_id)
        self._writer.connect(broker_id, stream)
        return session

    def _stream_ended(self, session: BrokerSession) -> None:
        self._by_stream.pop(session.stream, None)
        if self._sessions.get(session.broker_id) is session:
            del self._sessions[session.broker_id]

    def check_speaks_for(self, stream: Stream, broker_id: int) -> None:
        """StaleBrokerEpoch unless this broker registered over this stream."""
        session = self._by_stream.get(stream)
        if session is None or session.broker_id != broker_id:
            raise StaleBrokerEpoch(broker_id, _NO_BROKER, _NO_BROKER)

    def _checked(self, stream: Stream, broker_epoch: int) -> BrokerSession:
        session = self._by_stream.get(stream)
        if session is None:
            raise StaleBrokerEpoch(_NO_BROKER, broker_epoch, _NO_BROKER)
        check_broker_epoch(self._changes.state, session.broker_id, broker_epoch)
        return session

    def _lease_over(self, broker_id: int) -> None:
        lost = [each for each in self._changes.live.replicas.items() if each[0].broker_id == broker_id]
        self._changes.broker_is_gone(broker_id)
        self._present.discard(broker_id)
        if broker_id not in self._changes.state.brokers:
            return
        _log.warning("Broker %d is fenced: %s.", broker_id, _LEASE_OVER)
        try:
            self._changes.submit(fence_broker(self._changes.state, self._changes.live, broker_id, _LEASE_OVER))
        except TooManyBytesInFlight:
            self._timers.after(_FENCE_AGAIN_MS, lambda: self._fence_again(broker_id))
        for key, incarnation in lost:
            self._events.lost(key, incarnation)

    def _fence_again(self, broker_id: int) -> None:
        if not self.is_live(broker_id):
            self._lease_over(broker_id)

    # --- replicas -------------------------------------------------------------------------------------------------

    def _registered(self, broker_id: int, reports: Iterable[ReplicaReport]) -> None:
        for portion in _portions(reports):
            self._register_at_once(broker_id, portion)

    def _register_at_once(self, broker_id: int, reports: Sequence[ReplicaReport]) -> None:
        """A report that is refused is dealt with: the broker need not repeat it."""
        records: list[Message] = []
        taken: list[tuple[ReplicaKey, int]] = []
        for report in reports:
            key = ReplicaKey(report.topic_id, report.partition, broker_id)
            try:
                records += replica_registered(self._changes.state, self._changes.live, broker_id, report)
            except StaleIncarnation as error:
                _log.info("Broker %d ends it once it knows of the later one: %s", broker_id, error)
                continue
            except (IneligibleReplica, UnknownTopic) as error:
                _log.warning("A replica on broker %d is refused: %s", broker_id, error)
                self._events.unwanted(key)
                continue
            self._changes.replica_lives(key, report.incarnation)
            taken.append((key, report.incarnation))
        committed = self._changes.submit(records)
        committed.add_done_callback(lambda done: self._registrations_committed(done, taken))

    def _registrations_committed(self, done: asyncio.Future[int], taken: Sequence[tuple[ReplicaKey, int]]) -> None:
        if not done.cancelled() and done.exception() is None:
            for key, incarnation in taken:
                self._events.registered(key, incarnation)

    def _lost(self, broker_id: int, losses: Iterable[ReplicaLoss], level: int = logging.WARNING) -> None:
        for portion in _portions(losses):
            self._lose_at_once(broker_id, portion, level)

    def _lose_at_once(self, broker_id: int, losses: Sequence[ReplicaLoss], level: int) -> None:
        records: list[Message] = []
        for loss in losses:
            records += replica_lost(self._changes.state, self._changes.live, broker_id, loss)
            key = ReplicaKey(loss.topic_id, loss.partition, broker_id)
            self._tell_of_loss(key, loss, level)
            self._changes.replica_is_gone(key, loss.incarnation)
        self._changes.submit(records)
        for loss in losses:
            self._events.lost(ReplicaKey(loss.topic_id, loss.partition, broker_id), loss.incarnation)

    def _tell_of_loss(self, key: ReplicaKey, loss: ReplicaLoss, level: int) -> None:
        if key in self._changes.live.replicas:
            level = level if is_wanted(self._changes.state, *key) else logging.INFO
            _log.log(level, "Replica %s-%d on broker %d is lost: %s.", key.topic_id.hex(), *key[1:], loss.why)


def _portions(told: Iterable[_Told]) -> Iterator[list[_Told]]:
    """Yield what is recorded as one change each, in its order. No partition is twice in one."""
    portion: dict[tuple[bytes, int], _Told] = {}
    for each in told:
        if (each.topic_id, each.partition) in portion or len(portion) == MOST_AT_ONCE:
            yield list(portion.values())
            portion = {}
        portion[each.topic_id, each.partition] = each
    if portion:
        yield list(portion.values())
