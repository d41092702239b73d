"""Changes of a database's rows in a topic, applied to a table, each in its turn.

    python -m examples.change_table

The primary key is the record's key, so all changes of a row are in one partition, in their order: the newest offset of
a key is the row as it is now. A record without a value says that the row is gone. Each micro-batch is applied in one
transaction of the table's database, together with its number, so a batch that Spark repeats changes nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import raylog
from examples.small_cluster import eventually, small_cluster, small_spark
from raylog import spark_bridge
from raylog.api.admin.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHANGES = "customers.changes"


def apply_changes(spark: SparkSession, table: Path, checkpoint: Path) -> StreamingQuery:
    """Apply changes until the query is stopped."""
    changes = spark_bridge.read_stream(
        spark, subscribe=CHANGES, startingOffsets="earliest", checkpointLocation=str(checkpoint)
    )
    writer = changes.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(_applier(table))
    query: StreamingQuery = writer.trigger(processingTime="500 milliseconds").start()
    return query


def _applier(table: Path) -> Callable[[DataFrame, int], None]:
    from pyspark.sql import functions as f

    def apply(changes: DataFrame, batch: int) -> None:
        newest = changes.groupBy("key").agg(f.max(f.struct("offset", "value")).alias("newest"))
        rows = newest.selectExpr("cast(key as string) id", "newest.value value").collect()
        gone = [(row["id"],) for row in rows if row["value"] is None]
        kept = [{"id": row["id"], **json.loads(row["value"])} for row in rows if row["value"] is not None]
        with closing(open_table(table)) as database, database:  # one transaction
            if database.execute("insert or ignore into applied values (?)", (batch,)).rowcount:
                database.executemany("delete from customers where id = ?", gone)
                database.executemany("insert or replace into customers values (:id, :name, :city)", kept)

    return apply


def open_table(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.execute("create table if not exists customers (id text primary key, name text, city text)")
    database.execute("create table if not exists applied (batch integer primary key)")
    return database


def read_table(path: Path) -> dict[str, tuple[str, str]]:
    with closing(open_table(path)) as database:
        return {key: (name, city) for key, name, city in database.execute("select * from customers")}


def change_rows(cluster: Cluster, first: int, count: int) -> dict[str, tuple[str, str]]:
    """Some inserts, updates and deletes; what the table has to hold after them, had it been empty before."""
    expected: dict[str, tuple[str, str]] = {}
    with raylog.Producer(cluster=cluster) as producer:
        for number in range(first, first + count):
            key = f"{number % 97}"
            if number % 10 == 9:
                producer.send(CHANGES, None, key=key.encode())
                expected.pop(key, None)
            else:
                row = {"name": f"name {number}", "city": f"city {number % 5}"}
                producer.send(CHANGES, json.dumps(row).encode(), key=key.encode())
                expected[key] = (row["name"], row["city"])
    return expected


def main(replicas: int = 3) -> None:
    with small_cluster() as (cluster, folder), small_spark("change-table") as spark:
        cluster.create_topic(CHANGES, partitions=3, replication_factor=replicas)
        expected = change_rows(cluster, 0, 2000)
        query = apply_changes(spark, folder / "customers.sqlite", folder / "checkpoint")
        is_right = eventually(expected, lambda: read_table(folder / "customers.sqlite"))
        query.stop()
        print(len(expected), "customers, and the table is", "right" if is_right else "WRONG")


if __name__ == "__main__":
    main()
