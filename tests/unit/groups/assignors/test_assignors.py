"""Assignors: every partition exactly once, as even as promised, and with the fewest moves (against brute force)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.errors import AssignorFailed, UnknownAssignor
from raylog.groups.assignors.assignment import Subscriber, TopicPartition, TopicShape, check_assignment
from raylog.groups.assignors.calling import assign, find_assignor
from raylog.groups.assignors.range import range_assignor
from raylog.groups.assignors.sticky import EXACT_MEMBERS, sticky_assignor

_OURS: Final = ("range", "roundrobin", "sticky")
_RACKS: Final = ("a", "b", "c")


@st.composite
def topic_shapes(draw: st.DrawFn, most_partitions: int = 9) -> dict[str, TopicShape]:
    shapes = {}
    for name in draw(st.lists(st.sampled_from(["t0", "t1", "t2", "t3"]), unique=True, max_size=4)):
        count = draw(st.integers(0, most_partitions))
        racks = draw(st.just([]) | st.lists(st.frozensets(st.sampled_from(_RACKS)), min_size=count, max_size=count))
        shapes[name] = TopicShape(count, tuple(racks))
    return shapes


@st.composite
def groups(
    draw: st.DrawFn, most_members: int = 6, most_partitions: int = 9, alike: bool = False
) -> tuple[list[Subscriber], dict[str, TopicShape]]:
    """Members with any subscriptions, also to topics that are not there, who may claim the same partitions."""
    topics = draw(topic_shapes(most_partitions))
    names = [*topics, "missing"]
    everybody = draw(st.frozensets(st.sampled_from(names)))
    owned = st.frozensets(st.tuples(st.sampled_from(names), st.integers(0, most_partitions)), max_size=8)
    members = [
        Subscriber(
            f"m{number}",
            draw(st.sampled_from(["", f"static-{9 - number}"])),
            draw(st.sampled_from(["", *_RACKS])),
            everybody if alike else draw(st.frozensets(st.sampled_from(names))),
            draw(owned),
        )
        for number in range(draw(st.integers(1, most_members)))
    ]
    return members, topics


def loads(given_out: Mapping[str, frozenset[TopicPartition]]) -> list[int]:
    return sorted(map(len, given_out.values()), reverse=True)


@pytest.mark.parametrize("name", _OURS)
@given(group=groups(), shuffled=st.randoms(use_true_random=False))
def test_each_partition_has_one_subscribed_member_whatever_the_order_of_the_input(
    name: str, group: tuple[list[Subscriber], dict[str, TopicShape]], shuffled: Random
) -> None:
    members, topics = group
    first = assign(name, members, topics)  # which checks it
    others, names = members[:], list(topics)
    shuffled.shuffle(others)
    shuffled.shuffle(names)
    assert assign(name, others, {each: topics[each] for each in names}) == first


@given(group=groups())
def test_range_is_even_topic_by_topic(group: tuple[list[Subscriber], dict[str, TopicShape]]) -> None:
    members, topics = group
    given_out = assign("range", members, topics)
    for topic in topics:
        counts = [
            sum(each[0] == topic for each in given_out[member.member_id])
            for member in members
            if topic in member.topics
        ]
        assert not counts or max(counts) - min(counts) <= 1


@given(count=st.integers(1, 12), members=st.integers(1, 5))
def test_range_gives_runs_and_the_larger_ones_first(count: int, members: int) -> None:
    group = [Subscriber(f"m{number}", topics=frozenset("t")) for number in range(members)]
    given_out = assign("range", group, {"t": TopicShape(count)})
    runs = [sorted(number for _, number in given_out[f"m{each}"]) for each in range(members)]
    assert list(itertools.chain(*runs)) == list(range(count))
    assert [len(run) for run in runs] == sorted((len(run) for run in runs), reverse=True)


@given(
    racks=st.lists(st.tuples(*[st.frozensets(st.sampled_from(_RACKS))] * 2), min_size=1, max_size=9),
    of_members=st.lists(st.sampled_from(["", *_RACKS]), min_size=1, max_size=5),
)
def test_range_reads_nearby_and_keeps_topics_of_equal_size_together(
    racks: list[tuple[frozenset[str], frozenset[str]]], of_members: list[str]
) -> None:
    both = frozenset({"left", "right"})
    members = [Subscriber(f"m{number}", rack=rack, topics=both) for number, rack in enumerate(of_members)]
    left, right = zip(*racks, strict=True)
    count = len(racks)
    topics = {"left": TopicShape(count, left), "right": TopicShape(count, right)}
    given_out = check_assignment("range", range_assignor(members, topics), members, topics)
    blind = assign("range", members, {name: TopicShape(count) for name in topics})

    def nearby(assignment: Mapping[str, frozenset[TopicPartition]]) -> int:
        return sum(
            member.rack in left[number] & right[number]
            for member in members
            for topic, number in assignment[member.member_id]
            if topic == "left"
        )

    assert nearby(given_out) >= nearby(blind)
    for partitions in given_out.values():
        assert {number for topic, number in partitions if topic == "left"} == {
            number for topic, number in partitions if topic == "right"
        }


def test_range_follows_racks_where_it_can() -> None:
    members = [Subscriber(rack, rack=rack, topics=frozenset("t")) for rack in "ab"]
    racks = tuple(frozenset(each) for each in ("b", "a", "b", "a"))
    given_out = assign("range", members, {"t": TopicShape(4, racks)})
    assert given_out == {"a": {("t", 1), ("t", 3)}, "b": {("t", 0), ("t", 2)}}


@pytest.mark.parametrize("name", ["roundrobin", "sticky"])
@given(group=groups(alike=True))
def test_equal_subscriptions_get_equal_shares(
    name: str, group: tuple[list[Subscriber], dict[str, TopicShape]]
) -> None:
    spread = loads(assign(name, *group))
    assert spread[0] - spread[-1] <= 1


# --- sticky -------------------------------------------------------------------------------------------------------


@st.composite
def claiming_groups(draw: st.DrawFn) -> tuple[list[Subscriber], dict[str, TopicShape]]:
    """Small, and with different subscriptions and much that is owned already: here the fewest moves are not obvious."""
    topics = {f"t{number}": TopicShape(draw(st.integers(1, 3))) for number in range(draw(st.integers(1, 3)))}
    everything = [(name, number) for name, shape in topics.items() for number in range(shape.partitions)]
    members = []
    for number in range(draw(st.integers(2, 3))):
        names = draw(st.frozensets(st.sampled_from(sorted(topics)), min_size=1))
        claims = draw(st.frozensets(st.sampled_from([each for each in everything if each[0] in names])))
        members.append(Subscriber(f"m{number}", topics=names, owned=claims))
    return members, topics


def homes_of(members: Sequence[Subscriber], topics: Mapping[str, TopicShape]) -> dict[TopicPartition, str]:
    """Whose each partition is, by the words of the promise: claimed, existing, still wanted; else nobody's."""
    homes: dict[TopicPartition, str] = {}
    for member in sorted(members, key=lambda each: each.place):
        for topic, number in member.owned:
            if topic in topics and topic in member.topics and number < topics[topic].partitions:
                homes.setdefault((topic, number), member.member_id)
    return homes


def moves(homes: Mapping[TopicPartition, str], given_out: Mapping[str, frozenset[TopicPartition]]) -> int:
    return sum(
        homes.get(partition, member) != member for member, partitions in given_out.items() for partition in partitions
    )


def best_by_brute_force(members: Sequence[Subscriber], topics: Mapping[str, TopicShape]) -> tuple[list[int], int]:
    """The evenest loads there are (fewest on the fullest member, then on the next ...), and their fewest moves."""
    homes = homes_of(members, topics)
    choices = [
        ((topic, number), [each.member_id for each in members if topic in each.topics])
        for topic, shape in topics.items()
        for number in range(shape.partitions)
    ]
    choices = [(partition, wanting) for partition, wanting in choices if wanting]
    best: tuple[list[int], int] | None = None
    for owners in itertools.product(*(wanting for _, wanting in choices)):
        count = Counter(owners)
        spread = sorted((count[each.member_id] for each in members), reverse=True)
        moved = sum(homes.get(partition, owner) != owner for (partition, _), owner in zip(choices, owners, strict=True))
        if best is None or (spread, moved) < best:
            best = (spread, moved)
    assert best is not None
    return best


@given(group=claiming_groups())
def test_sticky_is_as_even_as_can_be_and_moves_as_little(
    group: tuple[list[Subscriber], dict[str, TopicShape]],
) -> None:
    members, topics = group
    given_out = assign("sticky", members, topics)
    assert (loads(given_out), moves(homes_of(members, topics), given_out)) == best_by_brute_force(members, topics)


@given(group=groups(most_members=4, most_partitions=6, alike=True))
def test_sticky_with_equal_subscriptions_keeps_all_that_shares_allow(
    group: tuple[list[Subscriber], dict[str, TopicShape]],
) -> None:
    """No brute force here, so more partitions: who has more than a share gives up the rest, and nobody else does."""
    members, topics = group
    homes = homes_of(members, topics)
    given_out = assign("sticky", members, topics)
    total = sum(map(len, given_out.values()))
    share, more = divmod(total, len(members))
    has = sorted((Counter(homes.values())[each.member_id] for each in members), reverse=True)
    if not total:
        return
    fewest = sum(max(0, count - share - (place < more)) for place, count in enumerate(has))
    assert moves(homes, given_out) == fewest


@given(group=groups())
def test_sticky_asked_again_moves_nothing(group: tuple[list[Subscriber], dict[str, TopicShape]]) -> None:
    members, topics = group
    first = assign("sticky", members, topics)
    settled = [
        Subscriber(each.member_id, each.instance_id, each.rack, each.topics, first[each.member_id]) for each in members
    ]
    assert assign("sticky", settled, topics) == first


def test_sticky_is_even_with_many_members_too() -> None:
    """Beyond where it searches for the fewest moves. Three of four members want one topic, the fourth another."""
    members = [
        Subscriber(f"m{number}", topics=frozenset({"small"} if number % 4 else {"small", "large"}))
        for number in range(2 * EXACT_MEMBERS)
    ]
    topics = {"small": TopicShape(60), "large": TopicShape(60)}
    given_out = check_assignment("sticky", sticky_assignor(members, topics), members, topics)
    assert loads(given_out) == [5] * 12 + [2] * 24 + [1] * 12


# --- foreign ones -------------------------------------------------------------------------------------------------


def everything_to_the_first(
    subscribers: Sequence[Subscriber], topics: Mapping[str, TopicShape]
) -> dict[str, list[TopicPartition]]:
    first = min(subscribers, key=lambda each: each.member_id)
    return {first.member_id: [(name, number) for name, each in topics.items() for number in range(each.partitions)]}


def raises(subscribers: object, topics: object) -> object:
    raise ZeroDivisionError("no members to divide by")


_MEMBERS: Final = [Subscriber("m0", topics=frozenset("t")), Subscriber("m1", topics=frozenset("u"))]
_TOPICS: Final = {"t": TopicShape(2), "u": TopicShape(1)}


def test_any_function_can_be_one() -> None:
    name = f"{__name__}.everything_to_the_first"
    members = [Subscriber("m1", topics=frozenset("t")), Subscriber("m0", topics=frozenset("t"))]
    assert assign(name, members, {"t": TopicShape(2)}) == {"m0": {("t", 0), ("t", 1)}, "m1": frozenset()}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "neither"),
        ("rnage", "not one of raylog's"),
        ("os.path;x", "neither"),
        ("no.such.module", "cannot be imported"),
        (f"{__name__}.missing", "no function"),
        (f"{__name__}._TOPICS", "no function"),
        ("x" * 300, "neither"),
    ],
)
def test_an_unknown_one_is_said_to_be(name: str, reason: str) -> None:
    with pytest.raises(UnknownAssignor, match=reason):
        find_assignor(name)


def test_one_that_raises_has_failed() -> None:
    with pytest.raises(AssignorFailed, match="raised ZeroDivisionError: no members to divide by"):
        assign(f"{__name__}.raises", _MEMBERS, _TOPICS)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (None, "returned a NoneType"),
        ({"m2": []}, "'m2', which is no member"),
        ({"m0": "t0"}, "gave a member a str"),
        ({"m0": [("t", 0), ("t", 0)]}, "a partition twice"),
        ({"m0": [("t", True)]}, "not a pair"),
        ({"m0": [["t", 1]]}, "not a pair"),
        ({"m0": [("t", 0), ("t", 1)], "m1": [("t", 1), ("u", 0)]}, "t-1 went to"),
        ({"m0": [("t", 0), ("t", 1), ("u", 0)]}, "did not ask"),
        ({"m0": [("t", 0)], "m1": [("u", 0)]}, "nobody got t-1"),
        ({"m0": [("t", 0), ("t", 1), ("t", 2)], "m1": [("u", 0)]}, "there is no t-2"),
    ],
)
def test_what_it_returns_is_checked(result: object, reason: str) -> None:
    with pytest.raises(AssignorFailed, match=reason):
        check_assignment("theirs", result, _MEMBERS, _TOPICS)
