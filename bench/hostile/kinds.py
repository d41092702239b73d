"""The messages that a client may send, by the processes that take them."""

from __future__ import annotations

from typing import Final

from raylog.actors.protocol.control_messages import AllocateProducerIds, GetMetadata
from raylog.actors.protocol.coordinator_messages import EnsureCoordinators
from raylog.actors.protocol.messages import Ping
from raylog.actors.protocol.replication_messages import (
    Append,
    AppendTransactional,
    Fetch,
    FindEpochEnd,
    ListOffset,
    ListOffsets,
    ListOpenTransactions,
    SuspectBatch,
    WatchRecords,
)
from raylog.actors.protocol.transaction_family_messages import EndFamily, InitFamily, JoinFamily, KeepFamily
from raylog.actors.protocol.transaction_messages import (
    AbortTransaction,
    AddGroup,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
)
from raylog.groups.records.classic_messages import (
    ClassicHeartbeat,
    DescribeClassic,
    JoinClassic,
    LeaveClassic,
    ListBothKinds,
    SyncClassic,
)
from raylog.groups.records.messages import (
    AlterOffsets,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    GroupHeartbeat,
    ListGroups,
    ListStaged,
    RemoveMembers,
    StageOffsets,
)

BROKERS: Final = (GetMetadata, AllocateProducerIds, EnsureCoordinators, Ping)
LEADERS: Final = (
    Append, AppendTransactional, Fetch, FindEpochEnd, ListOffset, ListOpenTransactions, SuspectBatch,
    ListOffsets, WatchRecords, Ping,
)  # fmt: skip
GROUPS: Final = (
    GroupHeartbeat, CommitOffsets, FetchOffsets, StageOffsets, ListGroups, DescribeGroup, DeleteGroup, DeleteOffsets,
    RemoveMembers, AlterOffsets, ListStaged, Ping,
    JoinClassic, SyncClassic, ClassicHeartbeat, LeaveClassic, DescribeClassic, ListBothKinds,
)  # fmt: skip
TRANSACTIONS: Final = (
    InitProducer, AddGroup, EndTransaction, ListTransactions, DescribeTransaction, AbortTransaction,
    InitFamily, JoinFamily, EndFamily, KeepFamily, Ping,
)  # fmt: skip
ATTACKED: Final = {
    "broker": BROKERS,
    "leader": LEADERS,
    "coordinator of groups": GROUPS,
    "coordinator of transactions": TRANSACTIONS,
}
