"""raylog's errors as Kafka's numbers, in one table.

A class that has no line of its own has the code of its nearest base that has one. Families that never reach a gateway
(`ELSEWHERE`) have none: what raises them is a client of raylog, Ray, or a process at its start. A test puts every error
of `raylog.errors` on one side or the other.

What is in no table is UNKNOWN_SERVER_ERROR. A gateway logs it with the client's id.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import Final

from raylog import errors


class ErrorCode(IntEnum):
    """Kafka's error codes, as far as a gateway says them. The names are Kafka's."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    SECURITY_DISABLED = 54
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    FENCED_MEMBER_EPOCH = 110
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    UNSUPPORTED_ENDPOINT_TYPE = 115
    TRANSACTION_ABORTABLE = 120
    INVALID_REGULAR_EXPRESSION = 128


class Asked(Enum):
    """A kind of request in whose answer the same error has another code."""

    ANYTHING = auto()
    BY_TOPIC_ID = auto()
    ASSIGNMENT = auto()  # of replicas to brokers
    PRODUCE = auto()
    FETCH = auto()
    CLASSIC_GROUP = auto()
    SYNC = auto()  # of a classic group
    COMMIT = auto()
    OFFSET_FETCH = auto()
    OFFSET_DELETE = auto()
    DESCRIBE_TRANSACTION = auto()
    PROTOCOL_1 = auto()  # of a transaction by a client that knows no TRANSACTION_ABORTABLE
    COORDINATOR = auto()


_CODES: Final[dict[type[errors.RaylogError], ErrorCode]] = {
    # topics, and who leads them
    errors.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    errors.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.LeadershipLost: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.PeerUnreachable: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.PeerNotAdmitted: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.StreamNotOpen: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.ReplicaCrashed: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.InspectionUnderWay: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.OnlyCopyDamaged: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.MetadataNotReady: ErrorCode.LEADER_NOT_AVAILABLE,
    errors.ClusterUnreachable: ErrorCode.LEADER_NOT_AVAILABLE,
    errors.StaleLeaderEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    errors.UnknownLeaderEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    errors.InvalidLeaderEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    # what took too long, or may have been done
    errors.AppendTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    errors.DeletionTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    errors.RequestTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    errors.StreamClosed: ErrorCode.REQUEST_TIMED_OUT,
    errors.TooManyBytesInFlight: ErrorCode.REQUEST_TIMED_OUT,
    errors.AdminTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    errors.MetadataQuorumUnavailable: ErrorCode.REQUEST_TIMED_OUT,
    errors.ControllerStopped: ErrorCode.REQUEST_TIMED_OUT,
    errors.GroupRequestTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    errors.NotEnoughReplicas: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.NotEnoughReplicasAfterAppend: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    # batches and offsets
    errors.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    errors.InvalidBatch: ErrorCode.INVALID_RECORD,
    errors.UnsupportedCodec: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    errors.BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.PayloadTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.MessageTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.FrameTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.OffsetNotAvailable: ErrorCode.OFFSET_NOT_AVAILABLE,
    errors.DiskError: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.LogDamaged: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.LogOffline: ErrorCode.KAFKA_STORAGE_ERROR,
    # requests
    errors.InvalidRequest: ErrorCode.INVALID_REQUEST,
    errors.MalformedRequest: ErrorCode.INVALID_REQUEST,
    errors.UnsupportedRequestVersion: ErrorCode.UNSUPPORTED_VERSION,
    errors.InternalOnly: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    errors.SaslRefused: ErrorCode.SASL_AUTHENTICATION_FAILED,
    # topics and settings
    errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.InternalTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.PolicyViolation: ErrorCode.POLICY_VIOLATION,
    errors.TooManyPartitionsAtOnce: ErrorCode.POLICY_VIOLATION,
    errors.ConfigError: ErrorCode.INVALID_CONFIG,
    errors.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    errors.InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
    errors.InvalidReplicaAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    errors.BrokerNotAvailable: ErrorCode.BROKER_NOT_AVAILABLE,
    errors.NoReassignment: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    errors.ElectionNotNeeded: ErrorCode.ELECTION_NOT_NEEDED,
    errors.PreferredLeaderNotAvailable: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    errors.EligibleLeadersNotAvailable: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    errors.ControllerNotReady: ErrorCode.NOT_CONTROLLER,
    errors.ControllerFenced: ErrorCode.NOT_CONTROLLER,
    # coordinators and groups
    errors.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    errors.CoordinatorReplaced: ErrorCode.NOT_COORDINATOR,
    errors.StaleCoordinator: ErrorCode.NOT_COORDINATOR,
    errors.CoordinatorLoading: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    errors.CoordinatorNotReady: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.CoordinatorNotStarted: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.CoordinatorStopped: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.CoordinatorRecordUnknown: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.GroupNotRead: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.InvalidGroupId: ErrorCode.INVALID_GROUP_ID,
    errors.InvalidMembership: ErrorCode.INVALID_REQUEST,
    errors.InvalidSubscription: ErrorCode.INVALID_REGULAR_EXPRESSION,
    errors.UnknownGroup: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.GroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
    errors.GroupFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.InconsistentGroupProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.FencedMember: ErrorCode.FENCED_MEMBER_EPOCH,
    errors.StaleHeartbeat: ErrorCode.FENCED_MEMBER_EPOCH,
    errors.FencedInstance: ErrorCode.FENCED_INSTANCE_ID,
    errors.PartitionNotOwned: ErrorCode.STALE_MEMBER_EPOCH,
    errors.UnknownAssignor: ErrorCode.UNSUPPORTED_ASSIGNOR,
    errors.InvalidOffset: ErrorCode.INVALID_REQUEST,
    errors.OffsetBeyondEnd: ErrorCode.INVALID_REQUEST,
    errors.OffsetMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    errors.UnstableOffset: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    # producers and transactions
    errors.EarlierBatchFailed: ErrorCode.NOT_LEADER_OR_FOLLOWER,  # after which a client repeats it, in order
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.ProducerFenced: ErrorCode.PRODUCER_FENCED,
    errors.CoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    errors.StaleTransaction: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    errors.InvalidTransactionalId: ErrorCode.INVALID_REQUEST,
    errors.UnknownTransactionalId: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    errors.InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    errors.ConcurrentTransaction: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.TransactionPending: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.TransactionAborted: ErrorCode.TRANSACTION_ABORTABLE,
    errors.TransactionTimedOut: ErrorCode.TRANSACTION_ABORTABLE,
    errors.TransactionTooLarge: ErrorCode.TRANSACTION_ABORTABLE,
    errors.OffsetsRefused: ErrorCode.TRANSACTION_ABORTABLE,
}

_NO_COORDINATOR: Final[dict[type[errors.RaylogError], ErrorCode]] = dict.fromkeys(
    (
        errors.PeerUnreachable,
        errors.PeerNotAdmitted,
        errors.StreamNotOpen,
        errors.StreamClosed,
        errors.RequestTimedOut,
        errors.TooManyBytesInFlight,
        errors.ClusterUnreachable,
        errors.MetadataNotReady,
    ),
    ErrorCode.NOT_COORDINATOR,  # after which every client looks for it again
)

_OF_CLASSIC_GROUPS: Final[dict[type[errors.RaylogError], ErrorCode]] = {
    **_NO_COORDINATOR,
    errors.FencedMember: ErrorCode.ILLEGAL_GENERATION,
    errors.GroupRequestTimedOut: ErrorCode.NOT_COORDINATOR,
    errors.InvalidMembership: ErrorCode.INVALID_SESSION_TIMEOUT,
}

_IN_ANSWER_TO: Final[dict[Asked, dict[type[errors.RaylogError], ErrorCode]]] = {
    Asked.BY_TOPIC_ID: {errors.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_ID},
    Asked.ASSIGNMENT: dict.fromkeys(
        (errors.UnknownBroker, errors.BrokerNotAvailable), ErrorCode.INVALID_REPLICA_ASSIGNMENT
    ),
    Asked.PRODUCE: {
        errors.ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
        # The epoch was the gateway's, not the client's.
        errors.StaleLeaderEpoch: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        errors.UnknownLeaderEpoch: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    },
    # A reader that hears anything else than the codes of Fetch gives up: Java's throws an exception.
    Asked.FETCH: {
        errors.StreamClosed: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        errors.RequestTimedOut: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        errors.TooManyBytesInFlight: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        errors.MetadataNotReady: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        errors.ClusterUnreachable: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        errors.CorruptBatch: ErrorCode.KAFKA_STORAGE_ERROR,
        errors.InvalidBatch: ErrorCode.KAFKA_STORAGE_ERROR,
    },
    Asked.CLASSIC_GROUP: _OF_CLASSIC_GROUPS,
    # Java's clients give up where they hear that it loads, which Kafka does not say in answer to SyncGroup.
    Asked.SYNC: {**_OF_CLASSIC_GROUPS, errors.CoordinatorLoading: ErrorCode.REBALANCE_IN_PROGRESS},
    Asked.COMMIT: {
        **_NO_COORDINATOR,
        errors.FencedMember: ErrorCode.ILLEGAL_GENERATION,
        errors.GroupNotEmpty: ErrorCode.UNKNOWN_MEMBER_ID,
    },
    # Java's readers give up after COORDINATOR_NOT_AVAILABLE.
    Asked.OFFSET_FETCH: {
        **_NO_COORDINATOR,
        errors.CoordinatorNotReady: ErrorCode.NOT_COORDINATOR,
        errors.CoordinatorNotStarted: ErrorCode.NOT_COORDINATOR,
        errors.CoordinatorStopped: ErrorCode.NOT_COORDINATOR,
        errors.CoordinatorRecordUnknown: ErrorCode.NOT_COORDINATOR,
    },
    Asked.OFFSET_DELETE: {**_NO_COORDINATOR, errors.GroupNotEmpty: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC},
    Asked.DESCRIBE_TRANSACTION: {errors.UnknownTransactionalId: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND},
    Asked.PROTOCOL_1: {
        errors.ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
        errors.TransactionAborted: ErrorCode.INVALID_PRODUCER_EPOCH,
        errors.TransactionTimedOut: ErrorCode.INVALID_PRODUCER_EPOCH,
        errors.TransactionTooLarge: ErrorCode.INVALID_PRODUCER_EPOCH,
        errors.OffsetsRefused: ErrorCode.INVALID_PRODUCER_EPOCH,
    },
    Asked.COORDINATOR: {errors.ClusterUnreachable: ErrorCode.COORDINATOR_NOT_AVAILABLE},
}

# Errors that no answer of a gateway can carry, with all that extend them; unless one has a code above.
ELSEWHERE: Final[tuple[type[errors.RaylogError], ...]] = (
    errors.ClientError,  # said by raylog's own clients in their own process
    errors.SparkError,
    errors.JobError,  # likewise, in a job of Spark or of Ray Data
    errors.RuntimeUnavailable,  # of Ray, at the start of something
    errors.CompactionError,  # within a broker
    errors.DirectoryError,  # at the start of a broker
    errors.UnsupportedFormat,  # at the start of a replica
    errors.FencedError,  # between replicas, brokers and the controller
    errors.KafkaSchemasMissing,  # at the start of a gateway
    errors.KafkaAddressTaken,
    errors.KafkaListenersDiffer,
    errors.KafkaClientTooSlow,  # whose connection is closed
    errors.NotAuthenticated,  # likewise
    # Requests that Kafka has not got.
    errors.TooManyWatches,
    errors.BrokerInUse,
    errors.NeverLed,
    errors.LossNotAccepted,
    errors.SetAsideUnknown,
    errors.FamilyFenced,
    errors.FamilyTooLarge,
    errors.UnknownUser,
    errors.UserExists,
    errors.InvalidUser,
    errors.InvalidAccessRule,
    errors.SecurityLimitReached,
    errors.PoolExists,
    errors.PoolNotReady,
    errors.UnknownPool,
    # Between raylog's own processes.
    errors.OffsetsNotContiguous,
    errors.ReplicaNotFree,
    errors.HostNotWanted,
    errors.HostNotStarted,
    errors.ReplicaNotStarted,
    errors.MetadataNotBlank,
    errors.VotersNotChanged,
    errors.MetadataCopyOffline,
    errors.MetadataDiverged,
    errors.MetadataRecordUnknown,
    errors.FrameInvalid,
    errors.MessageUnknown,
    errors.SocketInUse,
    # A gateway cannot say more than UNKNOWN_SERVER_ERROR: something is broken.
    errors.AnswerUnexpected,
    errors.RemoteFailed,
    errors.AssignorFailed,
)


def code_of(error: BaseException, asked: Asked = Asked.ANYTHING) -> ErrorCode:
    """Return the code of an error in the answer to what was asked."""
    special = _IN_ANSWER_TO.get(asked, {})
    for each in type(error).__mro__:
        code = special.get(each) or _CODES.get(each)
        if code is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR


def has_code(error: type[errors.RaylogError]) -> bool:
    """Whether this class, or one that it extends, stands in the table."""
    return any(each in _CODES for each in error.__mro__)
