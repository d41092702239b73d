"""The handle of a cluster: administration, as thin calls to its controller.

Every call has a time-out and ends in an answer or in one typed error that says what to do. A call that changes
something and loses its controller on the way ends in ControllerLost or AdminTimedOut: it may have been carried out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, Literal

from raylog.actors.cluster.admin_requests import (
    AlterClusterSettings,
    AlterTopicSettings,
    CancelReassignments,
    ChangeReplicationFactor,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    DescribeCluster,
    DescribeClusterSettings,
    DescribeReplicas,
    DescribeTopic,
    DrainBroker,
    ElectLeaders,
    ListReassignments,
    ListTopics,
    Reassign,
    UndrainBroker,
)
from raylog.actors.cluster.descriptions import (
    ClusterDescription,
    PartitionDescription,
    ReplicaDescription,
    TopicDescription,
)
from raylog.api.admin.asking import ask_admin
from raylog.api.admin.cluster_copies import ClusterCopies
from raylog.api.admin.cluster_groups import ClusterGroups
from raylog.api.admin.cluster_pools import ClusterPools
from raylog.api.admin.cluster_security import ClusterSecurity
from raylog.api.admin.cluster_shutdown import end_actors
from raylog.api.admin.cluster_transactions import ClusterTransactions
from raylog.api.admin.kafka_admin_names import KafkaAdminNames
from raylog.api.connection.call_times import CALL_SECONDS, INSIDE
from raylog.api.connection.named_cluster import NamedCluster
from raylog.config import TOPIC_SETTINGS, ConfigValue, TopicConfig
from raylog.errors import RaylogError

SHUTDOWN_SECONDS: Final = 60.0
GRACE_SECONDS: Final = 3600.0  # for workers that have no Ray to ask for the new secret
_SHOW_SECONDS: Final = 5.0  # a notebook shows no result before this ends


class Cluster(
    NamedCluster, ClusterCopies, ClusterGroups, ClusterPools, ClusterSecurity, ClusterTransactions, KafkaAdminNames
):
    """The handle of a cluster, which `raylog.start` and `raylog.connect` return. It holds nothing that has to be
    closed.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._cluster_id = ""

    def __repr__(self) -> str:
        return f"Cluster({self.name!r})"

    def _repr_html_(self) -> str:
        """Return the brokers and topics as HTML for notebooks, or the error where they cannot be asked."""
        try:
            brokers, topics = self.describe_cluster(timeout=_SHOW_SECONDS), self.list_topics(timeout=_SHOW_SECONDS)
        except RaylogError as error:
            return f"<p><b>{escape(repr(self))}</b>: {escape(str(error))}</p>"
        named = f"<p>Topics: {escape(', '.join(topics))}</p>" if topics else "<p>No topics</p>"
        return brokers._repr_html_() + named

    @property
    def cluster_id(self) -> str:
        """The id that the cluster was given when it was formed."""
        if not self._cluster_id:
            self._cluster_id = self.access().cluster_id
        return self._cluster_id

    def shutdown(self, timeout: float = SHUTDOWN_SECONDS) -> None:
        """Stop all of its actors, cleanly as far as they let themselves be stopped so. The data stays."""
        end_actors(self._calls, timeout)

    # --- topics ---------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, ConfigValue] | None = None,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        timeout: float = CALL_SECONDS,
    ) -> TopicDescription:
        """A new topic. 1 partition, replicated 3 times or as often as there are brokers, where nothing else is said.

        `assignment`, in place of the two numbers: brokers by partition, the preferred leader first. Returns when each
        partition has a leader; TopicStillStarting: the topic is there, but that took too long.
        """
        request = CreateTopic(name, partitions, replication_factor, assignment, dict(config or {}))
        return ask_admin(self._calls, request, timeout)

    def list_topics(self, *, internal: bool = False, timeout: float = CALL_SECONDS) -> tuple[str, ...]:
        """Names, sorted; `internal`: also those of raylog itself."""
        return ask_admin(self._calls, ListTopics(internal), timeout)

    def describe_topic(self, name: str, *, timeout: float = CALL_SECONDS) -> TopicDescription:
        """The topic's partitions and settings. UnknownTopic."""
        return ask_admin(self._calls, DescribeTopic(name), timeout)

    def describe_replicas(self, name: str, *, timeout: float = CALL_SECONDS) -> tuple[ReplicaDescription, ...]:
        """Return the copies of each partition, by partition, the preferred leader first."""
        return ask_admin(self._calls, DescribeReplicas(name), timeout)

    def delete_topic(self, name: str, *, timeout: float = CALL_SECONDS) -> None:
        """Delete a topic. Its name is free at once; the brokers remove its data one after the other."""
        ask_admin(self._calls, DeleteTopic(name), timeout)

    def _add_partitions(
        self,
        name: str,
        total: int,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        timeout: float = CALL_SECONDS,
    ) -> TopicDescription:
        """Do what `create_partitions` does, which takes Kafka's arguments too, as `delete_records` and `elect_leaders`
        do.
        """
        return ask_admin(self._calls, CreatePartitions(name, total, assignment), timeout)

    def alter_topic_config(
        self, name: str, config: Mapping[str, ConfigValue | None], *, timeout: float = CALL_SECONDS
    ) -> None:
        """Change these settings; None: back to the default. All other settings stay."""
        ask_admin(self._calls, AlterTopicSettings(name, dict(config)), timeout)

    def describe_topic_config(self, name: str, *, timeout: float = CALL_SECONDS) -> dict[str, ConfigValue]:
        """All settings, under Kafka's names."""
        config = TopicConfig.parse(dict(self.describe_topic(name, timeout=timeout).settings))
        return {setting.name: getattr(config, setting.name.replace(".", "_")) for setting in TOPIC_SETTINGS}

    def alter_cluster_config(
        self, config: Mapping[str, ConfigValue | None], *, timeout: float = CALL_SECONDS
    ) -> None:
        """Change these settings of the whole cluster; None: back to the default. All other settings stay.

        >>> cluster.alter_cluster_config({"group.assignors": "our_package.by_region"})
        """
        ask_admin(self._calls, AlterClusterSettings(dict(config)), timeout)

    def describe_cluster_config(self, *, timeout: float = CALL_SECONDS) -> dict[str, ConfigValue]:
        """All settings of the whole cluster."""
        return ask_admin(self._calls, DescribeClusterSettings(), timeout)

    def _begin_logs_at(self, starts: Mapping[tuple[str, int], int], timeout: float) -> dict[tuple[str, int], int]:
        """Do what `delete_records` does, with offsets by name and partition."""
        answer: dict[tuple[str, int], int] = self._calls.ask(
            "delete_records", dict(starts), INSIDE * timeout, timeout=timeout, repeatable=True
        )
        return answer

    # --- leaders and replicas -------------------------------------------------------------------------------------

    def _elect_leaders(
        self, kind: Literal["preferred", "unclean"], partitions: Sequence[tuple[str, int]] | None, timeout: float
    ) -> dict[tuple[str, int], RaylogError]:
        """Do what `elect_leaders` does, with partitions by name and number."""
        return ask_admin(self._calls, ElectLeaders(kind, partitions), timeout)

    def reassign_partitions(
        self,
        targets: Mapping[tuple[str, int], Sequence[int]],
        *,
        throttle: int | None = None,
        timeout: float = CALL_SECONDS,
    ) -> None:
        """Move replicas: brokers by (topic, partition), the preferred leader first. It goes on after this returns.

        `throttle`: bytes a second for each broker. None receives more for all replicas that catch up for a move, and
        none sends more for those; the replicas have equal shares, and larger ones as others finish. It holds for every
        move, those of `drain_broker` and those under way too, until another is given; −1: as fast as it goes.
        """
        ask_admin(self._calls, Reassign(dict(targets), throttle), timeout)

    def list_reassignments(self, *, timeout: float = CALL_SECONDS) -> tuple[PartitionDescription, ...]:
        """The partitions that are on their way to other replicas. `describe_replicas` shows how far each has come."""
        return ask_admin(self._calls, ListReassignments(), timeout)

    def cancel_reassignment(
        self, partitions: Sequence[tuple[str, int]] | None = None, *, timeout: float = CALL_SECONDS
    ) -> None:
        """Go back to the replicas from before. None: for all reassignments that are under way."""
        ask_admin(self._calls, CancelReassignments(partitions), timeout)

    def change_replication_factor(self, name: str, replication_factor: int, *, timeout: float = CALL_SECONDS) -> None:
        """Add replicas to all partitions of a topic, or take some away. It goes on after this returns."""
        ask_admin(self._calls, ChangeReplicationFactor(name, replication_factor), timeout)

    # --- brokers --------------------------------------------------------------------------------------------------

    def describe_cluster(self, *, timeout: float = CALL_SECONDS) -> ClusterDescription:
        """Brokers, controller and health of the cluster."""
        return ask_admin(self._calls, DescribeCluster(), timeout)

    def kafka_addresses(self, *, timeout: float = CALL_SECONDS) -> list[str]:
        """Return the HOST:PORT of each broker that serves Kafka clients now: what they take as `bootstrap.servers`."""
        return self.describe_cluster(timeout=timeout).kafka

    def drain_broker(
        self, broker: int, *, force: bool = False, wait: bool = True, timeout: float = CALL_SECONDS
    ) -> None:
        """Move everything off this broker, before its node is taken away; done once it holds nothing.

        `force`: where a replica has nowhere to go, make do with fewer. Out of time, or without `wait`, it goes on.
        """
        ask_admin(self._calls, DrainBroker(broker, force, wait), timeout)

    def undrain_broker(self, broker: int, *, timeout: float = CALL_SECONDS) -> None:
        """Keep the broker after all: new replicas may be placed on it again."""
        ask_admin(self._calls, UndrainBroker(broker), timeout)

    def remove_broker(self, broker: int, *, timeout: float = CALL_SECONDS) -> None:
        """Stop a drained broker for good, and forget it. UnknownBroker; BrokerInUse: it runs on."""
        self._calls.ask("remove_broker", broker, INSIDE * timeout, timeout=timeout)

    def rotate_secrets(self, *, grace: float = GRACE_SECONDS, timeout: float = CALL_SECONDS) -> None:
        """Let the cluster have new secrets, without a stop. Returns when every broker that runs keeps them.

        `grace`: for so many seconds the former ones are valid too. Clients that reach Ray fetch the new one when they
        need it; programs without Ray, such as Spark's workers, have to be started anew within that time.
        AdminTimedOut: a broker has not answered yet, and it goes on; until all have, the former stay valid.
        """
        self._calls.ask("rotate_secrets", grace, INSIDE * timeout, timeout=timeout)
