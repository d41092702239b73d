"""Copies as a controller shows them, and a person's choice among them, carried out by real brokers (rule 7)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raylog.actors.cluster.copies import CopyDescription
from raylog.actors.cluster.state import ReplicaKey
from raylog.errors import (
    BrokerNotAvailable,
    ElectionNotNeeded,
    LossNotAccepted,
    SetAsideUnknown,
    SetAsideUnusable,
    UnknownBroker,
    UnknownPartition,
)
from raylog.storage.directory.doubts import BLANK, RESTORED
from raylog.storage.directory.partition_directory import QUARANTINE_FILE, PartitionIdentity
from raylog.storage.disk.checkpoints import write_checkpoint
from raylog.storage.log.partition_log import PartitionLog
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, CLUSTER_ID, DIRECTORY, ControlCluster
from tests.unit.storage.small_log import NOW_MS, append

ASIDE = "clicks-0@set-aside-5-unclean-1"
DAMAGED = "clicks-0@set-aside-6-damaged"


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(11, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.form()
        cluster.create_topic()
        yield cluster


def put_aside(cluster: ControlCluster, broker: int, records: int = 7, name: str = ASIDE) -> None:
    """A log of the topic, under a name that says that it was set aside."""
    disk = cluster.machines[broker].disk.new_process()
    identity = PartitionIdentity(CLUSTER_ID, "clicks", cluster.state.topic("clicks").id.hex(), 0)
    log = PartitionLog.open(f"{DIRECTORY}/{name}", identity, now_ms=NOW_MS, disk=disk)
    log.begin_epoch(0)
    for _ in range(records):
        append(log)
    log.close()


def copies(cluster: ControlCluster) -> tuple[CopyDescription, ...]:
    return cluster.ask(cluster.admin.describe_copies("clicks", 0)).copies


def lose_all(cluster: ControlCluster) -> None:
    """All replicas come back without their logs."""
    for broker in (1, 2, 3):
        cluster.unproven[ReplicaKey(cluster.state.topic("clicks").id, 0, broker)] = BLANK
    for broker in (1, 2, 3):
        cluster.kill(cluster.replica(broker))
    running = cluster.controller.reign.changes.live.replicas
    cluster.until(lambda: cluster.partition().waits_for_a_person and len(running) == 3)


def test_copies_are_those_of_replicas_and_what_was_set_aside(cluster: ControlCluster) -> None:
    put_aside(cluster, 2)
    found = copies(cluster)
    assert [(each.broker, each.state, each.name) for each in found] == [
        (1, "leader", ""), (2, "live", ""), (3, "live", ""), (2, "set aside", ASIDE),
    ]  # fmt: skip
    assert [each.log_end_offset for each in found] == [0, 0, 0, 7]
    assert [each.missing for each in found] == [7, 7, 7, 0]
    error = cluster.refusal(cluster.admin.describe_copies("clicks", 5))
    assert isinstance(error, UnknownPartition)


def test_brokers_that_do_not_answer_are_named(cluster: ControlCluster) -> None:
    put_aside(cluster, 2)
    cluster.processes[3].kill()
    cluster.until(lambda: 3 not in cluster.live_brokers())
    told = cluster.ask(cluster.admin.describe_copies("clicks", 0))
    assert told.unreachable == (3,)
    assert [each.state for each in told.copies] == ["leader", "live", "down", "set aside"]
    listing = cluster.ask(cluster.admin.list_set_aside())
    assert ([each.name for each in listing.logs], listing.unreachable) == ([ASIDE], (3,))


def test_a_person_chooses_where_nobody_leads(cluster: ControlCluster) -> None:
    lose_all(cluster)
    assert "raylog topic recover clicks -p 0" in cluster.admin.describe_topic("clicks").partitions[0].waits
    assert [each.topic for each in cluster.admin.describe_cluster().waiting] == ["clicks"]
    refused = cluster.refusal(cluster.admin.recover_partition("clicks", 0, 2))
    assert isinstance(refused, LossNotAccepted)
    after = cluster.ask(cluster.admin.recover_partition("clicks", 0, 2, accept_loss=True))
    assert (after.leader, after.waits, cluster.partition().isr) == (2, "", (2,))
    assert cluster.partition().unclean_epoch == cluster.partition().leader_epoch
    assert cluster.admin.describe_cluster().waiting == ()


def test_a_copy_in_sync_leads_without_a_loss_to_be_accepted(cluster: ControlCluster) -> None:
    assert cluster.ask(cluster.admin.recover_partition("clicks", 0, 3)).leader == 3
    assert isinstance(cluster.refusal(cluster.admin.recover_partition("clicks", 0, 3)), ElectionNotNeeded)
    assert isinstance(cluster.refusal(cluster.admin.recover_partition("clicks", 0, 9)), UnknownBroker)


def test_a_copy_that_was_set_aside_is_restored_and_leads(cluster: ControlCluster) -> None:
    put_aside(cluster, 2)
    cluster.unproven[ReplicaKey(cluster.state.topic("clicks").id, 0, 2)] = RESTORED
    restore = cluster.admin.recover_partition("clicks", 0, 2, aside=ASIDE)
    assert isinstance(cluster.refusal(restore), LossNotAccepted)
    after = cluster.ask(cluster.admin.recover_partition("clicks", 0, 2, aside=ASIDE, accept_loss=True))
    assert (after.leader, cluster.partition().isr) == (2, (2,))
    assert [each.why for each in after.copies if each.name] == ["replaced"]
    files = cluster.machines[2].disk.files()
    assert f"{DIRECTORY}/clicks-0/{0:020d}.log" in files


def test_the_sound_part_of_a_damaged_log_is_restored_and_that_log_stays(cluster: ControlCluster) -> None:
    put_aside(cluster, 2, name=DAMAGED)
    disk, damaged = cluster.machines[2].disk, f"{DIRECTORY}/{DAMAGED}"
    segment = f"{damaged}/{0:020d}.log"
    disk.flip_bit(segment, 8 * (disk.files()[segment] - 3))
    reason = {"path": segment, "position": 0, "reason": "a bit flipped"}
    write_checkpoint(disk, f"{damaged}/{QUARANTINE_FILE}", 1, reason)
    cluster.unproven[ReplicaKey(cluster.state.topic("clicks").id, 0, 2)] = RESTORED
    restore = cluster.admin.recover_partition("clicks", 0, 2, aside=DAMAGED)
    refused = cluster.refusal(restore)
    assert isinstance(refused, LossNotAccepted)
    assert "what it has itself behind its damage at offset 6" in refused.describe()
    after = cluster.ask(cluster.admin.recover_partition("clicks", 0, 2, aside=DAMAGED, accept_loss=True))
    assert (after.leader, cluster.partition().isr) == (2, (2,))
    assert [(each.state, each.log_end_offset) for each in after.copies if each.name] == [
        ("set aside", -1), ("damaged", 6),
    ]  # fmt: skip
    files = disk.files()
    assert files[f"{DIRECTORY}/clicks-0/{0:020d}.log"] < files[segment]


def test_what_cannot_be_restored_leaves_everything_as_it_is(cluster: ControlCluster) -> None:
    put_aside(cluster, 2)
    before = cluster.partition()
    for broker, name in ((3, ASIDE), (2, "clicks-0@set-aside-6-damaged")):
        refused = cluster.refusal(cluster.admin.recover_partition("clicks", 0, broker, aside=name, accept_loss=True))
        assert isinstance(refused, SetAsideUnknown)
    cluster.machines[2].disk.write_file(f"{DIRECTORY}/{ASIDE}/{QUARANTINE_FILE}", b"damaged")
    refused = cluster.refusal(cluster.admin.recover_partition("clicks", 0, 2, aside=ASIDE, accept_loss=True))
    assert isinstance(refused, SetAsideUnusable)
    assert cluster.partition() == before


def test_where_the_restored_copy_does_not_come_up_the_others_lead_again(cluster: ControlCluster) -> None:
    put_aside(cluster, 3)
    cluster.launcher.refuses = True
    restore = cluster.admin.recover_partition("clicks", 0, 3, aside=ASIDE, accept_loss=True, timeout=4.0)
    assert isinstance(cluster.refusal(restore), BrokerNotAvailable)
    cluster.until(lambda: cluster.partition().leader == 1)
    assert cluster.partition().isr == (1, 2)


def test_what_is_not_needed_any_more_is_dropped(cluster: ControlCluster) -> None:
    put_aside(cluster, 2)
    put_aside(cluster, 3)
    assert isinstance(cluster.refusal(cluster.admin.drop_set_aside(ASIDE)), SetAsideUnusable)
    assert cluster.ask(cluster.admin.drop_set_aside(ASIDE, broker=2)) == 2
    assert cluster.ask(cluster.admin.drop_set_aside(ASIDE)) == 3
    assert isinstance(cluster.refusal(cluster.admin.drop_set_aside(ASIDE)), SetAsideUnknown)
    for broker in (2, 3):
        assert not [path for path in cluster.machines[broker].disk.files() if "@" in path]


