"""A cluster is well when everything in it is, and otherwise says what is not, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raylog.actors.cluster.descriptions import BrokerDescription, ClusterDescription, CoordinatorDescription
from raylog.api.admin.cluster_health import problems


def broker(number: int, *, alive: bool = True) -> BrokerDescription:
    return BrokerDescription(number, "node", "10.0.0.1", "", (), "/data", 1, alive, False, 1, 1, 1, 2)


def coordinator(*, serving: bool = True, attempts: int = 0, reason: str = "") -> CoordinatorDescription:
    return CoordinatorDescription("__consumer_offsets", 2, 0, 17, serving, attempts, reason)


WELL = ClusterDescription("id", 0, 9, 1, (0,), (broker(0), broker(1)), 1, 1, 0, (), 0, 0, 0, (coordinator(),))


def test_a_cluster_that_is_well_has_no_problems() -> None:
    assert problems(WELL) == []


@pytest.mark.parametrize(
    ("ill", "told"),
    [
        (replace(WELL, brokers=()), "no broker has registered"),
        (replace(WELL, brokers=(broker(0), broker(1, alive=False))), "broker 1 on 10.0.0.1 is away"),
        (replace(WELL, offline=1), "1 partition without a leader"),
        (replace(WELL, under_min_isr=2), "2 partitions below min.insync.replicas"),
        (replace(WELL, under_replicated=2), "2 partitions with replicas that are not in sync"),
    ],
)
def test_each_thing_that_is_ill_is_told(ill: ClusterDescription, told: str) -> None:
    assert problems(ill) == [told]


def test_a_coordinator_that_does_not_serve_is_told_with_the_reason_and_the_attempt() -> None:
    starting = coordinator(serving=False, reason="it is being started")
    failing = coordinator(serving=False, attempts=18, reason="it was not up in time")
    name = "the coordinator of __consumer_offsets-2 does not serve"
    assert problems(replace(WELL, coordinators=(starting, failing))) == [
        f"{name} (epoch 17): it is being started",
        f"{name} (epoch 17, attempt 19): it was not up in time",
    ]
