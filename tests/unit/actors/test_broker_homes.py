"""Which broker belongs into which directory, however often and in whatever order that is found out."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.broker_homes import UNNUMBERED, BrokerHome, BrokerHomes, number_all

HERE = BrokerHome("node-a", "/data/broker-0")

homes = st.lists(
    st.builds(
        BrokerHome,
        st.sampled_from(["node-a", "node-b", "node-c"]),
        st.sampled_from(["/data/broker-0", "/data/broker-1"]),
    ),
    unique=True,
    max_size=6,
)


@given(homes, st.sets(st.integers(0, 8), max_size=6))
def test_formation_numbers_every_home_once_and_keeps_what_is_numbered(found: list[BrokerHome], kept: set[int]) -> None:
    mixed = [replace(home, broker_id=number) for home, number in zip(found, sorted(kept), strict=False)]
    mixed += found[len(mixed) :]
    numbered = number_all(mixed)
    numbers = [home.broker_id for home in numbered]
    assert len(set(numbers)) == len(numbers)
    assert UNNUMBERED not in numbers
    assert all(after == before for before, after in zip(mixed, numbered, strict=True) if before.broker_id >= 0)
    assert numbered == number_all(mixed)  # a controller that is started again comes to the same numbers
    if not kept:
        assert sorted(numbers) == list(range(len(found)))


def test_later_homes_get_numbers_above_all_that_were_ever_seen() -> None:
    known = BrokerHomes()
    known.learn(replace(HERE, broker_id=2))
    known.learn(BrokerHome("node-b", "/data/broker-0"))
    known.number(taken=[7, 1])
    assert known.broker_at("node-b", "/data/broker-0") == 8


def test_a_home_without_a_number_is_not_wanted_yet() -> None:
    known = BrokerHomes()
    known.learn(HERE)
    assert known.wanted(["node-a"], []) == []


def test_a_broker_is_wanted_where_its_node_lives_and_it_does_not_run() -> None:
    known = BrokerHomes()
    known.learn(replace(HERE, broker_id=0))
    assert known.wanted([], []) == []
    assert known.wanted(["node-a"], [0]) == []
    assert known.wanted(["node-a"], []) == [replace(HERE, broker_id=0)]


def test_a_node_that_comes_back_under_another_id_brings_the_same_broker_back() -> None:
    known = BrokerHomes()
    known.learn(replace(HERE, broker_id=0))
    known.learn(BrokerHome("node-a2", HERE.directory, 0))
    assert [home.node_id for home in known.wanted(["node-a", "node-a2"], [])] == ["node-a2"]
    assert not known.knows("node-a")


def test_a_number_is_not_forgotten_when_the_directory_is_named_again() -> None:
    known = BrokerHomes()
    known.learn(replace(HERE, broker_id=3))
    known.learn(HERE)
    assert known.broker_at(HERE.node_id, HERE.directory) == 3


def test_a_retired_broker_is_not_wanted_until_its_directory_is_named_with_its_number_again() -> None:
    known = BrokerHomes()
    known.learn(replace(HERE, broker_id=0))
    known.retire(0)
    assert known.wanted(["node-a"], []) == []
    known.learn(HERE)
    assert known.wanted(["node-a"], []) == []
    known.learn(replace(HERE, broker_id=0))
    assert known.wanted(["node-a"], []) == [replace(HERE, broker_id=0)]
