"""Telling every partition and group of a transaction how it ended, until each has it (rule 21).

What must stay true:
- A partition is left out only where its topic is gone for good, by the controller's word. That a broker does not know
  a topic means nothing: it may know less than others.
- A marker is written once: a leader that has it, or has seen a later epoch of its producer, says so, and that counts.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from raylog.actors.link.cluster_link import ClusterLink, PartitionLeader
from raylog.actors.protocol.names import OFFSETS_TOPIC, group_hash
from raylog.actors.protocol.replication_messages import WriteMarker
from raylog.actors.protocol.transaction_messages import ResolveStaged, TransactionPartition, TransactionRecord
from raylog.actors.transactions.rules.transaction import Phase
from raylog.errors import CoordinatorFenced, ProducerFenced, RaylogError, StaleTransaction

_ASK_SECONDS: Final = 5.0
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
_NO_EPOCH: Final = -1

_log = logging.getLogger(__name__)


class TransactionMarkers:
    """`term`: of the coordinator that they are from."""

    def __init__(self, link: ClusterLink, term: int) -> None:
        self._link = link
        self._term = term

    async def write_all(self, record: TransactionRecord) -> None:
        """Done once all have it, however long that takes."""
        work = [self._write(record, partition) for partition in record.partitions]
        work += [self._resolve(record, group_hash(group)) for group in record.groups]
        await asyncio.gather(*work)

    async def _write(self, record: TransactionRecord, partition: TransactionPartition) -> None:
        name = f"{partition[0]}-{partition[2]}"
        commits = record.phase == Phase.PREPARE_COMMIT
        message = WriteMarker(record.marker_id, record.marker_epoch, self._term, commits, int(1000 * _ASK_SECONDS))
        pause = _FIRST_PAUSE
        while True:
            try:
                leader = self._leader(partition)
                if leader is None:
                    if await self._link.is_deleted(partition[1], _ASK_SECONDS):
                        _log.info("%s is gone, and needs no marker of producer %d.", name, record.marker_id)
                        return
                    await self._learn(partition[0])
                elif leader.endpoints:
                    await self._link.ask(leader, message, timeout=_ASK_SECONDS)
                    return
            except (CoordinatorFenced, ProducerFenced) as error:
                _log.info("%s has a later word on producer %d: %s", name, record.marker_id, error)
                return
            except RaylogError as error:
                _log.info("%s has no marker yet: %s", name, error)
            await self._link.changed(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _leader(self, partition: TransactionPartition) -> PartitionLeader | None:
        """None: no such partition is known here. Perhaps not yet, or still one that had its name before."""
        topic, topic_id, number = partition
        view = self._link.topic(topic)
        if view is None or view.topic_id != topic_id or number >= len(view.partitions):
            return None
        return view.partitions[number]

    async def _learn(self, topic: str) -> None:
        if self._link.topic(topic) is None:
            await self._link.find_topic(topic, _ASK_SECONDS)
        else:
            await self._link.refresh(_ASK_SECONDS)

    async def _resolve(self, record: TransactionRecord, hashed: int) -> None:
        """Of all groups of one coordinator of groups at once. It knows transactions by their own epochs."""
        commits = record.phase == Phase.PREPARE_COMMIT
        message = ResolveStaged(record.marker_id, record.marker_epoch - 1, self._term, commits)
        pause = _FIRST_PAUSE
        while True:
            try:
                place = await self._link.find_coordinator(OFFSETS_TOPIC, hashed, _ASK_SECONDS)
                await self._link.ask(place, message, timeout=_ASK_SECONDS)
                return
            except (CoordinatorFenced, StaleTransaction) as error:
                _log.info("A group coordinator has a later word on producer %d: %s", record.marker_id, error)
                return
            except RaylogError as error:
                _log.info("Staged offsets of producer %d are not resolved yet: %s", record.marker_id, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
