"""Pools of consumers that scale themselves."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class PoolError(RaylogError):
    """A pool could not do what it was asked to."""


class PoolExists(PoolError):
    """The group has a pool already, with a handler of its own."""

    advice = "raylog.connect().pool(group_id) finds it: update(handler) gives it another handler, stop() ends it."

    group: str

    def describe(self) -> str:
        return f"The group {self.group!r} has a pool already. This one was not made."


class UnknownPool(PoolError):
    """No pool of that group runs on this cluster."""

    advice = "`raylog pool list` shows those that run; raylog.ConsumerPool makes one."

    group: str

    def describe(self) -> str:
        return f"The group {self.group!r} has no pool."


class PoolNotReady(PoolError):
    """The supervisor of a pool did not answer in time, or did not do what it was asked to."""

    retriable = True
    advice = "Ray starts a supervisor again that was lost: ask again. `raylog pool describe` shows how the pool is."

    group: str
    timeout_ms: int
    reason: str

    def describe(self) -> str:
        return f"The pool of group {self.group!r} did not do it within {self.timeout_ms} ms: {self.reason}."
