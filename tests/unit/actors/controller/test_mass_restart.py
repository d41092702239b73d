"""All replicas are gone at once, or everything is: what comes up first, and who is believed alive meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from raylog.actors.cluster.election.leaderless import Prospects
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.cluster.topic_admin import NewTopic
from raylog.actors.controller.sessions import _portions
from raylog.actors.protocol.control_messages import ReplicaLoss
from raylog.actors.protocol.metadata_records import ReplicaRegistered
from raylog.actors.protocol.replica_spec import ReplicaSpec
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, ControlCluster

USERS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
MANY = 40
MORE = tuple((1 + number % 3, 1 + (number + 1) % 3, 1 + (number + 2) % 3) for number in range(6))


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(17, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.form()
        yield cluster


def kill_all(cluster: ControlCluster) -> None:
    for replica in list(cluster.replicas.values()):
        cluster.kill(replica)


@pytest.mark.parametrize("seed", range(17, 23))
def test_what_acknowledgements_wait_for_is_started_first(seed: int) -> None:
    with World(seed, settings=CALM) as world:
        cluster = ControlCluster(world, one_node=True)
        cluster.form()
        check_the_order(cluster)


def check_the_order(cluster: ControlCluster) -> None:
    cluster.create_topic("more", MORE)
    cluster.create_topic("clicks", USERS)
    for topic, minimum in (("more", 1), ("clicks", 2)):
        cluster.ask(cluster.admin.alter_topic_settings(topic, {"min.insync.replicas": minimum}))
    cluster.world.run_for(15.0)  # so that none of them counts as one that keeps dying
    before = len(cluster.stand_ins)
    kill_all(cluster)
    cluster.until(lambda: len(cluster.stand_ins) == before + 27)
    # Several are under way at once and overtake each other. Incarnations are in the order in which they were begun.
    order = sorted((stand_in.spec for stand_in in cluster.stand_ins[before:]), key=lambda spec: spec.incarnation)
    # A leader for each of the nine, and a second replica for the three of `clicks`, before all others.
    assert Counter(map(name, order[:12])) == dict.fromkeys(map(name, order), 1) | {
        f"clicks-{number}": 2 for number in range(3)
    }


def test_a_new_controller_calls_nobody_alive_who_has_not_registered_with_it(cluster: ControlCluster) -> None:
    cluster.create_topic(replicas=((1, 2, 3),))
    cluster.kill_controller()
    cluster.processes[3].kill()
    cluster.start_controller()
    cluster.until(cluster.serves)
    began = cluster.world.now
    assert 3 not in cluster.live_brokers()  # though it has a lease still: nobody knows yet that it is gone
    assert 3 in cluster.controller.reign.changes.live.brokers
    assert cluster.admin.unsettled() is None
    cluster.until(lambda: cluster.live_brokers() == {1, 2})
    cluster.until(lambda: cluster.admin.unsettled() == Prospects([], []))
    assert cluster.world.now - began > 1.0  # the lease of the third had to end


def test_a_broker_that_is_fenced_has_to_register_again_to_count(cluster: ControlCluster) -> None:
    cluster.processes[3].kill()
    cluster.until(lambda: cluster.live_brokers() == {1, 2})
    cluster.start_broker(3)
    cluster.until(lambda: cluster.live_brokers() == {1, 2, 3})


def test_a_shutdown_gives_up_what_is_only_being_started(cluster: ControlCluster) -> None:
    cluster.create_topic(replicas=((1, 2, 3),))
    cluster.until(cluster.has_spare_hosts)
    cluster.world.run_for(1.0)  # the controller hears of them with the next heartbeat
    before = len(cluster.launcher.started)
    cluster.launcher.hangs = True
    cluster.kill(cluster.replica(3))
    cluster.until(lambda: len(cluster.launcher.started) > before)
    cluster.ask(cluster.controller.shutdown(), 5.0)
    assert cluster.launcher.stopped == [cluster.launcher.started[before]]


def test_a_host_that_is_lost_and_comes_back_is_few_changes(cluster: ControlCluster) -> None:
    """Each change is a message to every broker, and an answer to every client that waits for news."""
    shared = NewTopic("many", assignment=((1, 2, 3),) * MANY, settings={"replica.host": "shared"})
    cluster.ask(cluster.admin.create_topic(shared))
    cluster.until(lambda: len(running(cluster, 1)) == len(running(cluster, 2)) == len(running(cluster, 3)) == MANY)
    cluster.world.run_for(5.0)
    before = running(cluster, 1)
    end = cluster.controller.reign.changes._writer.tail.end_offset
    cluster.kill(cluster.replica(1, "many"))
    cluster.until(lambda: len(running(cluster, 1)) == MANY and not running(cluster, 1).items() & before.items())
    changes = [each.records for each in cluster.controller.reign.changes._writer.tail.batches_from(end)]
    assert sum(isinstance(record, ReplicaRegistered) for records in changes for record in records) == MANY
    assert [len(records) for records in changes if "lost" in str(records)] == [MANY]
    assert len([records for records in changes if isinstance(records[0], ReplicaRegistered)]) <= MANY // 4


def test_no_partition_is_twice_in_one_change() -> None:
    """What is decided second has to see what was decided first."""
    lost = [ReplicaLoss(b"t" * 16, number, incarnation, "", False) for number, incarnation in ((0, 1), (1, 2), (0, 3))]
    assert list(_portions(lost)) == [lost[:2], lost[2:]]
    many = [ReplicaLoss(b"t" * 16, number, 1, "", False) for number in range(1_001)]
    assert [len(portion) for portion in _portions(many)] == [500, 500, 1]
    assert list(_portions(())) == []


def running(cluster: ControlCluster, broker_id: int) -> dict[ReplicaKey, int]:
    """Return the replicas that the controller knows to run there."""
    live = cluster.controller.reign.changes.live
    return {key: incarnation for key, incarnation in live.replicas.items() if key.broker_id == broker_id}


def name(spec: ReplicaSpec) -> str:
    return f"{spec.topic}-{spec.partition}"
