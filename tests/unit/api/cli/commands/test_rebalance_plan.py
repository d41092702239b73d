"""What moves so that brokers hold equally many."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.cluster.placement.placement import Site
from raylog.api.cli.commands.rebalance_plan import plan


def sites(count: int, racks: int = 1) -> list[Site]:
    return [Site(number, f"r{number % racks}", f"n{number}") for number in range(count)]


def test_a_new_broker_gets_its_share_and_no_more_moves_than_that_takes() -> None:
    placement = {("clicks", number): (number % 2, (number + 1) % 2) for number in range(6)}
    moves = plan(placement, sites(3))
    after = dict(placement) | {each.partition: each.after for each in moves}
    held = Counter(broker for replicas in after.values() for broker in replicas)
    assert held == {0: 4, 1: 4, 2: 4}
    assert sum(each.moves_data for each in moves) == 4
    assert Counter(replicas[0] for replicas in after.values()) == {0: 2, 1: 2, 2: 2}


def test_what_is_even_stays() -> None:
    assert plan({("clicks", 0): (0, 1), ("clicks", 1): (1, 0)}, sites(2)) == []
    assert plan({("clicks", 0): (0,)}, []) == []


def test_no_replica_moves_to_the_rack_of_another_one() -> None:
    placement = {("clicks", number): (0, 1) for number in range(4)}  # racks r0 and r1
    moves = plan(placement, sites(4, racks=2))
    for each in moves:
        assert {broker % 2 for broker in each.after} == {0, 1}


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.permutations(range(5)), st.integers(1, 3)), max_size=12),
)
def test_every_plan_keeps_the_number_of_replicas_and_ends_even(
    brokers: int, drawn: list[tuple[list[int], int]]
) -> None:
    placement = {
        ("clicks", number): tuple([broker for broker in order if broker < brokers][:factor])
        for number, (order, factor) in enumerate(drawn)
    }
    moves = plan(placement, sites(brokers))
    after = placement | {each.partition: each.after for each in moves}
    for partition, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == len(placement[partition])
    held = Counter(dict.fromkeys(range(brokers), 0))
    held.update(broker for replicas in after.values() for broker in replicas)
    assert not held or max(held.values()) - min(held.values()) <= 1
    assert plan(after, sites(brokers)) == []
