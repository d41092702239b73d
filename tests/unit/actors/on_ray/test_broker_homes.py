"""Which broker belongs into which directory, however often and in whatever order that is found out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.on_ray.broker_homes import (
    UNNUMBERED,
    BrokerHome,
    BrokerHomes,
    first_voters,
    moved,
    number_all,
    without_removed,
)
from raylog.errors import BrokerWasRemoved

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


def test_later_homes_are_given_numbers_where_they_could_run() -> None:
    known = BrokerHomes()
    known.learn(replace(HERE, broker_id=2))
    later = [BrokerHome(node, "/data/broker-0") for node in ("node-b", "node-c", "node-d")]
    for home in later:
        known.learn(home)
    known.retire(5)
    assert known.highest() == 5
    assert known.unnumbered(["node-a", "node-b", "node-d"]) == [later[0], later[2]]
    known.number([later[0], later[2]], 8)
    assert [known.broker_at(home.node_id, home.directory) for home in later] == [8, UNNUMBERED, 9]


def test_a_number_that_stands_in_a_directory_claims_no_blank_one() -> None:
    known = BrokerHomes()
    known.learn(replace(HERE, broker_id=0))  # given to it
    assert known.may_claim(0)
    known.learn(replace(HERE, broker_id=0, is_claimed=True))
    assert not known.may_claim(0)
    known.learn(replace(HERE, broker_id=0))
    assert not known.may_claim(0)
    known.bind(1)  # it has registered
    assert not known.may_claim(1)


def test_a_blank_directory_of_a_removed_broker_gets_a_number_of_its_own() -> None:
    known = BrokerHomes()
    known.learn(replace(HERE, broker_id=3, is_claimed=True))
    known.retire(3)
    known.learn(HERE)
    assert known.unnumbered([HERE.node_id]) == [HERE]
    assert known.highest() == 3


@pytest.mark.parametrize(
    ("home", "present"),
    [
        (BrokerHome("node-a", "/other/broker-0"), "/data"),  # a wrong path, most likely
        (BrokerHome("node-a", "/data/broker-1"), ""),  # more brokers were asked for
        (BrokerHome("node-b", "/other/broker-0"), ""),  # a new node, with a directory of its own
        (BrokerHome("node-a", "/other/broker-0", 4, is_claimed=True), ""),  # it comes back
        (BrokerHome("node-a", "/data/broker-0"), ""),  # a start that is repeated
    ],
)
def test_a_blank_folder_beside_that_of_a_nodes_brokers_would_add_some(home: BrokerHome, present: str) -> None:
    known = BrokerHomes()
    known.learn(replace(HERE, broker_id=0))
    assert known.beside_others(home) == present
    known.learn(home)
    assert known.beside_others(home) == "", "it was added"


def test_beside_a_removed_broker_a_folder_adds_none_to_others() -> None:
    known = BrokerHomes()
    known.learn(replace(HERE, broker_id=0))
    known.retire(0)
    assert known.beside_others(BrokerHome("node-a", "/other/broker-0")) == ""


def test_directories_of_removed_brokers_are_left_out_and_refused_where_there_are_no_others() -> None:
    kept, removed = replace(HERE, broker_id=0), BrokerHome("node-a", "/data/broker-1", 1, is_claimed=True)
    assert without_removed([kept, removed], {1}) == [kept]
    assert without_removed([], {1}) == []
    with pytest.raises(BrokerWasRemoved, match="/data/broker-1 belonged to broker 1"):
        without_removed([removed], {1})


THERE = BrokerHome("node-b", "/data/broker-0", 0, is_claimed=True)


@pytest.mark.parametrize(
    ("home", "hosts", "is_copy"),
    [
        (THERE, {"node-a": "host-a", "node-b": "host-b"}, True),
        (THERE, {"node-b": "host-b"}, False),  # its former node is gone: the disk moved
        (THERE, {"node-a": "host-a", "node-b": "host-a"}, False),  # the machine came back under another node id
        (replace(THERE, node_id="node-a"), {"node-a": "host-a"}, False),  # the very same
        (replace(THERE, node_id="node-a", directory="/data/broker-1"), {"node-a": "host-a"}, True),
        (replace(THERE, broker_id=7), {"node-a": "host-a", "node-b": "host-b"}, False),
    ],
)
def test_a_copy_of_a_directory_is_told(home: BrokerHome, hosts: dict[str, str], is_copy: bool) -> None:
    known = BrokerHomes()
    known.learn(replace(HERE, broker_id=0, is_claimed=True))
    assert (known.copied(home, hosts) is not None) == is_copy
    known.retire(0)
    assert known.copied(home, hosts) is None


@pytest.mark.parametrize(
    ("nodes", "voters"),
    [("a", (0,)), ("ab", (0,)), ("aaaa", (0, 1, 2)), ("aab", (0, 2, 1)), ("aaabbc", (0, 3, 5))],
)
def test_the_first_voters_are_on_as_many_nodes_as_possible(nodes: str, voters: tuple[int, ...]) -> None:
    homes = [BrokerHome(node, f"/data/broker-{number}") for number, node in enumerate(nodes)]
    assert first_voters(number_all(homes)) == voters


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


def test_directories_come_back_with_the_node_that_has_come_back_under_another_id() -> None:
    claimed = replace(HERE, broker_id=0, is_claimed=True)
    elsewhere = BrokerHome("node-b", "/data/broker-0", 1)
    assert moved([claimed, elsewhere], "node-a", "node-c") == (replace(claimed, node_id="node-c"), elsewhere)
    assert moved([claimed, elsewhere], "node-a", "node-a") == (claimed, elsewhere)


def test_a_brokers_place_on_its_node_says_which_port_its_gateway_takes() -> None:
    known = BrokerHomes()
    for number, node in ((0, "node-a"), (1, "node-b"), (2, "node-a"), (4, "node-a")):
        known.learn(BrokerHome(node, f"/data/broker-{number}", number))
    known.learn(BrokerHome("node-a", "/data/new"))  # without a number yet
    places = {home.broker_id: known.place_on_node(home) for home in known.wanted({"node-a", "node-b"}, ())}
    assert places == {0: 0, 1: 0, 2: 1, 4: 2}
    known.retire(4)
    assert known.place_on_node(BrokerHome("node-a", "/data/broker-2", 2)) == 1
