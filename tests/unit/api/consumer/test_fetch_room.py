"""Room for fetched bytes: shares of few partitions, turns of many."""

from __future__ import annotations

from random import Random

import pytest

from raylog.api.consumer.rules.fetch_room import FetchRoom, Grant


def room_of(*keys: str, size: int = 100, most: int = 30, takes_turns: bool = True) -> FetchRoom[str]:
    room = FetchRoom[str](size, most, takes_turns=takes_turns)
    for key in keys:
        room.join(key)
    return room


def granted(room: FetchRoom[str], *keys: str) -> dict[str, Grant]:
    for key in keys:
        room.wants(key)
    return dict(room.grants())


def test_few_share_evenly_and_may_wait_at_their_leaders() -> None:
    room = room_of("a", "b", "c")
    assert not room.is_crowded
    grants = granted(room, "a", "b", "c")
    assert {(each.most, each.may_wait) for each in grants.values()} == {(30, True)}
    room.arrived("a", 3)
    room.settled("a", grants["a"])
    assert list(granted(room, "a")) == ["a"]  # 3 and 30 are no more than its share of 33
    room.arrived("a", 4)
    assert not granted(room, "a")
    room.taken("a", 4)
    assert [key for key, _ in room.grants()] == ["a"]


def test_who_leaves_makes_the_shares_of_few_larger() -> None:
    room = room_of("a", "b", "c")
    room.arrived("a", 10)
    assert not granted(room, "a")
    room.leave("b")
    assert [key for key, _ in room.grants()] == ["a"]


def test_many_take_turns_in_the_order_in_which_they_wanted_to() -> None:
    keys = [f"p{number}" for number in range(10)]
    room = room_of(*keys)
    assert room.is_crowded
    grants = granted(room, *keys)
    assert list(grants) == keys[:3]
    assert {(each.most, each.may_wait) for each in grants.values()} == {(30, False)}
    room.settled("p1", grants["p1"])
    assert [key for key, _ in room.grants()] == ["p3"]
    room.arrived("p0", 25)
    room.settled("p0", grants["p0"])
    assert not room.grants()  # 25 are held, 60 granted
    room.wants("p0")
    room.taken("p0", 25)
    assert [key for key, _ in room.grants()] == ["p4"]


def test_of_many_who_holds_something_waits_until_it_is_taken() -> None:
    room = room_of("a", "b", "c", "d")
    grants = granted(room, "a")
    room.arrived("a", 1)
    room.settled("a", grants["a"])
    assert list(granted(room, "a", "b")) == ["b"]
    room.taken("a", 1)
    assert [key for key, _ in room.grants()] == ["a"]


def test_who_is_paused_is_passed_over_and_comes_back() -> None:
    room = room_of("a", "b", "c", "d")
    room.pause("a")
    assert list(granted(room, "a", "b")) == ["b"]
    room.resume("a")
    assert [key for key, _ in room.grants()] == ["a"]


def test_a_grant_ends_once_and_a_later_one_is_not_touched_by_it() -> None:
    room = room_of("a", "b", "c", "d")
    old = granted(room, "a")["a"]
    room.leave("a")
    assert room.used == 0
    room.join("a")
    granted(room, "a")
    room.settled("a", old)
    assert room.used == 30


def test_without_turns_many_share() -> None:
    keys = [f"p{number}" for number in range(10)]
    room = room_of(*keys, takes_turns=False)
    assert list(granted(room, *keys)) == keys
    assert room.used == 0


@pytest.mark.parametrize("seed", range(30))
def test_the_bound_holds_and_everybody_gets_a_turn(seed: int) -> None:
    """Fetches of random sizes, of which some bring a batch that is larger than asked for."""
    random = Random(seed)
    size, most = random.choice([(100, 30), (100, 100), (20, 30)])
    keys = [f"p{number}" for number in range(random.choice([2, 5, 40]))]
    room = room_of(*keys, size=size, most=most)
    held, open_grants, turns = dict.fromkeys(keys, 0), dict[str, Grant](), dict.fromkeys(keys, 0)
    largest = 0
    for key in keys:
        room.wants(key)
    for _ in range(3_000):
        for key, grant in room.grants():
            assert key not in open_grants
            open_grants[key] = grant
            turns[key] += 1
        if room.is_crowded:
            assert room.used == sum(held.values()) + sum(each.most for each in open_grants.values())
            assert room.used <= max(size, most) + largest
        if open_grants and random.random() < 0.6:
            key = random.choice(list(open_grants))
            grant = open_grants.pop(key)
            brought = random.choice([0, grant.most // 2, grant.most, grant.most + random.randint(0, 9)])
            largest += max(0, brought - grant.most)
            held[key] += brought
            if brought:
                room.arrived(key, brought)
            room.settled(key, grant)
            room.wants(key)
        elif full := [key for key in keys if held[key]]:
            key = random.choice(full)
            room.taken(key, held[key])
            held[key] = 0
    assert min(turns.values()) > 5
