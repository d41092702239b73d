"""Transactions on a real cluster: what readers see, a fenced producer, coordinators that are killed."""

from __future__ import annotations

import time
from typing import Literal, TypeAlias

import pytest

import raylog
from raylog.api.admin.cluster import Cluster
from raylog.api.families.family_member import FamilyMember
from raylog.api.families.transaction_family import TransactionFamily
from raylog.errors import FamilyFenced, ProducerFenced
from tests.cluster.clients.conftest import kill_coordinators

pytestmark = pytest.mark.cluster
_TOPIC = "accounts"
_Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]


def read(cluster: Cluster, isolation: _Isolation, count: int, topic: str = _TOPIC) -> list[bytes]:
    """Values, sorted, once there are so many and no more come."""
    found: list[bytes] = []
    with raylog.Consumer(topic, cluster=cluster, auto_offset_reset="earliest", isolation_level=isolation) as consumer:
        until = time.monotonic() + 20
        while len(found) < count and time.monotonic() < until:
            for records in consumer.poll(timeout_ms=500).values():
                found += [each.value or b"" for each in records]
        for records in consumer.poll(timeout_ms=500).values():
            found += [each.value or b"" for each in records]
    return sorted(found)


def write(producer: raylog.Producer, name: str) -> list[bytes]:
    """Write into all partitions, in the open transaction."""
    values = [f"{name} {partition}".encode() for partition in range(3)]
    for partition, value in enumerate(values):
        producer.send(_TOPIC, value, partition=partition)
    return values


@pytest.mark.timeout(120)
def test_readers_see_whole_transactions(cluster: Cluster) -> None:
    cluster.create_topic(_TOPIC, partitions=3, replication_factor=3)
    committed: list[bytes] = []
    written: list[bytes] = []
    with raylog.Producer(cluster=cluster, transactional_id="transfers") as producer:
        producer.init_transactions()
        for number in range(4):
            with producer.transaction():
                committed += write(producer, f"committed {number}")
            producer.begin_transaction()
            written += write(producer, f"aborted {number}")
            producer.flush(20)
            producer.abort_transaction()
        with producer.transaction():
            committed += write(producer, "while its coordinator is killed")
            kill_coordinators()
        producer.begin_transaction()
        written += write(producer, "open")
        producer.flush(20)
        told = cluster.describe_transaction("transfers")
        assert (told.state, told.partitions) == ("Ongoing", tuple((_TOPIC, each) for each in range(3)))
        assert "transfers" in {each.transactional_id for each in cluster.list_transactions()}
        assert cluster.find_hanging_transactions(topics=[_TOPIC]) == ()
        with raylog.Producer(cluster=cluster, transactional_id="transfers") as second:
            second.init_transactions()
            with second.transaction():
                committed += write(second, "of the second")
            with pytest.raises(ProducerFenced) as raised:
                producer.commit_transaction()
            assert raised.value.fatal
    assert read(cluster, "read_committed", len(committed)) == sorted(committed)
    everything = committed + written
    assert read(cluster, "read_uncommitted", len(everything)) == sorted(everything)


@pytest.mark.timeout(120)
def test_the_driver_of_a_family_says_which_members_count(cluster: Cluster) -> None:
    cluster.create_topic("counts", partitions=3, replication_factor=3)
    with (
        TransactionFamily("job", cluster=cluster, timeout_ms=2000) as older,
        FamilyMember(older.ticket, cluster=cluster.access()) as left,
    ):
        left.send("counts", b"left behind").result(20)
        with TransactionFamily("job", cluster=cluster) as family:
            committed = [write_part(cluster, family, batch) for batch in range(3)]
            kill_coordinators()
            committed.append(write_part(cluster, family, 3))
            write_part(cluster, family, 3)
            assert family.last_batch == 3
            with pytest.raises(FamilyFenced):
                older.commit(4, [left.finish(20)])
    assert read(cluster, "read_committed", 24, "counts") == sorted(value for each in committed for value in each)


def write_part(cluster: Cluster, family: TransactionFamily, batch: int) -> list[bytes]:
    """Two tasks, one of them twice. What is to be read, if the batch was not committed before."""
    works = []
    for task in (0, 1, 1):
        with FamilyMember(family.ticket, cluster=cluster.access()) as member:
            for partition in range(3):
                member.send("counts", f"{batch} {task}".encode(), partition=partition if task else 0)
            works.append(member.finish(20))
    family.commit(batch, works[:2])
    return [f"{batch} {task}".encode() for task in (0, 1) for _ in range(3)]


@pytest.mark.timeout(120)
def test_offsets_count_with_what_was_written(cluster: Cluster) -> None:
    """A copier that aborts half of its transactions, and loses the coordinators of both kinds in one."""
    cluster.create_topic("from", partitions=2, replication_factor=3)
    cluster.create_topic("to", partitions=2, replication_factor=3)
    with raylog.Producer(cluster=cluster) as plain:
        plain.send_many("from", [b"%d" % each for each in range(200)], keys=[b"%d" % (each % 7) for each in range(200)])
    copied = 0
    with raylog.Producer(cluster=cluster, transactional_id="copier") as producer:
        producer.init_transactions()
        for number in range(5):
            with consumer_of_group(cluster) as consumer:
                records = some_of(consumer, 40)
                producer.begin_transaction()
                for record in records:
                    producer.send("to", record.value, record.key, partition=record.partition)
                offsets = {("from", record.partition): record.offset + 1 for record in records}
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                if number == 3:
                    kill_coordinators()
                if number == 4:
                    producer.flush(20)  # else a leader is the first to say that it is fenced, and that is abortable
                    cluster.abort_transaction("copier")
                    with pytest.raises(ProducerFenced):
                        producer.commit_transaction()
                    break
                if number % 2:
                    producer.commit_transaction()
                    copied += len(records)
                else:
                    producer.abort_transaction()
    with raylog.Consumer("to", cluster=cluster, auto_offset_reset="earliest", isolation_level="read_committed") as out:
        found = some_of(out, copied)
        assert not any(out.poll(timeout_ms=300).values())
    assert len(found) == copied
    assert len({record.value for record in found}) == copied


def consumer_of_group(cluster: Cluster) -> raylog.Consumer:
    return raylog.Consumer(
        "from", cluster=cluster, group_id="copiers", enable_auto_commit=False, auto_offset_reset="earliest"
    )


def some_of(consumer: raylog.Consumer, count: int) -> list[raylog.ConsumerRecord]:
    found: list[raylog.ConsumerRecord] = []
    until = time.monotonic() + 20
    while len(found) < count and time.monotonic() < until:
        for records in consumer.poll(timeout_ms=500, max_records=count - len(found)).values():
            found += records
    return found
