"""1,000 members in 100 groups against one coordinator: what a heartbeat costs, and a commit, and a takeover.

The coordinator's core with the messages' bytes, on a real event loop, and a log that commits at once. What a process
and streams cost on top, `python -m bench heartbeats` says.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from random import Random

import uvloop

from bench.group_members import Member
from bench.measuring import ROUNDS, Figure
from raylog.actors.protocol.messages import Message, pack, unpack
from raylog.groups.coordinator.coordinator import GroupCoordinator
from raylog.groups.records.messages import CommitOffsets
from raylog.groups.records.offsets_log import KnownTopic
from raylog.groups.records.records import ClaimKey, EncodedRecord, decode

_GROUPS = 100
_MEMBERS = 10  # of each group
_PARTITIONS = 20
_TOPIC = "t"
_TOPIC_ID = bytes(16)
_INTERVAL_SECONDS = 3.0


class _ListLog:
    """Commits in the next turn of the loop."""

    def __init__(self) -> None:
        self.records: list[EncodedRecord] = []

    async def claim(self, coordinator_epoch: int) -> None:  # noqa: ARG002 (nobody else claims)
        return None

    async def replay(self) -> AsyncIterator[tuple[bytes | None, bytes | None, int]]:
        for offset, record in enumerate(list(self.records)):
            yield *record, offset

    def cannot_read(self, offset: int, error: Exception) -> None:
        raise AssertionError(f"One coordinator alone writes here, but offset {offset} is {error!r}.")

    def changes(self) -> int:
        """Records that are no claims."""
        return sum(not isinstance(decode(*record)[0], ClaimKey) for record in self.records)

    def append(self, records: Sequence[EncodedRecord]) -> Awaitable[object]:
        self.records += records
        return asyncio.sleep(0)


class _OneTopic:
    version = 1

    def __init__(self) -> None:
        self._topic = KnownTopic(_TOPIC, _TOPIC_ID, (frozenset[str](),) * _PARTITIONS)

    def by_name(self) -> Mapping[str, KnownTopic]:
        return {_TOPIC: self._topic}

    def by_id(self, topic_id: bytes) -> KnownTopic | None:  # noqa: ARG002 (there is one)
        return self._topic

    def end_offset(self, topic_id: bytes, partition: int) -> int | None:  # noqa: ARG002 (not known)
        return None

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 (it never changes)
        return lambda: None


def run() -> Iterator[Figure]:
    yield from uvloop.run(_measure())


async def _measure() -> list[Figure]:
    log = _ListLog()
    coordinator, running = await _started(log)
    members = [Member(f"g{group}", f"m{each}", _TOPIC) for group in range(_GROUPS) for each in range(_MEMBERS)]
    await asyncio.gather(*(_settle(coordinator, member) for member in members))
    written = log.changes()
    at_once = [await _cpu_of_round(coordinator, members, wait_ms=0) for _ in range(ROUNDS + 1)]
    held = [await _cpu_of_round(coordinator, members, wait_ms=50) for _ in range(ROUNDS + 1)]
    assert log.changes() == written, "heartbeats without change append nothing"
    commits = [await _cpu_of_commits(coordinator, members) for _ in range(ROUNDS + 1)]
    share, p99 = await _paced(coordinator, members)
    coordinator.stop()
    await running
    began = time.process_time()
    successor, running = await _started(log)
    took = time.process_time() - began
    successor.stop()
    await running
    count = f"{_GROUPS * _MEMBERS} members in {_GROUPS} groups"
    return [
        Figure("a heartbeat without change", at_once[1:], "µs of CPU", note=f"answered at once; {count}"),
        Figure("a heartbeat that is held", held[1:], "µs of CPU", note="a task and a timer each, and the bytes"),
        Figure("a commit of one member's partitions", commits[1:], "µs of CPU", note="records encoded, batches shared"),
        Figure("one core, at a heartbeat each 3 s", [share], "%", note="held ones, 333 a second"),
        Figure("a heartbeat beside those, p99", [p99], "ms", note="answered at once"),
        Figure("a takeover", [took * 1e3], "ms of CPU", note=f"{len(log.records)} records"),
    ]


async def _started(log: _ListLog) -> tuple[GroupCoordinator, asyncio.Task[BaseException]]:
    loop = asyncio.get_running_loop()
    wall_ms, off_loop = (lambda: time.time_ns() // 1_000_000), partial(loop.run_in_executor, None)
    coordinator = GroupCoordinator(log, _OneTopic(), 1, wall_ms, off_loop, Random(1))
    running = asyncio.get_running_loop().create_task(coordinator.run())
    while not coordinator.is_serving:
        await asyncio.sleep(0)
    return coordinator, running


async def _ask(coordinator: GroupCoordinator, request: Message) -> Message:
    """Ask as over a stream: the request and the answer are packed and unpacked."""
    return unpack(*pack(await coordinator.handle(unpack(*pack(request)))))


async def _settle(coordinator: GroupCoordinator, member: Member) -> None:
    quiet = 0
    while quiet < 2:
        quiet = 0 if member.hear(await _ask(coordinator, member.heartbeat(200))) else quiet + 1


async def _cpu_of_round(coordinator: GroupCoordinator, members: Sequence[Member], wait_ms: int) -> float:
    """Microseconds for one heartbeat, when each member sends one."""
    loop = asyncio.get_running_loop()
    began = time.process_time()
    if wait_ms:
        await asyncio.gather(*(loop.create_task(_ask(coordinator, each.heartbeat(wait_ms))) for each in members))
    else:
        for each in members:
            await _ask(coordinator, each.heartbeat(0))
    return (time.process_time() - began) / len(members) * 1e6


async def _cpu_of_commits(coordinator: GroupCoordinator, members: Sequence[Member]) -> float:
    began = time.process_time()
    await asyncio.gather(*(_ask(coordinator, _commit_of(each)) for each in members))
    return (time.process_time() - began) / len(members) * 1e6


def _commit_of(member: Member) -> CommitOffsets:
    offsets = tuple((of, number, 17, -1, "") for of, numbers in member.owned for number in numbers)
    return CommitOffsets(member.group, member.name, member.epoch, offsets)


async def _paced(coordinator: GroupCoordinator, members: Sequence[Member]) -> tuple[float, float]:
    """(percent of a core, p99 in ms), for two intervals of all members at their pace."""
    loop = asyncio.get_running_loop()
    probe = Member("probe", "p", _TOPIC)
    await _settle(coordinator, probe)
    until = loop.time() + 2 * _INTERVAL_SECONDS
    tasks = [
        loop.create_task(_beat_until(coordinator, each, until, number * _INTERVAL_SECONDS / len(members)))
        for number, each in enumerate(members)
    ]
    began, latencies = time.process_time(), []
    while loop.time() < until:
        sent = time.perf_counter()
        await _ask(coordinator, probe.heartbeat(0))
        latencies.append(time.perf_counter() - sent)
        await asyncio.sleep(0.01)
    spent = time.process_time() - began
    await asyncio.gather(*tasks)
    return spent / (2 * _INTERVAL_SECONDS) * 100, statistics.quantiles(latencies, n=100)[98] * 1e3


async def _beat_until(coordinator: GroupCoordinator, member: Member, until: float, offset: float) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(offset)
    while loop.time() < until:
        await _ask(coordinator, member.heartbeat(int(_INTERVAL_SECONDS * 1000)))
