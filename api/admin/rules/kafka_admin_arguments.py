"""Arguments of the calls that have the names of kafka-python's admin client. Decides; touches nothing.

kafka-python's own objects are taken as well as these: only their attributes are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, cast

from raylog.api.connection.records import TopicPartition, as_partition
from raylog.config import ConfigValue
from raylog.errors import InvalidConfig

_BY_DEFAULT: Final = -1
_SET: Final = 0
_DELETE: Final = 1
_REFUSED: Final = {
    "validate_only": "False: what is asked for is done, or refused as a whole",
    "include_synonyms": "False: a setting has one name",
    "include_authorized_operations": "False: whoever is admitted to Ray may do everything",
    "broker_ids": "None: all coordinators of groups are asked",
}
_FILTERS: Final = ("modified", "all", "dynamic", "default", "static")


class ConfigResourceType(IntEnum):
    """The kind of thing whose settings are meant."""

    TOPIC = 2
    BROKER = 4  # with the empty name: settings of the whole cluster


class NewTopic:
    """A topic to be made.

    >>> cluster.create_topics([NewTopic("clicks", num_partitions=6, topic_configs={"retention.ms": "7d"})])
    """

    def __init__(
        self,
        name: str,
        num_partitions: int = _BY_DEFAULT,
        replication_factor: int = _BY_DEFAULT,
        replica_assignments: Mapping[int, Sequence[int]] | None = None,
        topic_configs: Mapping[str, ConfigValue] | None = None,
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = replica_assignments or {}
        self.topic_configs = topic_configs or {}


class NewPartitions:
    """The number of partitions that a topic is to have; `new_assignments`: the brokers of each new one."""

    def __init__(self, total_count: int, new_assignments: Sequence[Sequence[int]] | None = None) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments


class ConfigResource:
    """Settings of a topic. `configs`: names to be described, or names with their new values.

    >>> cluster.alter_configs([ConfigResource("topic", "clicks", {"retention.ms": "1h"})])
    """

    def __init__(
        self,
        resource_type: ConfigResourceType | Literal["topic", "broker", "TOPIC", "BROKER"],
        name: str,
        configs: Iterable[str] | Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(resource_type, str):
            resource_type = ConfigResourceType[resource_type.upper()]
        self.resource_type = resource_type
        self.name = name
        self.configs = configs


class MemberToRemove(NamedTuple):
    """A member of a group, by its id, or a static one by its group_instance_id."""

    member_id: str | None = None
    group_instance_id: str | None = None
    reason: str | None = None


class ConfigEntry(TypedDict):
    """One setting as `describe_configs` shows it."""

    value: str
    read_only: bool
    config_source: Literal["DYNAMIC_TOPIC_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG", "DEFAULT_CONFIG"]
    is_sensitive: bool


class Reassignment(TypedDict):
    """A partition on its way to other brokers."""

    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]


class _Topic(Protocol):
    name: Any
    num_partitions: Any
    replication_factor: Any
    replica_assignments: Any
    topic_configs: Any


class _Partitions(Protocol):
    total_count: Any
    new_assignments: Any


class Resource(Protocol):
    resource_type: Any
    name: Any
    configs: Any


class Member(Protocol):
    @property
    def member_id(self) -> str | None: ...
    @property
    def group_instance_id(self) -> str | None: ...
    @property
    def reason(self) -> str | None: ...


NewTopics: TypeAlias = Sequence[_Topic | str] | Mapping[str, Mapping[str, Any]]
PartitionCount: TypeAlias = int | _Partitions | Mapping[str, Any]
ElectionType: TypeAlias = Literal["preferred", "unclean"] | int  # 0, 1: Kafka's numbers
TopicPartitions: TypeAlias = Mapping[str, Iterable[int]] | Sequence[str] | Sequence[tuple[str, int]]


def topic_arguments(new_topics: NewTopics) -> dict[str, dict[str, Any]]:
    """Return, by name, what `Cluster.create_topic` takes. TypeError."""
    if isinstance(new_topics, str):
        raise TypeError(f"create_topics takes a list: create_topics([NewTopic({new_topics!r})]).")
    if isinstance(new_topics, Mapping):
        known = ("num_partitions", "replication_factor", "assignments", "configs")
        unknown = sorted({name for each in new_topics.values() for name in each} - {*known})
        if unknown:
            raise TypeError(f"Topics have {', '.join(known)}, and no {unknown[0]!r}.")
        return {name: _topic(*(each.get(key) for key in known)) for name, each in new_topics.items()}
    plain = {each: _topic(None, None, None, None) for each in new_topics if isinstance(each, str)}
    return plain | {
        each.name: _topic(each.num_partitions, each.replication_factor, each.replica_assignments, each.topic_configs)
        for each in new_topics
        if not isinstance(each, str)
    }


def _topic(
    partitions: int | None,
    replication_factor: int | None,
    assignments: Mapping[int, Sequence[int]] | None,
    config: Mapping[str, ConfigValue] | None,
) -> dict[str, Any]:
    arguments: dict[str, Any] = {"config": dict(config or {})}
    if partitions not in (None, _BY_DEFAULT):
        arguments["partitions"] = partitions
    if replication_factor not in (None, _BY_DEFAULT):
        arguments["replication_factor"] = replication_factor
    if assignments:
        arguments["assignment"] = _in_order(assignments)
    return arguments


def _in_order(assignments: Mapping[int, Sequence[int]]) -> list[list[int]]:
    if sorted(assignments) != list(range(len(assignments))):
        raise TypeError(f"replica_assignments name the partitions from 0 on, and not {sorted(assignments)}.")
    return [list(assignments[partition]) for partition in sorted(assignments)]


def partition_arguments(count: PartitionCount) -> tuple[int, Sequence[Sequence[int]] | None]:
    """Return how many partitions there are to be, and the brokers of the new ones."""
    if isinstance(count, int):
        return count, None
    if isinstance(count, Mapping):
        return count["count"], count.get("assignments")
    return count.total_count, count.new_assignments


def is_of_cluster(resource: Resource) -> bool:
    """Whether the settings of the whole cluster are meant, and not those of a topic. InvalidConfig."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        return False
    if resource.resource_type == ConfigResourceType.BROKER and resource.name == "":
        return True
    raise InvalidConfig(
        "resource_type", resource.resource_type, "TOPIC, or BROKER with the name '' for settings of the whole cluster"
    )


def changes_of(resource: Resource) -> dict[str, ConfigValue | None]:
    """Return the new values by name; None: back to the default. InvalidConfig."""
    if not isinstance(resource.configs, Mapping):
        raise InvalidConfig("configs", resource.configs, "a dictionary of names and new values")
    return {name: _new_value(name, value) for name, value in resource.configs.items()}


def _new_value(name: str, given: Any) -> ConfigValue | None:
    """A value, or (operation, value)."""
    if not isinstance(given, tuple):
        return cast("ConfigValue | None", given)
    operation, value = given
    number = {"SET": _SET, "DELETE": _DELETE}.get(str(operation).upper(), operation)
    if number not in (_SET, _DELETE):
        raise InvalidConfig(name, given, "a value, ('SET', value) or ('DELETE', None)")
    return None if number == _DELETE else cast("ConfigValue", value)


def entries(
    present: Mapping[str, Any], defaults: Mapping[str, Any], resource: Resource, config_filter: object
) -> dict[str, ConfigEntry]:
    """The settings that were asked for, by name. InvalidConfig."""
    chosen = str(getattr(config_filter, "name", config_filter)).lower()
    if chosen not in _FILTERS:
        raise InvalidConfig("config_filter", config_filter, "one of " + ", ".join(_FILTERS))
    source: Literal["DYNAMIC_TOPIC_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"]
    source = "DYNAMIC_DEFAULT_BROKER_CONFIG" if is_of_cluster(resource) else "DYNAMIC_TOPIC_CONFIG"
    names = present if resource.configs is None else [name for name in resource.configs if name in present]
    return {
        name: {
            "value": _text(present[name]),
            "read_only": False,
            "config_source": source if present[name] != defaults[name] else "DEFAULT_CONFIG",
            "is_sensitive": False,
        }
        for name in names
        if _is_wanted(chosen, present[name] != defaults[name])
    }


def _is_wanted(chosen: str, is_changed: bool) -> bool:
    return {"modified": is_changed, "default": not is_changed, "static": False}.get(chosen, True)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def election(election_type: object) -> Literal["preferred", "unclean"]:
    """Return the kind of election that a name, or Kafka's number, means. InvalidConfig."""
    if election_type in ("preferred", 0):
        return "preferred"
    if election_type in ("unclean", 1):
        return "unclean"
    raise InvalidConfig("election_type", election_type, "'preferred' (0) or 'unclean' (1)")


def pairs_of(topic_partitions: TopicPartitions, count: Callable[[str], int]) -> Iterator[TopicPartition]:
    """Each partition. `count`: how many a topic has, of which only the name is given. TypeError."""
    if isinstance(topic_partitions, Mapping):
        for topic, partitions in topic_partitions.items():
            yield from (TopicPartition(topic, partition) for partition in partitions)
        return
    for each in topic_partitions:
        if isinstance(each, str):
            yield from (TopicPartition(each, partition) for partition in range(count(each)))
        else:
            yield as_partition(each)


def refuse(**flags: bool) -> None:
    """Refuse what Kafka's protocol can do and raylog cannot. InvalidConfig."""
    for name, given in flags.items():
        if given:
            raise InvalidConfig(name, given, _REFUSED[name])
