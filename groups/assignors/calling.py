"""A call of an assignor, which is not made on a coordinator's event loop (rule 34).

Assignors take as long as they take, and foreign ones do what they like. A coordinator makes an `AssignorCall`, has it
run somewhere else, and goes on; what it gets is checked, and thrown away if the group has changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from raylog.groups.assignors.assignment import Subscriber, TopicPartition, TopicShape
from raylog.groups.assignors.loading import assign

Given: TypeAlias = dict[str, frozenset[TopicPartition]]
_T = TypeVar("_T")


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
