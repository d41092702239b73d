"""Calls by which a consumer tells its program that the partitions it reads change."""

from __future__ import annotations

from typing import Any, Final, Protocol

from raylog.api.connection.records import TopicPartition

_CALLS: Final = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")


class ListensToRebalances(Protocol):
    """The argument of `subscribe(listener=…)`: a `RebalanceListener`, or kafka-python's `ConsumerRebalanceListener`."""

    def on_partitions_assigned(self, partitions: set[TopicPartition], /) -> object: ...

    def on_partitions_revoked(self, partitions: set[TopicPartition], /) -> object: ...


class RebalanceListener:
    """Hears which partitions of its group a consumer is given and has to give up. Override what you need.

        class Store(raylog.RebalanceListener):
            def on_partitions_revoked(self, partitions):
                save_positions(partitions)

        consumer.subscribe(["clicks"], listener=Store())

    Each call comes within a poll, on the thread that polls, and may use the consumer. What it raises ends that poll
    with ListenerFailed. With an `AsyncConsumer` the calls may be coroutine functions.
    """

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> object:  # noqa: ARG002
        """Hear of partitions that are read from now on; a `seek` here says from where. Only what is new is named."""
        return None

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> object:  # noqa: ARG002
        """Hear of partitions that go to another member when this returns: a commit still counts. Called also at the
        end, in `close`.
        """
        return None

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> object:
        """Hear of partitions that are another member's already, and a commit is refused. Unless overridden, it does
        what `on_partitions_revoked` does.
        """
        return self.on_partitions_revoked(partitions)


def check_listener(listener: Any) -> None:
    """Raise TypeError where nothing of it would ever be called."""
    if listener is None:
        return
    if isinstance(listener, type):
        raise TypeError(f"A listener is an object, not the class {listener.__name__}: {listener.__name__}().")
    if not any(callable(getattr(listener, call, None)) for call in _CALLS):
        raise TypeError(f"A listener has one of {', '.join(_CALLS)}; {listener!r} has none. See RebalanceListener.")
