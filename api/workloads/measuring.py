"""Measuring one workload on one system: latency at a fixed rate, then rate and drain as fast as it goes."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from raylog.api.workloads.driver import Driver, Publisher, Target, open_driver
from raylog.api.workloads.subscriber import IDLE_SECONDS, Order
from raylog.api.workloads.workload import NOT_MEASURED, Latency, Outcome, Payloads, Workload, latency_of
from raylog.errors import RaylogError, WorkloadFailed

_READY_SECONDS: Final = 30.0
_DRAIN_SECONDS: Final = 300.0
Tell = Callable[[str], None]


def measure(target: Target, workload: Workload, tell: Tell) -> Outcome:
    """`tell`: is called with what is being done. WorkloadFailed."""
    try:
        return asyncio.run(_measure(target, workload, tell))
    except RaylogError:
        raise
    except Exception as error:  # whatever the client library of that system has
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise WorkloadFailed(target.kind, f"{type(error).__name__}: {reason.rstrip('.')}") from error


async def _measure(target: Target, workload: Workload, tell: Tell) -> Outcome:
    driver = await open_driver(target)
    try:
        tell("latency")
        publish, end_to_end = await _latencies(driver, target, workload)
        tell("rate and drain")
        rate, backlog, drain = await _rates(driver, target, workload)
    finally:
        await driver.close()
    told = driver.guarantee(workload)
    return Outcome(workload, target.kind, target.version, told, rate, publish, end_to_end, backlog, drain)


async def _latencies(driver: Driver, target: Target, workload: Workload) -> tuple[Latency, Latency]:
    async with _topic(driver, workload) as topic:
        reader = await _Reader.start(target, topic, workload)
        try:
            publisher = await driver.publisher(topic, workload)
            samples, count = await _publish_steadily(publisher, workload)
            await publisher.close()
            answer = await reader.result(count, workload.seconds + IDLE_SECONDS)
        finally:
            await reader.end()
    return latency_of(samples), Latency(**answer["latency"])


async def _publish_steadily(publisher: Publisher, workload: Workload) -> tuple[list[float], int]:
    """One record after the other when it is due, whether or not the ones before are acknowledged."""
    payloads, samples = Payloads(workload.size), list[float]()
    pause = 1e9 / workload.rate
    total = round(workload.rate * (workload.warm_up + workload.seconds))
    warm = round(workload.rate * workload.warm_up)
    running: set[asyncio.Task[None]] = set()
    start = time.monotonic_ns() + 1_000_000

    async def one(number: int, due: int) -> None:
        is_measured = number >= warm
        await publisher.publish([payloads.make(due if is_measured else NOT_MEASURED)])
        if is_measured:
            samples.append((time.monotonic_ns() - due) / 1e9)

    for number in range(total):
        due = start + round(number * pause)
        ahead = (due - time.monotonic_ns()) / 1e9
        if ahead > 0:
            await asyncio.sleep(ahead)
        task = asyncio.create_task(one(number, due))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    return samples, total


async def _rates(driver: Driver, target: Target, workload: Workload) -> tuple[float, int, float]:
    """Records a second published; how many; records a second read of them afterwards."""
    async with _topic(driver, workload) as topic:
        publisher = await driver.publisher(topic, workload)
        sent, rate = await _publish_at_full_speed(publisher, workload)
        await publisher.close()
        reader = await _Reader.start(target, topic, workload)
        try:
            answer = await reader.result(sent, _DRAIN_SECONDS)
        finally:
            await reader.end()
    if answer["count"] < sent:
        raise WorkloadFailed(target.kind, f"of {sent} acknowledged records {answer['count']} came back")
    return rate, sent, answer["count"] / answer["seconds"]


async def _publish_at_full_speed(publisher: Publisher, workload: Workload) -> tuple[int, float]:
    """Publish until the time is over. Returns how many records there are then, and records a second. The first group is
    not measured.
    """
    payloads = Payloads(workload.size)
    group = [payloads.make(NOT_MEASURED) for _ in range(workload.group)]
    await publisher.publish(group)
    begin = time.monotonic()

    async def worker() -> int:
        sent = 0
        while time.monotonic() - begin < workload.seconds:
            await publisher.publish(group)
            sent += len(group)
        return sent

    sent = sum(await asyncio.gather(*(worker() for _ in range(workload.in_flight))))
    return len(group) + sent, sent / (time.monotonic() - begin)


@asynccontextmanager
async def _topic(driver: Driver, workload: Workload) -> AsyncIterator[str]:
    """Nothing of it stays, also where the run fails or is interrupted: the system may be one that people use."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    try:
        await driver.create(topic, workload)
        yield topic
    except BaseException:
        with suppress(Exception):  # what was wrong first is told
            await driver.delete(topic)
        raise
    await driver.delete(topic)


class _Reader:
    """The subscriber's process."""

    def __init__(self, process: asyncio.subprocess.Process, kind: str) -> None:
        self._process = process
        self._kind = kind

    @classmethod
    async def start(cls, target: Target, topic: str, workload: Workload) -> _Reader:
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "raylog.api.workloads.subscriber"],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # Ctrl-C is for the bench, which ends it
        )
        reader = cls(process, target.kind)
        try:
            if target.kind == "raylog":
                target = Target(target.kind, (target.address[0], None), target.version)
            reader._write(pickle.dumps(Order(target, topic, workload)))
            await reader._line(_READY_SECONDS)
        except BaseException:
            await reader.end()
            raise
        return reader

    async def result(self, count: int, seconds: float) -> dict[str, Any]:
        self._write(b"%d\n" % count)
        answer: dict[str, Any] = json.loads(await self._line(seconds))
        return answer

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)

    async def _line(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), seconds)
        except asyncio.TimeoutError:
            raise WorkloadFailed(self._kind, f"its consumer did not answer within {seconds:g} s") from None
        if not line:
            assert self._process.stderr is not None
            told = (await self._process.stderr.read()).decode(errors="replace").strip().splitlines()
            raise WorkloadFailed(self._kind, f"its consumer ended: {told[-1] if told else 'it said nothing'}")
        return line
