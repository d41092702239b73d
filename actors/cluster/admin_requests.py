"""The requests of administrators to the controller: one frozen request for each call, with the type of its answer.

    api: Cluster.delete_topic ──DeleteTopic──► ControllerCalls ──Ray──► ControllerActor.admin ──► admin_calls.carry_out

`call` is what people know the request by. Errors name it, together with `about` where there is one: a topic, a broker.
A request that only looks is repeatable: it is asked again when the controller was lost before it answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from raylog.actors.cluster.copies import PartitionCopies, SetAsideListing
from raylog.actors.cluster.descriptions import (
    BrokerLogs,
    ClusterDescription,
    PartitionDescription,
    ReplicaDescription,
    TopicDescription,
    TopicSettingsDescription,
)
from raylog.actors.cluster.setting_edits import SettingEdit
from raylog.config import ConfigValue
from raylog.errors import RaylogError

_T = TypeVar("_T")


@dataclass(frozen=True)
class AdminRequest(Generic[_T]):
    """A call of the controller that is answered with a `_T`."""

    call: ClassVar[str]
    is_repeatable: ClassVar[bool] = False

    @property
    def about(self) -> str | int | None:
        """The topic, the broker or the log that the request changes."""
        return None

    @property
    def asked(self) -> str:
        """The call as errors name it."""
        return self.call if self.about is None else f"{self.call}({self.about!r})"


# --- looking ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DescribeCluster(AdminRequest[ClusterDescription]):
    """The cluster as a whole, with its brokers."""

    call = "describe_cluster"
    is_repeatable = True


@dataclass(frozen=True)
class DescribeClusterSettings(AdminRequest[dict[str, ConfigValue]]):
    """All settings of the whole cluster."""

    call = "describe_cluster_settings"
    is_repeatable = True


@dataclass(frozen=True)
class ListTopics(AdminRequest[tuple[str, ...]]):
    """Names of topics, sorted."""

    call = "list_topics"
    is_repeatable = True

    internal: bool  # those of raylog itself too


@dataclass(frozen=True)
class DescribeTopic(AdminRequest[TopicDescription]):
    """A topic with its settings and its partitions."""

    call = "describe_topic"
    is_repeatable = True

    topic: str


@dataclass(frozen=True)
class DescribeReplicas(AdminRequest[tuple[ReplicaDescription, ...]]):
    """The replicas of a topic, by partition."""

    call = "describe_replicas"
    is_repeatable = True

    topic: str


@dataclass(frozen=True)
class DescribeTopicSettings(AdminRequest[dict[str, TopicSettingsDescription]]):
    """Settings of topics, by their names. Those that do not exist are left out."""

    call = "describe_topic_settings"
    is_repeatable = True

    topics: Sequence[str]


@dataclass(frozen=True)
class DescribeBrokerLogs(AdminRequest[BrokerLogs]):
    """The disk of a broker, and the logs on it."""

    call = "describe_broker_logs"
    is_repeatable = True

    broker_id: int


@dataclass(frozen=True)
class ListReassignments(AdminRequest[tuple[PartitionDescription, ...]]):
    """The partitions that are being moved."""

    call = "list_reassignments"
    is_repeatable = True


@dataclass(frozen=True)
class DescribeCopies(AdminRequest[PartitionCopies]):
    """Every copy of a partition."""

    call = "describe_copies"
    is_repeatable = True

    topic: str
    partition: int


@dataclass(frozen=True)
class ListSetAsideLogs(AdminRequest[SetAsideListing]):
    """All logs that were set aside."""

    call = "list_set_aside"
    is_repeatable = True


# --- changing -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CreateTopic(AdminRequest[TopicDescription]):
    """A new topic. `assignment` stands for the two numbers: brokers by partition, the preferred leader first.

    `topic_id`: 16 bytes that the requester has drawn, and by which it knows the topic again; empty: any.
    `validate_only`: make nothing, and answer with what would be made.
    """

    call = "create_topic"

    name: str
    partitions: int | None
    replication_factor: int | None
    assignment: Sequence[Sequence[int]] | None
    settings: Mapping[str, ConfigValue]
    topic_id: bytes = b""
    validate_only: bool = False

    @property
    def about(self) -> str:
        return self.name


@dataclass(frozen=True)
class DeleteTopic(AdminRequest[None]):
    """The end of a topic. `topic_id`: only if it has this id; empty: any."""

    call = "delete_topic"

    topic: str
    topic_id: bytes = b""

    @property
    def about(self) -> str:
        return self.topic


@dataclass(frozen=True)
class CreatePartitions(AdminRequest[TopicDescription]):
    """More partitions of a topic, `total` in all. `assignment` is that of the new ones."""

    call = "create_partitions"

    topic: str
    total: int
    assignment: Sequence[Sequence[int]] | None
    validate_only: bool = False

    @property
    def about(self) -> str:
        return self.topic


@dataclass(frozen=True)
class AlterTopicSettings(AdminRequest[TopicDescription]):
    """Other settings of a topic. None: back to the default."""

    call = "alter_topic_settings"

    topic: str
    changes: Mapping[str, ConfigValue | None]

    @property
    def about(self) -> str:
        return self.topic


@dataclass(frozen=True)
class EditTopicSettings(AdminRequest[None]):
    """Changes of a topic's settings as Kafka's tools make them. `replaces`: all others go back to the default."""

    call = "edit_topic_settings"

    topic: str
    edits: Sequence[SettingEdit]
    replaces: bool
    validate_only: bool

    @property
    def about(self) -> str:
        return self.topic


@dataclass(frozen=True)
class EditClusterSettings(AdminRequest[None]):
    """The same for the settings of the whole cluster that they may change."""

    call = "edit_cluster_settings"

    edits: Sequence[SettingEdit]
    validate_only: bool


@dataclass(frozen=True)
class AlterClusterSettings(AdminRequest[None]):
    """Other settings of the whole cluster. None: back to the default."""

    call = "alter_cluster_settings"

    changes: Mapping[str, ConfigValue | None]


@dataclass(frozen=True)
class ElectLeaders(AdminRequest[dict[tuple[str, int], RaylogError]]):
    """Elections by `leader_election.PREFERRED` or `UNCLEAN`. `partitions` None: wherever it changes something."""

    call = "elect_leaders"

    kind: str
    partitions: Sequence[tuple[str, int]] | None


@dataclass(frozen=True)
class Reassign(AdminRequest[None]):
    """Moves of partitions to other brokers, and how fast replicas may catch up for moves (bytes a second)."""

    call = "reassign"

    targets: Mapping[tuple[str, int], Sequence[int]]
    throttle: int | None


@dataclass(frozen=True)
class CancelReassignments(AdminRequest[None]):
    """The end of moves, back to the replicas from before. None: all moves."""

    call = "cancel_reassignments"

    partitions: Sequence[tuple[str, int]] | None


@dataclass(frozen=True)
class ChangeReplicationFactor(AdminRequest[None]):
    """Another number of replicas for all partitions of a topic."""

    call = "change_replication_factor"

    topic: str
    replication_factor: int

    @property
    def about(self) -> str:
        return self.topic


@dataclass(frozen=True)
class DrainBroker(AdminRequest[None]):
    """The move of everything away from a broker."""

    call = "drain_broker"

    broker_id: int
    force: bool
    wait: bool

    @property
    def about(self) -> int:
        return self.broker_id


@dataclass(frozen=True)
class UndrainBroker(AdminRequest[None]):
    """The end of a broker's draining: it stays."""

    call = "undrain_broker"

    broker_id: int

    @property
    def about(self) -> int:
        return self.broker_id


@dataclass(frozen=True)
class RecoverPartition(AdminRequest[PartitionCopies]):
    """A person's choice of the copy that is to lead."""

    call = "recover_partition"

    topic: str
    partition: int
    broker: int
    accept_loss: bool
    aside: str

    @property
    def about(self) -> str:
        return self.topic


@dataclass(frozen=True)
class DropSetAsideLog(AdminRequest[int]):
    """The removal of a log that was set aside, for good. The answer is its broker."""

    call = "drop_set_aside"

    name: str
    broker: int | None

    @property
    def about(self) -> str:
        return self.name
