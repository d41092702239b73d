"""Rules 23 to 25, and 34, switched off, one clause at a time, to see that the checks of `group_checks.py` notice.

What must stay true: each of them is caught by a seed in the table, which passes otherwise. That a member looks at no
answer to a heartbeat it gave up is left to `test_any_order.py`: here the network drops nearly all of those.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from raylog.groups.assignors import calling
from raylog.groups.assignors.calling import AssignorCall, AssignorsBesideLoop, Given
from raylog.groups.coordinator.commit_line import CommitLine
from raylog.groups.coordinator.coordinator import GroupCoordinator
from raylog.groups.records.records import decode
from raylog.groups.rules import membership, offset_commits, rebalance
from raylog.groups.rules.pattern_topics import match_patterns
from raylog.groups.rules.rebalance import TargetBasis, TargetPlan
from raylog.groups.rules.shard import GroupShard
from tests.simulator.cluster.group_world import failure_of_seed
from tests.simulator.mutations.mutations import Patches


def rule_23_grants_what_another_owns(patches: Patches) -> None:
    patches.attribute(rebalance, "is_free", lambda group, partition, member: True)


def rule_23_takes_away_unasked(patches: Patches) -> None:
    patches.attribute(rebalance, "still_holds", lambda partition, owned: False)


def rule_23_believes_old_heartbeats(patches: Patches) -> None:
    patches.attribute(membership, "check_sequence", lambda group, member, request: None)


def rule_24_lets_anybody_commit(patches: Patches) -> None:
    patches.attribute(offset_commits, "may_commit", lambda since, epoch, member_epoch: True)


def rule_24_takes_commits_from_before_the_ownership(patches: Patches) -> None:
    patches.attribute(offset_commits, "may_commit", lambda since, epoch, member_epoch: since is not None)


def rule_25_replays_before_the_claim(patches: Patches) -> None:
    async def load(self: Any) -> None:
        self._log._claimed_at = len(self._log._partition.records)
        records = [(key, value) async for key, value, _ in self._log.replay()]
        await self._log.claim(self._epoch)
        for key, value in records:
            self._shard.state.replay(*decode(key, value))

    patches.attribute(GroupCoordinator, "_load", load)


def rule_25_answers_before_the_commit(patches: Patches) -> None:
    async def at_once(self: Any, ticket: int, group: str) -> None:
        return None

    patches.attribute(CommitLine, "committed", at_once)


def rule_25_reads_without_confirming(patches: Patches) -> None:
    patches.attribute(GroupCoordinator, "_confirmation", lambda self: 0)


def rule_34_assigns_on_the_loop(patches: Patches) -> None:
    async def run(self: Any, call: AssignorCall) -> Given:
        return calling.assign(call.name, call.subscribers, call.topics)

    patches.attribute(AssignorsBesideLoop, "run", run)


def rule_34_puts_together_on_the_loop(patches: Patches) -> None:
    def begin(self: Any, group_id: str, *, regardless: bool = False) -> Any:
        basis = before(self, group_id, regardless=regardless)
        if isinstance(basis, TargetBasis):
            basis.plan()
        return basis

    before = patches.attribute(GroupShard, "begin_assignment", begin)


def rule_34_matches_patterns_on_the_loop(patches: Patches) -> None:
    def match(self: Any) -> None:
        while (work := self._shard.patterns_due()) is not None:
            self._shard.patterns_matched(work, match_patterns(work))

    patches.attribute(GroupCoordinator, "_match_patterns", match)


def rule_34_takes_what_was_computed_for_another_state(patches: Patches) -> None:
    def finish(self: Any, plan: TargetPlan, given: Given) -> None:
        group = self.state.groups.get(plan.group_id)
        if group is not None and group.is_assigning:
            present = replace(plan, epoch=group.epoch, members=frozenset(group.members))
            before(self, present, {member: given[member] for member in given if member in group.members})

    before = patches.attribute(GroupShard, "finish_assignment", finish)


GROUP_MUTATIONS: Final[dict[str, Callable[[Patches], None]]] = {
    name: value for name, value in list(globals().items()) if name.startswith("rule_")
}

# Seeds that tell, one of which is enough: they change their meaning whenever the world, or the code in it, draws
# differently. `python -m tests.simulator.mutations.group_mutations NAME` looks for others.
SEEDS: Final[dict[str, tuple[int, ...]]] = {
    "rule_23_grants_what_another_owns": (0, 1, 2),
    "rule_23_takes_away_unasked": (0, 1, 2),
    "rule_23_believes_old_heartbeats": (68, 70, 80),
    "rule_24_lets_anybody_commit": (7, 16, 18),
    "rule_24_takes_commits_from_before_the_ownership": (18, 91, 105),
    "rule_25_replays_before_the_claim": (4, 26, 30),
    "rule_25_answers_before_the_commit": (0, 1, 2),
    "rule_25_reads_without_confirming": (0, 1, 2),
    "rule_34_assigns_on_the_loop": (0, 1, 2),
    "rule_34_puts_together_on_the_loop": (0, 1, 2),
    "rule_34_matches_patterns_on_the_loop": (0, 1, 2),
    "rule_34_takes_what_was_computed_for_another_state": (2, 3, 18),
}


@contextmanager
def group_rule_off(name: str) -> Iterator[None]:
    patches = Patches()
    try:
        GROUP_MUTATIONS[name](patches)
        yield
    finally:
        patches.undo()


def catches(name: str, seed: int) -> bool:
    """Whether this seed fails with the rule off, and passes with it on."""
    with group_rule_off(name):
        failure = failure_of_seed(seed)
    return bool(failure) and not failure_of_seed(seed)


def main() -> None:
    """Three seeds below 500 for each mutation, or for those that are named."""
    logging.disable(logging.CRITICAL)
    for name in sys.argv[1:] or GROUP_MUTATIONS:
        found: list[int] = []
        for seed in range(500):
            if len(found) < 3 and catches(name, seed):
                found.append(seed)
        sys.stdout.write(f'"{name}": {tuple(found)},\n')


if __name__ == "__main__":
    main()
