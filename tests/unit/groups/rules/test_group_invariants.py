"""What groups say of themselves when something in them is broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raylog.groups.records.records import GroupValue, StagedValue
from raylog.groups.rules.group import Group, GroupsState, Member
from tests.unit.groups.small_group import Client, Machine, settle, topic_id


def two_members() -> GroupsState:
    machine = Machine(t=4)
    first, second = (Client(machine, name, "t").join() for name in ("a", "b"))
    settle(machine, first, second)
    return machine.shard.state


def only(state: GroupsState) -> Group:
    (group,) = state.groups.values()
    return group


def test_sound_groups_have_nothing_to_say() -> None:
    assert list(two_members().broken_invariants()) == []


def members(state: GroupsState) -> list[Member]:
    return list(only(state).members.values())


def two_owners(state: GroupsState) -> None:
    first, second = members(state)
    second.assigned = {**second.assigned, **first.assigned}


def owner_without_the_right(state: GroupsState) -> None:
    members(state)[0].assigned = {}


def member_ahead_of_its_group(state: GroupsState) -> None:
    members(state)[0].epoch += 1


def target_ahead_of_its_group(state: GroupsState) -> None:
    group = only(state)
    group.value = GroupValue(group.epoch, group.epoch + 1, "", -1, (), -1, "")


def instance_of_nobody(state: GroupsState) -> None:
    only(state).by_instance["i"] = "nobody"


def instance_that_is_not_found(state: GroupsState) -> None:
    member = members(state)[0]
    member.profile = member.profile._replace(instance_id="i")


def topic_counted_twice(state: GroupsState) -> None:
    only(state).named["t"] += 1


def known_from_recovery_only(state: GroupsState) -> None:
    only(state).unknown["c"] = Member("c")


def blank_group(state: GroupsState) -> None:
    state.group("blank")


def staged_and_not_listed(state: GroupsState) -> None:
    only(state).staged[topic_id("t"), 0] = {7: StagedValue(0, "t", 1, -1, "", 0)}


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (two_owners, "members have the right to commit"),
        (owner_without_the_right, "members have the right to commit"),
        (member_ahead_of_its_group, "group epoch"),
        (target_ahead_of_its_group, "group epoch"),
        (instance_of_nobody, "are not all members"),
        (instance_that_is_not_found, "is not found under its instance id i"),
        (topic_counted_twice, "topics are counted"),
        (known_from_recovery_only, "are not all members"),
        (blank_group, "blank is kept"),
        (staged_and_not_listed, "staged offsets are listed"),
    ],
)
def test_broken_groups_say_what_is_broken(break_it: Callable[[GroupsState], None], said: str) -> None:
    state = two_members()
    break_it(state)
    assert said in "; ".join(state.broken_invariants())
