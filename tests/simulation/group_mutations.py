"""Rules 23 to 25 switched off, one clause at a time, to see that the checks of `group_checks.py` notice.

What must stay true: each of them is caught by the seed beside it, which passes otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from raylog.groups import membership, offset_commits, reconciliation
from raylog.groups.commit_line import CommitLine
from raylog.groups.coordinator import GroupCoordinator
from raylog.groups.group_records import decode
from raylog.groups.member import GroupMember
from tests.simulation.mutations import Patches


def rule_23_grants_what_another_owns(patches: Patches) -> None:
    patches.attribute(reconciliation, "is_free", lambda group, partition, member: True)


def rule_23_takes_away_unasked(patches: Patches) -> None:
    patches.attribute(reconciliation, "still_holds", lambda partition, owned: False)


def rule_23_believes_old_heartbeats(patches: Patches) -> None:
    patches.attribute(membership, "check_sequence", lambda group, member, request: None)


def rule_23_believes_answers_that_were_given_up(patches: Patches) -> None:
    answered = GroupMember.answered

    def any_answer(self: Any, request: Any, answer: Any, now_ms: int) -> Any:
        if self._under_way is not None and request.epoch >= 0 <= self._under_way.epoch:
            self._under_way = request
        return answered(self, request, answer, now_ms)

    patches.attribute(GroupMember, "answered", any_answer)


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


GROUP_MUTATIONS: Final[dict[str, Callable[[Patches], None]]] = {
    name: value for name, value in list(globals().items()) if name.startswith("rule_")
}

# A seed changes its meaning whenever the world, or the code that runs in it, draws differently: then look for another.
SEEDS: Final[dict[str, int]] = {
    "rule_23_grants_what_another_owns": 0,
    "rule_23_takes_away_unasked": 0,
    "rule_23_believes_old_heartbeats": 64,
    "rule_23_believes_answers_that_were_given_up": 12,
    "rule_24_lets_anybody_commit": 5,
    "rule_24_takes_commits_from_before_the_ownership": 12,
    "rule_25_replays_before_the_claim": 230,
    "rule_25_answers_before_the_commit": 0,
    "rule_25_reads_without_confirming": 22,
}


@contextmanager
def group_rule_off(name: str) -> Iterator[None]:
    patches = Patches()
    try:
        GROUP_MUTATIONS[name](patches)
        yield
    finally:
        patches.undo()
