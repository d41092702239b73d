"""Changes of a database, written by a client of Kafka, and a Ray actor that keeps a copy of the table from them.

    python -m examples.change_capture          # needs raylog[kafka]

    shop.sqlite ──triggers──► change_writer (a process of Kafka's client) ──► topic, compacted ──► TableKeeper ──► copy

The keeper applies records and notes its position in one transaction of the copy's database. So each change is applied
once, whatever dies: a keeper that is made again goes on where its copy is. A copy that is begun later reads the topic
from its first record, and gets the last word about each row, with or without compaction before that.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import ray

import raylog
from examples.change_writer import TOPIC, create_topic, open_shop
from examples.small_cluster import eventually, small_cluster

Rows: TypeAlias = "dict[int, tuple[str, str]]"  # name and city by id

_ROOT = Path(__file__).parents[1]


class TableKeeper:
    """The Ray actor."""

    def __init__(self, path: Path) -> None:
        self._database = open_copy(path)

    def follow(self) -> None:
        """Apply changes for ever."""
        with raylog.Consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([raylog.TopicPartition(TOPIC, each) for each in consumer.partitions_for_topic(TOPIC) or ()])
            for partition, offset in self._database.execute("select * from positions"):
                consumer.seek(raylog.TopicPartition(TOPIC, partition), offset)
            while True:
                for partition, records in consumer.poll(timeout_ms=1000).items():
                    self._apply(partition.partition, records)

    def _apply(self, partition: int, records: list[raylog.ConsumerRecord]) -> None:
        with self._database:  # one transaction
            for record in records:
                if record.value is None:
                    self._database.execute("delete from customers where id = ?", (int(record.key),))
                else:
                    row = json.loads(record.value)
                    self._database.execute("insert or replace into customers values (:id, :name, :city)", row)
            position = (partition, records[-1].offset + 1)
            self._database.execute("insert or replace into positions values (?, ?)", position)


def open_copy(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=30)
    database.executescript("""
        pragma journal_mode = wal;
        create table if not exists customers (id integer primary key, name text, city text);
        create table if not exists positions (partition integer primary key, next_offset integer);
    """)
    return database


class Copy:
    """A copy of the table, and the actor that keeps it. Ray makes the actor again when its process dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        kind: Any = ray.remote(TableKeeper)  # whose methods mypy does not know
        self.keeper = kind.options(num_cpus=0, max_restarts=-1, max_task_retries=-1).remote(path)
        self._following = self.keeper.follow.remote()

    def rows(self) -> Rows:
        """Return what the copy holds now. What has ended its keeper is raised."""
        ended, _ = ray.wait([self._following], timeout=0)
        ray.get(ended)
        with closing(open_copy(self.path)) as database:
            return read_rows(database)

    def close(self) -> None:
        ray.kill(self.keeper)


def read_rows(database: sqlite3.Connection) -> Rows:
    return {row: (name, city) for row, name, city in database.execute("select * from customers")}


def change_customers(shop: sqlite3.Connection, first: int, count: int) -> None:
    """Add, change and delete customers, each in a transaction of its own."""
    upsert = """
        insert into customers values (?, ?, ?)
        on conflict (id) do update set name = excluded.name, city = excluded.city
    """
    for number in range(first, first + count):
        with shop:
            if number % 10 == 9:
                shop.execute("delete from customers where id = ?", (number % 97,))
            else:
                shop.execute(upsert, (number % 97, f"name {number}", f"city {number % 5}"))


@contextmanager
def change_writer(bootstrap: str, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "examples.change_writer", bootstrap, str(path)]
    writer = subprocess.Popen(command, cwd=_ROOT)
    try:
        yield writer
    finally:
        writer.kill()
        writer.wait()


def main() -> None:
    with small_cluster(kafka="127.0.0.1:0") as (cluster, folder):
        bootstrap, path = ",".join(cluster.kafka_addresses()), folder / "shop.sqlite"
        create_topic(bootstrap)
        shop, copy = open_shop(path), Copy(folder / "copy.sqlite")
        with change_writer(bootstrap, path):
            change_customers(shop, 0, 1000)
            ray.kill(copy.keeper, no_restart=False)
        change_customers(shop, 1000, 500)  # nobody writes them to the topic before there is a writer again
        with change_writer(bootstrap, path):
            change_customers(shop, 1500, 500)
            _tell("the copy is", eventually(read_rows(shop), copy.rows))
            late = Copy(folder / "late.sqlite")
            _tell("a copy that was begun later is", eventually(read_rows(shop), late.rows))
        for each in (copy, late):
            each.close()


def _tell(what: str, is_right: bool) -> None:
    print(what, "right" if is_right else "WRONG")


if __name__ == "__main__":
    main()
