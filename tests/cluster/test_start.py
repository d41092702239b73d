"""Starting, finding, stopping and starting again, on one node: what DESIGN promises of `raylog.start`."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import ray

import raylog
from raylog.actors.on_ray.directory_holder import holder_of
from raylog.actors.protocol.actor_names import CONTROLLER, namespace
from raylog.actors.protocol.names import COORDINATED_TOPICS
from raylog.api.admin.cluster_shutdown import actor_names
from raylog.errors import (
    BrokersLeftOut,
    ClusterNotFound,
    DirectoryBlank,
    InvalidReplicationFactor,
    OffsetOutOfRange,
    TopicExists,
    UnknownConfig,
    UnknownTopic,
    WrongCluster,
)
from raylog.storage.directory.data_directory import BrokerIdentity, Claim, DataDirectory
from tests.cluster.conftest import until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("process_ray")]


def all_in_sync(cluster: raylog.Cluster, topic: str) -> bool:
    return all(each.in_sync and each.role != "offline" for each in cluster.describe_replicas(topic))


def test_a_cluster_is_formed_found_stopped_and_restored(tmp_path: Path) -> None:
    name = "whole-life"
    cluster = raylog.start(tmp_path, cluster=name)
    topic = cluster.create_topic("clicks", partitions=2, config={"retention.ms": "1000"})
    assert [each.leader for each in topic.partitions] == [0, 0]
    assert cluster.describe_topic_config("clicks")["retention.ms"] == 1000

    found = raylog.connect(name)
    assert found.cluster_id == cluster.cluster_id
    assert found.list_topics() == ("clicks",)
    with pytest.raises(TopicExists):
        found.create_topic("clicks")
    with pytest.raises(InvalidReplicationFactor):
        found.create_topic("wide", replication_factor=3)

    cluster.shutdown()
    assert actor_names(name) == []
    assert (tmp_path / "broker-0" / "clicks-0" / "clean-shutdown").exists()
    with pytest.raises(ClusterNotFound):
        raylog.connect(name)

    again = raylog.start(tmp_path, cluster=name)
    assert again.cluster_id == cluster.cluster_id
    until(lambda: all_in_sync(again, "clicks"))
    until(lambda: again.describe_topic("clicks").partitions[1].log_end_offset == 0)
    again.delete_topic("clicks")
    with pytest.raises(UnknownTopic):
        again.describe_topic("clicks")
    again.shutdown()


def test_three_brokers_on_one_node_and_more_of_them_later(tmp_path: Path) -> None:
    cluster = raylog.start(tmp_path, brokers=3, cluster="three")
    cluster.create_topic("clicks", replication_factor=3)
    until(lambda: all_in_sync(cluster, "clicks"))
    assert len(cluster.describe_topic("clicks").partitions[0].replicas) == 3
    with pytest.raises(BrokersLeftOut, match="3 brokers, and 2"):
        raylog.start(tmp_path, brokers=2, cluster="three")
    same = raylog.start(tmp_path, brokers=4, cluster="three")
    assert same.cluster_id == cluster.cluster_id
    assert [each.broker for each in same.describe_cluster().brokers if each.alive] == [0, 1, 2, 3]
    cluster.shutdown()


def test_two_clusters_live_side_by_side(tmp_path: Path) -> None:
    one, two = (raylog.start(tmp_path / name, cluster=name) for name in ("one", "two"))
    one.create_topic("clicks")
    assert one.cluster_id != two.cluster_id
    assert two.list_topics() == ()
    with pytest.raises(WrongCluster):
        raylog.start(tmp_path / "one", cluster="two")
    one.shutdown()
    assert two.list_topics() == ()
    assert two.describe_cluster().topics == len(COORDINATED_TOPICS)
    two.shutdown()


def test_the_process_of_a_replica_is_small_and_not_put_behind_others(tmp_path: Path) -> None:
    cluster = raylog.start(tmp_path, cluster="small")
    cluster.create_topic("clicks")
    process = Path(f"/proc/{cluster.describe_replicas('clicks')[0].pid}")
    maps = (process / "maps").read_text()
    assert "_raylet.so" in maps
    assert not [name for name in ("numpy", "pandas", "pyarrow") if f"/{name}/" in maps]
    private = [line.split() for line in (process / "smaps_rollup").read_text().splitlines() if "Private" in line]
    assert sum(int(fields[1]) for fields in private) <= 60 * 1024
    assert (process / "oom_score_adj").read_text() == "500\n"
    assert {os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in (process / "task").iterdir()} == {0}
    cluster.shutdown()


def test_administration(tmp_path: Path) -> None:
    cluster = raylog.start(tmp_path, brokers=2, cluster="administered")
    cluster.create_topic("clicks", partitions=1, replication_factor=1)
    assert len(cluster.create_partitions("clicks", 2).partitions) == 2
    cluster.alter_topic_config("clicks", {"retention.ms": 5000})
    cluster.alter_topic_config("clicks", {"segment.bytes": 4096, "retention.ms": None})
    config = cluster.describe_topic_config("clicks")
    assert config["segment.bytes"] == 4096
    assert config["retention.ms"] == 7 * 24 * 3600 * 1000
    with pytest.raises(UnknownConfig, match=r"Did you mean 'retention\.ms'"):
        cluster.alter_topic_config("clicks", {"retention.millis": 1})
    with pytest.raises(UnknownTopic):
        cluster.delete_records({("nothing", 0): 5})
    with pytest.raises(OffsetOutOfRange):
        cluster.delete_records({("clicks", 0): 5})
    assert cluster.delete_records({("clicks", 0): 0, ("clicks", 1): -1}) == {("clicks", 0): 0, ("clicks", 1): 0}

    cluster.change_replication_factor("clicks", 2)
    until(lambda: cluster.list_reassignments() == () and all_in_sync(cluster, "clicks"))
    assert cluster.elect_leaders("preferred", [("clicks", 0)]).keys() <= {("clicks", 0)}
    cluster.change_replication_factor("clicks", 1)
    until(lambda: cluster.list_reassignments() == ())
    cluster.drain_broker(1)
    cluster.remove_broker(1)
    assert [each.broker for each in cluster.describe_cluster().brokers] == [0]
    assert {each.leader for each in cluster.describe_topic("clicks").partitions} == {0}
    cluster.shutdown()


def test_a_start_that_may_not_form_a_cluster_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ClusterNotFound, match="blank"):
        raylog.start(tmp_path / "data", cluster="never", form=False)
    assert actor_names("never") == []
    assert not (tmp_path / "data").exists()


def pid_of_broker(directory: Path) -> int:
    """Return the process that holds the broker's lock."""
    holder = holder_of(str(directory))
    assert holder is not None
    return holder.pid


def test_killed_processes_are_replaced(tmp_path: Path) -> None:
    name = "killed"
    cluster = raylog.start(tmp_path, cluster=name)
    cluster.create_topic("clicks")
    epoch = cluster.describe_cluster().controller_epoch
    os.kill(pid_of_broker(tmp_path / "broker-0"), signal.SIGKILL)
    ray.kill(ray.get_actor(CONTROLLER, namespace=namespace(name)), no_restart=False)
    until(lambda: cluster.describe_cluster().controller_epoch > epoch)
    until(lambda: all_in_sync(cluster, "clicks") and cluster.describe_cluster().brokers[0].alive)
    cluster.create_topic("more")
    cluster.shutdown()


def test_a_broker_that_hangs_is_replaced(tmp_path: Path) -> None:
    cluster = raylog.start(tmp_path, brokers=3, cluster="hanging")
    cluster.create_topic("clicks", replication_factor=3)
    until(lambda: all_in_sync(cluster, "clicks"))
    stopped = pid_of_broker(tmp_path / "broker-2")
    os.kill(stopped, signal.SIGSTOP)
    until(lambda: not cluster.describe_cluster().brokers[2].alive)
    until(lambda: cluster.describe_cluster().brokers[2].alive and all_in_sync(cluster, "clicks"))
    assert pid_of_broker(tmp_path / "broker-2") != stopped
    cluster.shutdown()


def test_a_formation_that_was_interrupted_is_completed_by_a_later_start(tmp_path: Path) -> None:
    claimed = DataDirectory.open(
        f"{tmp_path}/broker-1", BrokerIdentity("begun", 1), claim=Claim("drawn", first_voters=(0, 1, 2))
    )
    claimed.close()
    cluster = raylog.start(tmp_path, brokers=3, cluster="interrupted")
    assert cluster.cluster_id == "begun"
    directories = {each.broker: Path(each.directory).name for each in cluster.describe_cluster().brokers}
    assert directories == {0: "broker-0", 1: "broker-1", 2: "broker-2"}
    assert cluster.describe_cluster().voters == (0, 1, 2)
    cluster.shutdown()


def test_a_broker_runs_in_no_blank_directory_once_it_had_one_with_data(tmp_path: Path) -> None:
    cluster = raylog.start(tmp_path, brokers=2, cluster="unmounted")
    directory = tmp_path / "broker-1"
    victim = pid_of_broker(directory)
    directory.rename(tmp_path / "aside")
    os.kill(victim, signal.SIGKILL)
    until(lambda: [each.alive for each in cluster.describe_cluster().brokers] == [True, False])
    time.sleep(3.0)  # several attempts to start it
    assert not directory.exists()
    with pytest.raises(DirectoryBlank):
        raylog.start(tmp_path, brokers=2, cluster="unmounted", timeout=20)
    (tmp_path / "aside").rename(directory)
    until(lambda: [each.alive for each in cluster.describe_cluster().brokers] == [True, True])
    cluster.shutdown()
