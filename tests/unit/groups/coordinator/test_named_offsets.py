"""Offsets and owners of groups, by the names of topics."""

from __future__ import annotations

from raylog.groups.coordinator.named_offsets import committed, uncommitted
from tests.unit.groups.small_group import Client, Machine, settle


def test_what_members_have_is_committed_or_not() -> None:
    machine = Machine(t=3, gone=1)
    member = Client(machine, "a", "t", "gone").join()
    settle(machine, member)
    assert not member.commit(("t", 1, 7))
    groups = machine.shard.state.groups.values()
    assert list(committed(groups, machine.topics)) == [("g", "t", 1, 7)]
    assert sorted(uncommitted(groups, machine.topics)) == [("g", "gone", 0), ("g", "t", 0), ("g", "t", 2)]
    machine.topics.drop("gone")
    assert sorted(uncommitted(groups, machine.topics)) == [("g", "t", 0), ("g", "t", 2)]
