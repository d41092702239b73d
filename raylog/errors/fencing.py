"""Requests from a process that has been replaced, or that are based on an older state."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class FencedError(RaylogError):
    """A request comes from a process that was replaced, or builds on an older state. Nothing was changed."""


class StalePartitionEpoch(FencedError):
    """A proposal was made for an older state of the partition (rule 4)."""

    advice = "The sender waits for the newer state and proposes again if that is still necessary."

    topic: str
    partition: int
    epoch: int
    current: int

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} is at partition epoch {self.current}, not {self.epoch}."


class StaleBrokerEpoch(FencedError):
    """A broker sent a broker epoch that is not its current one."""

    advice = "The broker registers again and continues with its new epoch."

    broker: int
    epoch: int
    current: int

    def describe(self) -> str:
        return f"Broker {self.broker} has epoch {self.current}, not {self.epoch}."


class StaleIncarnation(FencedError):
    """A replica process has been replaced by a later one, or has not registered yet."""

    advice = "The process ends if it was replaced; if it is new, it waits until it is registered."

    topic: str
    partition: int
    broker: int
    incarnation: int
    current: int

    def describe(self) -> str:
        return (
            f"The replica of {self.topic}-{self.partition} on broker {self.broker} is incarnation {self.current}, "
            f"not {self.incarnation}."
        )


class DuplicateBroker(FencedError):
    """Another process is running under this broker id."""

    advice = "Give each broker a data directory of its own, or wait until the lease of the other process ends."

    broker: int
    holder: str

    def describe(self) -> str:
        return f"Broker {self.broker} is already running: {self.holder}."


class IneligibleReplica(FencedError):
    """A replica cannot join the in-sync replicas now (rules 4 and 5)."""

    advice = "The leader proposes it again when its broker is up, not draining, and the replica is registered."

    topic: str
    partition: int
    broker: int
    reason: str

    def describe(self) -> str:
        return f"Broker {self.broker} cannot be in the ISR of {self.topic}-{self.partition}: {self.reason}."


class StaleCoordinator(FencedError):
    """A coordinator process has been replaced by another one."""

    advice = "The process ends. Clients find the current coordinator when they refresh metadata."

    topic: str
    partition: int
    epoch: int
    current: int

    def describe(self) -> str:
        return f"The coordinator of {self.topic}-{self.partition} has epoch {self.current}, not {self.epoch}."
