"""Settings of a whole cluster: which there are, what they take, and how they are changed. They are in its metadata log.

    group.assignors      foreign assignors, as `module.function`, that consumer groups may use, with commas between
    own.replicas.max     how many replicas of a broker get a process of their own before others share one
    shared.hosts         how many processes of a broker are shared by many replicas; 0: as its node has cores for
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

GROUP_ASSIGNORS: Final = "group.assignors"
OWN_REPLICAS_MAX: Final = "own.replicas.max"
SHARED_HOSTS: Final = "shared.hosts"
CLUSTER_SETTINGS: Final[Mapping[str, str]] = {
    GROUP_ASSIGNORS: "Foreign assignors that consumer groups may use: `module.function`, with commas between.",
    OWN_REPLICAS_MAX: "How many replicas of a broker get a process of their own (`replica.host=auto`).",
    SHARED_HOSTS: "How many processes of a broker are shared by many replicas. 0: the cores of its node, divided by "
    "the brokers on it.",
}
_NUMBERS: Final[Mapping[str, tuple[int, int]]] = {OWN_REPLICAS_MAX: (4, 1_000), SHARED_HOSTS: (0, 256)}  # default, most
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
    return described


def number_of(state: ClusterState, name: str) -> int:
    """A setting that is a number, or its default."""
    return int(dict(state.settings).get(name, _NUMBERS[name][0]))


def allowed_assignors(state: ClusterState) -> tuple[str, ...]:
    value = dict(state.settings).get(GROUP_ASSIGNORS, "")
    return tuple(filter(None, value.split(",")))


def _text(name: str, value: ConfigValue) -> str:
    """Return the value as it is recorded; empty: the default."""
    if name not in _NUMBERS:
        return ",".join(_assignors(name, value))
    default, most = _NUMBERS[name]
    text = str(value).strip()
    if not text.isascii() or not text.isdigit() or int(text) > most:
        raise InvalidConfig(name, value, f"a number from 0 to {most}")
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
