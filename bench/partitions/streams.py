"""Streams to the leaders of a real cluster, and batches over them, one after the other: no producer in between."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.actors.machine.stream_server import connect
from raylog.actors.protocol.control_messages import GetMetadata, Metadata
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.replication_messages import NO_EPOCH, Append, Appended
from raylog.storage.format.batch_codec import encode_batch

_ALL: Final = Append(NO_EPOCH, -1, 60_000)


class Leader(NamedTuple):
    """A stream to the leader of a topic's first partition."""

    stream: Stream
    topic_id: bytes
    endpoint: Endpoint

    async def append(self, size: int) -> float:
        """Append a batch of one record with acks=all; milliseconds until it is acknowledged."""
        batch = encode_batch([bytes(size)], timestamps=time.time_ns() // 1_000_000)
        began = time.perf_counter()
        answer = await self.stream.request(_ALL, batch, topic_id=self.topic_id, partition=0, timeout=60)
        assert isinstance(answer.message, Appended)
        return (time.perf_counter() - began) * 1e3


@asynccontextmanager
async def leader_of(access: ClusterAccess, topic: str) -> AsyncIterator[Leader]:
    """Yield a stream to the leader of a topic's first partition, as a client has it."""
    key = access.secrets.own_keys[0]
    broker = Endpoint.parse(next(iter(access.brokers.values())).endpoints[0])
    asked = await connect(broker, key=key, role="bench")
    found = (await asked.request(GetMetadata((topic,), -1, 0))).message
    await asked.close()
    assert isinstance(found, Metadata)
    told = next(each for each in found.topics if each.name == topic)
    endpoint = Endpoint.parse(told.partitions[0].endpoints[0])
    stream = await connect(endpoint, key=key, role="bench")
    yield Leader(stream, told.topic_id, endpoint)
    await stream.close()
