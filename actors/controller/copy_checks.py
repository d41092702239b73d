"""Copies that are about to be the only ones of their partitions are read whole first (rule 1).

    reassigned to one replica ──► it is read, piece by piece ──► sound: the others go
                                      └─ not sound: it hands over and is fetched anew, and is read again

Without that a bit that has rotted where nobody has read it would be found when no other copy is left.

What must stay true: a copy counts as sound only for the incarnation that was asked for, and for the reassignment under
way. Nothing here waits for one partition before it looks after another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from random import Random
from typing import Final

from raylog.actors.cluster.election.isr_and_elr import facts_of
from raylog.actors.cluster.election.leader_election import awaits_check, settle
from raylog.actors.cluster.partition import PartitionId
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.controller.changes import ClusterChanges, ReplicaChange
from raylog.actors.controller.sessions import BrokerSessions
from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.stream_interface import expected
from raylog.actors.protocol.copy_check_messages import CheckCopy, CopyChecked
from raylog.errors import BrokerNotAvailable, RaylogError

_PIECE_SECONDS: Final = 15.0
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 10.0

_log = logging.getLogger(__name__)


class CopyChecks:
    def __init__(
        self, changes: ClusterChanges, sessions: BrokerSessions, tasks: BackgroundTasks, random: Random
    ) -> None:
        self._changes = changes
        self._sessions = sessions
        self._tasks = tasks
        self._random = random
        self._working: set[PartitionId] = set()

    def begin(self) -> None:
        for partition in self._changes.state.partitions:
            self._look(partition)

    def committed(self, changes: Sequence[ReplicaChange]) -> None:
        for change in changes:
            self._look(change.partition)

    def _look(self, partition: PartitionId) -> None:
        if self._awaited(partition) is None:
            self._changes.forget_sound(partition)
        elif partition not in self._working:
            self._working.add(partition)
            self._tasks.start(self._work(partition))

    def _awaited(self, partition: PartitionId) -> ReplicaKey | None:
        state = self._changes.state.partitions.get(partition)
        return next((ReplicaKey(*partition, broker) for broker in awaits_check(state)), None) if state else None

    async def _work(self, partition: PartitionId) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._random)
        try:
            while (key := self._awaited(partition)) is not None:
                try:
                    await self._check(key)
                    backoff.reset()
                except RaylogError as error:
                    _log.info("The copy of %s on broker %d is not read yet: %s", _name(key), key.broker_id, error)
                if self._awaited(partition) == key:
                    await asyncio.sleep(backoff.next())
        finally:
            self._working.discard(partition)

    async def _check(self, key: ReplicaKey) -> None:
        """Read a copy to its end, and complete what waits for it. RaylogError: begin anew."""
        incarnation = self._changes.live.replicas.get(key)
        place = 0, 0, -1
        while self._awaited(key[:2]) == key:
            if incarnation is None or self._changes.live.replicas.get(key) != incarnation:
                raise BrokerNotAvailable(key.broker_id, "its replica does not run")
            checked = await self._ask(key, *place)
            if checked.is_through:
                self._changes.found_sound(key, incarnation)
                self._complete(key)
                return
            place = checked.base_offset, checked.position, checked.next_offset

    async def _ask(self, key: ReplicaKey, base_offset: int, position: int, next_offset: int) -> CopyChecked:
        topic_id, partition, broker_id = key
        session = self._sessions.get(broker_id)
        if session is None:
            raise BrokerNotAvailable(broker_id, "it is not registered")
        topic = self._changes.state.topics[topic_id].name
        order = CheckCopy(topic, topic_id, partition, base_offset, position, next_offset)
        answer = await session.stream.request(order, timeout=_PIECE_SECONDS)
        return expected(answer.message, CopyChecked, session.stream.peer)

    def _complete(self, key: ReplicaKey) -> None:
        before = self._changes.state.partitions.get(key[:2])
        if before is not None:
            facts = facts_of(self._changes.state, self._changes.live, before)
            self._changes.submit(settle(before, before, facts, "the copy that stays was read whole"))


def _name(key: ReplicaKey) -> str:
    return f"{key.topic_id.hex()}-{key.partition}"
