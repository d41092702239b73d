"""A group while members come and go: how long partitions that stay, and those that move, are without a delivery.

12 partitions, a record in each every 20 ms, four members in processes of their own; then two more come, one is killed,
one is stopped past its session and goes on, and the coordinators are killed. Beside them one reads all partitions
without a group: its gaps are not the group's doing, nor are those of the sender, which are taken from the records.
In the end every record that was sent has to be with some member: the run fails where one is missing.
"""

from __future__ import annotations

import base64
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.delivery_gaps import Delivery, Gap, Told, gap_in, longest, missing, moved_at, parts_of
from bench.measuring import Figure
from bench.real_cluster import coordinator_pids, real_cluster
from bench.rebalance_programs import (
    EVENTS,
    GROUP,
    PARTITIONS,
    SESSION_MS,
    TOPIC,
    Plan,
    deliveries,
    sent_counts,
)
from raylog.api.admin.cluster import Cluster
from raylog.api.admin.rules.group_descriptions import GroupListing
from raylog.errors import RaylogError

_REPLICAS: Final = int(os.environ.get("RAYLOG_BENCH_REPLICAS", "3"))
_SETTLE_SECONDS: Final = 90.0
_START_SECONDS: Final = 180.0
_ASK_SECONDS: Final = 10.0
_CALM: Final = 6.0
_GOAL_MS: Final = 200.0
_SHOWN: Final = 10


class RecordsMissing(AssertionError):
    """Records were sent and not delivered."""


@dataclass
class Phase:
    """A part of a run, by the monotonic clock."""

    name: str
    begin: float
    end: float = 0.0


@dataclass
class Programs:
    """The processes of a run: what they write lies in the folder, for members in the order of their start."""

    folder: Path
    access: str
    plan: Plan = field(default_factory=Plan)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)

    def start(self, role: str, name: str) -> subprocess.Popen[bytes]:
        path = self.folder / name
        plan = json.dumps(self.plan)
        program = [sys.executable, "-m", "bench.rebalance_programs", role, str(path), self.access, plan]
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
        programs = Programs(Path(folder), packed_access(cluster))
        try:
            phases, killed_at = _disturb(cluster, programs)
            sent = _stop_sending(programs)
            _until_delivered(programs, sent)
        finally:
            programs.end()
        told = noted(programs)
    for phase in phases:
        yield from _figures(phase, told)
    moved = moved_at(told, phases[2].begin, killed=0)
    yield Figure(
        "from a kill to the last that moved", [1000 * (max(moved, default=math.nan) - killed_at)], "ms",
        SESSION_MS + 1000, True, f"{len(moved)} partitions, a session of {SESSION_MS} ms",
    )  # fmt: skip
    lost = missing(told, sent)
    yield Figure("missing", [len(lost)], f"of {sum(sent)}", 0, True, "records that no member was handed")
    if lost:
        raise RecordsMissing(f"No member was handed {len(lost)} of {sum(sent)} records: {lost[:_SHOWN]} …")


def packed_access(cluster: Cluster) -> str:
    """Return the cluster's access as an argument of a program."""
    return base64.b64encode(pickle.dumps(cluster.access())).decode()


def _stop_sending(programs: Programs) -> list[int]:
    """Stop the sender. Return how many records of each partition were acknowledged."""
    sender = programs.processes[0]
    sender.terminate()
    sender.wait(_SETTLE_SECONDS)
    sent = sent_counts(programs.folder / "sent")
    if sent is None:
        raise RecordsMissing("The sender did not get all that it sent acknowledged.")
    return sent


def _until_delivered(programs: Programs, sent: list[int]) -> None:
    """Wait until all is delivered. RecordsMissing: that takes too long."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while missing(noted(programs), sent) and time.monotonic() < deadline:
        time.sleep(0.5)


def _disturb(cluster: Cluster, programs: Programs) -> tuple[list[Phase], float]:
    programs.start("send", "sent")
    programs.start("reader", "reader")
    members = [programs.start("member", f"member-{number}") for number in range(4)]
    until_shared(cluster, 4)
    time.sleep(2.0)
    phases: list[Phase] = []
    begin(phases, "nothing happens")
    time.sleep(_CALM)
    begin(phases, "two come")
    members += [programs.start("member", f"member-{number}") for number in (4, 5)]
    until_shared(cluster, 6)
    time.sleep(2.0)
    begin(phases, "one is killed")
    killed_at = time.monotonic()
    members[0].kill()
    until_shared(cluster, 5)
    time.sleep(2.0)
    begin(phases, "one is stopped past its session")
    members[1].send_signal(signal.SIGSTOP)
    until_shared(cluster, 4)
    members[1].send_signal(signal.SIGCONT)
    until_shared(cluster, 5)
    time.sleep(2.0)
    pids = coordinator_pids()
    begin(phases, "the coordinators are killed")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    time.sleep(_CALM)
    phases[-1].end = time.monotonic()
    return phases, killed_at


def begin(phases: list[Phase], name: str) -> None:
    """Begin a phase, which ends the one before."""
    now = time.monotonic()
    if phases:
        phases[-1].end = now
    phases.append(Phase(name, now))


def until_shared(cluster: Cluster, members: int) -> None:
    """Wait until so many members own all partitions."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    last: object = None
    while time.monotonic() < deadline:
        try:  # of the list alone: a description asks the leaders of all partitions where their logs end
            last = next((each for each in cluster.list_groups(timeout=_ASK_SECONDS) if each.group_id == GROUP), None)
        except RaylogError as error:  # its coordinator is just being started
            last = error
        else:
            if last == GroupListing(GROUP, "Stable", members):
                return
        time.sleep(0.2)
    raise TimeoutError(f"The group did not settle: {last}")


# --- what is found ------------------------------------------------------------------------------------------------


def noted(programs: Programs) -> Told:
    """Return what the processes have noted so far."""
    delivered: list[list[tuple[int, Delivery]]] = [[] for _ in range(programs.plan.partitions)]
    events: list[list[tuple[int, Delivery]]] = [[] for _ in range(programs.plan.partitions)]
    for number, path in enumerate(programs.paths):
        for each in deliveries(path):
            delivered[each.partition].append((number, each))
        for each in deliveries(path.with_name(path.name + EVENTS)):
            events[each.partition].append((number, each))
    for found in (*delivered, *events):
        found.sort(key=lambda each: each[1].handed_out)
    return Told(delivered, events, list(deliveries(programs.folder / "reader")))


def _figures(phase: Phase, told: Told) -> Iterator[Figure]:
    stay: list[Gap] = []
    move: list[tuple[Gap, int]] = []
    for partition, delivered in enumerate(told.by_partition):
        gap, has_moved = gap_in(phase.begin, phase.end, delivered)
        if has_moved:
            move.append((gap, partition))
        else:
            stay.append(gap)
    seen = [each for each in told.reader if phase.begin <= each.handed_out < phase.end]
    control = max(longest([each.handed_out for each in seen if each.partition == part]) for part in range(PARTITIONS))
    sent = longest(sorted(each.sent for each in seen if each.partition == 0))
    note = f"{len(stay)} partitions; without a group {1000 * control:.0f}, the sender {1000 * sent:.0f}"
    if stay:
        yield Figure(f"{phase.name}: stay", [1000 * max(stay).seconds], "ms", _GOAL_MS, True, note)
    if move:
        gap, partition = max(move)
        yield Figure(f"{phase.name}: move", [1000 * gap.seconds], "ms", note=f"{len(move)} partitions; "
                     + parts_of(gap, told.events[partition]))  # fmt: skip
