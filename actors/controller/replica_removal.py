"""Replicas that no partition has any more are removed from their brokers' disks.

What must stay true:
- Only a committed change sets a removal going, and it is called off while the state gives the replica to its broker
  again.
- It is asked for until the broker has done it. Of deleted topics the state remembers who still has what, so a new
  controller goes on. A replica that moved elsewhere is in no record: its broker removes it after a restart
  (`broker/replica_orders.py`), if this controller does not get to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from raylog.actors.cluster.election.replica_registration import is_wanted
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.cluster.topic_admin import topic_data_removed
from raylog.actors.controller.changes import ClusterChanges, ReplicaChange
from raylog.actors.controller.sessions import BrokerSessions
from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.protocol.control_messages import RemoveReplica
from raylog.errors import RaylogError, TooManyBytesInFlight

_REMOVE_SECONDS: Final = 15.0
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 10.0

_log = logging.getLogger(__name__)


class _Removal(NamedTuple):
    topic: str
    key: ReplicaKey


class ReplicaRemoval:
    def __init__(self, changes: ClusterChanges, tasks: BackgroundTasks, random: Random) -> None:
        self._changes = changes
        self._tasks = tasks
        self._random = random
        self._sessions: BrokerSessions | None = None
        self._pending: dict[int, dict[_Removal, None]] = {}  # by broker
        self._working: dict[int, None] = {}
        self._removed: dict[bytes, set[tuple[int, int]]] = {}  # of deleted topics: (partition, broker)

    def begin(self, sessions: BrokerSessions) -> None:
        """Go on with what the recovered state knows of."""
        self._sessions = sessions
        for gone in self._changes.state.deleted.values():
            for partition, broker_id in gone.holders:
                self._remove(_Removal(gone.name, ReplicaKey(gone.id, partition, broker_id)))
        for broker_id in self._pending.keys() - self._changes.state.brokers.keys():
            self.broker_removed(broker_id)

    def committed(self, changes: Sequence[ReplicaChange]) -> None:
        for change in changes:
            for broker_id in change.before:
                if broker_id not in change.after:
                    self._remove(_Removal(change.topic, ReplicaKey(*change.partition, broker_id)))

    def check_broker(self, broker_id: int) -> None:
        """Order what a broker is to remove, now that it has registered."""
        if self._pending.get(broker_id) and broker_id not in self._working:
            self._working[broker_id] = None
            self._tasks.start(self._work(broker_id))

    def broker_removed(self, broker_id: int) -> None:
        """Wait no more for a broker that will not come back, nor for what it holds."""
        self._tasks.start(self._forget(broker_id))

    async def _forget(self, broker_id: int) -> None:
        pending = self._pending.get(broker_id, {})
        while pending:
            for removal in list(pending):
                self._done(removal)
            if pending:
                await asyncio.sleep(_FIRST_PAUSE)

    def _remove(self, removal: _Removal) -> None:
        self._pending.setdefault(removal.key.broker_id, {})[removal] = None
        self.check_broker(removal.key.broker_id)

    async def _work(self, broker_id: int) -> None:
        """One after the other, while the broker is there; `check_broker` begins anew when it is back."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._random)
        pending = self._pending[broker_id]
        while pending and self._is_there(broker_id):
            failed = False
            for removal in list(pending):
                failed |= not await self._try(removal)
            if failed:
                await asyncio.sleep(backoff.next())
        del self._working[broker_id]

    async def _try(self, removal: _Removal) -> bool:
        """Whether nothing is left to be done."""
        topic_id, partition, broker_id = removal.key
        if not is_wanted(self._changes.state, *removal.key):
            session = None if self._sessions is None else self._sessions.get(broker_id)
            if session is None:
                return False
            try:
                await session.stream.request(RemoveReplica(removal.topic, topic_id, partition), timeout=_REMOVE_SECONDS)
            except RaylogError as error:
                _log.info("%s-%d is still on broker %d: %s", removal.topic, partition, broker_id, error)
                return False
        return self._done(removal)

    def _done(self, removal: _Removal) -> bool:
        """False: that could not be written down just now."""
        topic_id, partition, broker_id = removal.key
        if topic_id in self._changes.state.deleted:
            removed = self._removed.setdefault(topic_id, set())
            removed.add((partition, broker_id))
            records = topic_data_removed(self._changes.state, topic_id, removed)
            try:
                self._changes.submit(records)
            except TooManyBytesInFlight as error:
                _log.info("That topic %s is removed has to wait: %s", removal.topic, error)
                return False
            if records:
                del self._removed[topic_id]
        self._pending[broker_id].pop(removal, None)
        return True

    def _is_there(self, broker_id: int) -> bool:
        return self._sessions is not None and self._sessions.get(broker_id) is not None
