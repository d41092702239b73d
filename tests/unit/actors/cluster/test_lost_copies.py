"""Partitions whose last copies have come back without what they held, and what a person makes of them (rule 7)."""

from __future__ import annotations

import pytest

from raylog.actors.cluster.election.leader_election import (
    BY_CHOICE,
    IN_DOUBT,
    IN_SYNC,
    UNCLEAN,
    UNCLEANLY,
    UNUSED,
    elect_leaders,
    may_have_lost_records,
)
from raylog.actors.cluster.election.persons_choice import choose, hold, incarnations_of, let_go
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.cluster.topic_settings import alter_topic_settings
from raylog.actors.metadata_log.rules.tail import decode_change, encode_change
from raylog.actors.protocol.metadata_records import (
    PartitionChanged,
    PartitionChangedV1,
    PartitionChangedV2,
    ReplicaRegistered,
    ReplicaRegisteredV1,
)
from raylog.errors import BrokerNotAvailable, ElectionNotNeeded, EligibleLeadersNotAvailable, NeverLed
from raylog.storage.directory.doubts import BLANK, REBOOTED, RESTORED, doubt_after_restart
from tests.unit.actors.small_cluster import SmallCluster, reasons


def two_of_which_one_is_down() -> SmallCluster:
    """Broker 2 has an older copy, broker 1 has led alone since."""
    cluster = SmallCluster(2)
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 1})
    cluster.lose_broker(2)
    assert cluster.partition("t").isr == (1,)
    return cluster


def the_last_one_is_damaged(cluster: SmallCluster) -> PartitionState:
    cluster.lose_replica("t", 1, damaged=True)
    cluster.start_replica("t", 1, log=(-1, 0), unproven=BLANK)
    return cluster.partition("t")


def test_a_blank_log_in_the_place_of_the_last_one_does_not_lead() -> None:
    cluster = SmallCluster(1)
    cluster.create("t", [1])
    cluster.lose_replica("t", 1, damaged=True)
    lost = cluster.partition("t")
    assert (lost.leader, lost.isr, lost.doubtful, lost.lost) == (-1, (), (), ((1, "killed"),))
    cluster.start_replica("t", 1, log=(-1, 0), unproven=BLANK)
    after = cluster.elect("t", waited=True)
    assert (after.leader, after.lost) == (-1, ((1, "killed"),))
    assert after.waits_for_a_person


def test_an_older_copy_that_comes_back_stays_as_it_is() -> None:
    cluster = two_of_which_one_is_down()
    assert the_last_one_is_damaged(cluster).waits_for_a_person
    cluster.start_broker(2)
    assert not reasons(cluster.start_replica("t", 2, log=(0, 999_000)))
    assert cluster.elect("t", waited=True).leader == -1


def test_a_directory_that_was_lost_with_its_disk_counts_as_blank() -> None:
    cluster = two_of_which_one_is_down()
    cluster.lose_replica("t", 1)
    assert cluster.partition("t").isr == (1,)
    cluster.start_replica("t", 1, log=(-1, 0), unproven=BLANK)
    after = cluster.elect("t", waited=True)
    assert (after.leader, after.isr, after.lost_brokers) == (-1, (), (1,))


def test_a_blank_one_that_has_fetched_much_still_has_no_claim() -> None:
    cluster = SmallCluster(2)
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 1})
    cluster.lose_replica("t", 2)
    cluster.start_replica("t", 2, log=(-1, 0), unproven=BLANK)
    cluster.propose("t", 1)
    cluster.lose_replica("t", 2)
    cluster.start_replica("t", 2, log=(0, 80), unproven=REBOOTED)  # its machine has rebooted too
    cluster.lose_broker(1)
    cluster.start_broker(1, run="second")
    cluster.start_replica("t", 1, log=(0, 50), unproven=REBOOTED)
    after = cluster.partition("t")
    assert (after.leader, after.unclean_epoch) == (1, after.leader_epoch)


def test_a_rebooted_last_member_leads_although_another_was_damaged() -> None:
    cluster = SmallCluster(2)
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 2})
    cluster.lose_broker(1, 2)
    cluster.start_broker(1, run="second")
    cluster.start_broker(2, run="second")
    cluster.start_replica("t", 1, log=(-1, 0), unproven=BLANK)
    assert (cluster.partition("t").isr, cluster.partition("t").lost_brokers) == ((2,), (1,))
    records = cluster.start_replica("t", 2, log=(0, 7), unproven=REBOOTED)
    after = cluster.partition("t")
    assert reasons(records)[0].endswith(IN_DOUBT)
    assert (after.leader, after.doubtful, after.lost, after.unclean_epoch) == (2, (), (), after.leader_epoch)


def test_a_doubtful_one_whose_directory_is_lost_as_well_is_waited_for_no_more() -> None:
    cluster = SmallCluster(2)
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 1})
    cluster.lose_broker(2)
    cluster.lose_broker(1)
    cluster.start_broker(1, run="second")
    cluster.start_replica("t", 1, log=(0, 7), unproven=REBOOTED)
    assert cluster.partition("t").doubtful_brokers == (1,)
    cluster.lose_replica("t", 1)
    cluster.start_replica("t", 1, log=(-1, 0), unproven=BLANK)
    after = cluster.partition("t")
    assert (after.doubtful, after.lost_brokers, after.leader) == ((), (1,), -1)


def test_the_last_member_that_returns_ends_the_wait_of_those_that_lost_their_logs() -> None:
    cluster = SmallCluster(2)
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 2})
    cluster.lose_broker(1, 2)
    cluster.start_broker(1, run="second")
    cluster.start_replica("t", 1, log=(-1, 0), unproven=BLANK)
    assert not cluster.partition("t").waits_for_a_person  # broker 2 has all of it
    cluster.start_broker(2, run="second")
    records = cluster.start_replica("t", 2, log=(0, 7))
    after = cluster.partition("t")
    assert reasons(records)[0].endswith(IN_SYNC)
    assert (after.leader, after.lost, after.unclean_epoch) == (2, (), -1)


def test_where_somebody_else_leads_a_damaged_one_is_only_left_out() -> None:
    cluster = SmallCluster(2)
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 1})
    cluster.lose_replica("t", 2, damaged=True)
    after = cluster.partition("t")
    assert (after.leader, after.isr, after.lost) == (1, (1,), ())


def test_an_eligible_leaver_leads_in_the_place_of_a_damaged_one() -> None:
    cluster = SmallCluster(2)
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 2})
    cluster.lose_replica("t", 2)
    cluster.start_replica("t", 2, log=(0, 5))
    assert cluster.partition("t").elr == (2,)
    cluster.lose_replica("t", 1, damaged=True)
    assert (cluster.partition("t").leader, cluster.partition("t").lost) == (2, ())


# --- unused -------------------------------------------------------------------------------------------------------


def led_by_one_that_started_alone(minimum: int = 2) -> SmallCluster:
    """Broker 2 has started since, blank as all are, and has fetched a part of what was written under acks=1."""
    cluster = SmallCluster(2)
    cluster.create("t", [1, 2], start=False, settings={"min.insync.replicas": minimum})
    cluster.start_replica("t", 1, log=(-1, 0), unproven=BLANK)
    cluster.elect("t", waited=True)
    cluster.start_replica("t", 2, log=(-1, 0), unproven=BLANK)
    cluster.tell("t", 2, 0, 5)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (1, (1,))
    return cluster


def test_where_nothing_was_acknowledged_any_copy_may_lead_once_all_are_there() -> None:
    cluster = led_by_one_that_started_alone()
    cluster.lose_replica("t", 1, damaged=True)
    lost = cluster.partition("t")
    assert (lost.leader, lost.last_members, lost.lost_brokers) == (-1, (), (1,))
    assert (lost.is_unused, lost.waits_for_a_person) == (True, False)
    records = cluster.start_replica("t", 1, log=(-1, 0), unproven=BLANK)
    after = cluster.partition("t")
    assert reasons(records)[0].endswith(UNUSED)
    assert not any(may_have_lost_records(each) for each in records if isinstance(each, PartitionChanged))
    assert (after.leader, after.isr, after.lost, after.unclean_epoch) == (2, (2,), (), after.leader_epoch)
    assert not after.may_have_acknowledged


def test_where_nothing_was_acknowledged_one_that_is_gone_for_good_is_not_waited_for_for_ever() -> None:
    cluster = led_by_one_that_started_alone()
    cluster.lose_replica("t", 1, damaged=True)
    assert cluster.elect("t").leader == -1
    assert cluster.elect("t", waited=True).leader == 2


def test_where_nothing_was_acknowledged_one_that_lost_its_power_leads_in_the_place_of_a_damaged_one() -> None:
    cluster = led_by_one_that_started_alone()
    cluster.lose_replica("t", 2)
    cluster.start_replica("t", 2, log=(0, 3), unproven=REBOOTED)
    cluster.lose_replica("t", 1, damaged=True)
    cluster.start_replica("t", 1, log=(-1, 0), unproven=BLANK)
    assert cluster.elect("t").leader == -1
    cluster.tell("t", 1, -1, 0)
    cluster.tell("t", 2, 0, 3)
    assert cluster.elect("t").leader == 2


def test_from_the_first_isr_that_is_large_enough_on_a_person_chooses() -> None:
    cluster = led_by_one_that_started_alone()
    assert cluster.propose("t", 1, 2).may_have_acknowledged
    cluster.lose_replica("t", 1, damaged=True)
    cluster.lose_replica("t", 2, damaged=True)
    cluster.start_replica("t", 2, log=(-1, 0), unproven=BLANK)
    cluster.start_replica("t", 1, log=(-1, 0), unproven=BLANK)
    assert cluster.elect("t", waited=True).waits_for_a_person


def test_an_isr_that_a_lower_minimum_makes_large_enough_is_noted_in_the_same_batch() -> None:
    cluster = led_by_one_that_started_alone()
    records = alter_topic_settings(cluster.state, cluster.live, "t", {"min.insync.replicas": 1})
    assert [each.may_have_acknowledged for each in records if isinstance(each, PartitionChanged)] == [True]
    cluster.apply(records)
    cluster.lose_replica("t", 1, damaged=True)
    assert cluster.partition("t").waits_for_a_person


def test_one_that_started_alone_and_may_acknowledge_alone_is_missed() -> None:
    cluster = led_by_one_that_started_alone(minimum=1)
    cluster.lose_replica("t", 1, damaged=True)
    cluster.start_replica("t", 1, log=(-1, 0), unproven=BLANK)
    assert cluster.elect("t", waited=True).waits_for_a_person


def test_an_unused_partition_is_left_alone_while_a_copy_is_restored() -> None:
    cluster = led_by_one_that_started_alone()
    cluster.apply(hold(cluster.state, cluster.partition("t").id))
    held = cluster.elect("t", waited=True)
    assert (held.leader, held.waits_for_a_person) == (-1, True)


# --- unclean ------------------------------------------------------------------------------------------------------


def test_a_plain_unclean_election_gives_a_blank_log_nothing() -> None:
    cluster = two_of_which_one_is_down()
    the_last_one_is_damaged(cluster)
    refused = elect_leaders(cluster.state, cluster.live, UNCLEAN, [("t", 0)]).refused
    assert isinstance(refused["t", 0], EligibleLeadersNotAvailable)
    cluster.start_broker(2)
    cluster.start_replica("t", 2, log=(0, 999_000))
    cluster.apply(elect_leaders(cluster.state, cluster.live, UNCLEAN, [("t", 0)]).records)
    after = cluster.partition("t")
    assert (after.leader, after.isr, after.unclean_epoch) == (2, (2,), after.leader_epoch)


def test_the_setting_of_the_topic_elects_the_older_copy_and_never_the_blank_one() -> None:
    cluster = two_of_which_one_is_down()
    cluster.apply(alter_topic_settings(cluster.state, cluster.live, "t", {"unclean.leader.election.enable": True}))
    assert the_last_one_is_damaged(cluster).leader == -1
    cluster.start_broker(2)
    records = cluster.start_replica("t", 2, log=(0, 40))
    assert reasons(records)[0].endswith(UNCLEANLY)
    assert cluster.partition("t").leader == 2


def test_before_its_first_leader_a_partition_takes_a_blank_one() -> None:
    cluster = SmallCluster(1)
    cluster.create("t", [1], start=False)
    cluster.start_replica("t", 1, unproven=BLANK)
    assert (cluster.partition("t").leader, cluster.partition("t").unclean_epoch) == (1, -1)


# --- a person's choice --------------------------------------------------------------------------------------------


def test_a_person_chooses_the_older_copy() -> None:
    cluster = two_of_which_one_is_down()
    partition = the_last_one_is_damaged(cluster)
    with pytest.raises(BrokerNotAvailable, match="does not run"):
        choose(cluster.state, cluster.live, partition.id, 2)
    cluster.start_broker(2)
    cluster.start_replica("t", 2, log=(0, 999_000))
    records = cluster.apply(choose(cluster.state, cluster.live, partition.id, 2))
    after = cluster.partition("t")
    assert reasons(records)[0].endswith(BY_CHOICE)
    assert [may_have_lost_records(each) for each in records if isinstance(each, PartitionChanged)] == [True]
    assert (after.leader, after.isr, after.lost, after.unclean_epoch) == (2, (2,), (), after.leader_epoch)
    assert cluster.propose("t", 1, 2).unclean_epoch == after.leader_epoch


def test_a_person_may_give_up_all_that_was_there() -> None:
    cluster = SmallCluster(1)
    cluster.create("t", [1])
    cluster.lose_replica("t", 1, damaged=True)
    cluster.start_replica("t", 1, log=(-1, 0), unproven=BLANK)
    cluster.apply(choose(cluster.state, cluster.live, cluster.partition("t").id, 1))
    after = cluster.partition("t")
    assert (after.leader, after.isr) == (1, (1,))
    topic_id, number = after.id
    assert cluster.state.replicas[ReplicaKey(topic_id, number, 1)].unproven == ""


def test_a_choice_of_one_that_is_in_sync_is_a_clean_election() -> None:
    cluster = SmallCluster(2)
    partition = cluster.create("t", [1, 2])
    records = cluster.apply(choose(cluster.state, cluster.live, partition.id, 2))
    assert reasons(records)[0].endswith(IN_SYNC)
    assert (cluster.partition("t").leader, cluster.partition("t").unclean_epoch) == (2, -1)
    with pytest.raises(ElectionNotNeeded):
        choose(cluster.state, cluster.live, partition.id, 2)
    with pytest.raises(BrokerNotAvailable, match="holds no replica"):
        choose(cluster.state, cluster.live, partition.id, 9)


def test_while_a_copy_is_restored_nobody_leads_and_then_the_chosen_one() -> None:
    cluster = SmallCluster(2)
    partition = cluster.create("t", [1, 2], settings={"min.insync.replicas": 1})
    cluster.apply(hold(cluster.state, partition.id))
    held = cluster.elect("t", waited=True)
    assert (held.leader, held.isr, held.leader_epoch) == (-1, (), 1)
    cluster.lose_replica("t", 2)
    cluster.start_replica("t", 2, log=(0, 90), unproven=RESTORED)
    assert cluster.partition("t").leader == -1
    cluster.apply(choose(cluster.state, cluster.live, partition.id, 2))
    after = cluster.partition("t")
    assert (after.leader, after.isr, after.leader_epoch, after.unclean_epoch) == (2, (2,), 2, 2)


def test_where_it_is_not_restored_all_is_as_before() -> None:
    cluster = SmallCluster(3)
    before = cluster.create("t", [1, 2, 3], settings={"min.insync.replicas": 1})
    incarnations = incarnations_of(cluster.state, before)
    cluster.apply(hold(cluster.state, before.id))
    cluster.lose_replica("t", 3)
    cluster.start_replica("t", 3, log=(-1, 0), unproven=RESTORED)
    cluster.apply(let_go(cluster.state, cluster.live, before, incarnations))
    after = cluster.partition("t")
    assert (after.leader, after.isr, after.lost, after.unclean_epoch) == (1, (1, 2), (), -1)
    assert let_go(cluster.state, cluster.live, before, incarnations) == []


def test_what_never_had_a_leader_is_not_held() -> None:
    cluster = SmallCluster(1)
    cluster.create("t", [1], start=False)
    with pytest.raises(NeverLed):
        hold(cluster.state, cluster.partition("t").id)


# --- what is doubted ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reported", "known", "after"),
    [
        ("", "", ""),
        ("", REBOOTED, REBOOTED),
        ("", BLANK, BLANK),
        (REBOOTED, "", REBOOTED),
        (REBOOTED, BLANK, BLANK),
        (REBOOTED, RESTORED, RESTORED),
        (BLANK, REBOOTED, BLANK),
        (RESTORED, BLANK, RESTORED),
        ("", "what a later raylog says", "what a later raylog says"),
    ],
)
def test_a_doubt_outlives_the_process_that_told_of_it(reported: str, known: str, after: str) -> None:
    assert doubt_after_restart(reported, known) == after


def test_a_record_of_an_earlier_raylog_tells_of_no_loss() -> None:
    old = PartitionChangedV1(b"t" * 16, 0, (1, 2), (), (), 1, 4, 9, (1,), (2,), ((3, 1, 2, 5),), "why")
    (read,) = decode_change(encode_change([old], 0, 1, 0))
    assert isinstance(read, PartitionChanged)
    assert (read.lost, read.unclean_epoch, read.doubtful, read.reason) == ((), -1, ((3, 1, 2, 5),), "why")


@pytest.mark.parametrize(("leader_epoch", "used"), [(-1, False), (0, True)])
def test_a_partition_of_an_earlier_raylog_counts_as_used_once_it_was_led(leader_epoch: int, used: bool) -> None:
    old = PartitionChangedV2(b"t" * 16, 0, (1, 2), (), (), -1, leader_epoch, 9, (1,), (2,), (), (), -1, "why")
    (read,) = decode_change(encode_change([old], 0, 1, 0))
    assert isinstance(read, PartitionChanged)
    assert read.may_have_acknowledged == used


def test_a_replica_of_an_earlier_raylog_has_a_directory_that_is_not_known_again() -> None:
    old = ReplicaRegisteredV1(b"t" * 16, 0, 1, 7, ("unix:/r/1",), 1234, 0, 3, BLANK)
    (read,) = decode_change(encode_change([old], 0, 1, 0))
    assert read == ReplicaRegistered(b"t" * 16, 0, 1, 7, ("unix:/r/1",), 1234, 0, 3, BLANK, 0)
