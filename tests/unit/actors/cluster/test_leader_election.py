"""Who leads: from the ISR, from the eligible, in doubt, uncleanly, or nobody (rules 6 and 7)."""

from __future__ import annotations

import pytest

from raylog.actors.cluster.election.leader_election import (
    ELIGIBLE,
    FIRST,
    IN_DOUBT,
    IN_SYNC,
    NOBODY,
    PREFERRED,
    UNCLEAN,
    UNCLEANLY,
    elect_leaders,
    may_have_lost_records,
)
from raylog.actors.cluster.topic_settings import alter_topic_settings
from raylog.actors.protocol.metadata_records import PartitionChanged
from raylog.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidConfig,
    PreferredLeaderNotAvailable,
    UnknownPartition,
    UnknownTopic,
)
from raylog.storage.directory.doubts import BLANK, REBOOTED
from tests.unit.actors.small_cluster import SmallCluster, reasons

# --- the first leader ---------------------------------------------------------------------------------------------


def test_a_new_partition_is_led_once_all_its_replicas_have_registered() -> None:
    cluster = SmallCluster()
    created = cluster.create("t", [2, 1, 3], start=False)
    assert (created.leader, created.leader_epoch, created.isr) == (-1, -1, (2, 1, 3))
    assert not reasons(cluster.start_replica("t", 2, unproven=BLANK))
    assert not reasons(cluster.start_replica("t", 1, unproven=BLANK))
    assert reasons(cluster.start_replica("t", 3, unproven=BLANK)) == [f"replica on broker 3 registered; {FIRST}"]
    assert cluster.partition("t").leader == 2
    assert cluster.partition("t").leader_epoch == 0
    assert cluster.partition("t").isr == (2, 1, 3)


def test_a_new_partition_does_not_wait_for_a_broker_that_is_gone() -> None:
    cluster = SmallCluster()
    cluster.create("t", [2, 1, 3], start=False)
    cluster.start_replica("t", 1, unproven=BLANK)
    cluster.start_replica("t", 3, unproven=BLANK)
    cluster.lose_broker(2)
    after = cluster.partition("t")
    assert (after.leader, after.leader_epoch, after.isr) == (1, 0, (1, 3))


def test_a_new_partition_begins_with_those_there_are_when_it_has_waited_long_enough() -> None:
    cluster = SmallCluster()
    cluster.create("t", [2, 1, 3], start=False)
    assert cluster.elect("t", waited=True).never_led
    cluster.start_replica("t", 3, unproven=BLANK)
    assert cluster.elect("t").never_led
    after = cluster.elect("t", waited=True)
    assert (after.leader, after.isr, after.elr) == (3, (3,), (2, 1))
    cluster.start_replica("t", 1, unproven=BLANK)
    assert cluster.partition("t").elr == (2,)  # a blank one is not eligible now that records may have been written


def test_blank_replicas_of_a_new_partition_may_come_and_go() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], start=False)
    cluster.start_replica("t", 1, unproven=BLANK)
    cluster.lose_replica("t", 1)
    cluster.start_replica("t", 1, unproven=BLANK)
    cluster.start_replica("t", 2, unproven=BLANK)
    assert cluster.partition("t").isr == (1, 2)


# --- clean elections ----------------------------------------------------------------------------------------------


def test_the_first_replica_in_sync_follows_a_leader_that_died_and_the_dead_leave_the_isr() -> None:
    cluster = SmallCluster()
    before = cluster.create("t", [1, 2, 3])
    records = cluster.lose_broker(1)
    after = cluster.partition("t")
    assert reasons(records) == [f"broker 1 fenced; {IN_SYNC}"]
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2, 3), before.leader_epoch + 1)
    assert after.partition_epoch == before.partition_epoch + 1


def test_brokers_whose_leases_end_together_are_not_elected_after_each_other() -> None:
    cluster = SmallCluster()
    before = cluster.create("t", [1, 2, 3])
    cluster.lose_broker(1, 2)
    after = cluster.partition("t")
    assert (after.leader, after.isr, after.leader_epoch) == (3, (3,), before.leader_epoch + 1)


def test_without_anybody_alive_the_isr_stays_and_whoever_of_it_returns_first_leads() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 1})
    records = cluster.lose_broker(1, 2)
    assert reasons(records) == [f"broker 1 fenced; {NOBODY}"]
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (-1, (1, 2))
    cluster.start_broker(2)
    cluster.return_replica("t", 2)
    after = cluster.partition("t")
    assert (after.leader, after.isr, after.elr, after.leader_epoch) == (2, (2,), (), 2)


def test_losing_the_leader_without_another_raises_the_epoch_once() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1])
    cluster.lose_replica("t", 1)
    lost = cluster.partition("t")
    assert (lost.leader, lost.leader_epoch, lost.isr) == (-1, 1, (1,))
    assert cluster.elect("t") == lost
    cluster.start_replica("t", 1)
    assert cluster.partition("t").leader == 1
    assert cluster.partition("t").leader_epoch == 2


def test_an_eligible_leaver_leads_where_the_last_member_is_gone() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 2})
    cluster.lose_replica("t", 2)
    assert (cluster.partition("t").isr, cluster.partition("t").elr) == ((1,), (2,))
    cluster.start_replica("t", 2, log=(0, 5))
    records = cluster.lose_broker(1)
    after = cluster.partition("t")
    assert reasons(records) == [f"broker 1 fenced; {ELIGIBLE}"]
    assert (after.leader, after.isr, after.elr) == (2, (2,), (1,))


def test_a_leaver_that_is_not_eligible_does_not_lead() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 1})
    cluster.propose("t", 1)
    cluster.lose_broker(1)
    after = cluster.partition("t")
    assert (after.leader, after.isr, after.elr) == (-1, (1,), ())


# --- in doubt -----------------------------------------------------------------------------------------------------


def test_after_a_power_cut_of_all_the_largest_log_leads_once_all_last_members_have_reported() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3], settings={"min.insync.replicas": 2})
    cluster.lose_broker(1, 2, 3)
    for broker in (1, 2, 3):
        cluster.start_broker(broker, run="second")
    assert cluster.partition("t").isr == (1, 2, 3)
    cluster.start_replica("t", 1, log=(0, 10), unproven=REBOOTED)
    cluster.start_replica("t", 2, log=(0, 30), unproven=REBOOTED)
    waiting = cluster.partition("t")
    assert (waiting.leader, waiting.isr, waiting.doubtful_brokers) == (-1, (3,), (1, 2))
    records = cluster.start_replica("t", 3, log=(0, 20), unproven=REBOOTED)
    after = cluster.partition("t")
    assert (after.leader, after.isr, after.elr, after.doubtful) == (2, (2,), (), ())
    assert [may_have_lost_records(r) for r in records if isinstance(r, PartitionChanged)] == [True]
    assert reasons(records)[0].endswith(IN_DOUBT)


def test_one_proven_last_member_ends_the_doubt_cleanly() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 2})
    cluster.lose_broker(1, 2)
    cluster.start_broker(1)
    cluster.start_broker(2)
    cluster.start_replica("t", 1, log=(0, 99), unproven=REBOOTED)
    records = cluster.start_replica("t", 2, log=(0, 20))
    after = cluster.partition("t")
    assert (after.leader, after.isr, after.doubtful) == (2, (2,), ())
    assert reasons(records)[0].endswith(IN_SYNC)


def test_a_rebooted_laptop_with_one_replica_goes_on() -> None:
    cluster = SmallCluster(1)
    cluster.create("t", [1])
    cluster.lose_broker(1)
    cluster.start_broker(1, run="second")
    records = cluster.start_replica("t", 1, log=(0, 7), unproven=REBOOTED)
    assert reasons(records)[0].endswith(IN_DOUBT)
    assert cluster.partition("t").leader == 1


def test_in_doubt_a_larger_log_of_one_that_had_left_is_preferred() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 1})
    cluster.lose_replica("t", 2)
    cluster.start_replica("t", 2, log=(0, 40))
    cluster.tell("t", 2, 0, 40)
    cluster.lose_broker(1)
    assert cluster.partition("t").isr == (1,)
    cluster.start_broker(1, run="second")
    cluster.start_replica("t", 1, log=(0, 30), unproven=REBOOTED)
    assert cluster.partition("t").leader == 2


def one_that_had_left_and_the_rebooted_last_member() -> SmallCluster:
    """Broker 2 has fetched since it registered, and is not in sync. Broker 1 has lost the end of its log."""
    cluster = SmallCluster()
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 1})
    cluster.lose_replica("t", 2)
    cluster.start_replica("t", 2, log=(0, 10))
    cluster.lose_broker(1)
    cluster.start_broker(1, run="second")
    return cluster


def test_in_doubt_it_counts_how_far_a_replica_is_now_and_not_at_its_start() -> None:
    cluster = one_that_had_left_and_the_rebooted_last_member()
    cluster.tell("t", 2, 0, 90)
    cluster.start_replica("t", 1, log=(0, 30), unproven=REBOOTED)
    assert cluster.partition("t").leader == 2


def test_in_doubt_a_log_that_was_cut_since_its_start_counts_as_it_is_now() -> None:
    cluster = one_that_had_left_and_the_rebooted_last_member()
    cluster.tell("t", 2, 0, 5)
    cluster.start_replica("t", 1, log=(0, 7), unproven=REBOOTED)
    assert cluster.partition("t").leader == 1


def test_in_doubt_a_replica_that_has_not_told_how_far_it_is_is_waited_for() -> None:
    cluster = one_that_had_left_and_the_rebooted_last_member()
    cluster.start_replica("t", 1, log=(0, 30), unproven=REBOOTED)
    assert cluster.elect("t").leader == -1
    cluster.tell("t", 2, 0, 90)
    assert cluster.elect("t").leader == 2


def test_in_doubt_marks_of_an_earlier_process_say_nothing() -> None:
    cluster = one_that_had_left_and_the_rebooted_last_member()
    cluster.tell("t", 2, 0, 90)
    cluster.lose_replica("t", 2)
    cluster.start_replica("t", 2, log=(0, 20))
    cluster.start_replica("t", 1, log=(0, 30), unproven=REBOOTED)
    assert cluster.elect("t").leader == -1
    assert cluster.elect("t", waited=True).leader == 1


def test_a_doubtful_replica_stays_doubtful_when_its_process_starts_again() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 2})
    cluster.lose_broker(1, 2)
    cluster.start_broker(1)
    cluster.start_replica("t", 1, log=(0, 9), unproven=REBOOTED)
    cluster.lose_replica("t", 1)
    cluster.start_replica("t", 1, log=(0, 9))  # it has forgotten by now
    waiting = cluster.partition("t")
    assert waiting.leader == -1
    assert waiting.doubtful == ((1, cluster.incarnations, 0, 9),)


# --- unclean ------------------------------------------------------------------------------------------------------


def test_an_unclean_leader_where_the_topic_allows_it() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 1, "unclean.leader.election.enable": "true"})
    cluster.propose("t", 1)
    records = cluster.lose_broker(1)
    after = cluster.partition("t")
    assert reasons(records)[0].endswith(UNCLEANLY)
    assert (after.leader, after.isr, after.elr) == (2, (2,), ())


def test_after_an_unclean_election_nobody_else_is_eligible() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3], settings={"min.insync.replicas": 2, "unclean.leader.election.enable": "true"})
    cluster.propose("t", 1, 2)
    cluster.lose_replica("t", 2)
    assert cluster.partition("t").elr == (2,)
    cluster.lose_broker(1)
    after = cluster.partition("t")
    assert (after.leader, after.isr, after.elr) == (3, (3,), ())


def test_the_setting_takes_effect_at_once_and_never_elects_an_unproven_replica() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3], settings={"min.insync.replicas": 1})
    cluster.lose_replica("t", 2)
    cluster.start_replica("t", 2, log=(0, 9), unproven=REBOOTED)
    cluster.propose("t", 1)
    cluster.lose_broker(1)
    assert cluster.partition("t").leader == -1
    change = {"unclean.leader.election.enable": True}
    cluster.apply(alter_topic_settings(cluster.state, cluster.live, "t", change))
    assert cluster.partition("t").leader == 3


# --- on demand ----------------------------------------------------------------------------------------------------


def test_the_preferred_leader_leads_again() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3], [2, 3, 1])
    cluster.lose_broker(1)
    cluster.start_broker(1)
    cluster.return_replica("t", 1)
    refused = elect_leaders(cluster.state, cluster.live, PREFERRED, [("t", 0), ("t", 1)]).refused
    assert isinstance(refused["t", 0], PreferredLeaderNotAvailable)
    assert isinstance(refused["t", 1], ElectionNotNeeded)
    cluster.propose("t", 1, 2, 3)
    elections = elect_leaders(cluster.state, cluster.live, PREFERRED)
    assert not elections.refused
    epoch = cluster.partition("t").leader_epoch
    cluster.apply(elections.records)
    assert cluster.partition("t").leader == 1
    assert cluster.partition("t").leader_epoch == epoch + 1


def test_one_bad_name_stops_no_other_election() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    cluster.lose_broker(1)
    cluster.start_broker(1)
    cluster.return_replica("t", 1)
    cluster.propose("t", 1, 2)
    elections = elect_leaders(cluster.state, cluster.live, PREFERRED, [("u", 0), ("t", 7), ("t", 0)])
    assert isinstance(elections.refused["u", 0], UnknownTopic)
    assert isinstance(elections.refused["t", 7], UnknownPartition)
    assert len(elections.records) == 1


def test_a_person_may_elect_at_any_price() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3], settings={"min.insync.replicas": 1})
    cluster.lose_replica("t", 2)
    cluster.lose_replica("t", 3)
    refused = elect_leaders(cluster.state, cluster.live, UNCLEAN, [("t", 0)]).refused
    assert isinstance(refused["t", 0], ElectionNotNeeded)
    cluster.lose_broker(1)
    refused = elect_leaders(cluster.state, cluster.live, UNCLEAN).refused
    assert isinstance(refused["t", 0], EligibleLeadersNotAvailable)
    cluster.start_replica("t", 2, log=(0, 4), unproven=REBOOTED)
    cluster.start_replica("t", 3, log=(0, 8), unproven=REBOOTED)
    assert cluster.partition("t").leader == -1
    cluster.apply(elect_leaders(cluster.state, cluster.live, UNCLEAN).records)
    assert cluster.partition("t").leader == 3
    cluster.start_broker(1)
    cluster.return_replica("t", 1)
    assert cluster.partition("t").leader == 3


def test_an_unclean_election_is_clean_where_it_can_be() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], start=False)
    cluster.start_replica("t", 2, unproven=BLANK)
    cluster.apply(elect_leaders(cluster.state, cluster.live, UNCLEAN).records)
    assert cluster.partition("t").leader == 2


def test_other_kinds_of_election_do_not_exist() -> None:
    with pytest.raises(InvalidConfig):
        elect_leaders(SmallCluster().state, SmallCluster().live, "fair")
