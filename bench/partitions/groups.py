"""A group of twenty members over a thousand partitions: one comes, then one is killed.

The members are processes of their own, as is the sender, which writes to every twentieth partition: to write to all as
often would keep the machine busy by itself. Partitions that stay with their member should not notice.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.delivery_gaps import ASSIGNED, Told, gap_in, longest
from bench.measuring import Figure
from bench.partitions.clusters import PARTITIONS, made
from bench.partitions.kafka import KafkaCluster
from bench.real_cluster import real_cluster
from bench.rebalance_bench import Phase, Programs, begin, noted, packed_access, until_shared
from bench.rebalance_programs import BEGUN, SESSION_MS, TOPIC, Plan
from raylog.api.admin.cluster import Cluster

_MEMBERS: Final = 20
_PLAN: Final = Plan(PARTITIONS, max(1, PARTITIONS // 50), 0.05)
_CALM_SECONDS: Final = 5.0
_COMES_GOAL: Final = 2.0
_KILLED_GOAL: Final = SESSION_MS / 1_000 + 2.0
_PAUSE_GOAL_MS: Final = 200.0


def run(_kafka: KafkaCluster | None) -> Iterator[Figure]:
    with real_cluster() as cluster, tempfile.TemporaryDirectory(prefix="raylog-group-") as folder:
        made(cluster, TOPIC, PARTITIONS)
        programs = Programs(Path(folder), packed_access(cluster), _PLAN)
        try:
            phases = _disturb(cluster, programs)
            told = noted(programs)
            newcomer = programs.paths[-1]
            begun = float(newcomer.with_name(newcomer.name + BEGUN).read_text())
        finally:
            programs.end()
    _calm, comes, killed = phases
    group = f"{_MEMBERS} members, {PARTITIONS:,} partitions"
    yield Figure(
        f"{group}: one comes", [_last_assigned(told, comes) - begun], "s", _COMES_GOAL, smaller_is_better=True,
        note="from its `subscribe` until the last partition is assigned",
    )  # fmt: skip
    yield Figure(
        f"{group}: one is killed", [_last_assigned(told, killed) - killed.begin], "s", _KILLED_GOAL,
        smaller_is_better=True, note=f"a session of {SESSION_MS / 1_000:g} s",
    )  # fmt: skip
    for phase in phases:
        yield _pause(phase, told)


def _disturb(cluster: Cluster, programs: Programs) -> list[Phase]:
    programs.start("send", "sent")
    programs.start("reader", "reader")
    members = [programs.start("member", f"member-{number}") for number in range(_MEMBERS)]
    until_shared(cluster, _MEMBERS)
    time.sleep(_CALM_SECONDS)
    phases: list[Phase] = []
    begin(phases, "nothing happens")
    time.sleep(_CALM_SECONDS)
    begin(phases, "one comes")
    programs.start("member", f"member-{_MEMBERS}")
    until_shared(cluster, _MEMBERS + 1)
    time.sleep(_CALM_SECONDS)
    begin(phases, "one is killed")
    members[0].kill()
    until_shared(cluster, _MEMBERS)
    time.sleep(_CALM_SECONDS)
    phases[-1].end = time.monotonic()
    return phases


def _last_assigned(told: Told, phase: Phase) -> float:
    times = [each.handed_out for events in told.events for _, each in events if each.offset == ASSIGNED]
    return max(each for each in times if phase.begin <= each < phase.end)


def _pause(phase: Phase, told: Told) -> Figure:
    found = [gap_in(phase.begin, phase.end, told.by_partition[partition]) for partition in _PLAN.sent_to]
    stay = [gap for gap, has_moved in found if not has_moved]
    seen = [each for each in told.reader if phase.begin <= each.handed_out < phase.end]
    control = max(longest([each.handed_out for each in seen if each.partition == part]) for part in _PLAN.sent_to)
    sent = longest(sorted(each.sent for each in seen if each.partition == 0))
    note = (
        f"{len(stay)} of {len(found)} partitions with a record every {1_000 * _PLAN.send_every:g} ms; "
        f"without a group {1_000 * control:.0f}, the sender {1_000 * sent:.0f}"
    )
    name = f"{phase.name}: pause of what stays"
    return Figure(name, [1_000 * max(stay).seconds], "ms", _PAUSE_GOAL_MS, smaller_is_better=True, note=note)
