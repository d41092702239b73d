"""Ending a transaction that hangs, where it hangs: what its coordinator would say, if it had one.

Only processes of the cluster may say it (rule 33), so whoever administers a cluster asks its controller to.
What must stay true: it is repeated until it is taken, since to say it twice is the same as to say it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from raylog.actors.kernel.environment import Environment
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.names import OFFSETS_TOPIC
from raylog.actors.protocol.replication_messages import WriteMarker
from raylog.actors.protocol.transaction_messages import ResolveStaged
from raylog.errors import (
    ClusterUnreachable,
    CoordinatorFenced,
    PeerNotAdmitted,
    ProducerFenced,
    RaylogError,
    UnknownPartition,
    UnknownTopic,
)

_ASK_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.1
_FINAL: Final = (
    UnknownTopic, UnknownPartition, PeerNotAdmitted, ClusterUnreachable, ProducerFenced, CoordinatorFenced,
)  # fmt: skip


@dataclass(frozen=True)
class Hanging:
    """Where it hangs, and under which identity. `is_staged`: with the coordinator of groups of that partition."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    is_staged: bool


async def end_hanging(env: Environment, brokers: Sequence[Endpoint], hanging: Hanging, timeout: float) -> None:
    """Over a link of its own. What `end_over` raises."""
    link = ClusterLink(env, brokers)
    try:
        await end_over(link, hanging, timeout)
    finally:
        await link.close()


async def end_over(link: ClusterLink, hanging: Hanging, timeout: float) -> None:
    """A marker at its partition alone, or a word to that group coordinator.

    UnknownTopic, UnknownPartition, ClusterUnreachable, PeerNotAdmitted, ProducerFenced, CoordinatorFenced; or, when the
    time is over, what came last.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while True:
        try:
            await _say(link, hanging, max(0.0, min(deadline - loop.time(), _ASK_SECONDS)))
            return
        except _FINAL:
            raise
        except RaylogError:
            if loop.time() + _AGAIN_SECONDS >= deadline:
                raise
        await link.changed(_AGAIN_SECONDS)


async def _say(link: ClusterLink, hanging: Hanging, seconds: float) -> None:
    view = await link.find_topic(hanging.topic, seconds)
    if hanging.partition >= len(view.partitions):
        raise UnknownPartition(hanging.topic, hanging.partition)
    message: Message
    if hanging.is_staged:
        place = await link.find_coordinator(OFFSETS_TOPIC, hanging.partition, seconds)
        message = ResolveStaged(hanging.producer_id, hanging.epoch, hanging.coordinator_epoch, False)
        await link.ask(place, message, timeout=seconds)
        return
    message = WriteMarker(
        hanging.producer_id, hanging.epoch + 1, hanging.coordinator_epoch, False, round(1000 * _ASK_SECONDS)
    )
    await link.ask(view.partitions[hanging.partition], message, timeout=seconds)
