"""Search for an assignor's function by its name: one of ours, or `package.module.function` if the cluster allows it.

A name is checked where it enters, with the member that asks for it, so that a wrong one is that member's error; there
nothing is imported. A foreign function is imported and run in a process of its own (`assignors/processes.py`). What it
returns is checked each time; what it raises, SystemExit included, is AssignorFailed and no more.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from raylog.errors import AssignorFailed, UnknownAssignor
from raylog.groups.assignors.assignment import Assignor, Subscriber, TopicPartition, TopicShape, check_assignment
from raylog.groups.assignors.range import range_assignor
from raylog.groups.assignors.roundrobin import roundrobin_assignor
from raylog.groups.assignors.sticky import sticky_assignor

DEFAULT_ASSIGNOR: Final = "range"
_OURS: Final[dict[str, Assignor]] = {
    "range": range_assignor,
    "roundrobin": roundrobin_assignor,
    "sticky": sticky_assignor,
}
_MAX_NAME: Final = 255


def is_ours(name: str) -> bool:
    return name in _OURS


def check_assignor(name: str, allowed: Collection[str]) -> None:
    """Raise UnknownAssignor where it is neither one of raylog's nor among those that are `allowed` here."""
    if not is_ours(name) and name not in allowed:
        raise UnknownAssignor(name[:_MAX_NAME], "it is not one of raylog's, nor in the cluster's group.assignors")


def find_assignor(name: str) -> Assignor:
    """Raises UnknownAssignor where there is none of this name. This imports a foreign one's module."""
    ours = _OURS.get(name)
    if ours is not None:
        return ours
    if len(name) > _MAX_NAME or not all(part.isidentifier() for part in name.split(".")):
        raise UnknownAssignor(name[:_MAX_NAME], "it is neither one of raylog's nor the name of a function in a module")
    module_name, _, function_name = name.rpartition(".")
    if not module_name:
        raise UnknownAssignor(name, "it is not one of raylog's, and a function's name begins with that of its module")
    try:
        found = getattr(importlib.import_module(module_name), function_name, None)
    except BaseException as error:  # a module may raise whatever it likes; the member is told
        raise UnknownAssignor(name, f"{module_name} cannot be imported ({type(error).__name__}: {error})") from error
    if not callable(found):
        raise UnknownAssignor(name, f"{module_name} has no function {function_name}")
    assignor: Assignor = found
    return assignor


def assign(
    name: str, subscribers: Sequence[Subscriber], topics: Mapping[str, TopicShape]
) -> dict[str, frozenset[TopicPartition]]:
    """Return what the assignor `name` gives each subscriber. UnknownAssignor, AssignorFailed."""
    assignor = find_assignor(name)
    try:
        result = assignor(subscribers, topics)
    except BaseException as error:  # it is the user's function, and SystemExit is its way to fail as well
        raise AssignorFailed(name, f"it raised {type(error).__name__}: {error}") from error
    return check_assignment(name, result, subscribers, topics)
