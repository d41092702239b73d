"""Replicas on distinct brokers, spread over racks and nodes; leaders and replicas balanced."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.cluster.placement.placement import Load, Site, most_dispensable, place_another, place_partitions


def sites(*racks: str, per_node: int = 1) -> list[Site]:
    return [Site(number, rack, f"node-{number // per_node}") for number, rack in enumerate(racks)]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Site], int]:
    racks = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=9))
    factor = draw(st.integers(1, len(racks)))
    return sites(*racks, per_node=draw(st.integers(1, 3))), factor


@given(cluster=clusters(), partitions=st.integers(1, 30), data=st.data())
def test_placements_are_valid_spread_and_lead_evenly_whatever_was_there_before(
    cluster: tuple[list[Site], int], partitions: int, data: st.DataObject
) -> None:
    places, factor = cluster
    counts = st.dictionaries(st.integers(0, 9), st.integers(0, 20))
    load = Load(data.draw(counts), {})
    placed = place_partitions(places, partitions, factor, load)
    racks_there = len({site.rack for site in places})
    by_id = {site.broker: site for site in places}
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({by_id[broker].rack for broker in replicas}) == min(factor, racks_there)
    leaders = Counter(replicas[0] for replicas in placed)
    counted = [leaders[site.broker] for site in places]
    assert max(counted) - min(counted) <= 1


@given(brokers=st.integers(1, 12), partitions=st.integers(1, 60), data=st.data())
def test_equal_brokers_get_equal_shares(brokers: int, partitions: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, brokers))
    places = sites(*[""] * brokers)
    load = Load()
    place_partitions(places, partitions, factor, load)
    replicas = [load.replicas[site.broker] for site in places]
    leaders = [load.leaders[site.broker] for site in places]
    assert max(replicas) - min(replicas) <= 1
    assert max(leaders) - min(leaders) <= 1


@given(racks=st.integers(1, 4), in_each=st.integers(1, 3), partitions=st.integers(1, 40), data=st.data())
def test_equal_racks_get_shares_that_differ_by_little(
    racks: int, in_each: int, partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, racks * in_each))
    places = sites(*"abcd"[:racks] * in_each)
    load = Load()
    for replicas in place_partitions(places, partitions, factor, load):
        used = Counter(places[broker].rack for broker in replicas)
        assert max(used.values()) - min(used.get(rack, 0) for rack in "abcd"[:racks]) <= 1
    counts = [load.replicas[site.broker] for site in places]
    assert max(counts) - min(counts) <= 2


def test_topics_of_one_partition_each_spread_too() -> None:
    places = sites("", "", "")
    load = Load()
    leaders = [place_partitions(places, 1, 1, load)[0][0] for _ in range(6)]
    assert Counter(leaders) == {0: 2, 1: 2, 2: 2}


def test_nodes_count_within_a_rack() -> None:
    places = [Site(0, "a", "n0"), Site(1, "a", "n0"), Site(2, "a", "n1")]
    assert set(place_partitions(places, 1, 2, Load({2: 9}))[0]) == {0, 2}


def test_one_more_replica_goes_to_a_rack_without_one() -> None:
    places = sites("a", "a", "b")
    load = Load({2: 9})
    assert place_another(places, places[:1], load) == 2
    assert load.replicas[2] == 10
    assert place_another(places, places, load) is None


def test_the_replica_that_is_missed_least() -> None:
    places = sites("a", "b", "a")
    assert most_dispensable(places, [0, 1, 2], Load({0: 5, 1: 9, 2: 4})) == 0
    assert most_dispensable(places, [1, 2], Load({1: 9})) == 2
