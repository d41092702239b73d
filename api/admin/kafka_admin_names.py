"""Administration under the names of kafka-python's admin client, for who has typed them for years.

    cluster.create_topics([raylog.NewTopic("clicks", num_partitions=6)])
    cluster.list_consumer_group_offsets("billing")

Names and arguments are those of kafka-python 2 and 3. Answers are raylog's descriptions, and what is refused is raised
as raylog's errors: kafka-python hands out the fields of its wire protocol, which differ between its versions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, overload

from raylog.api.admin.rules.kafka_admin_arguments import (
    ConfigEntry,
    ElectionType,
    Member,
    NewTopics,
    PartitionCount,
    Reassignment,
    Resource,
    TopicPartitions,
    changes_of,
    election,
    entries,
    is_of_cluster,
    pairs_of,
    partition_arguments,
    refuse,
    topic_arguments,
)
from raylog.api.connection.former_names import formerly
from raylog.api.connection.records import OffsetAndMetadata, TopicPartition
from raylog.config import TopicConfig
from raylog.errors import RaylogError

if TYPE_CHECKING:
    from raylog.actors.cluster.descriptions import TopicDescription
    from raylog.api.admin.cluster import Cluster
    from raylog.api.admin.rules.group_descriptions import GroupDescription
    from raylog.api.admin.rules.transaction_descriptions import TransactionDescription

_K = TypeVar("_K")
_T = TypeVar("_T")
_CALL_SECONDS: Final = 30.0
_LEAST_SECONDS: Final = 0.1
_OK: Final = "OK"


class KafkaAdminNames:
    """`Cluster` is one of these."""

    @property
    def _handle(self) -> Cluster:
        return cast("Cluster", self)

    def close(self) -> None:
        """Nothing: a handle holds nothing that has to be closed. `shutdown` stops the cluster."""

    # --- topics ---------------------------------------------------------------------------------------------------

    def create_topics(
        self,
        new_topics: NewTopics,
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = True,
    ) -> dict[str, TopicDescription | RaylogError]:
        """Make topics, each with leaders: of NewTopic, of names, or of names with options.

        Those that can be made are made. The first error is raised then; without `raise_errors` all stand in the
        answer.

        >>> cluster.create_topics([raylog.NewTopic("clicks", num_partitions=6, replication_factor=3)])
        """
        refuse(validate_only=validate_only)
        topics = topic_arguments(new_topics)

        def create(name: str, timeout: float) -> TopicDescription:
            return self._handle.create_topic(name, **topics[name], timeout=timeout)

        return _each(topics, create, timeout_ms, raise_errors)

    def delete_topics(
        self, topics: Sequence[str], timeout_ms: float | None = None, raise_errors: bool = True
    ) -> dict[str, RaylogError | None]:
        """Delete topics and their records. By name, None, or why not; the first error is raised."""
        return _each(_list_of(topics), lambda name, left: self._handle.delete_topic(name, timeout=left),
                     timeout_ms, raise_errors)  # fmt: skip

    def describe_topics(self, topics: Sequence[str] | None = None) -> list[TopicDescription]:
        """Describe these topics; None: all but raylog's own."""
        names = self._handle.list_topics() if topics is None else _list_of(topics)
        return [self._handle.describe_topic(name) for name in names]

    @overload
    def create_partitions(
        self,
        name: str,
        total: int,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        timeout: float = _CALL_SECONDS,
    ) -> TopicDescription: ...

    @overload
    def create_partitions(
        self,
        topic_partitions: Mapping[str, PartitionCount],
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> dict[str, TopicDescription | RaylogError]: ...

    def create_partitions(self, *args: Any, **kwargs: Any) -> Any:
        """Let a topic have `total` partitions, more than now; `assignment`: brokers of the new ones.

        Or topics, each by name with how many it is to have: a number, or a NewPartitions.

        >>> cluster.create_partitions("clicks", 12)
        >>> cluster.create_partitions({"clicks": 12, "views": raylog.NewPartitions(6)})
        """
        if "topic_partitions" in kwargs or isinstance(args[0] if args else None, Mapping):
            return self._create_partitions_of(*args, **kwargs)
        return self._handle._add_partitions(*args, **kwargs)

    def _create_partitions_of(
        self,
        topic_partitions: Mapping[str, PartitionCount],
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> dict[str, TopicDescription | RaylogError]:
        refuse(validate_only=validate_only)

        def create(name: str, timeout: float) -> TopicDescription:
            total, assignment = partition_arguments(topic_partitions[name])
            return self._handle._add_partitions(name, total, assignment=assignment, timeout=timeout)

        return _each(topic_partitions, create, timeout_ms, raise_errors)

    @formerly(before="records_to_delete")
    def delete_records(
        self,
        records_to_delete: Mapping[tuple[str, int], int],
        timeout_ms: float | None = None,
        partition_leader_id: int | None = None,
        *,
        timeout: float = _CALL_SECONDS,
    ) -> dict[tuple[str, int], int]:
        """Let these (topic, partition) begin at an offset, −1: at the high watermark. Where they begin now.

        InternalTopic, PolicyViolation: only compaction removes records there.
        """
        return self._handle._begin_logs_at(records_to_delete, _seconds(timeout_ms, timeout))

    # --- settings -------------------------------------------------------------------------------------------------

    def describe_configs(
        self, config_resources: Iterable[Resource], include_synonyms: bool = False, config_filter: object = "modified"
    ) -> dict[str, dict[str, dict[str, ConfigEntry]]]:
        """Return the settings that differ from the defaults, or those of another filter, by type ("topic", "broker")
        and name.

        >>> found = cluster.describe_configs([raylog.ConfigResource("topic", "clicks")], config_filter="all")
        >>> found["topic"]["clicks"]["retention.ms"]["value"]
        """
        refuse(include_synonyms=include_synonyms)
        found: dict[str, dict[str, dict[str, ConfigEntry]]] = {}
        for resource in config_resources:
            if is_of_cluster(resource):
                present: Mapping[str, Any] = self._handle.describe_cluster_config()
                defaults: Mapping[str, Any] = dict.fromkeys(present, "")
            else:
                present = self._handle.describe_topic_config(resource.name)
                defaults = {name: getattr(TopicConfig, name.replace(".", "_")) for name in present}
            described = entries(present, defaults, resource, config_filter)
            found.setdefault(_type_of(resource), {})[resource.name] = described
        return found

    def alter_configs(
        self, config_resources: Iterable[Resource], validate_only: bool = False
    ) -> dict[str, dict[str, str]]:
        """Change settings; those that are not named stay. None as a value: back to the default.

        >>> cluster.alter_configs([raylog.ConfigResource("topic", "clicks", {"retention.ms": "1h"})])
        """
        refuse(validate_only=validate_only)
        resources = list(config_resources)
        all_changes = [changes_of(resource) for resource in resources]
        done: dict[str, dict[str, str]] = {}
        for resource, changes in zip(resources, all_changes, strict=True):
            if is_of_cluster(resource):
                self._handle.alter_cluster_config(changes)
            else:
                self._handle.alter_topic_config(resource.name, changes)
            done.setdefault(_type_of(resource), {})[resource.name] = _OK
        return done

    def reset_configs(
        self, config_resources: Iterable[Resource], validate_only: bool = False
    ) -> dict[str, dict[str, str]]:
        """Put settings back to their defaults: those named in `configs`, or where none are named all."""
        refuse(validate_only=validate_only)
        done: dict[str, dict[str, str]] = {}
        for resource in config_resources:
            names = list(resource.configs or self.describe_configs([resource])[_type_of(resource)][resource.name])
            if is_of_cluster(resource):
                self._handle.alter_cluster_config(dict.fromkeys(names))
            else:
                self._handle.alter_topic_config(resource.name, dict.fromkeys(names))
            done.setdefault(_type_of(resource), {})[resource.name] = _OK
        return done

    # --- consumer groups ------------------------------------------------------------------------------------------

    def list_consumer_groups(self, broker_ids: Sequence[int] | None = None) -> list[tuple[str, str]]:
        """Group ids, each with the type of its protocol. `list_groups` tells more."""
        refuse(broker_ids=broker_ids is not None)
        return [(each.group_id, "consumer") for each in self._handle.list_groups()]

    def describe_consumer_groups(
        self,
        group_ids: Sequence[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[GroupDescription]:
        """Members, offsets and lag of each. UnknownGroup."""
        refuse(include_authorized_operations=include_authorized_operations)
        return [self._handle.describe_group(group_id) for group_id in _list_of(group_ids)]

    def describe_groups(
        self,
        group_ids: Sequence[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, GroupDescription]:
        """The same by group id."""
        described = self.describe_consumer_groups(group_ids, None, include_authorized_operations)
        return {each.group_id: each for each in described}

    def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Iterable[tuple[str, int]] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what a group has committed, of these partitions or of all. UnknownGroup."""
        found = self._handle.list_group_offsets(group_id)
        return found if partitions is None else {each: at for each, at in found.items() if each in {*partitions}}

    def delete_groups(
        self, group_ids: Sequence[str], group_coordinator_id: int | None = None
    ) -> dict[str, RaylogError | None]:
        """Delete groups with their offsets. By group id, None, or why it stays: nothing is raised."""
        return _each(_list_of(group_ids), lambda group_id, left: self._handle.delete_group(group_id, timeout=left))

    def delete_consumer_groups(
        self, group_ids: Sequence[str], group_coordinator_id: int | None = None
    ) -> list[tuple[str, RaylogError | None]]:
        """The same as a list."""
        return list(self.delete_groups(group_ids).items())

    def remove_group_members(
        self, group_id: str, members: Iterable[Member], group_coordinator_id: int | None = None
    ) -> None:
        """Let members go, dynamic ones by member_id, static ones by group_instance_id. UnknownGroup, UnknownMember."""
        chosen = list(members)
        ids = [each.member_id for each in chosen if each.member_id]
        instances = [each.group_instance_id for each in chosen if each.group_instance_id and not each.member_id]
        reason = next((each.reason for each in chosen if each.reason), "removed by an administrator")
        if ids or instances:
            self._handle.remove_members(group_id, ids, instances=instances, reason=reason)

    # --- leaders and replicas -------------------------------------------------------------------------------------

    @formerly(kind="election_type", partitions="topic_partitions")
    def elect_leaders(
        self,
        election_type: ElectionType = "preferred",
        topic_partitions: TopicPartitions | None = None,
        timeout_ms: float | None = None,
        *,
        timeout: float = _CALL_SECONDS,
    ) -> dict[tuple[str, int], RaylogError]:
        """Elect the preferred leaders, or with "unclean" any that run, where there is none.

        `topic_partitions`: (topic, partition), names of topics, or numbers by topic. None: wherever it changes
        something. Returns what was refused, and why.
        """
        seconds = _seconds(timeout_ms, timeout)
        chosen = None
        if topic_partitions is not None:
            chosen = list(pairs_of(topic_partitions, lambda topic: len(self._handle.describe_topic(topic).partitions)))
        return self._handle._elect_leaders(election(election_type), chosen, seconds)

    def perform_leader_election(
        self,
        election_type: ElectionType,
        topic_partitions: TopicPartitions | None = None,
        timeout_ms: float | None = None,
    ) -> dict[tuple[str, int], RaylogError]:
        """Do what `elect_leaders` does."""
        return self.elect_leaders(election_type, topic_partitions, timeout_ms)

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: float | None = None
    ) -> dict[TopicPartition, None]:
        """Move replicas to these brokers; None: cancel the move that is under way. It goes on after this returns."""
        seconds = _seconds(timeout_ms)
        moved: dict[tuple[str, int], Sequence[int]] = {
            each: list(brokers) for each, brokers in reassignments.items() if brokers is not None
        }
        cancelled = [each for each, brokers in reassignments.items() if brokers is None]
        if moved:
            self._handle.reassign_partitions(moved, timeout=seconds)
        if cancelled:
            self._handle.cancel_reassignment(cancelled, timeout=seconds)
        return dict.fromkeys(reassignments)

    def list_partition_reassignments(
        self, topic_partitions: TopicPartitions | None = None, timeout_ms: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The partitions that are on their way to other brokers, all or of these."""
        found: dict[TopicPartition, Reassignment] = {
            TopicPartition(each.topic, each.partition): {
                "replicas": list(each.replicas),
                "adding_replicas": list(each.adding),
                "removing_replicas": list(each.removing),
            }
            for each in self._handle.list_reassignments(timeout=_seconds(timeout_ms))
        }
        if topic_partitions is None:
            return found
        chosen = set(pairs_of(topic_partitions, lambda topic: len(self._handle.describe_topic(topic).partitions)))
        return {each: moved for each, moved in found.items() if each in chosen}

    # --- transactions ---------------------------------------------------------------------------------------------

    def describe_transactions(self, transactional_ids: Sequence[str]) -> dict[str, TransactionDescription]:
        """Describe transactions, by transactional id. UnknownTransactionalId."""
        return {each: self._handle.describe_transaction(each) for each in _list_of(transactional_ids)}


def _each(
    items: Iterable[_K], call: Callable[[_K, float], _T], timeout_ms: float | None = None, raise_errors: bool = False
) -> dict[_K, _T | RaylogError]:
    """Do it with each, within one time-out; what came of it. The first error, once all were tried."""
    until = time.monotonic() + _seconds(timeout_ms)
    done: dict[_K, _T | RaylogError] = {}
    for item in items:
        try:
            done[item] = call(item, max(_LEAST_SECONDS, until - time.monotonic()))
        except RaylogError as error:
            done[item] = error
    failed = next((each for each in done.values() if isinstance(each, RaylogError)), None)
    if raise_errors and failed is not None:
        raise failed
    return done


def _seconds(timeout_ms: float | None, otherwise: float = _CALL_SECONDS) -> float:
    return otherwise if timeout_ms is None else timeout_ms / 1000


def _list_of(names: Sequence[str]) -> Sequence[str]:
    if isinstance(names, str):
        raise TypeError(f"A list of names is wanted, as [{names!r}].")
    return names


def _type_of(resource: Resource) -> str:
    return "broker" if is_of_cluster(resource) else "topic"
