"""When a broker that is not registered is asked whether it turns at all."""

from __future__ import annotations

from raylog.actors.on_ray.silent_brokers import PATIENCE_SECONDS, SilentBrokers


def test_one_that_was_silent_for_long_is_asked_and_then_left_alone_for_as_long() -> None:
    brokers = SilentBrokers()
    assert brokers.due({1, 2}, 0.0) == []
    assert brokers.due({1, 2}, PATIENCE_SECONDS) == []
    assert brokers.due({1, 2, 3}, PATIENCE_SECONDS + 0.5) == [1, 2]
    assert brokers.due({1, 2, 3}, PATIENCE_SECONDS + 1.0) == []
    assert brokers.due({1, 3}, 2 * PATIENCE_SECONDS + 1.0) == [1, 3]


def test_one_that_has_registered_meanwhile_begins_anew() -> None:
    brokers = SilentBrokers()
    brokers.due({1}, 0.0)
    brokers.due(set(), 4.0)
    assert brokers.due({1}, PATIENCE_SECONDS + 1.0) == []
