"""A call of an assignor, which is not made on a coordinator's event loop (rule 34), and the function that it names.

Assignors take as long as they take, and foreign ones do what they like. A coordinator makes an `AssignorCall`, has it
run somewhere else, and goes on; what it gets is checked, and thrown away if the group has changed meanwhile.

A name is that of one of raylog's assignors, or `package.module.function` if the cluster allows it. It is checked where
it enters, with the member that asks for it, so that a wrong one is that member's error; there nothing is imported. A
foreign function is imported and run in a process of its own (`assignors/processes.py`). What it returns is checked each
time; what it raises, SystemExit included, is AssignorFailed and no more.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

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

Given: TypeAlias = dict[str, frozenset[TopicPartition]]
_T = TypeVar("_T")


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


class OffLoop(Protocol):
    """`Environment.off_loop`."""

    def __call__(self, work: Callable[[], _T]) -> Awaitable[_T]: ...


@dataclass(frozen=True, slots=True)
class AssignorCall:
    name: str
    subscribers: tuple[Subscriber, ...]
    topics: Mapping[str, TopicShape]


class Assignors(Protocol):
    """The place where assignors run."""

    def run(self, call: AssignorCall) -> Awaitable[Given]:
        """Return what each subscriber is given, checked. AssignorFailed, also where it takes too long; UnknownAssignor.
        """

    def close(self) -> None:
        """Nothing is run any more."""


class AssignorsBesideLoop:
    """Assignors in this process, each call as long as it takes: for tests, and for calls that are known to be short."""

    def __init__(self, off_loop: OffLoop) -> None:
        self._off_loop = off_loop

    def run(self, call: AssignorCall) -> Awaitable[Given]:
        return self._off_loop(partial(assign, call.name, call.subscribers, call.topics))

    def close(self) -> None:
        """Do nothing: there is nothing to end."""
