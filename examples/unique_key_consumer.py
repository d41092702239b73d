"""A consumer that books each payment once, although records may reach it twice.

    python -m examples.unique_key_consumer

A consumer commits its offsets after it has done its work, so after a crash it sees some records again. Here the
payment's own id is a unique key of the database, inserted in the same transaction that changes the balance: what
was booked before is refused by the database, and skipped. SQLite stands for any database that has both.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import raylog
from examples.small_cluster import small_cluster
from raylog.api.admin.cluster import Cluster
from raylog.api.connection.records import ConsumerRecord

TOPIC, GROUP = "payments", "ledger"


def open_ledger(path: Path) -> sqlite3.Connection:
    ledger = sqlite3.connect(path)
    ledger.execute("create table if not exists booked (payment text primary key)")
    ledger.execute("create table if not exists balances (account text primary key, cents integer not null)")
    return ledger


def book(ledger: sqlite3.Connection, record: ConsumerRecord) -> bool:
    """False: it was booked before."""
    payment = json.loads(record.value)
    with ledger:  # one transaction of the database
        added = ledger.execute("insert or ignore into booked values (?)", (payment["id"],))
        if not added.rowcount:
            return False
        ledger.execute(
            "insert into balances values (:account, :cents) "
            "on conflict (account) do update set cents = cents + excluded.cents",
            payment,
        )
    return True


def book_all(cluster: Cluster, path: Path, count: int, *, commits: bool = True) -> tuple[int, int]:
    """(booked, skipped), of so many records. Without `commits` as if it had crashed between its work and its commit."""
    booked = skipped = 0
    with raylog.Consumer(
        TOPIC, cluster=cluster, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        ledger = open_ledger(path)
        while booked + skipped < count:
            for records in consumer.poll(timeout_ms=1000).values():
                for record in records:
                    if book(ledger, record):
                        booked += 1
                    else:
                        skipped += 1
            if commits:
                consumer.commit()
        ledger.close()
    return booked, skipped


def balances(path: Path) -> dict[str, int]:
    ledger = open_ledger(path)
    found = dict(ledger.execute("select account, cents from balances"))
    ledger.close()
    return found


def pay(cluster: Cluster, count: int) -> dict[str, int]:
    """Some payments; what the balances have to be."""
    cluster.create_topic(TOPIC, partitions=3, replication_factor=3)
    expected: dict[str, int] = {}
    with raylog.Producer(cluster=cluster) as producer:
        for number in range(count):
            account, cents = f"account-{number % 7}", number % 100
            payment = {"id": f"payment-{number}", "account": account, "cents": cents}
            producer.send(TOPIC, json.dumps(payment).encode(), key=account.encode())
            expected[account] = expected.get(account, 0) + cents
    return expected


def main() -> None:
    with small_cluster() as (cluster, folder):
        expected = pay(cluster, 1000)
        path = folder / "ledger.sqlite"
        booked, skipped = book_all(cluster, path, 1000, commits=False)
        print(f"booked {booked}, skipped {skipped}, and crashed before the commit")
        booked, skipped = book_all(cluster, path, 1000)
        print(f"booked {booked}, skipped {skipped}")
        print("balances are", "right" if balances(path) == expected else "WRONG")


if __name__ == "__main__":
    main()
