"""Producer ids for clients: each is handed out once, whatever becomes of brokers, controllers and answers (rule 18)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raylog.actors.cluster.producer_ids import BLOCK_SIZE
from raylog.actors.protocol.control_messages import AllocateProducerIds, ProducerIdsAllocated
from raylog.errors import ControllerNotReady, InvalidRequest
from tests.simulator.world.world import World
from tests.unit.actors.broker.test_broker import Client
from tests.unit.actors.control_cluster import CALM, ControlCluster


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(11, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.form()
        yield cluster


def ids_from(cluster: ControlCluster, broker_id: int, count: int = 1) -> range:
    answer = Client(cluster, broker_id).ask(AllocateProducerIds(count))
    assert isinstance(answer, ProducerIdsAllocated)
    return range(answer.first, answer.end)


def committed_blocks(cluster: ControlCluster) -> int:
    return cluster.state.next_producer_id // BLOCK_SIZE


def test_every_broker_hands_out_ids_of_a_block_of_its_own(cluster: ControlCluster) -> None:
    given = [ids_from(cluster, broker_id) for broker_id in (1, 2, 1, 3, 2)]
    assert [len(each) for each in given] == [1] * 5
    assert len({each[0] for each in given}) == 5
    assert committed_blocks(cluster) == 3


def test_a_block_that_is_used_up_is_followed_by_another(cluster: ControlCluster) -> None:
    given = [*ids_from(cluster, 1, BLOCK_SIZE - 1), *ids_from(cluster, 2), *ids_from(cluster, 1), *ids_from(cluster, 1)]
    assert len(set(given)) == len(given) == BLOCK_SIZE + 2
    assert committed_blocks(cluster) == 3


def test_many_who_find_it_empty_share_one_block(cluster: ControlCluster) -> None:
    clients = [Client(cluster, 1) for _ in range(5)]
    asking = [client.begin(AllocateProducerIds(1)) for client in clients]
    cluster.until(lambda: all(each.done() for each in asking))
    answers = [each.result() for each in asking]
    assert len({answer.first for answer in answers if isinstance(answer, ProducerIdsAllocated)}) == 5
    assert committed_blocks(cluster) == 1


def test_a_new_process_of_a_broker_does_not_go_on_with_the_block_of_the_old_one(cluster: ControlCluster) -> None:
    (first,) = ids_from(cluster, 1)
    cluster.processes[1].kill()
    del cluster.brokers[1]
    cluster.start_broker(1)
    cluster.until(lambda: 1 in cluster.brokers and cluster.brokers[1].is_caught_up)
    (second,) = ids_from(cluster, 1)
    assert second >= first + BLOCK_SIZE


def test_without_a_controller_a_block_lasts_and_then_there_are_no_more(cluster: ControlCluster) -> None:
    ids_from(cluster, 1)
    cluster.kill_controller()
    cluster.world.run_for(1.0)
    assert len(ids_from(cluster, 1, BLOCK_SIZE - 1)) == BLOCK_SIZE - 1
    with pytest.raises(ControllerNotReady):
        ids_from(cluster, 1)
    cluster.start_controller()
    cluster.until(cluster.serves)
    cluster.world.run_for(2.0)
    (first,) = ids_from(cluster, 1)
    assert first == BLOCK_SIZE


@pytest.mark.parametrize("count", [0, -1, BLOCK_SIZE + 1])
def test_nobody_gets_none_or_more_than_a_block_at_once(cluster: ControlCluster, count: int) -> None:
    with pytest.raises(InvalidRequest, match="1 to 1000"):
        ids_from(cluster, 1, count)
