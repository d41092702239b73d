"""Replicas in another kind of host than their topic asks for (`replica.host`), and their moves to the right one.

    follower in the wrong host ──everybody in sync──► ended ──started in the right one──► in sync again
    leader in the wrong host   ──everybody in sync──► another one leads ──► as a follower

What must stay true: of a partition one replica moves at a time, and only while all others are in sync. So as many
acknowledge as before, less one, and nobody waits for a leader longer than for an election.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from raylog.actors.cluster.election.standing_down import stand_down
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.controller.changes import ClusterChanges
from raylog.actors.controller.replica_starts import ReplicaSupervisor
from raylog.actors.protocol.control_messages import StandDown
from raylog.config import HOST_AUTO
from raylog.errors import EligibleLeadersNotAvailable, RaylogError

_LOOK_SECONDS: Final = 1.0
_log = logging.getLogger(__name__)


class _Move(NamedTuple):
    key: ReplicaKey
    name: str  # of its partition, for people
    room: str  # that its topic asks for


class HostMoves:
    """Moves of one replica of the cluster at a time, since `replica.host` changes rarely."""

    def __init__(self, changes: ClusterChanges, supervisor: ReplicaSupervisor) -> None:
        self._changes = changes
        self._supervisor = supervisor
        self._settled_as_of: object = None  # when all were where they should be

    async def run(self) -> None:
        """Move what is in the wrong host, for as long as this controller serves."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            as_of = self._changes.version, self._changes.marks_heard
            if as_of == self._settled_as_of:
                continue
            move = next(self._due(), None)
            if move is None:
                self._settled_as_of = as_of
            else:
                try:
                    await self._carry_out(move)
                except RaylogError as error:  # it is looked at again
                    _log.warning("%s on broker %d has not moved yet: %s", move.name, move.key.broker_id, error)

    def _due(self) -> Iterator[_Move]:
        """Yield moves, followers first."""
        state = self._changes.state
        wanted = {
            topic.id: topic.config.replica_host
            for topic in state.topics.values()
            if not topic.is_internal and topic.config.replica_host != HOST_AUTO
        }
        if not wanted:
            return
        for partition in state.partitions.values():
            room = wanted.get(partition.topic_id)
            if room is not None and self._is_whole(partition):
                wrong = [each for each in partition.replicas if self._room(partition, each) not in ("", room)]
                wrong.sort(key=lambda broker_id, leader=partition.leader: broker_id == leader)  # type: ignore[misc]
                for broker_id in wrong[:1]:
                    name = f"{state.name_of(partition)}-{partition.partition}"
                    yield _Move(ReplicaKey(*partition.id, broker_id), name, room)

    def _is_whole(self, partition: PartitionState) -> bool:
        """Whether all its replicas run and are in sync."""
        live = self._changes.live.replicas
        return set(partition.isr) == set(partition.replicas) and all(
            ReplicaKey(*partition.id, broker_id) in live for broker_id in partition.replicas
        )

    def _room(self, partition: PartitionState, broker_id: int) -> str:
        """Return the room of the host that it runs in; empty: not known yet."""
        key = ReplicaKey(*partition.id, broker_id)
        marks = self._changes.live.marks_of(key, self._changes.state.incarnation(*key))
        return "" if marks is None else marks.room

    async def _carry_out(self, move: _Move) -> None:
        key, state = move.key, self._changes.state
        _log.info("%s on broker %d moves to a host that is %s.", move.name, key.broker_id, move.room)
        asked = StandDown(*key, state.incarnation(*key), False, f"it moves to a host that is {move.room}")
        try:
            await self._changes.commit(stand_down(state, self._changes.live, asked))
        except EligibleLeadersNotAvailable:
            _log.info("%s has no other replica, so it is away for a moment.", move.name)
        await self._supervisor.end(key)
