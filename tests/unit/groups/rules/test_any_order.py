"""Members whose words and answers are lost, late and repeated: whatever the order, no partition has two owners."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.errors import GroupError, RequestTimedOut
from raylog.groups.member.member import Changes, GroupMember
from raylog.groups.records.messages import GroupHeartbeat, GroupHeartbeatAnswer, PartitionId, Profile, RemoveMembers
from raylog.groups.rules import membership, rebalance
from tests.unit.groups.small_group import Machine, topic_id

_PROFILE = Profile("", "", "test", "", 10_000, 60_000, "", ("t",), "")


class Party:
    """The real shard and real members; what is under way between them is a list that chance picks from."""

    def __init__(self, random: Random, members: int, partitions: int) -> None:
        self.random = random
        self.machine = Machine(t=partitions)
        self.members: dict[str, GroupMember] = {}
        self.asked: list[tuple[str, GroupHeartbeat]] = []
        self.answered: list[tuple[str, GroupHeartbeat, GroupHeartbeatAnswer | GroupError]] = []
        self.reads: dict[PartitionId, str] = {}
        for number in range(members):
            self.add(f"m{number}")

    def add(self, name: str, former: str = "") -> None:
        ids = iter(f"{former}{name}.{each}" for each in range(1_000_000))
        self.members[name] = GroupMember("g", _PROFILE, 1_000_000, lambda: next(ids), self.random, self.machine.now_ms)

    def step(self, calm: bool = False) -> None:
        name = self.random.choice(list(self.members))
        member = self.members[name]
        member.polled(self.machine.now_ms)
        request = member.next_heartbeat(self.machine.now_ms)
        if request is not None:
            self.asked.append((name, request))
        if member.revoking and (calm or self.random.random() < 0.3):
            gone = list(member.revoking)
            self.stops(name, gone)
            member.revoked(gone, self.machine.now_ms)
        if self.asked:
            self.deliver(*self._pick(self.asked, calm))
        if self.answered:
            self.hear(*self._pick(self.answered, calm))
        if calm or self.random.random() < 0.3:
            self.machine.assign()
        if not calm:
            self.disturb(name, member)
        self.machine.now_ms += self.random.choice((1, 50, 1_000))

    def disturb(self, name: str, member: GroupMember) -> None:
        """It gives up what it has asked, which may arrive all the same; or it leaves, and is back later."""
        what = self.random.random()
        if what < 0.2:
            member.doubted(self.machine.now_ms)
        elif what < 0.4 and self.asked:
            asker, request = self.random.choice(self.asked)
            self.members[asker].failed(request, RequestTimedOut("the coordinator", 1), self.machine.now_ms)
        elif what < 0.45:
            self.stops(name, list(member.leave(self.machine.now_ms)))
            goodbye = member.next_heartbeat(self.machine.now_ms)
            if goodbye is not None:
                self.asked.append((name, goodbye))
            self.add(name, f"{member.member_id}-")

    def calm_down(self) -> None:
        """What is under way is lost, and the sessions of those who have left unheard are over."""
        self.asked.clear()
        self.answered.clear()
        group = self.machine.shard.state.groups.get("g")
        there = {member.member_id for member in self.members.values()}
        ghosts = tuple(group.members.keys() - there) if group is not None else ()
        if ghosts:
            self.machine.ask(RemoveMembers("g", ghosts, (), ""))
        for member in self.members.values():
            request = member.next_heartbeat(self.machine.now_ms) or member._under_way
            if request is not None:
                member.failed(request, RequestTimedOut("the coordinator", 1), self.machine.now_ms)

    def _pick(self, under_way: list, calm: bool) -> tuple:  # type: ignore[type-arg]
        """Out of order; sometimes it stays, to come again."""
        place = 0 if calm else self.random.randrange(len(under_way))
        return under_way[place] if not calm and self.random.random() < 0.2 else under_way.pop(place)  # type: ignore[no-any-return]

    def deliver(self, name: str, request: GroupHeartbeat) -> None:
        try:
            answer = self.machine.ask(request)
            assert isinstance(answer, GroupHeartbeatAnswer)
            self.answered.append((name, request, answer))
        except GroupError as error:
            self.answered.append((name, request, error))
        self.check_rights()

    def hear(self, name: str, request: GroupHeartbeat, answer: GroupHeartbeatAnswer | GroupError) -> None:
        member = self.members[name]
        if isinstance(answer, GroupError):
            changes = member.failed(request, answer, self.machine.now_ms)
        else:
            changes = member.answered(request, answer, self.machine.now_ms)
        self.stops(name, list(changes.lost))
        for partition in changes.assigned:
            reader = self.reads.get(partition)
            known = self.machine.group().members
            both = {member.member_id, self.members[reader].member_id} if reader else set()
            assert reader in (None, name) or not both <= known.keys(), f"{partition} of {reader} went to {name}"
            self.reads[partition] = name

    def stops(self, name: str, partitions: list[PartitionId]) -> None:
        for partition in partitions:
            if self.reads.get(partition) == name:
                del self.reads[partition]

    def check_rights(self) -> None:
        """Counted from the members' own records, not from the index of owners."""
        group = self.machine.shard.state.groups.get("g")
        if group is not None:
            rights = Counter(each for member in group.members.values() for each in (*member.assigned, *member.revoking))
            assert all(count == 1 for count in rights.values()), "a partition has two owners"
            assert rights.keys() == group.owners.keys()


def play(seed: int, members: int, partitions: int) -> None:
    party = Party(Random(seed), members, partitions)
    for _ in range(150):
        party.step()
    party.calm_down()
    for _ in range(40 * members):
        for name, member in party.members.items():
            member.doubted(party.machine.now_ms)
            party.step(calm=True)
            assert member.stopped_by is None, name
    read = sorted(partition for member in party.members.values() for partition in member.reads)
    assert read == [(topic_id("t"), number) for number in range(partitions)]


@given(seed=st.integers(0, 1 << 32), members=st.integers(1, 4), partitions=st.integers(1, 6))
def test_no_partition_has_two_owners_and_the_group_settles(seed: int, members: int, partitions: int) -> None:
    play(seed, members, partitions)


def any_answer_counts(self: GroupMember, request: GroupHeartbeat, answer: GroupHeartbeatAnswer, now_ms: int) -> Changes:
    if self._under_way is not None and request.epoch >= 0 <= self._under_way.epoch:
        self._under_way = request
    return _ANSWERED(self, request, answer, now_ms)


_ANSWERED = GroupMember.answered
_CLAUSES: list[tuple[object, str, object]] = [
    (rebalance, "is_free", lambda group, partition, member: True),
    (rebalance, "still_holds", lambda partition, owned: False),
    (membership, "check_sequence", lambda group, member, request: None),
    (GroupMember, "answered", any_answer_counts),
]


def play_many(seeds: int) -> None:
    for seed in range(seeds):
        play(seed, 3, 3)


@pytest.mark.parametrize(("owner", "name", "without"), _CLAUSES, ids=[each[1] for each in _CLAUSES])
def test_each_clause_of_rule_23_is_needed(
    owner: object, name: str, without: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, without)
    with pytest.raises(AssertionError, match=r"has two owners|went to"):
        play_many(500)
