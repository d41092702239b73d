"""Every error raylog raises, as one tree.

One file per family. Import every class from here: the files are private to this package.

What stays true here:
- An error crosses process boundaries, so `base.py` makes every class one that `pickle` can build again.
- `retriable`: the same call may succeed later without anybody changing anything.
- `abortable`: abort_transaction helps, and the same producer can begin the next transaction. `fatal`: only another
  producer, or another program, helps.
- `advice` is one sentence or a few for the person who meets the error: what to do next. It is part of `str(error)`.

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
    │   ├── UnknownUser, UserExists, InvalidUser, InvalidAccessRule, SecurityLimitReached
    │   └── SetAsideUnknown       SetAsideUnusable
    ├── MetadataError
    │   ├── ControllerFenced, ControllerStopped                                        outcome unknown
    │   ├── MetadataQuorumUnavailable, MetadataNotBlank, MetadataNotReady, VotersNotChanged
    │   └── MetadataCopyOffline, MetadataDiverged, MetadataRecordUnknown
    ├── ControlError
    │   ├── ControllerNotReady, ReplicaNotFree, ReplicaNotStarted                      nothing was done
    │   ├── HostNotStarted, HostNotWanted                                              nothing was done
    │   ├── CoordinatorNotStarted, CoordinatorNotReady                                 nothing was done
    │   ├── CoordinatorRecordUnknown                                                   nothing was done
    │   ├── CoordinatorStopped                                                         outcome unknown
    │   └── AdminTimedOut         TopicStillStarting                                   done, or unknown
    ├── ProducerError             OutOfOrderSequence, ProducerFenced, CoordinatorFenced, InvalidTransactionState,
    │                             ConcurrentTransaction, InvalidTransactionTimeout, InvalidTransactionalId,
    │                             UnknownTransactionalId, TransactionAborted, TransactionTimedOut, TransactionTooLarge,
    │                             OffsetsRefused, FamilyFenced, FamilyTooLarge
    │   ├── EarlierBatchFailed                                                         nothing was done
    │   └── TransactionPending                                                         outcome unknown; ask again
    ├── StorageError
    │   ├── DiskError             DiskFull, DiskBusy, DiskFailed, DiskReadOnly
    │   ├── DirectoryError        DirectoryLocked, DirectoryNotMade, DirectoryNotOurs, DirectoryBlank, DirectoryCopied,
    │   │                         WrongCluster, WrongPartition, DirectoryOutdated, BrokerWasRemoved
    │   ├── UnsupportedFormat
    │   ├── LogDamaged
    │   └── LogOffline
    ├── CompactionError           CompactionMemoryTooSmall (CompactionMemoryTaken), CompactionOutdated,
    │                             CompactionAbandoned, HousekeeperBusy
    ├── StreamError               TooManyWatches
    │   ├── FrameInvalid          FrameTooLarge, UnsupportedFrameVersion
    │   ├── MessageUnknown, MessageTooLarge, InternalOnly, SocketInUse
    │   ├── PeerNotAdmitted, PeerUnreachable, StreamNotOpen, TooManyBytesInFlight      nothing was done
    │   ├── StreamClosed, RequestTimedOut, AnswerUnexpected                            outcome unknown
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
    │   ├── UnknownGroup, GroupNotEmpty, GroupFull, InconsistentGroupProtocol, RebalanceInProgress
    │   ├── UnknownMember, FencedMember, FencedInstance, StaleHeartbeat, PartitionNotOwned
    │   ├── OffsetBeyondEnd, OffsetMetadataTooLarge, StaleTransaction, CoordinatorReplaced
    │   └── UnknownAssignor, AssignorFailed
    ├── KafkaProtocolError        MalformedRequest, UnsupportedRequestVersion, UnknownTopicId, TooManyPartitionsAtOnce,
    │                             KafkaSchemasMissing, KafkaAddressTaken, KafkaListenersDiffer, KafkaClientTooSlow,
    │                             SaslRefused, NotAuthenticated
    ├── JobError                  RangeNotRead, RowNotWritable, ValueNotDecoded, DatasetNotWritable, InvalidRange
    │   └── RecordsLost           SparkDataLoss, a SparkError too
    ├── PoolError                 PoolExists, UnknownPool, PoolNotReady
    ├── SparkError
    │   ├── SparkNotInstalled, JavaNotFound, RayWithoutJava, SparkAlreadyRunning
    │   ├── UnknownSparkOption, InvalidSparkOptions, FrameNotWritable, StreamFailed
    │   ├── CheckpointOfOther, CheckpointInUse, CheckpointNotShared, CheckpointDamaged
    │   └── SparkNotStarted       SparkExecutorsMissing
    └── RuntimeUnavailable
        ├── RayUnreachable, RayNotStarted, RayNotAdmitted, RayClientRefused
        ├── ClusterNotFound, ClusterNotReady, BrokersLeftOut, BrokersNotAdded, ClusterRunsAlready   nothing was done
        └── ControllerLost                                                             outcome unknown
"""

# ruff: noqa: F403 (the tree above lists every name; a test compares the two)

from raylog.errors.admin import *
from raylog.errors.base import *
from raylog.errors.batch import *
from raylog.errors.client import *
from raylog.errors.config import *
from raylog.errors.control import *
from raylog.errors.fencing import *
from raylog.errors.group import *
from raylog.errors.jobs import *
from raylog.errors.kafka import *
from raylog.errors.metadata import *
from raylog.errors.offsets import *
from raylog.errors.pool import *
from raylog.errors.producer import *
from raylog.errors.replication import *
from raylog.errors.runtime import *
from raylog.errors.security import *
from raylog.errors.spark import *
from raylog.errors.storage import *
from raylog.errors.stream import *
