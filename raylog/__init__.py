"""raylog: a durable, replicated, partitioned log whose moving parts are Ray actors.

This folder holds the public names, the base layer that every other folder may import (`errors`, `config`),
and one symlink per folder at the top of the repository: `raylog.storage` is `../storage`, and so on. Import a
folder only under its `raylog.` name.

Importing any part, say `raylog.storage.record_batch`, runs this file first, so it imports nothing: a replica
process stays small, and unit tests (which forbid Ray) can import every pure module. A public name whose
module imports Ray is looked up on first use (`__getattr__`), not imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raylog.api.async_consumer import AsyncConsumer
    from raylog.api.async_producer import AsyncProducer
    from raylog.api.cluster import Cluster
    from raylog.api.consumer import Consumer
    from raylog.api.formation import connect, start
    from raylog.api.parallel_consumer import ParallelConsumer
    from raylog.api.producer import Producer
    from raylog.api.records import (
        ConsumerRecord,
        GroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TopicPartition,
    )

__version__ = "0.1.0"
__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "Cluster",
    "Consumer",
    "ConsumerRecord",
    "GroupMetadata",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "ParallelConsumer",
    "Producer",
    "RecordMetadata",
    "TopicPartition",
    "connect",
    "start",
]

_HOMES = {
    "AsyncConsumer": "raylog.api.async_consumer",
    "AsyncProducer": "raylog.api.async_producer",
    "Cluster": "raylog.api.cluster",
    "Consumer": "raylog.api.consumer",
    "ConsumerRecord": "raylog.api.records",
    "GroupMetadata": "raylog.api.records",
    "OffsetAndMetadata": "raylog.api.records",
    "OffsetAndTimestamp": "raylog.api.records",
    "ParallelConsumer": "raylog.api.parallel_consumer",
    "Producer": "raylog.api.producer",
    "RecordMetadata": "raylog.api.records",
    "TopicPartition": "raylog.api.records",
    "connect": "raylog.api.formation",
    "start": "raylog.api.formation",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'raylog' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
