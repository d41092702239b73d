"""Internal topics and their coordinators are there without being asked for; nothing waits for brokers that are not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raylog.actors.protocol.names import COORDINATED_TOPICS
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, ControlCluster
from tests.unit.actors.coordinator_stand_ins import COORDINATORS

_TOPICS = tuple(COORDINATED_TOPICS)


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(12, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.coordinated = _TOPICS
        yield cluster


def begin(cluster: ControlCluster) -> None:
    """Form it; its brokers have not registered yet."""
    for broker_id in (1, 2, 3):
        cluster.start_broker(broker_id)
    cluster.start_controller(form_on=(1, 2, 3))
    cluster.until(cluster.serves)


def replicas(cluster: ControlCluster, topic: str) -> list[tuple[int, ...]]:
    return [each.intended for each in cluster.state.partitions_of(cluster.state.topic(topic).id)]


def copies(cluster: ControlCluster) -> set[int]:
    return {cluster.admin.describe_topic(topic).replication_factor for topic in _TOPICS}


def all_serve(cluster: ControlCluster) -> bool:
    found = cluster.admin.describe_cluster().coordinators
    return len(found) == len(_TOPICS) * COORDINATORS and all(each.serving for each in found)


def test_a_new_cluster_has_them_with_a_copy_on_each_broker_and_a_process_beside_each(cluster: ControlCluster) -> None:
    cluster.form()
    assert cluster.until(lambda: all_serve(cluster)) < 2.0
    assert copies(cluster) == {3}
    assert sorted(host.spec.broker_id for host in cluster.coordinators.hosts) == [1, 2, 3]
    assert {each.broker for each in cluster.admin.describe_cluster().coordinators} == {1, 2, 3}


def test_before_they_are_created_their_coordinators_count_as_not_serving(cluster: ControlCluster) -> None:
    begin(cluster)
    found = cluster.admin.describe_cluster().coordinators
    assert [(each.topic, each.serving) for each in found] == [(topic, False) for topic in _TOPICS]
    assert "being created" in found[0].reason


def test_a_broker_that_never_comes_is_waited_for_only_for_a_while(cluster: ControlCluster) -> None:
    begin(cluster)
    cluster.processes[3].kill()
    assert 5.0 < cluster.until(lambda: cluster.state.has_topic(_TOPICS[0])) < 15.0
    assert copies(cluster) == {2}
    cluster.until(lambda: all_serve(cluster))


def test_a_cluster_that_lacks_them_gets_them_from_its_next_controller(cluster: ControlCluster) -> None:
    cluster.coordinated = ()
    cluster.form()
    cluster.world.run_for(3.0)
    assert not cluster.admin.list_topics(internal=True)
    cluster.kill_controller()
    cluster.coordinated = _TOPICS
    cluster.start_controller()
    cluster.until(lambda: cluster.serves() and all_serve(cluster))
    assert copies(cluster) == {3}


def test_they_are_created_once(cluster: ControlCluster) -> None:
    cluster.form()
    cluster.until(lambda: all_serve(cluster))
    before = [cluster.state.topic(topic).id for topic in _TOPICS]
    cluster.kill_controller()
    cluster.start_controller()
    cluster.until(cluster.serves)
    cluster.world.run_for(12.0)
    assert [cluster.state.topic(topic).id for topic in _TOPICS] == before


def test_when_brokers_join_a_cluster_of_one_they_get_copies(cluster: ControlCluster) -> None:
    cluster.start_broker(1)
    cluster.start_controller(form_on=(1,))
    cluster.until(lambda: cluster.serves() and all_serve(cluster))
    assert copies(cluster) == {1}
    cluster.start_broker(2)
    cluster.until(lambda: copies(cluster) == {2})
    cluster.start_broker(3)
    cluster.until(lambda: copies(cluster) == {3})
    assert all(each.serving for each in cluster.admin.describe_cluster().coordinators)


def test_a_broker_may_leave_though_no_other_can_take_its_copies_of_them() -> None:
    with World(12, settings=CALM) as world:
        cluster = ControlCluster(world, brokers=2)
        cluster.coordinated = _TOPICS
        cluster.form()
        cluster.until(lambda: all_serve(cluster))
        cluster.ask(cluster.admin.drain_broker(2, wait=False))
        assert {len(each.intended) for each in cluster.state.partitions.values()} == {1}


def test_a_broker_that_registers_takes_no_copies_away(cluster: ControlCluster) -> None:
    """Two brokers are there, and one partition has one copy. The others keep that of the broker that is away."""
    cluster.form()
    cluster.until(lambda: all_serve(cluster))
    topic = _TOPICS[0]
    others = replicas(cluster, topic)[1:]
    cluster.ask(cluster.admin.reassign({(topic, 0): (1,)}))
    cluster.until(lambda: len(replicas(cluster, topic)[0]) == 1)
    cluster.processes[3].kill()
    cluster.world.run_for(4.0)
    cluster.processes[2].kill()
    cluster.start_broker(2)
    cluster.until(lambda: set(replicas(cluster, topic)[0]) == {1, 2})
    assert replicas(cluster, topic)[1:] == others
