"""Settings of a whole cluster: which there are, what they take, and how they are changed. They are in its metadata log.

    auto.create.topics.enable   whether a Kafka client that asks for a topic that is not there makes it by that
    group.assignors             foreign assignors, as `module.function`, that groups may use, with commas between
    num.partitions              of a topic that is made without a number
    own.replicas.max            how many replicas of a broker get a process of their own before others share one
    shared.hosts                how many processes of a broker are shared by many replicas; 0: as its node has cores for
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from raylog.actors.cluster.state import ClusterState
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import ClusterSettings
from raylog.config import ConfigValue
from raylog.errors import InvalidConfig, UnknownConfig

AUTO_CREATE: Final = "auto.create.topics.enable"
GROUP_ASSIGNORS: Final = "group.assignors"
NUM_PARTITIONS: Final = "num.partitions"
OWN_REPLICAS_MAX: Final = "own.replicas.max"
SHARED_HOSTS: Final = "shared.hosts"
CLUSTER_SETTINGS: Final[Mapping[str, str]] = {
    AUTO_CREATE: "Whether a Kafka client that asks for a topic that is not there makes it by that: true or false.",
    GROUP_ASSIGNORS: "Foreign assignors that consumer groups may use: `module.function`, with commas between.",
    NUM_PARTITIONS: "How many partitions a topic gets that is made without a number.",
    OWN_REPLICAS_MAX: "How many replicas of a broker get a process of their own (`replica.host=auto`).",
    SHARED_HOSTS: "How many processes of a broker are shared by many replicas. 0: the cores of its node, divided by "
    "the brokers on it.",
}
# What Kafka clients may change (rule 36). The others say which code runs, and how many processes a broker has.
FOR_KAFKA_CLIENTS: Final = frozenset({AUTO_CREATE, NUM_PARTITIONS})
MAX_PARTITIONS: Final = 10_000  # of one topic
_NUMBERS: Final[Mapping[str, tuple[int, int, int]]] = {  # default, least, most
    NUM_PARTITIONS: (1, 1, MAX_PARTITIONS),
    OWN_REPLICAS_MAX: (4, 0, 1_000),
    SHARED_HOSTS: (0, 0, 256),
}
_MOST: Final = 50
_MAX_NAME: Final = 255


def alter_cluster_settings(state: ClusterState, changes: Mapping[str, ConfigValue | None]) -> list[Message]:
    """Set these, and those with None back to their defaults; the others stay. UnknownConfig, InvalidConfig."""
    settings = dict(state.settings)
    for name, value in changes.items():
        if name not in CLUSTER_SETTINGS:
            near = difflib.get_close_matches(name, CLUSTER_SETTINGS, 1)
            raise UnknownConfig(name, near[0] if near else None)
        settings.pop(name, None)
        if value is not None and (text := _text(name, value)):
            settings[name] = text
    after = tuple(sorted(settings.items()))
    return [] if after == state.settings else [ClusterSettings(after)]


def describe_cluster_settings(state: ClusterState) -> dict[str, ConfigValue]:
    """All settings, under their names."""
    described: dict[str, ConfigValue] = dict.fromkeys(CLUSTER_SETTINGS, "")
    described.update(state.settings)
    described.update({name: number_of(state, name) for name in _NUMBERS})
    described[AUTO_CREATE] = "true" if described[AUTO_CREATE] else "false"
    return described


def number_of(state: ClusterState, name: str) -> int:
    """A setting that is a number, or its default."""
    return int(dict(state.settings).get(name, _NUMBERS[name][0]))


def allowed_assignors(state: ClusterState) -> tuple[str, ...]:
    value = dict(state.settings).get(GROUP_ASSIGNORS, "")
    return tuple(filter(None, value.split(",")))


def _text(name: str, value: ConfigValue) -> str:
    """Return the value as it is recorded; empty: the default."""
    text = str(value).strip()
    if name == AUTO_CREATE:
        if text.lower() not in ("true", "false"):
            raise InvalidConfig(name, value, "true or false")
        return "true" if text.lower() == "true" else ""
    if name not in _NUMBERS:
        return ",".join(_assignors(name, value))
    default, least, most = _NUMBERS[name]
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise InvalidConfig(name, value, f"a number from {least} to {most}")
    return "" if int(text) == default else str(int(text))


def _assignors(name: str, value: ConfigValue) -> list[str]:
    names = sorted({each.strip() for each in str(value).split(",")} - {""})
    for each in names:
        parts = each.split(".")
        if len(parts) < 2 or len(each) > _MAX_NAME or not all(part.isidentifier() for part in parts):
            raise InvalidConfig(name, value, "names of functions as `module.function`, with commas between")
    if len(names) > _MOST:
        raise InvalidConfig(name, value, f"at most {_MOST} names")
    return names
