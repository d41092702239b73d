"""Creates raylog's own topics, with whose partitions coordinators come, as soon as the brokers are there.

    a new cluster: the brokers that it is formed on have registered ──┐
    one that lacks them: those that were alive have registered,       ├─► created, in one change
                         or are fenced by now                         │
    not all are there after a while ──────────────────────────────────┘

So no group and no transaction waits for them. A cluster may be formed on one broker and grow afterwards: when a broker
registers, topics with fewer copies than three get more, as many as there are brokers for.

What must stay true: nothing waits for a broker that does not come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from random import Random
from typing import Final

from raylog.actors.cluster.coordinator_state import COORDINATED_SETTINGS
from raylog.actors.cluster.placement.placement_inputs import usable_sites
from raylog.actors.cluster.placement.reassignment import add_replicas
from raylog.actors.cluster.topic_admin import DEFAULT_REPLICATION_FACTOR, NewTopic, create_topic
from raylog.actors.controller.changes import ClusterChanges
from raylog.actors.protocol.messages import Message
from raylog.errors import RaylogError

_BROKERS_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 1.0
_TOPIC_ID_BYTES: Final = 16

_log = logging.getLogger(__name__)


class InternalTopics:
    """`registered` says which brokers are. `partitions`: of each topic."""

    def __init__(
        self, changes: ClusterChanges, random: Random, registered: Callable[[], Collection[int]], partitions: int
    ) -> None:
        self._changes = changes
        self._partitions = partitions
        self._random = random
        self._registered = registered

    async def create_missing(self, topics: Collection[str], form_on: Collection[int]) -> None:
        """Create those of these topics that are missing, once the brokers are there.

        `form_on`: the brokers of a new cluster, else it is empty.
        """
        if not self._missing(topics):
            return
        await self._changes.until(lambda: self._are_here(form_on), _BROKERS_SECONDS)
        while missing := self._missing(topics):
            try:
                await self._changes.commit([record for topic in missing for record in self.records(topic)])
            except RaylogError as error:
                _log.warning("The topics %s cannot be created yet: %s", ", ".join(missing), error)
                await asyncio.sleep(_PAUSE_SECONDS)

    def records(self, name: str) -> list[Message]:
        """Return the records of one of raylog's own topics. BrokerNotAvailable, InvalidReplicationFactor."""
        topic = NewTopic(name, self._partitions, settings=COORDINATED_SETTINGS)
        topic_id = self._random.randbytes(_TOPIC_ID_BYTES)
        return create_topic(self._changes.state, self._changes.live, topic, topic_id, internal=True)

    def add_copies(self, topics: Collection[str]) -> None:
        """Have copies of these topics made on brokers that came later, whatever is being moved already."""
        state, live = self._changes.state, self._changes.live
        wanted = min(DEFAULT_REPLICATION_FACTOR, len(usable_sites(state, live)))
        for topic in topics:
            records = add_replicas(state, live, topic, wanted) if state.has_topic(topic) else []
            if records:
                _log.info("The topic %s gets copies on %d brokers.", topic, wanted)
                self._changes.submit(records)

    def _missing(self, topics: Collection[str]) -> list[str]:
        return [topic for topic in topics if not self._changes.state.has_topic(topic)]

    def _are_here(self, form_on: Collection[int]) -> bool:
        registered = set(self._registered())
        return bool(registered) and registered >= self._changes.live.brokers | set(form_on)
