"""Telling every partition and group of a transaction how it ended, until each has it (rule 21).

What must stay true:
- A partition is left out only where its topic is gone for good. A broker that knows less than others is asked again.
- A marker is written once: a leader that has it, or has seen a later epoch of its producer, says so, and that counts.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from raylog.actors.cluster_link import ClusterLink
from raylog.actors.coordinator_state import OFFSETS_TOPIC, coordinator_hash
from raylog.actors.replication_messages import WriteMarker
from raylog.actors.transaction_messages import ResolveStaged, TransactionPartition, TransactionRecord
from raylog.actors.transaction_state import Phase
from raylog.errors import CoordinatorFenced, ProducerFenced, RaylogError, UnknownTopic

_ASK_SECONDS: Final = 5.0
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
_GONE_SECONDS: Final = 10.0  # that nobody has heard of a topic, after which it is gone
_NO_EPOCH: Final = -1

_log = logging.getLogger(__name__)


class TransactionMarkers:
    """`term`: of the coordinator that they are from."""

    def __init__(self, link: ClusterLink, term: int) -> None:
        self._link = link
        self._term = term
        self._loop = asyncio.get_running_loop()

    async def write_all(self, record: TransactionRecord) -> None:
        """Done once all have it, however long that takes."""
        work = [self._write(record, partition) for partition in record.partitions]
        work += [self._resolve(record, coordinator_hash(group)) for group in record.groups]
        await asyncio.gather(*work)

    async def _write(self, record: TransactionRecord, partition: TransactionPartition) -> None:
        topic, topic_id, number = partition
        commits = record.phase == Phase.PREPARE_COMMIT
        message = WriteMarker(record.marker_id, record.marker_epoch, self._term, commits, int(1000 * _ASK_SECONDS))
        pause, unheard_since = _FIRST_PAUSE, self._loop.time()
        while True:
            try:
                view = await self._link.find_topic(topic, _ASK_SECONDS)
                unheard_since = self._loop.time()
                if view.topic_id != topic_id or number >= len(view.partitions):
                    return  # the topic was deleted, and another one has its name
                leader = view.partitions[number]
                if leader.endpoints:
                    await self._link.ask(leader, message, timeout=_ASK_SECONDS)
                    return
            except (CoordinatorFenced, ProducerFenced) as error:
                _log.info("%s-%d has a later word on producer %d: %s", topic, number, record.marker_id, error)
                return
            except UnknownTopic:
                if self._loop.time() - unheard_since > _GONE_SECONDS:
                    return
            except RaylogError as error:
                _log.info("%s-%d has no marker yet: %s", topic, number, error)
            await self._link.changed(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

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
            except (CoordinatorFenced, ProducerFenced) as error:
                _log.info("A group coordinator has a later word on producer %d: %s", record.marker_id, error)
                return
            except RaylogError as error:
                _log.info("Staged offsets of producer %d are not resolved yet: %s", record.marker_id, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
