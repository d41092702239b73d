"""Read, process, write, exactly once: whatever fails, each order is counted in one receipt, and in no second one.

    python examples/read_process_write.py

Joins the raylog cluster that runs, or starts one whose data stays in ./data. What is read is committed in the same
transaction as what is written, so after a crash the next run goes on where the last whole transaction ended.
"""

from __future__ import annotations

from collections.abc import Callable

import raylog
from raylog.errors import ClusterNotFound, ProducerError, RayUnreachable

ORDERS, RECEIPTS = "orders", "receipts"
GROUP = "cashiers"


def copy(consumer: raylog.Consumer, producer: raylog.Producer, target: str, is_done: Callable[[], bool]) -> None:
    """One transaction for each poll. An error that leaves this is fatal, or says "again": start the program anew."""
    producer.init_transactions(timeout=120)  # whoever had this transactional id before writes nothing more
    while not is_done():
        polled = consumer.poll(timeout_ms=1000)
        if not polled:
            continue
        try:
            with producer.transaction():
                for records in polled.values():
                    for record in records:
                        producer.send(target, process(record.value), key=record.key)
                read = {partition: records[-1].offset + 1 for partition, records in polled.items()}
                producer.send_offsets_to_transaction(read, consumer.group_metadata())
        except ProducerError as error:
            if not error.abortable:
                raise
            rewind(consumer)  # it was aborted, so what was polled has not been processed


def process(value: bytes | None) -> bytes:
    return (value or b"").upper()


def rewind(consumer: raylog.Consumer) -> None:
    """Seek to where the group stands."""
    for partition, committed in consumer.committed_offsets(consumer.assignment()).items():
        if committed is None:
            consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, committed)


def has_read_all(consumer: raylog.Consumer) -> bool:
    ends = consumer.end_offsets(consumer.assignment())
    return bool(ends) and all(consumer.position(partition) >= end for partition, end in ends.items())


def main() -> None:
    try:
        cluster, is_mine = raylog.connect(), False
    except (RayUnreachable, ClusterNotFound):
        cluster, is_mine = raylog.start("data"), True  # one broker; brokers=3 keeps three copies of all
    for topic in (ORDERS, RECEIPTS):
        if topic not in cluster.list_topics():
            cluster.create_topic(topic, partitions=2)
    with raylog.Producer() as customers:
        for number in range(30):
            customers.send(ORDERS, b"order %d" % number, key=b"customer %d" % (number % 5))
    with (
        raylog.Consumer(
            ORDERS,
            group_id=GROUP,
            enable_auto_commit=False,  # the producer commits
            isolation_level="read_committed",  # orders of transactions that were aborted are none
            auto_offset_reset="earliest",
        ) as consumer,
        raylog.Producer(transactional_id="cashier-1") as producer,  # a name that stays the same from run to run
    ):
        copy(consumer, producer, RECEIPTS, lambda: has_read_all(consumer))
    with raylog.Consumer(
        RECEIPTS, isolation_level="read_committed", auto_offset_reset="earliest", consumer_timeout_ms=5000
    ) as receipts:
        for record in receipts:
            print(record.key, record.value)
    if is_mine:
        cluster.shutdown()


if __name__ == "__main__":
    main()
