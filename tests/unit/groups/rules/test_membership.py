"""Joining, staying, leaving, being removed; static members; subscriptions that follow topics."""

from __future__ import annotations

import logging

import pytest

from raylog.errors import (
    AssignorFailed,
    FencedInstance,
    FencedMember,
    GroupFull,
    InvalidGroupId,
    InvalidMembership,
    InvalidSubscription,
    RaylogError,
    StaleHeartbeat,
    UnknownAssignor,
    UnknownMember,
)
from raylog.groups.assignors.calling import assign
from raylog.groups.records.messages import (
    PAUSING,
    DescribeGroup,
    GroupDescribed,
    GroupHeartbeat,
    RemoveMembers,
    grouped,
)
from raylog.groups.records.records import MemberKey, MemberValue, encode
from raylog.groups.records.settings import GroupSettings
from raylog.groups.rules.group import ASSIGNING, EMPTY, RECONCILING, STABLE
from raylog.groups.rules.pattern_topics import match_patterns
from raylog.groups.rules.rebalance import TargetBasis
from raylog.groups.rules.shard import Due
from tests.unit.groups.small_group import WALL_MS, Client, Machine, settle, topic_id


def two_members() -> tuple[Machine, Client, Client]:
    machine = Machine(t=4)
    first, second = (Client(machine, name, "t").join() for name in ("a", "b"))
    settle(machine, first, second)
    return machine, first, second


def test_a_member_gets_everything_and_shares_it_with_the_next() -> None:
    machine = Machine(t=4)
    first = Client(machine, "a", "t").join()
    assert machine.group().state == ASSIGNING
    settle(machine, first)
    assert first.partitions == ["t0", "t1", "t2", "t3"]
    assert machine.group().state == STABLE
    second = Client(machine, "b", "t").join()
    machine.assign()
    second.beat()
    assert second.partitions == []  # rule 23: the first one has not let go
    first.beat()  # is told what to keep
    assert first.partitions == ["t0", "t1"]
    second.beat()
    assert second.partitions == []  # nor has it said so
    assert machine.group().state == RECONCILING
    first.beat()
    second.beat()
    assert (first.partitions, second.partitions) == (["t0", "t1"], ["t2", "t3"])
    assert machine.group().state == STABLE


def test_a_heartbeat_that_says_nothing_new_writes_nothing() -> None:
    machine, first, second = two_members()
    before = len(machine.written)
    for _ in range(3):
        first.beat()
        second.beat()
    assert len(machine.written) == before


def test_what_a_member_keeps_never_leaves_its_assignment() -> None:
    machine, first, second = two_members()
    kept = first.owned
    third = Client(machine, "c", "t").join()
    machine.assign()
    for _ in range(6):
        for client in (first, second, third):
            client.beat()
        assert machine.group().members["a"].target & kept <= first.owned
    assert sorted(len(each.owned) for each in (first, second, third)) == [1, 1, 2]


def test_whoever_leaves_frees_its_partitions_at_once() -> None:
    machine, first, second = two_members()
    first.leave()
    settle(machine, second)
    assert second.partitions == ["t0", "t1", "t2", "t3"]
    first.leave()  # again: it has left
    second.leave()
    assert machine.group().state == EMPTY
    assert machine.group().value.empty_since_ms == machine.at.wall_ms


def test_a_silent_member_is_removed_and_told_why_when_it_is_back() -> None:
    machine, first, second = two_members()
    machine.now_ms += 9_999
    second.beat()
    assert machine.shard.look_at("g", "a", machine.at) == machine.now_ms + 1
    machine.now_ms += 1
    assert machine.shard.look_at("g", "a", machine.at) is None
    machine.keep()
    settle(machine, second)
    assert len(second.owned) == 4
    machine.now_ms += 500
    with pytest.raises(UnknownMember, match=r"silent for 10000 ms \(session_timeout_ms 10000\) \(500 ms ago\)"):
        first.beat()
    with pytest.raises(UnknownMember):
        first.commit(("t", 0, 5))


def test_a_member_that_does_not_let_go_in_time_is_removed() -> None:
    machine, quick, slow = two_members()
    slow.profile = slow.profile._replace(rebalance_timeout_ms=2_000)
    slow.beat(profile=slow.profile)
    third = Client(machine, "c", "t").join()
    machine.assign()
    held = slow.owned
    slow.beat()
    assert slow.owned < held
    slow.owned = held  # it goes on as if it had heard nothing
    assert list(machine.shard.to_watch) == [("g", "b")]
    machine.now_ms += 1_999
    slow.beat()
    slow.owned = held
    assert machine.shard.look_at("g", "b", machine.at) == machine.now_ms + 1
    machine.now_ms += 1
    assert machine.shard.look_at("g", "b", machine.at) is None
    machine.keep()
    settle(machine, quick, third)
    assert sorted(quick.partitions + third.partitions) == ["t0", "t1", "t2", "t3"]
    with pytest.raises(UnknownMember, match="did not give 1 partitions up within 2000 ms"):
        slow.beat()


def test_a_repeated_join_frees_what_was_meant_for_the_first_one() -> None:
    machine = Machine(t=2)
    first = Client(machine, "a", "t").join()
    settle(machine, first)
    epoch = first.epoch
    first.join()  # the answers were lost, or it was fenced
    assert machine.group().owners == {}
    settle(machine, first)
    assert first.partitions == ["t0", "t1"]
    assert first.epoch > epoch
    refused = first.commit(("t", 0, 5), epoch=epoch)  # from before
    assert [each[2] for each in refused] == ["PartitionNotOwned"]


def test_each_reason_for_a_rebalance_is_logged_with_who_caused_it(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(t=2, u=1)
    with caplog.at_level(logging.INFO):
        first = Client(machine, "a", "t", instance="one").join()
        second = Client(machine, "b", "t").join()
        settle(machine, first, second)
        second.beat(profile=second.profile._replace(topics=("u",)))
        second.leave()
        machine.now_ms += 10_000
        machine.shard.look_at("g", "a", machine.at)
    assert [record.getMessage() for record in caplog.records] == [
        "Group g, epoch 1: a (one, test) joined.",
        "Group g, epoch 2: b (test) joined.",
        "Group g, epoch 2: 2 partitions for 2 members by range; 2 targets changed. Last: b (test) joined.",
        "Group g, epoch 3: b (test) changed its subscription.",
        "Group g, epoch 4: b (test) left.",
        "Group g, epoch 5: a (one, test) was silent for 10000 ms (session_timeout_ms 10000).",
    ]


# --- rule 23 under lost and late heartbeats -------------------------------------------------------------------------


def test_a_lost_answer_is_given_again() -> None:
    machine = Machine(t=2)
    first = Client(machine, "a", "t").join()
    machine.assign()
    epoch = first.epoch
    machine.ask(first.request())  # what it is answered nobody hears
    machine.ask(first.request())
    first.beat()
    assert first.partitions == ["t0", "t1"]
    assert first.epoch >= epoch


def test_an_old_heartbeat_changes_nothing() -> None:
    """It says that the member owns nothing; so it was when it was sent."""
    machine = Machine(t=2)
    first = Client(machine, "a", "t").join()
    late = first.request()
    settle(machine, first)
    second = Client(machine, "b", "t").join()
    machine.assign()
    first.beat()
    with pytest.raises(StaleHeartbeat):
        machine.ask(late)
    second.beat()
    assert second.partitions == []


def test_epochs_of_the_past_and_of_the_future_are_fenced() -> None:
    machine, first, second = two_members()
    for number in range(3):
        client = Client(machine, f"c{number}", "t").join()
        settle(machine, first, second, client)
    for epoch in (1, first.epoch + 1):
        with pytest.raises(FencedMember, match=f"sent epoch {epoch}; its epoch has been {first.epoch} for 0 ms"):
            machine.ask(first.request(epoch=epoch))


def test_a_member_that_owns_what_it_may_not_is_fenced() -> None:
    _machine, first, second = two_members()
    first.owned |= second.owned
    with pytest.raises(FencedMember):
        first.beat()


# --- static members -----------------------------------------------------------------------------------------------


def test_a_static_member_finds_its_partitions_again_and_nobody_is_disturbed() -> None:
    machine = Machine(t=4)
    first = Client(machine, "a", "t", instance="one").join()
    second = Client(machine, "b", "t").join()
    settle(machine, first, second)
    had, epoch = first.partitions, machine.group().epoch
    first.leave(PAUSING)
    back = Client(machine, "a2", "t", instance="one").join()
    assert back.partitions == had
    assert machine.group().epoch == epoch
    assert not machine.group().is_assigning
    back.beat()
    assert not back.commit(("t", 2, 1))


def test_a_static_member_keeps_its_place_in_the_next_assignment() -> None:
    machine = Machine(t=4)
    first = Client(machine, "z", "t", instance="one").join()
    second = Client(machine, "b", "t", instance="two").join()
    settle(machine, first, second)
    had = first.partitions
    back = Client(machine, "y", "t", instance="one").join()
    machine.topics.put("t", 6)
    machine.shard.topics_changed(machine.at)
    settle(machine, back, second)
    assert set(had) <= set(back.partitions)


def test_the_second_process_with_an_instance_id_fences_the_first() -> None:
    machine = Machine(t=2)
    first = Client(machine, "a", "t", instance="one").join()
    settle(machine, first)
    Client(machine, "a2", "t", instance="one").join()
    machine.now_ms += 70
    with pytest.raises(FencedInstance, match="'one' in group 'g' 70 ms ago; member 'a' at epoch"):
        first.beat()
    with pytest.raises(FencedInstance):
        first.commit(("t", 0, 3))


def test_a_static_member_that_is_back_with_another_subscription_is_assigned_anew() -> None:
    machine = Machine(t=2, u=1)
    first = Client(machine, "a", "t", instance="one").join()
    settle(machine, first)
    back = Client(machine, "a2", "u", instance="one").join()
    assert machine.group().is_assigning
    settle(machine, back)
    assert back.partitions == ["u0"]


def test_a_dynamic_member_cannot_pause() -> None:
    machine, first, _ = two_members()
    first.leave(PAUSING)
    assert "a" not in machine.group().members


def test_an_instance_id_cannot_change() -> None:
    _machine, first, _ = two_members()
    with pytest.raises(InvalidMembership, match="group_instance_id was '', and now 'one'"):
        first.beat(profile=first.profile._replace(instance_id="one"))


# --- topics -------------------------------------------------------------------------------------------------------


def test_a_pattern_follows_topics_that_come_grow_and_go(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    for name, count in {"logs-a": 1, "other": 3, "__consumer_offsets": 2}.items():
        machine.topics.put(name, count)
    first = Client(machine, "a", pattern="logs-.*|__.*").join()
    settle(machine, first)
    assert first.partitions == ["logs-a0"]
    with caplog.at_level(logging.INFO):
        machine.topics.put("logs-b", 2)
        machine.shard.topics_changed(machine.at)
        assert "appeared" not in caplog.text, "nobody has matched it yet"
        machine.match_patterns()
        machine.shard.topics_changed(machine.at)
    assert "topic logs-b appeared" in caplog.text
    settle(machine, first)
    assert first.partitions == ["logs-a0", "logs-b0", "logs-b1"]
    machine.topics.put("logs-a", 2)
    machine.shard.topics_changed(machine.at)
    assert machine.group().value.reason == "topic logs-a has 2 partitions now"
    machine.topics.drop("logs-b")
    machine.shard.topics_changed(machine.at)
    settle(machine, first)
    assert first.partitions == ["logs-a0", "logs-a1"]


def test_replicas_that_move_to_another_rack_ask_for_a_new_assignment() -> None:
    def racks(*names: str) -> tuple[frozenset[str], ...]:
        return tuple(map(frozenset, names))

    machine = Machine()
    machine.topics.put("t", 2, racks("e", "w"))
    first, second = Client(machine, "a", "t", rack="w").join(), Client(machine, "b", "t", rack="e").join()
    settle(machine, first, second)
    assert (first.partitions, second.partitions) == (["t1"], ["t0"])
    epoch = machine.group().epoch
    machine.topics.put("other", 1, racks("e"))
    machine.shard.topics_changed(machine.at)
    assert machine.group().epoch == epoch
    machine.topics.put("t", 2, racks("w", "e"))
    machine.shard.topics_changed(machine.at)
    assert machine.group().value.reason == "replicas are in other racks"
    settle(machine, first, second)
    assert (first.partitions, second.partitions) == (["t0"], ["t1"])
    successor = machine.successor()
    successor.topics.put("t", 2, racks("e", "w"))
    successor.shard.topics_changed(successor.at)
    assert successor.group().epoch == machine.group().epoch + 1


def test_racks_are_nothing_to_members_that_are_in_none() -> None:
    machine, first, _ = two_members()
    epoch = machine.group().epoch
    machine.topics.put("t", len(machine.topics.by_name()["t"].racks), (frozenset("e"),) * 4)
    machine.shard.topics_changed(machine.at)
    assert machine.group().epoch == epoch
    assert first.partitions


def test_a_coordinator_that_has_heard_less_of_topics_waits_before_it_assigns_by_them() -> None:
    """It would take partitions of the newest topics away, and give them back."""
    machine, client, _ = two_members()
    machine.topics.put("t", 6)
    machine.shard.topics_changed(machine.at)
    settle(machine, client)
    third = Client(machine, "c", "t").join()
    newest = machine.topics.version
    machine.topics.put("t", 4)
    machine.topics.go_back_to(1)
    assert not machine.assign()
    machine.topics.put("t", 6)
    machine.topics.go_back_to(newest)
    machine.shard.topics_changed(machine.at)
    assert list(machine.shard.to_assign) == ["g"]
    assert machine.assign()
    assert len(machine.group().members["c"].target) == 2
    assert third.epoch > 0


def test_but_not_for_ever() -> None:
    machine, _, _ = two_members()
    Client(machine, "c", "t").join()
    machine.topics.go_back_to(1)
    assert not machine.assign()
    assert machine.assign(regardless=True)


def test_what_others_heard_of_topics_before_does_not_undo_an_assignment() -> None:
    machine, _first, _second = two_members()
    machine.topics.drop("t")
    machine.topics.go_back_to(1)
    machine.shard.topics_changed(machine.at)
    assert not machine.group().is_assigning


def test_members_with_other_subscriptions_and_changes_of_them() -> None:
    machine = Machine(t=2, u=2)
    first, second = Client(machine, "a", "t").join(), Client(machine, "b", "t", "u").join()
    settle(machine, first, second)
    assert (first.partitions, second.partitions) == (["t0"], ["t1", "u0", "u1"])
    second.beat(profile=second.profile._replace(topics=("u",)))
    settle(machine, second, first)
    assert (first.partitions, second.partitions) == (["t0", "t1"], ["u0", "u1"])


def test_members_read_within_their_rack_where_that_is_known() -> None:
    machine = Machine()
    machine.topics.put("t", 2, racks=(frozenset("y"), frozenset("x")))
    first, second = Client(machine, "a", "t", rack="x").join(), Client(machine, "b", "t", rack="y").join()
    settle(machine, first, second)
    assert (first.partitions, second.partitions) == (["t1"], ["t0"])


# --- assignors ----------------------------------------------------------------------------------------------------


def test_the_assignor_that_most_ask_for() -> None:
    machine = Machine(t=2, u=2)
    wishes = {"a": "", "b": "sticky", "c": ""}
    clients = [Client(machine, name, "t", "u", assignor=each).join() for name, each in wishes.items()]
    settle(machine, *clients)
    assert machine.group().value.assignor == "sticky"
    clients.append(Client(machine, "d", "t", "u", assignor="roundrobin").join())
    settle(machine, *clients)
    assert machine.group().value.assignor == "sticky"  # as many votes each: the present one
    clients.append(Client(machine, "e", "t", "u", assignor="roundrobin").join())
    settle(machine, *clients)
    assert machine.group().value.assignor == "roundrobin"


def fails(subscribers: list[object], topics: object) -> object:
    raise ValueError("not with me" if len(subscribers) > 1 else "not at all")


def test_what_was_computed_for_another_state_of_the_group_is_thrown_away() -> None:
    machine = Machine(t=2)
    settle(machine, Client(machine, "a", "t").join())
    Client(machine, "b", "t").join()
    basis = machine.shard.begin_assignment("g")
    assert isinstance(basis, TargetBasis)
    plan = basis.plan()
    third = Client(machine, "c", "t").join()
    machine.shard.to_assign.clear()
    machine.shard.finish_assignment(plan, assign(plan.call.name, plan.call.subscribers, plan.call.topics))
    assert machine.group().is_assigning
    assert list(machine.shard.to_assign) == ["g"], "it is computed again"
    third.leave()
    machine.shard.to_assign.clear()
    machine.shard.fail_assignment(plan, AssignorFailed("range", "it took too long"))
    assert machine.group().problem is None
    assert list(machine.shard.to_assign) == ["g"]


def test_a_static_member_that_comes_back_meanwhile_is_given_its_partitions() -> None:
    machine = Machine(t=2)
    settle(machine, Client(machine, "a", "t", instance="one").join())
    Client(machine, "b", "t").join()
    basis = machine.shard.begin_assignment("g")
    assert isinstance(basis, TargetBasis)
    plan = basis.plan()
    again = Client(machine, "a2", "t", instance="one").join()
    assert machine.group().epoch == plan.epoch
    machine.shard.finish_assignment(plan, assign(plan.call.name, plan.call.subscribers, plan.call.topics))
    machine.assign()
    settle(machine, again)
    assert again.partitions == ["t1"]


def test_a_member_whose_pattern_is_not_matched_yet_waits() -> None:
    machine = Machine(logs=1)
    member = Client(machine, "a", pattern="lo.*").join()
    assert machine.shard.begin_assignment("g") is Due.NOT
    work = machine.shard.patterns_due()
    assert work is not None
    machine.shard.patterns_matched(work, match_patterns(work))
    assert list(machine.shard.to_assign) == ["g"]
    settle(machine, member)
    assert member.partitions == ["logs0"]
    later = machine.successor()
    assert not later.group().is_assigning, "nothing is taken for gone before patterns are matched"
    later.match_patterns()
    later.shard.topics_changed(later.at)
    assert not later.group().is_assigning


def test_a_topic_that_was_made_while_nobody_had_the_pattern_is_found_by_who_comes_with_it() -> None:
    machine = Machine(logs=1, t=1)
    Client(machine, "b", "t").join()
    away = Client(machine, "a", pattern="lo.*").join()
    machine.match_patterns()
    away.leave()
    machine.topics.put("lots", 1)
    machine.match_patterns()
    machine.shard.topics_changed(machine.at)
    back = Client(machine, "c", pattern="lo.*").join()
    assert machine.shard.has_new_pattern
    machine.assign()
    settle(machine, back)
    assert back.partitions == ["logs0", "lots0"]


def test_a_group_goes_on_when_its_assignor_fails() -> None:
    machine = Machine(GroupSettings(assignors=frozenset({f"{__name__}.fails"})), t=2)
    first = Client(machine, "a", "t").join()
    settle(machine, first)
    second = Client(machine, "b", "t", assignor=f"{__name__}.fails").join()
    assert not machine.assign()
    first.beat()
    assert first.partitions == ["t0", "t1"]
    assert not first.commit(("t", 0, 1))
    with pytest.raises(AssignorFailed, match="not with me"):
        second.beat()
    described = machine.ask(DescribeGroup("g"))
    assert isinstance(described, GroupDescribed)
    assert "not with me" in described.problem
    second.beat(profile=second.profile._replace(assignor="range"))
    settle(machine, first, second)
    assert second.partitions == ["t1"]


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"group": ""}, InvalidGroupId, "0 bytes"),
        ({"group": "é" * 128}, InvalidGroupId, "256 bytes"),
        ({"group": "x" * 1_000_000}, InvalidGroupId, "1000000 bytes"),
        ({"member": ""}, InvalidMembership, "1 to 255 bytes"),
        ({"member": "x" * 1_000_000}, InvalidMembership, "1 to 255 bytes"),
        ({"profile": None}, InvalidMembership, "whoever joins says"),
        ({"epoch": 7, "profile": None}, UnknownMember, "has not joined"),
    ],
)
def test_bad_heartbeats(changes: dict[str, object], error: type[RaylogError], text: str) -> None:
    machine = Machine(t=1)
    good = Client(machine, "a", "t")
    fields = {"group": "g", "member": "a", "epoch": 0, "profile": good.profile.fields(), **changes}
    request = GroupHeartbeat(
        fields["group"], fields["member"], fields["epoch"], 1, 0, (), fields["profile"],  # type: ignore[arg-type]
    )  # fmt: skip
    with pytest.raises(error, match=text) as caught:
        machine.ask(request)
    assert len(str(caught.value)) < 500
    assert not machine.written


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"session_timeout_ms": 10}, InvalidMembership, "session_timeout_ms is 10"),
        ({"session_timeout_ms": 1 << 40}, InvalidMembership, "session_timeout_ms"),
        ({"rebalance_timeout_ms": 0}, InvalidMembership, "rebalance timeout of 0"),
        ({"rack": "r" * 256}, InvalidMembership, "its rack"),
        ({"topics": ("",)}, InvalidMembership, "a name that no topic can have"),
        ({"topics": ("topic",) * 60_000}, InvalidMembership, "over 262144 bytes of topics"),
        ({"assignor": "rnage"}, UnknownAssignor, "not one of raylog's"),
        ({"assignor": "unittest.main"}, UnknownAssignor, "group.assignors"),
        ({"pattern": "("}, InvalidSubscription, "RE2 does not take it"),
        ({"pattern": "(((.?){9}){9}){9}"}, InvalidSubscription, "too large"),
        ({"pattern": r"(a)\1"}, InvalidSubscription, "invalid escape"),
        ({"pattern": "a" * 256}, InvalidSubscription, "more than 255 bytes"),
    ],
)
def test_members_that_cannot_be(changes: dict[str, object], error: type[RaylogError], text: str) -> None:
    machine = Machine(t=1)
    client = Client(machine, "a", "t")
    client.profile = client.profile._replace(**changes)  # type: ignore[arg-type]
    with pytest.raises(error, match=text):
        client.join()
    assert not machine.written


@pytest.mark.parametrize("pattern", ["logs-.*", r"a\.b|c\d+", "[(+*]x+", "(?:a|b)?-[0-9]{3}", ".*-x-.*"])
def test_patterns_that_are_taken(pattern: str) -> None:
    machine = Machine(t=1)
    assert Client(machine, "a", pattern=pattern).join().epoch == 1


def test_a_pattern_that_is_in_the_log_and_not_taken_any_more_means_no_topics() -> None:
    """As one of Python's own syntax, which earlier versions took. It keeps nobody else from anything."""
    machine = Machine(t=2)
    Client(machine, "a", "t").join()
    bad = Client(machine, "b", pattern="t").profile._replace(pattern="(?!u).*")
    machine.written.append(encode((MemberKey("g", "b"), MemberValue(bad.fields(), WALL_MS))))
    machine.topics.put("a" * 249, 1)
    later = machine.successor()
    good, old = Client(later, "a", "t"), Client(later, "b")
    settle(later, good.join(), Client(later, "c", "t").join())
    assert len(good.partitions) == 1
    assert later.group().members["b"].target == frozenset()
    old.profile = bad
    with pytest.raises(InvalidSubscription, match="invalid perl operator"):
        old.join()


def test_what_a_group_wants_is_counted_as_members_come_change_and_go() -> None:
    machine = Machine(t=1, u=1, logs=1)
    Client(machine, "a", "t", "u", instance="one").join()
    second = Client(machine, "b", "t", pattern="lo.*").join()
    assert (machine.group().named, machine.group().patterns) == ({"t": 2, "u": 1}, {"lo.*": 1})
    second.beat(profile=second.profile._replace(topics=("u",), pattern=""))
    assert (machine.group().named, machine.group().patterns) == ({"t": 1, "u": 2}, {})
    Client(machine, "a2", "t", instance="one").join()
    assert machine.group().named == {"t": 1, "u": 1}
    assert machine.successor().group().named == {"t": 1, "u": 1}
    second.leave()
    assert machine.group().named == {"t": 1}


def test_a_group_has_room_for_so_many() -> None:
    machine = Machine(GroupSettings(max_members=1), t=1)
    Client(machine, "a", "t").join()
    with pytest.raises(GroupFull):
        Client(machine, "b", "t").join()
    Client(machine, "a", "t").join()


# --- administration, and those who come after ---------------------------------------------------------------------


def test_members_are_removed_by_id_or_instance_or_all_at_once() -> None:
    machine = Machine(t=3)
    named = {"a": "", "b": "1", "c": ""}
    clients = [Client(machine, name, "t", instance=instance).join() for name, instance in named.items()]
    settle(machine, *clients)
    with pytest.raises(UnknownMember):
        machine.ask(RemoveMembers("g", ("a", "nobody"), (), ""))
    machine.ask(RemoveMembers("g", ("a",), ("1",), "stuck"))
    assert list(machine.group().members) == ["c"]
    with pytest.raises(UnknownMember, match=r"by an administrator \(stuck\)"):
        clients[0].beat()
    machine.ask(RemoveMembers("g", (), (), ""))
    assert not machine.group().members


def test_describing_tells_members_and_why() -> None:
    machine, first, _second = two_members()
    machine.now_ms += 20
    described = machine.ask(DescribeGroup("g"))
    assert isinstance(described, GroupDescribed)
    assert (described.state, described.assignor, described.reason) == (STABLE, "range", "b (test) joined")
    assert [each[0] for each in described.members] == ["a", "b"]
    assert described.members[0][3] == grouped(first.owned) == ((topic_id("t"), (0, 1)),)
    assert described.members[0][6] == 20


def test_a_successor_knows_all_and_members_go_on_as_if_nothing_had_happened() -> None:
    machine, first, second = two_members()
    third = Client(machine, "c", "t").join()
    machine.assign()
    first.beat()  # in the middle of it
    other = machine.successor()
    assert other.group().owners == machine.group().owners
    assert other.group().state == machine.group().state
    for client in (first, second, third):
        client.machine = other
    settle(other, first, second, third)
    assert sorted(first.partitions + second.partitions + third.partitions) == ["t0", "t1", "t2", "t3"]
    assert other.group().epoch == machine.group().epoch


def test_a_successor_makes_the_assignment_that_is_due() -> None:
    machine, _first, _second = two_members()
    Client(machine, "c", "t").join()
    assert list(machine.successor().shard.to_assign) == ["g"]
