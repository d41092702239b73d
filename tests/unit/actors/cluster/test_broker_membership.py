"""Brokers register, are fenced, and are removed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raylog.actors.cluster.broker_membership import (
    allocate_broker_ids,
    check_broker_epoch,
    fence_broker,
    register_broker,
    remove_broker,
    replicas_not_running,
)
from raylog.actors.cluster.placement.draining import drain_broker
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.protocol.metadata_records import BrokerFenced, BrokerIdsUsed, BrokerRegistration
from raylog.errors import BrokerInUse, BrokerWasRemoved, DuplicateBroker, StaleBrokerEpoch, UnknownBroker, WrongCluster
from tests.unit.actors.small_cluster import SmallCluster, registration


def test_the_epoch_is_the_offset_of_the_registration_and_rises() -> None:
    cluster = SmallCluster(2)
    first = cluster.state.broker(2).epoch
    assert first == cluster.offset - 1
    cluster.start_broker(2, run="second")
    assert cluster.state.broker(2).epoch > first
    assert check_broker_epoch(cluster.state, 2, cluster.state.broker(2).epoch).run == "second"
    with pytest.raises(StaleBrokerEpoch):
        check_broker_epoch(cluster.state, 2, first)
    with pytest.raises(StaleBrokerEpoch):
        check_broker_epoch(cluster.state, 9, first)


def test_the_same_run_keeps_its_epoch_until_it_is_fenced() -> None:
    cluster = SmallCluster(2)
    assert cluster.start_broker(2) == []
    epoch = cluster.state.broker(2).epoch
    cluster.lose_broker(2)
    with pytest.raises(StaleBrokerEpoch):
        check_broker_epoch(cluster.state, 2, epoch)
    assert len(cluster.start_broker(2)) == 1
    assert not cluster.state.broker(2).fenced


def test_the_same_run_at_another_node_is_recorded() -> None:
    cluster = SmallCluster(1)
    records = register_broker(cluster.state, cluster.live, registration(1, node="another"))
    assert [type(record) for record in records] == [BrokerRegistration]


def test_a_broker_of_another_cluster_is_refused() -> None:
    cluster = SmallCluster(1)
    with pytest.raises(WrongCluster):
        register_broker(cluster.state, cluster.live, registration(1, cluster_id="other"))


def test_a_second_broker_of_the_same_number_is_refused_while_the_first_lives() -> None:
    cluster = SmallCluster(2)
    elsewhere = registration(2, run="second", host="elsewhere")
    with pytest.raises(DuplicateBroker):
        register_broker(cluster.state, cluster.live, elsewhere)
    same_directory = registration(2, run="second")
    assert register_broker(cluster.state, cluster.live, same_directory)
    cluster.live_brokers.discard(2)
    assert register_broker(cluster.state, cluster.live, elsewhere)


def test_another_disk_at_the_same_place_is_another_broker_while_the_first_lives() -> None:
    """The lock that it holds is none that the first one could be kept out by."""
    cluster = SmallCluster(2)
    replaced = replace(registration(2, run="second"), directory_id="another")
    with pytest.raises(DuplicateBroker):
        register_broker(cluster.state, cluster.live, replaced)
    cluster.live_brokers.discard(2)
    cluster.apply(register_broker(cluster.state, cluster.live, replaced))
    assert cluster.copy_of_state().brokers[2].directory_id == "another"


def test_replicas_that_a_broker_does_not_name_are_lost() -> None:
    cluster = SmallCluster(2)
    cluster.create("t", [1, 2], [2, 1])
    cluster.create("idle", [2], start=False)
    named = cluster.report("t", 2, 0)
    request = replace(registration(2, run="second"), replicas=(named,))
    topic_id = cluster.partition("t").topic_id
    incarnation = cluster.running[ReplicaKey(topic_id, 1, 2)]
    assert [loss[:3] for loss in replicas_not_running(cluster.state, request)] == [(topic_id, 1, incarnation)]


@pytest.mark.parametrize(("age", "is_lost"), [(-1, True), (0, False), (1, False)])
def test_an_older_process_than_the_registered_one_is_none(age: int, is_lost: bool) -> None:
    """A broker's new process finds one that runs; that the registered one has gone nobody else could tell."""
    cluster = SmallCluster(2)
    cluster.create("t", [1, 2])
    key = (cluster.partition("t").topic_id, 0)
    registered = cluster.running[ReplicaKey(*key, 2)]
    found = cluster.report("t", 2)._replace(incarnation=registered + age)
    request = replace(registration(2, run="second"), replicas=(found,))
    lost = replicas_not_running(cluster.state, request)
    assert [loss[:3] for loss in lost] == ([(*key, registered)] if is_lost else [])


def test_a_lost_lease_shrinks_every_isr_and_elects_in_one_batch() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3], [2, 1, 3])
    cluster.create("u", [2, 3])
    records = cluster.lose_broker(1)
    assert isinstance(records[0], BrokerFenced)
    assert len(records) == 3
    assert [cluster.partition("t", number).isr for number in range(2)] == [(2, 3), (2, 3)]
    assert [cluster.partition("t", number).leader for number in range(2)] == [2, 2]
    assert fence_broker(cluster.state, cluster.live, 1, "again") == []
    with pytest.raises(UnknownBroker):
        fence_broker(cluster.state, cluster.live, 9, "never was")


def test_fencing_looks_only_at_the_partitions_of_that_broker() -> None:
    cluster = SmallCluster(4)
    for number in range(20):
        cluster.create(f"t{number}", [1, 2, 3])
    cluster.create("other", [3, 4])
    records = cluster.lose_broker(4)
    assert len(records) == 2


def test_a_broker_is_removed_once_it_holds_nothing_and_does_not_run() -> None:
    cluster = SmallCluster(3)
    cluster.create("t", [1, 2])
    with pytest.raises(UnknownBroker):
        remove_broker(cluster.state, cluster.live, (), 9)
    with pytest.raises(BrokerInUse, match="1 replicas"):
        remove_broker(cluster.state, cluster.live, (), 2)
    with pytest.raises(BrokerInUse, match="not drained"):
        remove_broker(cluster.state, cluster.live, (), 3)
    cluster.apply(drain_broker(cluster.state, cluster.live, 3))
    with pytest.raises(BrokerInUse, match="votes on the metadata log"):
        remove_broker(cluster.state, cluster.live, (1, 3), 3)
    with pytest.raises(BrokerInUse, match="running"):
        remove_broker(cluster.state, cluster.live, (1,), 3)
    cluster.lose_broker(3)
    with pytest.raises(BrokerInUse, match="votes on the metadata log"):
        remove_broker(cluster.state, cluster.live, (1, 3), 3)
    cluster.apply(remove_broker(cluster.state, cluster.live, (1,), 3))
    with pytest.raises(UnknownBroker):
        cluster.state.broker(3)


def test_the_number_of_a_removed_broker_is_never_given_again() -> None:
    cluster = SmallCluster(3)
    cluster.lose_broker(3)
    cluster.apply(remove_broker(cluster.state, cluster.live, (), 3))
    for state in (cluster.state, cluster.copy_of_state()):
        first, records = allocate_broker_ids(state, 2, above=2)
        assert (first, records) == (4, [BrokerIdsUsed(6)])
    cluster.apply(records)
    assert allocate_broker_ids(cluster.copy_of_state(), 1, above=8)[0] == 9  # one is known that has not registered
    assert allocate_broker_ids(cluster.copy_of_state(), 1, above=0)[0] == 6


def test_a_removed_broker_does_not_come_back_under_its_number() -> None:
    cluster = SmallCluster(3)
    cluster.lose_broker(3)
    cluster.apply(remove_broker(cluster.state, cluster.live, (), 3))
    for state in (cluster.state, cluster.copy_of_state()):
        assert state.removed_brokers == {3}
        with pytest.raises(BrokerWasRemoved, match="belonged to broker 3, which was removed"):
            register_broker(state, cluster.live, registration(3))


def test_a_broker_that_has_a_number_and_did_not_register_yet_is_no_removed_one() -> None:
    cluster = SmallCluster(2)
    cluster.apply([BrokerIdsUsed(4)])
    assert register_broker(cluster.state, cluster.live, registration(3))


def test_a_new_controller_believes_that_all_lives_that_was_not_fenced() -> None:
    cluster = SmallCluster(3)
    cluster.create("t", [1, 2, 3])
    cluster.lose_broker(3)
    believed = cluster.state.believed_live()
    assert believed.brokers == {1, 2}
    assert {key[2] for key in believed.replicas} == {1, 2}
