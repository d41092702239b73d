"""Classic groups: joins, generations, leaders, time, static members, and what another coordinator knows of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.cluster.coordinator_state import COORDINATED_SETTINGS
from raylog.config import MIB
from raylog.errors import (
    FencedInstance,
    FencedMember,
    GroupFull,
    GroupNotEmpty,
    InconsistentGroupProtocol,
    InvalidMembership,
    InvalidRequest,
    RaylogError,
    RebalanceInProgress,
    UnknownMember,
)
from raylog.groups.records.classic_messages import packed_assignments, read_assignments
from raylog.groups.records.messages import CommitOffsets, DeleteGroup
from raylog.groups.records.settings import GroupSettings
from raylog.groups.rules.classic_group import COMPLETING, EMPTY, PREPARING, STABLE
from tests.unit.groups.rules.classic_world import REBALANCE_MS, SESSION_MS, Classic, KafkaMember, settled
from tests.unit.groups.small_group import Client, Machine, committed, settle


@pytest.fixture
def of() -> Classic:
    return Classic(Machine(t=4))


@pytest.fixture
def pair(of: Classic) -> tuple[KafkaMember, KafkaMember]:
    one, two = KafkaMember(of, "one"), KafkaMember(of, "two")
    settled(of, one, two)
    return one, two


def test_the_first_members_are_waited_for_and_one_of_them_leads(of: Classic) -> None:
    one, two = KafkaMember(of, "one").join(), KafkaMember(of, "two")
    of.wait(400)
    two.join()
    of.wait(400)
    assert of.state.state == PREPARING
    assert not one.joined()
    of.wait(200)
    assert one.joined()
    assert two.joined()
    assert of.state.state == COMPLETING
    assert (one.is_leader, two.is_leader) == (True, False)
    assert (one.members, two.members) == (("one", "two"), ())
    two.sync()
    assert not two.synced()
    one.sync(one="a", two="b")
    assert two.synced()
    assert (one.assignment, two.assignment) == (b"a", b"b")
    assert of.state.state == STABLE


def test_a_member_that_needs_an_id_is_told_it_first(of: Classic) -> None:
    one = KafkaMember(of, "one", needs_id=True).join()
    assert one.generation == -1
    assert of.state.state == EMPTY
    one.join()
    of.wait(1_000)
    assert one.joined()
    assert one.generation == 1


def test_an_id_that_is_not_used_is_forgotten_with_its_group(of: Classic) -> None:
    KafkaMember(of, "one", needs_id=True).join()
    of.wait(SESSION_MS)
    assert "g" not in of.machine.shard.state.groups


def test_ids_that_are_given_out_and_not_used_are_bounded() -> None:
    machine = Machine(GroupSettings(max_promised_ids=3), t=1)
    one, *others = (KafkaMember(Classic(machine, f"g{number}"), "one", needs_id=True) for number in range(4))
    for each in (one, *others):
        each.join()
    assert [*machine.shard.state.groups] == ["g1", "g2", "g3"]
    with pytest.raises(UnknownMember):
        one.join()
    others[0].join()  # a member is not counted
    KafkaMember(others[0].of, "two", needs_id=True).join()
    again = KafkaMember(one.of, "again", needs_id=True).join()
    assert {*machine.shard.state.groups} == {"g0", "g1", "g2", "g3"}
    again.join()
    again.of.wait(1_000)
    assert again.joined()


def test_a_rebalance_makes_all_members_join_again(of: Classic, pair: tuple[KafkaMember, KafkaMember]) -> None:
    one, two = pair
    three = KafkaMember(of, "three").join()
    for each in pair:
        with pytest.raises(RebalanceInProgress):
            each.beat()
    one.commit(7)  # what it has read under the old assignment
    one.join()
    assert not three.joined()
    two.join()
    assert all(each.joined() for each in (one, two, three))
    assert {each.generation for each in (one, two, three)} == {2}
    with pytest.raises(RebalanceInProgress):
        one.commit(8)
    assert committed(of.machine) == {"t0": 7}


def test_who_does_not_join_again_in_time_is_out(of: Classic, pair: tuple[KafkaMember, KafkaMember]) -> None:
    one, two = pair
    three = KafkaMember(of, "three").join()
    two.join()
    for _ in range(REBALANCE_MS // 5_000 - 1):  # it lives, and never joins
        of.wait(5_000)
        with pytest.raises(RebalanceInProgress):
            one.beat()
    assert not two.joined()
    of.wait(5_000)
    assert two.joined()
    assert three.joined()
    assert three.is_leader
    assert three.members == ("two", "three")
    with pytest.raises(UnknownMember):
        one.beat()


def test_a_silent_member_is_removed(of: Classic, pair: tuple[KafkaMember, KafkaMember]) -> None:
    one, two = pair
    of.wait(SESSION_MS - 1_000)
    two.beat()
    of.wait(1_000)
    with pytest.raises(RebalanceInProgress):
        two.beat()
    two.join()
    assert two.joined()
    assert two.is_leader
    with pytest.raises(UnknownMember):
        one.commit(1)


def test_who_does_not_sync_is_removed(of: Classic) -> None:
    one, two = KafkaMember(of, "one").join(), KafkaMember(of, "two").join()
    of.wait(1_000)
    assert one.joined()
    assert two.joined()
    one.sync(one="a", two="b")
    for _ in range(REBALANCE_MS // 5_000):
        of.wait(5_000)
        for each in (one, two):
            if each.id in of.state.members and of.state.state == STABLE:
                each.beat()
    assert [*of.state.members] == ["one"]


def test_a_member_that_leaves_starts_a_rebalance_and_the_last_one_empties_the_group(
    of: Classic, pair: tuple[KafkaMember, KafkaMember]
) -> None:
    one, two = pair
    one.commit(3)
    one.leave()
    assert of.state.state == PREPARING
    two.join()
    assert two.joined()
    two.leave()
    assert of.state.state == EMPTY
    with pytest.raises(UnknownMember):
        two.leave()
    assert committed(of.machine) == {"t0": 3}
    of.machine.ask(DeleteGroup("g"))
    of.machine.keep()
    assert "g" not in of.machine.shard.state.groups


def test_another_generation_is_fenced(of: Classic, pair: tuple[KafkaMember, KafkaMember]) -> None:
    one, _ = pair
    one.generation = 0
    says: list[Callable[[], object]] = [one.beat, one.sync, lambda: one.commit(1)]
    for say in says:
        with pytest.raises(FencedMember):
            say()
    assert committed(of.machine) == {}


def test_nobody_else_commits_while_there_are_members(of: Classic, pair: tuple[KafkaMember, KafkaMember]) -> None:
    with pytest.raises(GroupNotEmpty):
        of.machine.ask(CommitOffsets("g", "", -1, ()))
    with pytest.raises(GroupNotEmpty):
        of.machine.ask(DeleteGroup("g"))
    assert len(pair) == len(of.state.members)


def test_the_leader_has_all_assigned_anew_by_joining_again(
    of: Classic, pair: tuple[KafkaMember, KafkaMember]
) -> None:
    one, two = pair
    two.join()
    assert two.generation == 1
    assert of.state.state == STABLE  # a follower that has not changed has lost an answer
    two.said = b"other topics"
    two.join()
    assert of.state.state == PREPARING
    one.join()
    assert one.joined()
    assert two.joined()
    one.sync()
    two.sync()
    one.join()
    assert of.state.state == PREPARING


def test_what_all_know_and_most_like_is_the_protocol(of: Classic) -> None:
    members = [
        KafkaMember(of, "one", "sticky", "range"),
        KafkaMember(of, "two", "range", "sticky"),
        KafkaMember(of, "three", "mine", "range", "sticky"),
    ]
    for each in members:
        each.join()
    of.wait(1_000)
    assert of.state.protocol == "range"
    with pytest.raises(InconsistentGroupProtocol):
        KafkaMember(of, "four", "mine").join()
    with pytest.raises(InconsistentGroupProtocol):
        Client(of.machine, "m", "t").join()


def test_a_group_has_members_of_one_kind(of: Classic) -> None:
    client = Client(of.machine, "m", "t").join()
    settle(of.machine, client)
    one = KafkaMember(of, "one")
    with pytest.raises(InconsistentGroupProtocol):
        one.join()
    client.leave()
    one.id = ""
    settled(of, one)
    one.leave()
    client.join()
    assert of.machine.group().classic is None


# --- static members ---------------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_as_it_was_keeps_its_assignment(of: Classic) -> None:
    one, two = KafkaMember(of, "one", instance="i1"), KafkaMember(of, "two", instance="i2")
    settled(of, one, two)
    again = KafkaMember(of, "anew", instance="i1", said=one.said).join()
    assert (again.id, again.generation, again.is_leader) == ("anew", 1, False)
    assert of.state.state == STABLE
    again.sync()
    assert again.assignment == b"one"
    says: list[Callable[[], object]] = [one.beat, lambda: one.commit(1)]
    for say in says:
        with pytest.raises(FencedInstance):
            say()
    again.commit(2)
    other = one.of = Classic(of.machine.successor())
    assert [*other.state.members] == ["two", "anew"]
    for say in says:  # one that is not told so would join again, and push the other one out
        with pytest.raises(FencedInstance):
            say()


def test_a_static_member_with_another_subscription_has_all_assigned_anew(of: Classic) -> None:
    one, two = KafkaMember(of, "one", instance="i1"), KafkaMember(of, "two", instance="i2")
    settled(of, one, two)
    again = KafkaMember(of, "anew", instance="i1", said=b"other").join()
    two.join()
    assert again.joined()
    assert again.is_leader
    assert set(again.members) == {"anew", "two"}


def test_a_static_member_is_not_waited_for_and_stays_a_member(of: Classic) -> None:
    one, two = KafkaMember(of, "one", instance="i1"), KafkaMember(of, "two")
    for each in (one, two):
        each.join(session_ms=200_000)
    of.wait(1_000)
    assert one.joined()
    assert two.joined()
    two.sync()
    one.sync(one="a", two="b")
    assert two.synced()
    two.said = b"other"
    two.join(session_ms=200_000)
    of.wait(REBALANCE_MS)
    assert two.joined()
    assert two.is_leader
    assert set(two.members) == {"one", "two"}


# --- another coordinator ----------------------------------------------------------------------------------------------


def test_another_coordinator_goes_on_and_nobody_joins_again(
    of: Classic, pair: tuple[KafkaMember, KafkaMember]
) -> None:
    pair[0].commit(5)
    other = Classic(of.machine.successor())
    for each in pair:
        each.of = other
        each.beat()
        each.sync()
        assert each.assignment == each.name.encode()
    pair[1].commit(9)
    assert committed(other.machine) == {"t0": 9}
    assert other.state.state == STABLE
    other.wait(SESSION_MS)
    assert other.state.state == EMPTY


def test_a_rebalance_that_was_under_way_is_begun_again(of: Classic, pair: tuple[KafkaMember, KafkaMember]) -> None:
    one, two = pair
    three = KafkaMember(of, "three").join()
    one.join()
    two.join()
    assert one.joined()
    other = Classic(of.machine.successor())
    for each in (one, two, three):
        each.of = other
    with pytest.raises(FencedMember):
        one.beat()
    with pytest.raises(UnknownMember):
        three.sync()
    three.id = ""
    three.join()
    one.join()
    two.join()
    assert all(each.joined() for each in (one, two, three))
    assert one.is_leader
    three.sync()
    one.sync(one="one", three="three")
    assert three.synced()
    assert (one.assignment, three.assignment) == (b"one", b"three")


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_a_group_has_a_bound_of_members_and_of_bytes() -> None:
    of = Classic(Machine(GroupSettings(max_members=2, max_classic_bytes=2_000), t=1))
    KafkaMember(of, "one").join()
    with pytest.raises(GroupFull):
        KafkaMember(of, "big", said=bytes(2_000)).join()
    KafkaMember(of, "two", needs_id=True).join()
    with pytest.raises(GroupFull):
        KafkaMember(of, "three", needs_id=True).join()


def test_all_groups_of_a_coordinator_have_a_bound_and_each_has_a_little() -> None:
    settings = GroupSettings(max_classic_bytes=10_000, max_all_classic_bytes=25_000, min_classic_bytes=2_000)
    machine = Machine(settings, t=1)
    large = [KafkaMember(Classic(machine, f"g{number}"), "one", said=bytes(9_000)) for number in range(4)]
    for each in large[:2]:
        each.join()
    with pytest.raises(GroupFull):
        large[2].join()
    KafkaMember(Classic(machine, "modest"), "one", said=bytes(1_500)).join()
    large[0].of.wait(1_000)
    assert large[0].joined()
    large[0].leave()
    large[2].join()
    with pytest.raises(GroupFull):
        large[3].join()


def test_a_restored_group_has_its_share_of_the_bound() -> None:
    settings = GroupSettings(max_classic_bytes=10_000, max_all_classic_bytes=15_000, min_classic_bytes=2_000)
    machine = Machine(settings, t=1)
    one = KafkaMember(Classic(machine), "one", said=bytes(9_000))
    settled(one.of, one)
    with pytest.raises(GroupFull):
        KafkaMember(Classic(machine.successor(), "other"), "two", said=bytes(9_000)).join()


def test_assignments_have_a_bound_with_what_members_say() -> None:
    of = Classic(Machine(GroupSettings(max_classic_record_bytes=5_000), t=1))
    one = KafkaMember(of, "one", "range", "sticky", said=bytes(3_000)).join()
    of.wait(1_000)
    assert one.joined()
    with pytest.raises(InvalidRequest):
        one.sync(one="x" * 2_000)
    one.sync(one="x" * 1_500, nobody="")
    assert one.assignment == b"x" * 1_500


@given(st.lists(st.tuples(st.text(max_size=20), st.binary(max_size=50)), max_size=20))
def test_assignments_are_read_as_they_were_packed(assignments: list[tuple[str, bytes]]) -> None:
    payload = packed_assignments(tuple(assignments))
    assert read_assignments(memoryview(payload), 20) == tuple(assignments)
    for end in range(len(payload)):
        try:
            found = read_assignments(payload[:end], 20)
        except InvalidRequest:
            continue
        assert found == tuple(assignments)[: len(found)]
    if assignments:
        with pytest.raises(InvalidRequest):
            read_assignments(payload, len(assignments) - 1)


def test_no_two_members_have_one_id(of: Classic) -> None:
    KafkaMember(of, "one").join()
    with pytest.raises(InvalidRequest):
        KafkaMember(of, "one", instance="i1").join()
    KafkaMember(of, "two", needs_id=True).join()
    with pytest.raises(InvalidRequest):
        KafkaMember(of, "two").join()


def test_a_leader_brings_no_more_than_a_record_holds(of: Classic) -> None:
    one = KafkaMember(of, "one").join()
    of.wait(1_000)
    assert one.joined()
    with pytest.raises(InvalidRequest):
        one.sync(one="x" * 7 * MIB)
    assert of.state.state == COMPLETING
    one.sync(one="x" * (7 * MIB - 500))
    assert of.state.state == STABLE
    _, value = of.machine.written[-1]
    assert 7 * MIB - 500 < len(value or b"") < 7 * MIB + 1_000
    assert COORDINATED_SETTINGS["max.message.bytes"] == 8 * MIB  # with a batch around the record


def test_time_outs_and_names_have_bounds(of: Classic) -> None:
    with pytest.raises(InvalidMembership):
        KafkaMember(of, "one").join(session_ms=10)
    with pytest.raises(InvalidRequest):
        KafkaMember(of, "one").join(rebalance_ms=0)
    with pytest.raises(InvalidRequest):
        KafkaMember(of, "x" * 300).join()
    assert "g" not in of.machine.shard.state.groups


# --- anything in any order --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_in_any_order_the_group_settles_and_only_its_generation_commits(seed: int) -> None:
    chosen = random.Random(seed)
    of = Classic(Machine(t=4))
    members = [
        KafkaMember(of, f"m{number}", instance=f"i{number}" if number % 3 == 0 else "", needs_id=number % 2 == 0)
        for number in range(5)
    ]
    for step in range(200):
        each = chosen.choice(members)
        try:
            do_something(chosen, of, each, step)
        except (UnknownMember, FencedInstance):
            each.id, each.generation = "", -1
            each.name = f"{each.name.split('-')[0]}-{step}"
        except RaylogError:
            pass
    of.wait(REBALANCE_MS + SESSION_MS)
    of.wait(REBALANCE_MS + SESSION_MS)
    if "g" in of.machine.shard.state.groups:
        assert of.state.state == EMPTY


def do_something(chosen: random.Random, of: Classic, each: KafkaMember, step: int) -> None:
    what = chosen.choice(("join", "join", "take", "take", "sync", "sync", "beat", "commit", "leave", "wait", "change"))
    if what == "join":
        each.join()
    elif what == "take":
        each.joined()
        each.synced()
    elif what == "sync":
        each.sync(**({one: one for one in each.members} if each.is_leader else {}))
    elif what == "beat":
        each.beat()
    elif what == "commit" and each.id:
        each.commit(step)
        assert each.generation == of.state.generation
    elif what == "leave" and chosen.random() < 0.3:
        each.leave()
    elif what == "wait":
        of.wait(chosen.choice((10, 600, 3_000, 11_000)))
    elif what == "change":
        each.said = b"%d" % step


def test_newcomers_put_off_the_first_generation_no_longer_than_a_rebalance_may_take(of: Classic) -> None:
    members = [KafkaMember(of, "m0").join(rebalance_ms=5_000)]
    while not members[0].joined():
        of.wait(400)
        if of.state.state == PREPARING:
            members.append(KafkaMember(of, f"m{len(members)}").join(rebalance_ms=5_000))
        assert of.machine.now_ms <= 7_000
    assert members[0].generation == 1


def test_the_names_of_protocols_have_their_share_of_a_groups_room() -> None:
    of = Classic(Machine(GroupSettings(max_classic_bytes=10_000), t=1))
    names = [f"{number}" for number in range(99)]
    for number in range(2):
        KafkaMember(of, f"m{number}", "range", *(f"{number}-{each}" for each in names)).join()
    with pytest.raises(GroupFull):
        KafkaMember(of, "m2", "range", *names).join()


class _NeverWalked(Counter[str]):
    """What the members of a group know may be far more than one of them does."""

    def items(self) -> Any:
        raise AssertionError("All protocols of the group are looked at.")

    __iter__ = items


def test_a_member_that_goes_costs_what_it_knew_itself(of: Classic) -> None:
    first, second = KafkaMember(of, "first", "range", "own").join(), KafkaMember(of, "second", "other", "range").join()
    of.wait(1_000)
    first.joined()
    second.joined()
    known = of.state._support = _NeverWalked(of.state._support)
    first.leave()
    assert (len(known), known["range"], known["other"]) == (2, 1, 1)
    second.leave()
    assert len(known) == 0
