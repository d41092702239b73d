"""A group while members come and go: how long partitions that stay, and those that move, are without a delivery.

12 partitions, a record in each every 20 ms, four members in processes of their own; then two more come, one is killed,
one is stopped past its session and goes on, and the coordinators are killed. Beside them one reads all partitions
without a group: its gaps are not the group's doing, nor are those of the sender, which are taken from the records.

A gap is the time between two deliveries of one partition, by whichever member. What has moved is what another member
delivers at the end of a phase than at its beginning; its gap is its time without an owner too.
"""

from __future__ import annotations

import base64
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import ray
import ray.util

from bench.measuring import Figure
from bench.real_cluster import real_cluster
from bench.rebalance_programs import GROUP, PARTITIONS, SESSION_MS, TOPIC, Delivery, deliveries
from raylog.actors.coordinator_state import OFFSETS_TOPIC
from raylog.api.cluster import Cluster

_REPLICAS: Final = int(os.environ.get("RAYLOG_BENCH_REPLICAS", "3"))
_SETTLE_SECONDS: Final = 90.0
_START_SECONDS: Final = 180.0
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
        members = {number: list(deliveries(path)) for number, path in enumerate(crew.paths)}
        reader = list(deliveries(Path(folder) / "reader"))
    for phase in phases:
        yield from _figures(phase, members, reader)
    moved = _moved_at(members, phases[2], killed_at)
    yield Figure(
        "from a kill to the last that moved",
        [1000 * (max(moved) - killed_at)] if moved else [float("nan")], "ms", SESSION_MS + 1000, True,
        f"{len(moved)} partitions, a session of {SESSION_MS} ms",
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
    while True:
        told = cluster.describe_group(GROUP) if GROUP in {each.group_id for each in cluster.list_groups()} else None
        if told is not None and told.state == "Stable" and len(told.members) == members:
            return
        assert time.monotonic() < deadline, f"the group did not settle: {told}"
        time.sleep(0.2)


def _coordinator_pids() -> list[int]:
    prefix = f"coordinator-{OFFSETS_TOPIC}-"
    names = [each for each in ray.util.list_named_actors(all_namespaces=True) if each["name"].startswith(prefix)]
    actors = [ray.get_actor(each["name"], namespace=each["namespace"]) for each in names]
    return [ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=20.0) for actor in actors]


# --- what is found ------------------------------------------------------------------------------------------------


def _figures(phase: _Phase, members: dict[int, list[Delivery]], reader: list[Delivery]) -> Iterator[Figure]:
    stay, move, late = [], [], []
    for partition in range(PARTITIONS):
        found = _within(phase, members, partition)
        if len(found) < 2:
            move.append(phase.end - phase.begin)
            continue
        gap = _longest([each.handed_out for _, each in found])
        if found[0][0] == found[-1][0]:
            stay.append(gap)
            late += [each.handed_out - each.sent for _, each in found]
        else:
            move.append(gap)
    control = [
        _longest([each.handed_out for each in reader if each.partition == number and _is_in(phase, each)])
        for number in range(PARTITIONS)
    ]
    sent = _longest(sorted(each.sent for each in reader if each.partition == 0 and _is_in(phase, each)))
    note = (
        f"{len(stay)} partitions, records late by {_ms(max(late, default=0.0)):.0f}; "
        f"without a group {_ms(max(control)):.0f}, sender {_ms(sent):.0f}"
    )
    if stay:
        goal = _GOAL_MS
        yield Figure(f"{phase.name}: longest gap, stay", [_ms(max(stay))], "ms", goal, True, note)
    if move:
        yield Figure(f"{phase.name}: longest gap, move", [_ms(max(move))], "ms", note=f"{len(move)} partitions")


def _within(phase: _Phase, members: dict[int, list[Delivery]], partition: int) -> list[tuple[int, Delivery]]:
    found = [
        (number, each)
        for number, delivered in members.items()
        for each in delivered
        if each.partition == partition and _is_in(phase, each)
    ]
    return sorted(found, key=lambda each: each[1].handed_out)


def _moved_at(members: dict[int, list[Delivery]], phase: _Phase, since: float) -> list[float]:
    """When those that moved were delivered again, by somebody else."""
    found = []
    for partition in range(PARTITIONS):
        delivered = [each for each in _within(phase, members, partition) if each[1].handed_out >= since]
        if delivered and delivered[0][0] != delivered[-1][0]:
            found.append(next(each.handed_out for number, each in delivered if number == delivered[-1][0]))
        elif delivered and delivered[0][1].handed_out - since > SESSION_MS / 3000:
            found.append(delivered[0][1].handed_out)
    return found


def _is_in(phase: _Phase, delivery: Delivery) -> bool:
    return phase.begin <= delivery.handed_out < phase.end


def _longest(times: Sequence[float]) -> float:
    return max((after - before for before, after in pairwise(times)), default=0.0)


def _ms(seconds: float) -> float:
    return 1000 * seconds
