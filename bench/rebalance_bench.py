"""A group while members come and go: how long partitions that stay, and those that move, are without a delivery.

12 partitions, a record in each every 20 ms, four members in processes of their own; then two more come, one is killed,
one is stopped past its session and goes on, and the coordinators are killed. Beside them one reads all partitions
without a group: its gaps are not the group's doing, nor are those of the sender, which are taken from the records.

A gap is the time between two deliveries of one partition, by whichever member. What stays is what one member delivers
all through a phase, and before it.
"""

from __future__ import annotations

import base64
import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import ray
import ray.util

from bench.measuring import Figure
from bench.real_cluster import real_cluster
from bench.rebalance_programs import (
    ASSIGNED,
    EVENTS,
    GROUP,
    PARTITIONS,
    REVOKED,
    SESSION_MS,
    TOPIC,
    Delivery,
    deliveries,
)
from raylog.actors.coordinator_state import OFFSETS_TOPIC
from raylog.api.cluster import Cluster
from raylog.errors import RaylogError

_REPLICAS: Final = int(os.environ.get("RAYLOG_BENCH_REPLICAS", "3"))
_SETTLE_SECONDS: Final = 90.0
_START_SECONDS: Final = 180.0
_ASK_SECONDS: Final = 10.0
_CALM: Final = 6.0
_GOAL_MS: Final = 200.0


@dataclass
class _Phase:
    name: str
    begin: float
    end: float = 0.0


@dataclass
class _Crew:
    folder: Path
    access: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)

    def start(self, role: str, name: str) -> subprocess.Popen[bytes]:
        path = self.folder / name
        program = [sys.executable, "-m", "bench.rebalance_programs", role, str(path), self.access]
        started = subprocess.Popen(program)
        self.processes.append(started)
        if role == "member":
            self.paths.append(path)
        return started

    def end(self) -> None:
        for each in self.processes:
            each.kill()
        for each in self.processes:
            each.wait(10.0)


def run() -> Iterator[Figure]:
    with real_cluster() as cluster, tempfile.TemporaryDirectory(prefix="raylog-rebalance-") as folder:
        cluster.create_topic(TOPIC, PARTITIONS, _REPLICAS, timeout=_START_SECONDS)
        crew = _Crew(Path(folder), base64.b64encode(pickle.dumps(cluster.access())).decode())
        try:
            phases, killed_at = _disturb(cluster, crew)
        finally:
            crew.end()
        told = _told(crew)
    for phase in phases:
        yield from _figures(phase, told)
    moved = _moved_at(told, phases[2], killed=0)
    yield Figure(
        "from a kill to the last that moved", [1000 * (max(moved, default=math.nan) - killed_at)], "ms",
        SESSION_MS + 1000, True, f"{len(moved)} partitions, a session of {SESSION_MS} ms",
    )  # fmt: skip


def _disturb(cluster: Cluster, crew: _Crew) -> tuple[list[_Phase], float]:
    crew.start("send", "sent")
    crew.start("reader", "reader")
    members = [crew.start("member", f"member-{number}") for number in range(4)]
    _until_shared(cluster, 4)
    time.sleep(2.0)
    phases: list[_Phase] = []
    _begin(phases, "nothing happens")
    time.sleep(_CALM)
    _begin(phases, "two come")
    members += [crew.start("member", f"member-{number}") for number in (4, 5)]
    _until_shared(cluster, 6)
    time.sleep(2.0)
    _begin(phases, "one is killed")
    killed_at = time.monotonic()
    members[0].kill()
    _until_shared(cluster, 5)
    time.sleep(2.0)
    _begin(phases, "one is stopped past its session")
    members[1].send_signal(signal.SIGSTOP)
    _until_shared(cluster, 4)
    members[1].send_signal(signal.SIGCONT)
    _until_shared(cluster, 5)
    time.sleep(2.0)
    pids = _coordinator_pids()
    _begin(phases, "the coordinators are killed")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    time.sleep(_CALM)
    phases[-1].end = time.monotonic()
    return phases, killed_at


def _begin(phases: list[_Phase], name: str) -> None:
    now = time.monotonic()
    if phases:
        phases[-1].end = now
    phases.append(_Phase(name, now))


def _until_shared(cluster: Cluster, members: int) -> None:
    """So many members own all partitions."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = cluster.describe_group(GROUP, timeout=_ASK_SECONDS)
            if last.state == "Stable" and len(last.members) == members:
                return
        except RaylogError as error:  # no such group yet, or its coordinator is just being started
            last = error
        time.sleep(0.2)
    raise TimeoutError(f"The group did not settle: {last}")


def _coordinator_pids() -> list[int]:
    prefix = f"coordinator-{OFFSETS_TOPIC}-"
    names = [each for each in ray.util.list_named_actors(all_namespaces=True) if each["name"].startswith(prefix)]
    actors = [ray.get_actor(each["name"], namespace=each["namespace"]) for each in names]
    return [ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=20.0) for actor in actors]


# --- what is found ------------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """All that was delivered, and who got and gave up what, by time."""

    by_partition: list[list[tuple[int, Delivery]]]  # member, delivery
    events: list[list[tuple[int, Delivery]]]
    reader: list[Delivery]


def _told(crew: _Crew) -> Told:
    delivered: list[list[tuple[int, Delivery]]] = [[] for _ in range(PARTITIONS)]
    events: list[list[tuple[int, Delivery]]] = [[] for _ in range(PARTITIONS)]
    for number, path in enumerate(crew.paths):
        for each in deliveries(path):
            delivered[each.partition].append((number, each))
        for each in deliveries(path.with_name(path.name + EVENTS)):
            events[each.partition].append((number, each))
    for found in (*delivered, *events):
        found.sort(key=lambda each: each[1].handed_out)
    return Told(delivered, events, list(deliveries(crew.folder / "reader")))


class Gap(NamedTuple):
    seconds: float
    begin: float
    end: float


def gap_in(phase: _Phase, delivered: Sequence[tuple[int, Delivery]]) -> tuple[Gap, bool]:
    """The longest time without a delivery that overlaps with the phase, and whether another member delivered then."""
    times = [each.handed_out for _, each in delivered]
    first = max(bisect_left(times, phase.begin) - 1, 0)  # the last one before it
    last = bisect_left(times, phase.end)
    among = delivered[first:last]
    found = [each.handed_out for _, each in among] or [phase.begin]
    ends = pairwise([*found, max(phase.end, found[-1])])
    longest = max((Gap(after - before, before, after) for before, after in ends), default=Gap(0.0, 0.0, 0.0))
    return longest, len({member for member, _ in among}) > 1


def _figures(phase: _Phase, told: Told) -> Iterator[Figure]:
    stay: list[Gap] = []
    move: list[tuple[Gap, int]] = []
    for partition, delivered in enumerate(told.by_partition):
        gap, has_moved = gap_in(phase, delivered)
        if has_moved:
            move.append((gap, partition))
        else:
            stay.append(gap)
    seen = [each for each in told.reader if phase.begin <= each.handed_out < phase.end]
    control = max(_longest([each.handed_out for each in seen if each.partition == part]) for part in range(PARTITIONS))
    sent = _longest(sorted(each.sent for each in seen if each.partition == 0))
    note = f"{len(stay)} partitions; without a group {1000 * control:.0f}, the sender {1000 * sent:.0f}"
    if stay:
        yield Figure(f"{phase.name}: stay", [1000 * max(stay).seconds], "ms", _GOAL_MS, True, note)
    if move:
        gap, partition = max(move)
        yield Figure(f"{phase.name}: move", [1000 * gap.seconds], "ms", note=f"{len(move)} partitions; "
                     + _parts(gap, told.events[partition]))  # fmt: skip


def _parts(gap: Gap, events: Sequence[tuple[int, Delivery]]) -> str:
    """What the longest one was made of."""
    within = [each for _, each in events if gap.begin <= each.handed_out <= gap.end]
    given_up = [each.handed_out for each in within if each.offset == REVOKED]
    taken = [each.handed_out for each in within if each.offset == ASSIGNED]
    told = []
    if given_up:
        told.append(f"given up after {1000 * (given_up[0] - gap.begin):.0f}")
    if taken:
        told.append(f"taken after {1000 * (taken[-1] - gap.begin):.0f}")
    return ", ".join([*told, f"read after {1000 * gap.seconds:.0f}"])


def _moved_at(told: Told, phase: _Phase, killed: int) -> list[float]:
    """When those that the killed member had were delivered by somebody else."""
    found = []
    for delivered in told.by_partition:
        before = [member for member, each in delivered if each.handed_out < phase.begin]
        after = [each.handed_out for member, each in delivered if each.handed_out >= phase.begin and member != killed]
        if before and before[-1] == killed:
            found.append(after[0] if after else math.inf)
    return found


def _longest(times: Sequence[float]) -> float:
    return max((after - before for before, after in pairwise(times)), default=0.0)
