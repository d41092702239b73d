"""The workloads of `raylog bench` on real servers of other makers, where those are installed."""

from __future__ import annotations

import pytest

from raylog.api.workloads.driver import KAFKA, NATS, REDIS, Target
from raylog.api.workloads.measuring import measure
from raylog.api.workloads.servers import missing, server
from raylog.api.workloads.workload import Workload
from raylog.errors import WorkloadFailed

_SMALL = Workload(partitions=2, size=64, rate=200, seconds=0.5, warm_up=0.1, group=50, in_flight=2)


@pytest.mark.parametrize("kind", [REDIS, NATS])
def test_a_workload_runs_on(kind: str) -> None:
    if missing(kind):
        pytest.skip(missing(kind))
    told: list[str] = []
    with server(kind) as target:
        outcome = measure(target, _SMALL, told.append)
    assert told == ["latency", "rate and drain"]
    assert outcome.publish_latency.count == outcome.end_to_end_latency.count == 100
    assert 0 < outcome.publish_latency.p50 <= outcome.publish_latency.most
    assert outcome.publish_latency.average <= outcome.end_to_end_latency.most
    assert outcome.backlog >= 50
    assert outcome.publish_rate > 0
    assert outcome.drain_rate > 0
    assert "no replica" in outcome.guarantee
    assert outcome.version[0].isdigit()


def test_a_server_that_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raylog.api.workloads.servers._PROGRAMS", {REDIS: "false"})
    with pytest.raises(WorkloadFailed, match="false: it ended with 1"), server(REDIS):
        pass


def test_a_system_that_is_not_there_is_named() -> None:
    with pytest.raises(WorkloadFailed, match="no result for kafka"):
        measure(Target(KAFKA, "127.0.0.1:1"), _SMALL, lambda _: None)
