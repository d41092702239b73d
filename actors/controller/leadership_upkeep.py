"""Elections that no event asks for: of new partitions, of those in doubt, and preferred ones for balance.

What must stay true:
- A new partition waits for its replicas, and one in doubt or unused (rule 7) for all of its own, but not for ever:
  after a while those that are there are enough. What is lost by an election in doubt is lost for good, so a replica
  whose broker is there is waited for for longer: its process may have to be started a second time. Where all are there,
  one may not have told yet how far it is by now. No record says when it has, so it is looked for.
- A preferred replica that has come back leads again only after it was able to for some time; so one that comes and goes
  does not move its leadership each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from raylog.actors.cluster.election.leader_election import PREFERRED, awaits_others, elect, elect_leaders
from raylog.actors.cluster.partition import PartitionId, PartitionState
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.controller.changes import ClusterChanges, ReplicaChange
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.errors import TooManyBytesInFlight

_FIRST_ELECTION_SECONDS: Final = 2.0
_DOUBT_SECONDS: Final = 10.0
_START_SECONDS: Final = 45.0  # more than `replica_supervisor` gives a process before it starts another
_LOOK_SECONDS: Final = 0.5
_BALANCE_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class LeadershipUpkeep:
    """`run` looks again and again; `balance_leaders` is Kafka's `auto.leader.rebalance.enable`."""

    def __init__(self, changes: ClusterChanges, *, balance_leaders: bool) -> None:
        self._changes = changes
        self._balances = balance_leaders
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[PartitionId, float] = {}  # new, in doubt, or unused: since when
        self._unbalanced: dict[PartitionId, float] = {}
        self._balanced_as_of: tuple[int, frozenset[int]] = (-1, frozenset())

    def begin(self) -> None:
        self._note(self._changes.state.partitions)

    def committed(self, changes: Sequence[ReplicaChange]) -> None:
        self._note(change.partition for change in changes)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                self._elect_waiting()
                if self._balances:
                    self._balance()
            except TooManyBytesInFlight as error:
                _log.warning("Elections have to wait: %s", error)

    def _note(self, partitions: Iterable[PartitionId]) -> None:
        for partition in partitions:
            state = self._changes.state.partitions.get(partition)
            if state is None or not self._patience(state):
                self._waiting.pop(partition, None)
            elif awaits_others(state):  # a replica that came back just now may go again: they wait for each other anew
                self._waiting[partition] = self._loop.time()
            else:
                self._waiting.setdefault(partition, self._loop.time())

    def _elect_waiting(self) -> None:
        now = self._loop.time()
        for partition, since in list(self._waiting.items()):
            state = self._changes.state.partitions.get(partition)
            patience = 0.0 if state is None else self._patience(state)
            if state is None or not patience:
                del self._waiting[partition]
            elif now - since >= patience or (awaits_others(state) and self._all_are_there(state)):
                waited = now - since >= patience
                self._changes.submit(elect(self._changes.state, self._changes.live, *partition, waited=waited))

    def _balance(self) -> None:
        self._find_unbalanced()
        now = self._loop.time()
        due = [each for each, since in self._unbalanced.items() if now - since >= _BALANCE_SECONDS]
        state = self._changes.state
        names = [(state.topics[topic_id].name, partition) for topic_id, partition in due]
        if names:
            elections = elect_leaders(state, self._changes.live, PREFERRED, names)
            self._changes.submit(elections.records)
            for partition in due:
                del self._unbalanced[partition]

    def _find_unbalanced(self) -> None:
        """Keep what was unbalanced before at its time. A state that has not changed needs no look, nor do disks."""
        as_of = self._changes.version, frozenset(self._changes.live.full)
        if self._balanced_as_of == as_of and not self._unbalanced:
            return
        self._balanced_as_of = as_of
        now = self._loop.time()
        self._unbalanced = {
            partition: self._unbalanced.get(partition, now)
            for partition, state in self._changes.state.partitions.items()
            if self._could_be_balanced(state)
        }

    def _could_be_balanced(self, state: PartitionState) -> bool:
        preferred = state.replicas[0]
        return (
            state.leader not in (NO_LEADER, preferred)
            and preferred in state.isr
            and preferred not in self._changes.live.full  # it would hand over again (`full_disk.py`)
            and self._changes.state.is_usable(preferred, self._changes.live)
        )

    def _patience(self, state: PartitionState) -> float:
        """The time to wait for replicas that are missing; 0: its elections wait for none."""
        if state.never_led:
            return _FIRST_ELECTION_SECONDS
        if not awaits_others(state):
            return 0.0
        return _START_SECONDS if self._is_starting(state) else _DOUBT_SECONDS

    def _is_starting(self, state: PartitionState) -> bool:
        """Whether a replica is missing whose broker is there."""
        live = self._changes.live
        return any(
            broker_id in live.brokers and ReplicaKey(*state.id, broker_id) not in live.replicas
            for broker_id in state.replicas
        )

    def _all_are_there(self, state: PartitionState) -> bool:
        replicas = self._changes.live.replicas
        return all(ReplicaKey(*state.id, broker_id) in replicas for broker_id in state.replicas)
