"""A controller's state with what its decisions need, and short names for what happens to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from raylog.actors.cluster.broker_membership import fence_broker, register_broker
from raylog.actors.cluster.election.isr_and_elr import facts_of
from raylog.actors.cluster.election.isr_changes import propose_isr
from raylog.actors.cluster.election.leader_election import elect, settle
from raylog.actors.cluster.election.replica_registration import replica_lost, replica_registered
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import ClusterState, Liveness, ReplicaKey
from raylog.actors.cluster.topic_admin import NewTopic, create_topic
from raylog.actors.protocol.control_messages import ProposeIsr, RegisterBroker, ReplicaLoss, ReplicaMarks, ReplicaReport
from raylog.actors.protocol.messages import Message, pack, unpack
from raylog.actors.protocol.metadata_records import ClusterFormed, PartitionChanged
from raylog.config import ConfigValue
from raylog.storage.directory.doubts import BLANK

CLUSTER_ID = "cluster-1"


def topic_id_of(name: str) -> bytes:
    return name.encode()[:16].ljust(16, b"\0")


class SmallCluster:
    """Brokers 1, 2, ... each on a node of its own. What is decided is applied at once, under rising offsets."""

    def __init__(self, brokers: int = 3, racks: Sequence[str] = ()) -> None:
        self.state = ClusterState()
        self.live_brokers: set[int] = set()
        self.running: dict[ReplicaKey, int] = {}
        self.sound: dict[ReplicaKey, int] = {}
        self.marks: dict[ReplicaKey, ReplicaMarks] = {}
        self.live = Liveness(self.live_brokers, self.running, sound=self.sound, marks=self.marks)
        self.offset = 0
        self.incarnations = 0
        self.apply([ClusterFormed(CLUSTER_ID, 1, 1)])
        for number in range(brokers):
            self.start_broker(number + 1, rack=racks[number] if racks else "")

    # --- brokers --------------------------------------------------------------------------------------------------

    def start_broker(self, broker: int, *, rack: str = "", run: str = "run") -> list[Message]:
        self.live_brokers.add(broker)
        return self.apply(register_broker(self.state, self.live, registration(broker, rack=rack, run=run)))

    def lose_broker(self, *brokers: int) -> list[Message]:
        """Their leases end at the same moment."""
        self.live_brokers.difference_update(brokers)
        records = []
        for broker in brokers:
            for key in [key for key in self.running if key.broker_id == broker]:
                del self.running[key]
            records += self.apply(fence_broker(self.state, self.live, broker, "lease lost"))
        return records

    # --- topics and replicas --------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        *assignment: Sequence[int],
        start: bool = True,
        settings: dict[str, ConfigValue] | None = None,
        internal: bool = False,
    ) -> PartitionState:
        """A topic with these replicas, all of which run, and the first of which leads."""
        topic = NewTopic(name, assignment=assignment, settings=settings or {})
        self.apply(create_topic(self.state, self.live, topic, topic_id_of(name), internal=internal))
        if start:
            for number, brokers in enumerate(assignment):
                for broker in brokers:
                    self.start_replica(name, broker, number, unproven=BLANK)
        return self.partition(name)

    def partition(self, name: str, number: int = 0) -> PartitionState:
        return self.state.partition_named(name, number)

    def report(
        self,
        name: str,
        broker: int,
        number: int = 0,
        *,
        log: tuple[int, int] = (0, 0),
        unproven: str = "",
        created_as: int | None = None,
    ) -> ReplicaReport:
        """Of a new process, in a directory that it has created, or in that of an earlier one."""
        self.incarnations += 1
        topic_id = self.state.topic(name).id
        endpoints = (f"unix:/r/{broker}-{self.incarnations}",)
        pid = 1000 + self.incarnations
        created_as = self.incarnations if created_as is None else created_as
        return ReplicaReport(topic_id, number, self.incarnations, *log, unproven, endpoints, pid, created_as)

    def start_replica(
        self,
        name: str,
        broker: int,
        number: int = 0,
        *,
        log: tuple[int, int] = (0, 0),
        unproven: str = "",
        created_as: int | None = None,
    ) -> list[Message]:
        report = self.report(name, broker, number, log=log, unproven=unproven, created_as=created_as)
        records = self.apply(replica_registered(self.state, self.live, broker, report))
        self.running[ReplicaKey(report.topic_id, number, broker)] = report.incarnation
        return records

    def lose_replica(self, name: str, broker: int, number: int = 0, *, damaged: bool = False) -> list[Message]:
        topic_id = self.state.topic(name).id
        incarnation = self.running.pop(ReplicaKey(topic_id, number, broker))
        loss = ReplicaLoss(topic_id, number, incarnation, "killed", damaged)
        return self.apply(replica_lost(self.state, self.live, broker, loss))

    def return_replica(self, name: str, broker: int, number: int = 0) -> list[Message]:
        """The same process, after its broker registered again."""
        known = self.state.replicas[ReplicaKey(self.state.topic(name).id, number, broker)]
        report = ReplicaReport(
            known.topic_id, number, known.incarnation, 0, 0, "", known.endpoints, known.pid, known.created_as
        )
        self.running[ReplicaKey(known.topic_id, number, broker)] = known.incarnation
        return self.apply(replica_registered(self.state, self.live, broker, report))

    def tell(self, name: str, broker: int, last_epoch: int, end: int, number: int = 0) -> None:
        """It goes with a heartbeat how far the replica is."""
        key = ReplicaKey(self.state.topic(name).id, number, broker)
        incarnation = self.running[key]
        self.marks[key] = ReplicaMarks(
            *key.partition_id, incarnation, "follower", 0, 0, end, 100 * end, False, "own", last_epoch
        )

    def proposal(self, name: str, isr: Iterable[int], number: int = 0) -> ProposeIsr:
        partition = self.partition(name, number)
        return ProposeIsr(
            topic_id=partition.topic_id,
            partition=number,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=tuple((broker, self.state.incarnation(*partition.id, broker)) for broker in isr),
        )

    def propose(self, name: str, *isr: int, number: int = 0) -> PartitionState:
        self.apply(propose_isr(self.state, self.live, self.proposal(name, isr, number)))
        return self.partition(name, number)

    def elect(self, name: str, number: int = 0, *, waited: bool = False) -> PartitionState:
        self.apply(elect(self.state, self.live, self.state.topic(name).id, number, waited=waited))
        return self.partition(name, number)

    def find_sound(self, name: str, broker: int, number: int = 0) -> PartitionState:
        """Its copy was read whole."""
        before = self.partition(name, number)
        key = ReplicaKey(*before.id, broker)
        self.sound[key] = self.running[key]
        self.apply(settle(before, before, facts_of(self.state, self.live, before), "read whole"))
        return self.partition(name, number)

    # --- the log --------------------------------------------------------------------------------------------------

    def apply(self, records: Iterable[Message]) -> list[Message]:
        """As they come back from the bytes of the log."""
        applied = []
        for record in records:
            read = unpack(*pack(record))
            assert read == record
            self.state.apply(read, self.offset)
            self.offset += 1
            applied.append(read)
        return applied

    def copy_of_state(self) -> ClusterState:
        """By way of a snapshot."""
        copy = ClusterState()
        for record in self.state.to_records():
            copy.apply(unpack(*pack(record)), 0)
        return copy


def registration(
    broker: int, *, rack: str = "", run: str = "run", cluster_id: str = CLUSTER_ID, host: str = "", node: str = ""
) -> RegisterBroker:
    return RegisterBroker(
        cluster_id=cluster_id,
        broker_id=broker,
        broker_run=run,
        node_id=node or f"node-{broker}",
        host=host or f"host-{broker}",
        rack=rack,
        endpoints=(f"unix:/b/{broker}",),
        directory=f"/data/{broker}",
        directory_id=f"directory-{broker}",
        boot_id="boot",
        replicas=(),
    )


def reasons(records: Iterable[Message]) -> list[str]:
    return [record.reason for record in records if isinstance(record, PartitionChanged)]
