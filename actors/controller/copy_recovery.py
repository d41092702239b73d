"""The requests of people about copies (rule 7): which there are, and that one of them is to lead.

    describe ──► what brokers answer, and the state            those that do not answer are named
    recover  ──► choose                                        the copy of a running replica
             ──► hold ──► the broker restores ──► registered ──► choose        a copy that was set aside
                             └── refused, or not in time ──► let go: all as before

What must stay true: nothing is given up without `accept_loss`, and nobody leads while a copy is put in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from raylog.actors.cluster.copies import (
    CopyDescription,
    PartitionCopies,
    SetAsideDescription,
    SetAsideListing,
    copies_of,
    set_aside_on,
    what_is_lost,
)
from raylog.actors.cluster.election.persons_choice import choose, hold, incarnations_of, let_go
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.controller.changes import ClusterChanges
from raylog.actors.controller.sessions import BrokerSessions
from raylog.actors.kernel.stream_interface import Response
from raylog.actors.protocol.control_messages import (
    DropSetAside,
    ListSetAside,
    RestoreSetAside,
    SetAsideListed,
)
from raylog.actors.protocol.messages import Message
from raylog.errors import (
    AdminTimedOut,
    BrokerNotAvailable,
    LossNotAccepted,
    RaylogError,
    RemoteFailed,
    SetAsideUnknown,
    SetAsideUnusable,
)
from raylog.storage.directory.doubts import RESTORED

_ALL_PARTITIONS: Final = -1
_LIST_SECONDS: Final = 8.0  # a broker reads a segment of each log that is set aside
_ADMIN_SECONDS: Final = 30.0


class CopyRecovery:
    """`ControllerAdmin` is one of these."""

    def __init__(self, changes: ClusterChanges, sessions: BrokerSessions) -> None:
        self._changes = changes
        self._sessions = sessions

    # --- looking --------------------------------------------------------------------------------------------------

    async def describe_copies(self, topic: str, partition: int, *, timeout: float = _ADMIN_SECONDS) -> PartitionCopies:
        """Every copy there is. UnknownTopic, UnknownPartition."""
        self._changes.state.partition_named(topic, partition)
        aside = await self._listed(ListSetAside(topic, partition), timeout)
        known = self._changes.state.partition_named(topic, partition)
        return copies_of(self._changes.state, self._changes.live, known, aside)

    async def list_set_aside(self, *, timeout: float = _ADMIN_SECONDS) -> SetAsideListing:
        """All logs that are set aside, of deleted topics too."""
        return await self._listed(ListSetAside("", _ALL_PARTITIONS), timeout)

    async def _listed(self, question: ListSetAside, timeout: float) -> SetAsideListing:
        brokers = sorted(self._changes.state.brokers)
        seconds = min(timeout / 2, _LIST_SECONDS)
        answers = await asyncio.gather(
            *(self._ask(broker, question, seconds) for broker in brokers), return_exceptions=True
        )
        logs: list[SetAsideDescription] = []
        unreachable = []
        for broker, answer in zip(brokers, answers, strict=True):
            if isinstance(answer, Response) and isinstance(answer.message, SetAsideListed):
                logs += [set_aside_on(broker, told) for told in answer.message.found]
            elif isinstance(answer, BaseException) and not isinstance(answer, RaylogError):
                raise answer
            else:
                unreachable.append(broker)
        return SetAsideListing(tuple(logs), tuple(unreachable))

    async def _ask(self, broker: int, message: Message, seconds: float) -> Response:
        """BrokerNotAvailable; what the broker raised; a StreamError where it does not answer."""
        session = self._sessions.get(broker)
        if session is None or session.stream.closed.done():
            raise BrokerNotAvailable(broker, "it is not connected")
        try:
            return await session.stream.request(message, timeout=seconds)
        except RemoteFailed as failed:
            raise failed.error or failed from None

    # --- deciding -------------------------------------------------------------------------------------------------

    async def recover_partition(
        self,
        topic: str,
        partition: int,
        broker: int,
        *,
        accept_loss: bool = False,
        aside: str = "",
        timeout: float = _ADMIN_SECONDS,
    ) -> PartitionCopies:
        """Let this broker's copy lead, or the one that is set aside there under this name. The copies afterwards.

        UnknownTopic, UnknownPartition, UnknownBroker, BrokerNotAvailable, ElectionNotNeeded, NeverLed, LossNotAccepted,
        SetAsideUnknown, SetAsideUnusable.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        self._changes.state.broker(broker)
        copies = await self.describe_copies(topic, partition, timeout=timeout)
        chosen = _chosen(copies, broker, aside)
        if not (accept_loss or (not aside and (chosen.in_sync or chosen.eligible))):
            raise LossNotAccepted(topic, partition, broker, what_is_lost(copies, chosen))
        before = self._changes.state.partition_named(topic, partition)
        if aside:
            await self._restore(topic, before, chosen, deadline)
        else:
            records = choose(self._changes.state, self._changes.live, before.id, broker)
            await self._commit(records, deadline, f"recovering {topic}-{partition}")
        return await self.describe_copies(topic, partition, timeout=timeout)

    async def _restore(self, topic: str, before: PartitionState, chosen: CopyDescription, deadline: float) -> None:
        what = f"restoring {chosen.name} on broker {chosen.broker}"
        incarnations = incarnations_of(self._changes.state, before)
        await self._commit(hold(self._changes.state, before.id), deadline, what)
        try:
            order = RestoreSetAside(topic, before.topic_id, before.partition, chosen.name)
            await self._ask(chosen.broker, order, deadline - _now())
            key = ReplicaKey(*before.id, chosen.broker)
            if not await self._changes.until(lambda: self._is_restored(key, incarnations), deadline - _now()):
                raise BrokerNotAvailable(chosen.broker, "its replica did not start in time with the restored copy")
            records = choose(self._changes.state, self._changes.live, before.id, chosen.broker)
        except RaylogError:
            self._changes.submit(let_go(self._changes.state, self._changes.live, before, incarnations))
            raise
        await self._commit(records, deadline, what)

    def _is_restored(self, key: ReplicaKey, incarnations: Mapping[int, int]) -> bool:
        registered = self._changes.state.replicas.get(key)
        if registered is None or registered.incarnation == incarnations.get(key.broker_id):
            return False
        return registered.unproven == RESTORED and self._changes.live.replicas.get(key) == registered.incarnation

    async def drop_set_aside(self, name: str, *, broker: int | None = None, timeout: float = _ADMIN_SECONDS) -> int:
        """A log that is not needed any more; returns its broker. SetAsideUnknown, SetAsideUnusable, BrokerNotAvailable.

        `broker`: where several have one of this name.
        """
        listing = await self.list_set_aside(timeout=timeout)
        holders = [each.broker for each in listing.logs if each.name == name and broker in (None, each.broker)]
        if not holders:
            raise SetAsideUnknown(name)
        if len(holders) > 1:
            raise SetAsideUnusable(name, f"brokers {', '.join(map(str, holders))} have one of this name: say which")
        await self._ask(holders[0], DropSetAside(name), timeout / 2)
        return holders[0]

    async def _commit(self, records: Sequence[Message], deadline: float, what: str) -> None:
        committed = self._changes.submit(records)
        await asyncio.wait([committed], timeout=max(0.0, deadline - _now()))
        if not committed.done():
            raise AdminTimedOut(what, round(1000 * _ADMIN_SECONDS))
        committed.result()


def _chosen(copies: PartitionCopies, broker: int, aside: str) -> CopyDescription:
    """The chosen copy of a broker that has a replica of the partition. That is replaced where the copy is `aside`."""
    own = {each.name: each for each in copies.copies if each.broker == broker}
    if "" not in own:
        raise BrokerNotAvailable(broker, "it holds no replica of this partition")
    if aside not in own:
        raise SetAsideUnknown(aside)
    if own[aside].unusable:
        raise SetAsideUnusable(aside, own[aside].unusable)
    return own[aside]


def _now() -> float:
    return asyncio.get_running_loop().time()
