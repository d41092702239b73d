"""A shop's database, and the changes of its customers in a topic, written by a client of Kafka.

    python -m examples.change_writer BOOTSTRAP DATABASE

It stands for Debezium, or for whatever else speaks Kafka's protocol, and knows nothing of raylog. Triggers note each
change in the transaction that makes it. Each note becomes a record: its key is the row's primary key, its value the row
as it is now. A row that is deleted becomes a record without a value, a tombstone.

Notes are removed once their records are acknowledged. A writer that dies before that sends them again, in their order,
so the last word about each row stays the last.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from pathlib import Path

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

TOPIC = "shop.customers"
_AT_ONCE = 500
_SECONDS = 30
_SCHEMA = """
    pragma journal_mode = wal;
    create table if not exists customers (id integer primary key, name text, city text);
    create table if not exists changes (number integer primary key autoincrement, id integer, value text);
    create trigger if not exists customer_added after insert on customers begin
        insert into changes (id, value)
        values (new.id, json_object('id', new.id, 'name', new.name, 'city', new.city));
    end;
    create trigger if not exists customer_changed after update on customers begin
        insert into changes (id, value)
        values (new.id, json_object('id', new.id, 'name', new.name, 'city', new.city));
    end;
    create trigger if not exists customer_gone after delete on customers begin
        insert into changes (id, value) values (old.id, null);
    end;
"""


def open_shop(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_SECONDS)
    database.executescript(_SCHEMA)
    return database


def create_topic(bootstrap: str) -> None:
    """Compaction keeps the last record of each key, so the topic holds the whole table however long it lives."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(TOPIC, 3, topic_configs={"cleanup.policy": "compact"})])
    admin.close()


def write_changes(producer: KafkaProducer, database: sqlite3.Connection) -> int:
    """Write the oldest changes that are noted; returns how many."""
    query = "select number, id, value from changes order by number limit ?"
    noted = database.execute(query, (_AT_ONCE,)).fetchall()
    sent = [
        producer.send(TOPIC, key=b"%d" % row, value=None if value is None else value.encode())
        for _, row, value in noted
    ]
    for each in sent:
        each.get(timeout=_SECONDS)
    if noted:
        with database:
            database.execute("delete from changes where number <= ?", (noted[-1][0],))
    return len(noted)


def main(bootstrap: str, path: Path) -> None:
    database = open_shop(path)
    producer = KafkaProducer(bootstrap_servers=bootstrap)  # idempotent, and acks="all", by default
    while True:
        if not write_changes(producer, database):
            time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
