"""What a run leaves in the system that it has measured: nothing, however it ends."""

from __future__ import annotations

import asyncio

import pytest

from raylog.api.workloads.driver import Publisher, Subscriber, Target
from raylog.api.workloads.measuring import measure
from raylog.api.workloads.workload import Workload
from raylog.errors import WorkloadFailed


class Driver:
    """Whoever wants to publish is refused."""

    def __init__(self, refusal: BaseException) -> None:
        self.topics: list[str] = []
        self._refusal = refusal

    async def create(self, topic: str, workload: Workload) -> None:
        self.topics.append(topic)

    async def delete(self, topic: str) -> None:
        self.topics.remove(topic)

    async def publisher(self, topic: str, workload: Workload) -> Publisher:
        raise self._refusal

    async def subscriber(self, topic: str, workload: Workload) -> Subscriber:
        raise self._refusal

    def guarantee(self, workload: Workload) -> str:
        return ""

    async def close(self) -> None:
        pass


class Reader:
    @classmethod
    async def start(cls, target: Target, topic: str, workload: Workload) -> Reader:
        return cls()

    async def end(self) -> None:
        pass


@pytest.mark.parametrize(
    ("refusal", "told"), [(ValueError("no"), WorkloadFailed), (asyncio.CancelledError(), asyncio.CancelledError)]
)
def test_a_run_that_fails_leaves_no_topic(
    monkeypatch: pytest.MonkeyPatch, refusal: BaseException, told: type[BaseException]
) -> None:
    driver = Driver(refusal)

    async def open_driver(target: Target) -> Driver:
        return driver

    monkeypatch.setattr("raylog.api.workloads.measuring.open_driver", open_driver)
    monkeypatch.setattr("raylog.api.workloads.measuring._Reader", Reader)
    with pytest.raises(told):
        measure(Target("raylog", None, ""), Workload(), lambda _: None)
    assert driver.topics == []
