"""Ending a hanging transaction at its partition, with the message that its coordinator would send if it had one.

Only processes of the cluster may send it (rule 33), so an administrator asks the controller to.
What must stay true: the message is repeated until it is taken; sending it twice is the same as sending it once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.environment import Environment
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.questions import until_answered
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Done
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
_PAUSE_SECONDS: Final = 0.1
_FINAL: Final = (
    UnknownTopic, UnknownPartition, PeerNotAdmitted, ClusterUnreachable, ProducerFenced, CoordinatorFenced,
)  # fmt: skip

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hanging:
    """The place of a hanging transaction, and its identity. `is_staged`: its offsets hang with a group coordinator."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    is_staged: bool


async def end_hanging(env: Environment, brokers: Sequence[Endpoint], hanging: Hanging, timeout: float) -> None:
    """End it over a link of its own. Raises what `end_over` raises."""
    link = ClusterLink(env, brokers)
    try:
        await end_over(link, hanging, timeout)
    finally:
        await link.close()


async def end_over(link: ClusterLink, hanging: Hanging, timeout: float) -> None:
    """Have a marker written to its partition alone, or its staged offsets dropped by that group coordinator.

    UnknownTopic, UnknownPartition, ClusterUnreachable, PeerNotAdmitted, ProducerFenced, CoordinatorFenced; or, when the
    time is over, what came last.
    """
    await until_answered(
        partial(_say, link, hanging),
        Backoff(_PAUSE_SECONDS, _PAUSE_SECONDS, link.env.random),
        is_final=_is_final,
        failed=partial(_log.debug, "%s is not ended yet: %s", hanging),
        pause=link.changed,
        seconds=timeout,
    )


def _is_final(error: RaylogError) -> bool:
    return isinstance(error, _FINAL)


async def _say(link: ClusterLink, hanging: Hanging, left: float) -> None:
    seconds = min(left, _ASK_SECONDS)
    view = await link.find_topic(hanging.topic, seconds)
    if hanging.partition >= len(view.partitions):
        raise UnknownPartition(hanging.topic, hanging.partition)
    if hanging.is_staged:
        place = await link.find_coordinator(OFFSETS_TOPIC, hanging.partition, seconds)
        resolve = ResolveStaged(hanging.producer_id, hanging.epoch, hanging.coordinator_epoch, False)
        await link.ask(place, resolve, expect=Done, timeout=seconds)
        return
    marker = WriteMarker(
        hanging.producer_id, hanging.epoch + 1, hanging.coordinator_epoch, False, round(1000 * _ASK_SECONDS)
    )
    await link.ask(view.partitions[hanging.partition], marker, expect=Done, timeout=seconds)
