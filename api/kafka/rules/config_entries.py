"""Settings as Kafka's tools see them: each with its value, where that comes from, its type, and what it means.

A topic's settings are raylog's own (`raylog/config.py`). A broker's are those of the whole cluster, of which tools may
change some, and what tools look for and nobody can change: it says how raylog is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from raylog.actors.cluster.cluster_settings import CLUSTER_SETTINGS, FOR_KAFKA_CLIENTS, GROUP_ASSIGNORS
from raylog.actors.cluster.setting_edits import DELETE, SettingEdit
from raylog.api.kafka.rules.named_brokers import GatewayAddress
from raylog.config import LIST_SETTINGS, TOPIC_SETTINGS, ConfigValue, TopicConfig
from raylog.errors import InvalidRequest

OF_TOPIC: Final = 1  # sources
OF_CLUSTER: Final = 3
OF_BROKER: Final = 4
OF_DEFAULT: Final = 5
_BOOLEAN, _TEXT, _INT, _LONG, _DOUBLE, _LIST = 1, 2, 3, 5, 6, 7  # types
_INTS: Final = frozenset(
    {
        "index.interval.bytes",
        "max.message.bytes",
        "min.insync.replicas",
        "num.partitions",
        "own.replicas.max",
        "segment.bytes",
        "segment.index.bytes",
        "shared.hosts",
    }
)
_BOOLEANS: Final = frozenset({"auto.create.topics.enable", "remote.storage.enable"})
_LISTS: Final = LIST_SETTINGS | {GROUP_ASSIGNORS}
_MIN_INSYNC: Final = "min.insync.replicas"

# The name of a broker's setting that is the default of a topic's, where it is another one than `log.` and that name.
_BROKERS_NAMES: Final[Mapping[str, str]] = {
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "producer.id.expiration.ms": "producer.id.expiration.ms",
    "replica.lag.time.max.ms": "replica.lag.time.max.ms",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
_OF_BROKERS: Final = frozenset(
    {*_BROKERS_NAMES, "cleanup.policy", "index.interval.bytes", "message.timestamp.after.max.ms",
     "message.timestamp.before.max.ms", "message.timestamp.type", "preallocate", "retention.bytes", "retention.ms",
     "segment.bytes"}
)  # fmt: skip
_KAFKAS_VERSION: Final = "4.1-IV1"
_DEFAULTS: Final = TopicConfig()


class ConfigEntry(NamedTuple):
    """One setting. `synonyms`: (name, value, source) of those that would count, the one that does first."""

    name: str
    value: str
    source: int
    read_only: bool
    type: int
    text: str
    synonyms: tuple[tuple[str, str, int], ...] = ()


def topic_entries(settings: Mapping[str, ConfigValue], replicas: int) -> list[ConfigEntry]:
    """Return all settings of a topic with so many replicas. `settings` are those that are not the defaults."""
    config = TopicConfig.parse(settings)
    return [
        _topic_entry(each.name, each.doc, config, replicas, is_own=each.name in settings) for each in TOPIC_SETTINGS
    ]


def _topic_entry(name: str, text: str, config: TopicConfig, replicas: int, *, is_own: bool) -> ConfigEntry:
    value, default = _shown(name, config, replicas), _shown(name, _DEFAULTS, replicas)
    inherited = (_brokers_name(name), default, OF_DEFAULT)
    synonyms = ((name, value, OF_TOPIC), inherited) if is_own else (inherited,)
    return ConfigEntry(
        name, value, OF_TOPIC if is_own else OF_DEFAULT, False, _type_of(name, config.value(name)), text, synonyms
    )


def _shown(name: str, config: TopicConfig, replicas: int) -> str:
    """Return the value as text; of the least number in sync the one that is in force."""
    value = config.min_insync(replicas) if name == _MIN_INSYNC else config.value(name)
    return str(value).lower() if isinstance(value, bool) else str(value)


def cluster_entries(settings: Mapping[str, ConfigValue], defaults: Mapping[str, ConfigValue]) -> list[ConfigEntry]:
    """Return the settings of the whole cluster, which stand for those of all brokers."""
    return [
        _cluster_entry(name, text, str(settings.get(name, defaults[name])), str(defaults[name]))
        for name, text in CLUSTER_SETTINGS.items()
    ]


def _cluster_entry(name: str, text: str, value: str, default: str) -> ConfigEntry:
    inherited = (name, default, OF_DEFAULT)
    is_own = value != default
    synonyms = ((name, value, OF_CLUSTER), inherited) if is_own else (inherited,)
    source, read_only = OF_CLUSTER if is_own else OF_DEFAULT, name not in FOR_KAFKA_CLIENTS
    return ConfigEntry(name, value, source, read_only, _type_of(name, ""), text, synonyms)


def cluster_edits(edits: Sequence[SettingEdit], *, replaces: bool) -> list[SettingEdit]:
    """Return these changes of the cluster's settings. `replaces`: the others that may be changed go back to defaults.

    InvalidRequest: one that only people of the cluster may change (rule 36).
    """
    for each in edits:
        if each.name in CLUSTER_SETTINGS and each.name not in FOR_KAFKA_CLIENTS:
            raise InvalidRequest(f"Kafka clients may not change {each.name}: use `raylog cluster config`.")
    others = FOR_KAFKA_CLIENTS.difference(each.name for each in edits) if replaces else ()
    return [*edits, *(SettingEdit(name, DELETE, None) for name in sorted(others))]


def broker_entries(broker: GatewayAddress, brokers: int) -> list[ConfigEntry]:
    """Return what tools look for at a broker, of so many; nobody can change it."""
    listener = f"PLAINTEXT://{broker.host}:{broker.port}"
    factor = max(1, min(3, brokers))
    facts = [
        ("broker.id", str(broker.broker_id), _INT, "The number of this broker."),
        ("node.id", str(broker.broker_id), _INT, "The number of this broker."),
        ("broker.rack", broker.rack, _TEXT, "The rack of this broker."),
        ("listeners", listener, _LIST, "Where Kafka clients are served."),
        ("advertised.listeners", listener, _LIST, "Where Kafka clients are served."),
        ("default.replication.factor", str(factor), _INT, "How many replicas a topic gets that is made without one."),
        ("delete.topic.enable", "true", _BOOLEAN, "Topics can be deleted."),
        ("inter.broker.protocol.version", _KAFKAS_VERSION, _TEXT, "The version of Kafka whose requests are served."),
    ]
    found = [ConfigEntry(name, value, OF_BROKER, True, kind, text) for name, value, kind, text in facts]
    for each in TOPIC_SETTINGS:
        if each.name in _OF_BROKERS:
            value = _shown(each.name, _DEFAULTS, factor)
            kind = _type_of(each.name, _DEFAULTS.value(each.name))
            name = _brokers_name(each.name)
            found.append(
                ConfigEntry(name, value, OF_DEFAULT, True, kind, each.doc, ((name, value, OF_DEFAULT),))
            )
    return found


def _brokers_name(name: str) -> str:
    return _BROKERS_NAMES.get(name, f"log.{name}") if name in _OF_BROKERS else name


def _type_of(name: str, value: ConfigValue) -> int:
    if isinstance(value, bool) or name in _BOOLEANS:
        return _BOOLEAN
    if name in _LISTS:
        return _LIST
    if name in _INTS:
        return _INT
    if isinstance(value, float):
        return _DOUBLE
    return _LONG if isinstance(value, int) else _TEXT
