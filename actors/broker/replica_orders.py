"""Orders of the controller about a broker's replicas: start one, end one, remove one.

What must stay true:
- Orders about one partition are carried out one after the other, so none of them kills what a later one has let in.
- When a start has been answered, no older incarnation of that replica runs (rule 26): either it held the
  directory's lock and was ended, or it can never get it, for it would find the lock taken or its incarnation refused.
- Nothing is removed that the committed state gives to this broker.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

from raylog.actors.broker.controller_link import ControllerLink
from raylog.actors.broker.copy_check import check_piece
from raylog.actors.broker.local_replicas import LocalReplicas
from raylog.actors.broker.replica_directories import FoundReplica, ReplicaDirectories
from raylog.actors.broker.replica_hosts import ReplicaOrder
from raylog.actors.cluster.election.replica_registration import is_wanted
from raylog.actors.cluster.metadata_fold import MetadataFold
from raylog.actors.cluster.partition import PartitionId
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Answer, Response, unknown
from raylog.actors.kernel.together import Together
from raylog.actors.protocol.control_messages import (
    DropSetAside,
    EndReplica,
    ListSetAside,
    RemoveReplica,
    RestoreSetAside,
    SetAside,
    SetAsideListed,
)
from raylog.actors.protocol.copy_check_messages import CheckCopy
from raylog.actors.protocol.incarnations import NO_INCARNATION, epoch_of
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.names import is_internal
from raylog.actors.protocol.remote_errors import failure_of
from raylog.actors.protocol.replication_messages import NO_EPOCH, SuspectBatch
from raylog.actors.protocol.start_messages import (
    ReplicaStart,
    StartRefused,
    StartReplicas,
    StartsUnderWay,
    StartUnderWay,
)
from raylog.config import TopicConfig
from raylog.errors import DirectoryLocked, RaylogError, RemoteFailed, ReplicaNotFree, StaleIncarnation

ORDERS: Final = (StartReplicas, EndReplica, RemoveReplica, RestoreSetAside, ListSetAside, DropSetAside, CheckCopy)
_FREE_SECONDS: Final = 4.0  # for a killed process to let go
_SUSPICION_SECONDS: Final = 10.0
_STATE_SECONDS: Final = 1.0  # for the committed state to agree with an order
_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.2
_HOLDER: Final = re.compile(r"pid (\d+)")

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class _Turns:
    """Turns of one partition, while anybody has one or waits for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.takers = 0


class ReplicaOrders:
    """Carries out what the controller wants of the replicas of one broker."""

    def __init__(
        self,
        env: Environment,
        directories: ReplicaDirectories,
        replicas: LocalReplicas,
        fold: MetadataFold,
        link: ControllerLink,
        broker_id: int,
    ) -> None:
        self._env = env
        self._directories = directories
        self._replicas = replicas
        self._fold = fold
        self._link = link
        self._broker_id = broker_id
        self._rooms = Together(env, directories.sync_rooms)
        self._turns: dict[PartitionId, _Turns] = {}
        self._prepared: dict[PartitionId, int] = {}  # the incarnation that the controller asked for last

    def is_expected(self, partition: PartitionId) -> bool:
        """Whether the controller wants a replica here, as far as is known: by its state, or by its word.

        An order of an earlier controller counts for nothing: its outcome is in the state.
        """
        by_its_word = epoch_of(self._prepared.get(partition, NO_INCARNATION)) == self._link.controller_epoch
        return by_its_word or is_wanted(self._fold.state, *partition, self._broker_id)

    async def carry_out(self, order: Message) -> Answer:
        """Do what one of the `ORDERS` says. Its method tells what is raised."""
        if isinstance(order, ListSetAside):
            return Response(SetAsideListed(await self.list_aside(order)))
        if isinstance(order, StartReplicas):
            return Response(StartsUnderWay(tuple(await asyncio.gather(*map(self._begin, order.starts)))))
        if isinstance(order, CheckCopy):
            directory = self._directories.path(order.topic, order.partition)
            return Response(await check_piece(self._env, directory, order, self.tell_suspicion))
        if isinstance(order, EndReplica):
            await self.end(order)
        elif isinstance(order, RemoveReplica):
            await self.remove(order)
        elif isinstance(order, RestoreSetAside):
            await self.restore(order)
        elif isinstance(order, DropSetAside):
            await self.drop_aside(order)
        else:
            raise unknown(order)
        return None

    async def list_aside(self, order: ListSetAside) -> tuple[SetAside, ...]:
        return tuple(await self._env.off_loop(partial(self._directories.find_aside, order.topic, order.partition)))

    async def drop_aside(self, order: DropSetAside) -> None:
        """Drop a log that was set aside. SetAsideUnknown, DirectoryLocked."""
        await self._env.off_loop(partial(self._directories.drop_aside, order.name, self._env.wall_ms()))
        await self._env.off_loop(self._directories.purge)

    async def tell_suspicion(self, topic_id: bytes, partition: int, offset: int) -> None:
        """Pass a suspicion on to its replica, which looks itself. One that does not run is checked at its opening."""
        session = self._replicas.get((topic_id, partition))
        if session is not None:
            suspicion = SuspectBatch(NO_EPOCH, offset)
            try:
                await session.stream.request(
                    suspicion, topic_id=topic_id, partition=partition, timeout=_SUSPICION_SECONDS
                )
            except RemoteFailed as error:
                raise error.error or error from None

    async def _begin(self, order: ReplicaStart) -> StartUnderWay:
        """Start one of several replicas. One that is refused leaves the others alone."""
        try:
            await self.start(order)
        except RaylogError as error:
            refused = failure_of(error)
            return StartUnderWay(False, StartRefused(refused.name, refused.text, refused.arguments))
        return StartUnderWay(self._replicas.hosts.has_place((order.topic_id, order.partition)))

    async def start(self, order: ReplicaStart) -> None:
        """Start a replica. ReplicaNotFree: its directory is in use. StaleIncarnation: by a later one."""
        partition = order.topic_id, order.partition
        async with self._turn(partition):
            newest = self._prepared.get(partition, NO_INCARNATION)
            if order.incarnation < newest:
                raise StaleIncarnation(order.topic, order.partition, self._broker_id, order.incarnation, newest)
            if await self._is_there(partition, order.incarnation):
                return  # the controller asks a second time
            work = partial(self._directories.make_room, order.topic, order.topic_id, order.partition)
            await self._when_free(order.topic, order.partition, work, self._rooms.do)
            self._replicas.hosts.open(self._order(order))

    async def end(self, order: EndReplica) -> None:
        """Have no earlier incarnation here. Its directory stays as it is."""
        partition = order.topic_id, order.partition
        async with self._turn(partition):
            session = self._replicas.get(partition)
            if session is not None and session.incarnation < order.incarnation:
                await self._replicas.stop(session, is_kept=True)
            await self._is_there(partition, order.incarnation)

    async def _is_there(self, partition: PartitionId, incarnation: int) -> bool:
        """Whether this incarnation, or a later one, is here already; an earlier one is not from now on."""
        self._prepared[partition] = max(incarnation, self._prepared.get(partition, NO_INCARNATION))
        present = self._replicas.hosts.present(partition)
        if present is not None and present >= incarnation:
            return True
        await self._replicas.make_way(partition, "a new incarnation takes its place")
        return False

    def _order(self, order: ReplicaStart) -> ReplicaOrder:
        config = TopicConfig.parse(dict(order.settings))
        return ReplicaOrder(
            order.topic, order.topic_id, order.partition, order.incarnation, order.settings,
            self._directories.path(order.topic, order.partition), config.replica_host, is_internal(order.topic),
        )  # fmt: skip

    async def remove(self, order: RemoveReplica) -> None:
        """Remove a replica. ReplicaNotFree: the state gives it to this broker, or its process does not end."""
        partition = order.topic_id, order.partition
        async with self._turn(partition):
            await self._until_unwanted(order)
            self._prepared.pop(partition, None)
            session = self._replicas.get(partition)
            if session is not None:
                await self._replicas.stop(session, is_kept=False)
            await self._replicas.make_way(partition, "it is removed")
            removal = self._removal(order.topic, *partition)
            if await self._when_free(order.topic, order.partition, removal, self._env.off_loop):
                _log.info("%s-%d was removed.", order.topic, order.partition)
            if order.topic_id not in self._fold.state.topics:
                self._replicas.forget(partition)
        await self._env.off_loop(self._directories.purge)

    def _removal(self, topic: str, topic_id: bytes, partition: int) -> Callable[[int], bool]:
        """Prepare to remove one replica. The state of its partition says how much of it has to be kept."""
        state = self._fold.state.partitions.get((topic_id, partition))
        unclean_epoch = None if state is None else state.unclean_epoch

        def remove(now_ms: int) -> bool:
            return self._directories.remove(topic, topic_id, partition, now_ms, unclean_epoch)

        return remove

    async def restore(self, order: RestoreSetAside) -> None:
        """End the process and put the copy in its place. SetAsideUnknown, SetAsideUnusable, ReplicaNotFree."""
        partition = order.topic_id, order.partition
        async with self._turn(partition):
            await self._replicas.make_way(partition, "a copy that was set aside takes its place")
            work = partial(
                self._directories.restore_aside, order.topic, order.topic_id, order.partition, order.name
            )
            await self._when_free(order.topic, order.partition, work, self._env.off_loop)
        _log.warning("%s-%d was replaced by %s, as a person asked.", order.topic, order.partition, order.name)

    async def _until_unwanted(self, order: RemoveReplica) -> None:
        """The order may be quicker than the commit that it follows from."""
        deadline = asyncio.get_running_loop().time() + _STATE_SECONDS
        while is_wanted(self._fold.state, order.topic_id, order.partition, self._broker_id):
            if asyncio.get_running_loop().time() > deadline:
                raise ReplicaNotFree(order.topic, order.partition, "it is not to be removed, as far as is known here")
            await asyncio.sleep(_FIRST_PAUSE)

    async def sweep(self) -> bool:
        """Remove what a controller no longer knows of: replicas that moved elsewhere while this broker was away.

        To be called when the state is as new as this broker's registration. A replica for which there was an order
        since may be wanted by a state that is newer still, so it is left to the controller. False: to be called again,
        since one of them is in use; it was told to end just now.
        """
        is_done = True
        for found in await self._env.off_loop(self._directories.find):
            partition = found.topic_id, found.partition
            if self.is_expected(partition):
                continue
            if found.in_use:
                is_done = False
                continue
            if not self._is_known(found):
                continue
            async with self._turn(partition):
                if not self.is_expected(partition):
                    _log.warning("%s-%d was moved elsewhere and is removed here.", found.topic, found.partition)
                    work = self._removal(found.topic, *partition)
                    await self._when_free(found.topic, found.partition, work, self._env.off_loop)
        await self._env.off_loop(self._directories.purge)
        return is_done

    def _is_known(self, found: FoundReplica) -> bool:
        state = self._fold.state
        if (found.topic_id, found.partition) in state.partitions or found.topic_id in state.deleted:
            return True
        _log.warning("Nobody knows of %s-%d (topic id %s); it is left alone.", *found[:2], found.topic_id.hex())
        return False

    async def _when_free(
        self, topic: str, partition: int, work: Callable[[int], _T], do: Callable[[Callable[[], _T]], Awaitable[_T]]
    ) -> _T:
        """Do `work`, which takes the wall clock's time, once no process holds the directory; who holds it is ended.

        `do` has it done beside the loop.
        """
        deadline = asyncio.get_running_loop().time() + _FREE_SECONDS
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._env.random)
        while True:
            try:
                return await do(partial(work, self._env.wall_ms()))
            except DirectoryLocked as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise ReplicaNotFree(topic, partition, f"{error.holder} holds its directory") from None
                holder = _HOLDER.fullmatch(error.holder)
                if holder is not None:
                    is_late = asyncio.get_running_loop().time() > deadline - _FREE_SECONDS / 2
                    self._replicas.hosts.free(int(holder[1]), is_late=is_late)
            await asyncio.sleep(backoff.next())

    @asynccontextmanager
    async def _turn(self, partition: PartitionId) -> AsyncIterator[None]:
        turns = self._turns.setdefault(partition, _Turns())
        turns.takers += 1
        try:
            async with turns.lock:
                yield
        finally:
            turns.takers -= 1
            if not turns.takers:
                del self._turns[partition]
