"""A broker's copy of the metadata log (rule 17): on disk where the broker is a voter, in memory elsewhere.

What must stay true:
- A voter acknowledges nothing that is not synced, and no broker acknowledges anything under an epoch lower than its
  promise. A promise is durable on every broker, so that any may become a voter. The log is durable from the batch on
  that names the broker as a voter; before that, the batch is not acknowledged.
- Requests are carried out one after the other, in the order in which they came, whatever becomes of their streams.
- A committed batch is passed on once and in order, and never changes. A controller that wants to change one is refused,
  and the copy goes offline.
- After an I/O error or damage the copy is offline: it acknowledges and promises nothing any more (rule 2). After an I/O
  error its successor does neither, before the machine was booted again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Dispatch, Request, Response
from raylog.actors.metadata_log.files import Loaded, MetadataFiles
from raylog.actors.metadata_log.rules.tail import MetadataSnapshot, StoredBatch, check_chain, decode_batches
from raylog.actors.protocol.control_messages import (
    AppendMetadata,
    InstallSnapshot,
    MetadataAppended,
    MetadataRead,
    Promise,
    Promised,
    ReadMetadata,
)
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_quorum_records import Voter
from raylog.actors.protocol.metadata_records import CommittedBatch
from raylog.errors import (
    ControllerFenced,
    DiskFailed,
    LogDamaged,
    LogOffline,
    MetadataCopyOffline,
    MetadataDiverged,
    RaylogError,
)
from raylog.storage.format.record_batch import Bytes

_log = logging.getLogger(__name__)

OnCommitted: TypeAlias = Callable[[CommittedBatch], None]
OnSnapshot: TypeAlias = Callable[[MetadataSnapshot], None]

SNAPSHOT: Final = -1  # the offset of a ReadMetadata that asks for the snapshot
_FINAL: Final = (DiskFailed, LogDamaged, LogOffline, MetadataDiverged)
_T = TypeVar("_T")


class _Waiting(NamedTuple):
    message: Message
    payload: Bytes
    answer: asyncio.Future[Response]


class MetadataCopy:
    """The copy of one broker, `own`, as `files` have loaded it.

    Where a snapshot was loaded, `on_snapshot` is called at once. A controller has to tell how far the log is committed.
    """

    def __init__(
        self,
        env: Environment,
        files: MetadataFiles,
        loaded: Loaded,
        own: Voter,
        on_committed: OnCommitted,
        on_snapshot: OnSnapshot,
    ) -> None:
        self.offline: asyncio.Future[RaylogError] = asyncio.get_running_loop().create_future()
        self._env = env
        self._files = files
        self._own = own
        self._directory_id = own[1]
        self._on_committed = on_committed
        self._on_snapshot = on_snapshot
        self._promised_epoch, self._mark, self._tail, self._is_unproven = loaded
        self._version = self._tail.start_offset
        self._handlers: Dispatch[Callable[[Any, Bytes], Awaitable[Response]]] = Dispatch({
            AppendMetadata: self._append,
            Promise: self._promise,
            ReadMetadata: self._read,
            InstallSnapshot: self._install,
        })
        self._waiting: deque[_Waiting] = deque()
        self._worker: asyncio.Task[None] | None = None
        if self._version:
            on_snapshot(self._tail.snapshot)

    # --- what it is -----------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The offset after the last batch known to be committed."""
        return self._version

    @property
    def end_offset(self) -> int:
        return self._tail.end_offset

    @property
    def promised_epoch(self) -> int:
        return self._promised_epoch

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The voters that the end of its log names; empty while it has heard of none."""
        return self._tail.voters

    @property
    def is_durable(self) -> bool:
        """Whether the log is kept on disk, as it is if this broker is, or once was, a voter."""
        return self._files.keeps_log

    @property
    def mark(self) -> int:
        """The mark of its directory, as it is on disk."""
        return self._mark

    async def raise_mark(self) -> int:
        """Raise the mark by one; returns it once it is on disk."""
        mark = self._mark + 1
        await self._env.off_loop(partial(self._files.write_mark, mark))
        self._mark = max(self._mark, mark)
        return mark

    # --- requests -------------------------------------------------------------------------------------------------

    def handle(self, request: Request) -> asyncio.Future[Response]:
        """Take a Promise, ReadMetadata, AppendMetadata or InstallSnapshot."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(request.message, request.payload, answer))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.ensure_future(self._work())
        return answer

    async def close(self, timeout: float = 10.0) -> None:
        """Refuse what is still to be done, and close the log cleanly."""
        if not self.offline.done():
            self.offline.set_result(MetadataCopyOffline("It was closed."))
        if self._worker is not None:
            _, late = await asyncio.wait({self._worker}, timeout=timeout)
            if late:  # the disk hangs; closing files under it would be worse than leaving them open
                _log.error("The copy of the metadata log is not closed: a request takes over %.0f s.", timeout)
                return
        await self._env.off_loop(self._files.close)

    async def _work(self) -> None:
        while self._waiting:
            message, payload, answer = self._waiting.popleft()
            try:
                response = await self._carry_out(message, payload)
            except RaylogError as error:
                if isinstance(error, _FINAL):
                    self._go_offline(error)
                if isinstance(error, DiskFailed):
                    await self._env.off_loop(partial(self._files.remember_failure, error))
                _refuse(answer, error)
            except Exception as error:
                _log.critical("The copy of the metadata log cannot go on: %r", error)
                self._go_offline(MetadataCopyOffline(f"{error!r}."))
                _refuse(answer, self.offline.result())
                raise
            else:
                if not answer.done():  # else its stream has ended
                    answer.set_result(response)

    async def _carry_out(self, message: Message, payload: Bytes) -> Response:
        if self.offline.done():
            raise MetadataCopyOffline(self.offline.result().describe())
        return await self._handlers.handler_of(message)(message, payload)

    def _go_offline(self, error: RaylogError) -> None:
        if not self.offline.done():
            _log.critical("The copy of the metadata log goes offline: %s", error)
            self.offline.set_result(error)

    # --- whom to obey ---------------------------------------------------------------------------------------------

    async def _promise(self, asked: Promise, _: Bytes) -> Response:
        epoch = asked.controller_epoch
        granted = epoch > self._promised_epoch  # each epoch once, so that two controllers never share one
        if granted:
            await self._keep_promise(epoch)
            _log.info("Controller epoch %d is promised to %s.", epoch, asked.controller)
        tail = self._tail
        place = tail.last_epoch, tail.start_offset, tail.end_offset
        known = tail.voters, self._mark, self._is_unproven
        return Response(Promised(self._directory_id, granted, self._promised_epoch, *place, *known))

    async def _obey(self, epoch: int) -> None:
        """Refuse a controller whose time is over. One with a higher epoch has its majority without this broker."""
        if epoch < self._promised_epoch:
            raise ControllerFenced(epoch, self._promised_epoch)
        if epoch > self._promised_epoch:
            await self._keep_promise(epoch)

    async def _keep_promise(self, epoch: int) -> None:
        await self._env.off_loop(lambda: self._files.write_promise(epoch))
        self._promised_epoch = epoch

    async def _read(self, message: ReadMetadata, _: Bytes) -> Response:
        await self._obey(message.controller_epoch)
        if message.offset == SNAPSHOT:
            snapshot = self._tail.snapshot
            return Response(MetadataRead(snapshot.version, snapshot.epoch), snapshot.data)
        data = self._tail.read(message.offset, message.max_bytes)[0]
        return Response(MetadataRead(message.offset, self._tail.last_epoch), data)

    # --- the log --------------------------------------------------------------------------------------------------

    async def _append(self, message: AppendMetadata, payload: Bytes) -> Response:
        await self._obey(message.controller_epoch)
        if self._tail.epoch_before(message.base_offset) != message.previous_epoch:
            end_of_epoch = self._tail.epoch_end(message.previous_epoch)
            return self._appended(False, *end_of_epoch)
        batches = decode_batches(payload)
        check_chain(batches, message.base_offset, message.previous_epoch)
        await self._take_over(self._new_ones(batches))
        await self._become_durable()
        end = batches[-1].end_offset if batches else message.base_offset
        self._commit(min(message.commit_offset, end))  # further on it may not be the controller's log
        await self._prove_by(message)
        last_epoch = batches[-1].epoch if batches else message.previous_epoch
        return self._appended(True, last_epoch, end)

    def _appended(self, accepted: bool, last_epoch: int, end_offset: int) -> Response:
        return Response(MetadataAppended(self._directory_id, accepted, last_epoch, end_offset, self._mark))

    async def _prove_by(self, message: AppendMetadata) -> None:
        """Be relied upon again once all is here that this controller has committed, with a record of its own.

        It has chosen its log without this one's word. What it commits later it asks for anew on each stream.
        """
        holds_all = self._version >= message.commit_offset
        if self._is_unproven and holds_all and self._tail.epoch_before(self._version) == message.controller_epoch:
            await self._env.off_loop(self._files.prove)
            self._is_unproven = False
            _log.info("Broker %d holds all of the metadata log again.", self._own[0])

    def _new_ones(self, batches: Sequence[StoredBatch]) -> Sequence[StoredBatch]:
        """Leave out batches that are here already. One epoch has one writer, so an epoch and an end name a batch."""
        held = 0
        while held < len(batches) and self._tail.epoch_before(batches[held].end_offset) == batches[held].epoch:
            held += 1
        return batches[held:]

    async def _take_over(self, batches: Sequence[StoredBatch]) -> None:
        if not batches:
            return
        base_offset = batches[0].base_offset
        if base_offset < self._tail.end_offset:
            await self._truncate_to(base_offset)
        if self.is_durable:
            data = b"".join(batch.data for batch in batches)
            await self._on_disk(lambda now_ms: self._files.append(data, now_ms))
        self._tail.append(batches)

    async def _truncate_to(self, offset: int) -> None:
        """Cut the log where the controller's log leaves it. The rest was never committed."""
        if offset < self._version:
            raise MetadataDiverged(offset, self._version)
        if self.is_durable:
            await self._on_disk(lambda now_ms: self._files.truncate_to(offset, now_ms))
        self._tail.truncate_to(offset)

    async def _become_durable(self) -> None:
        if not self.is_durable and self._own in self._tail.voters:
            await self._on_disk(lambda now_ms: self._files.begin_log(self._tail, now_ms))
            _log.info("Broker %d keeps the metadata log on disk: it is a voter.", self._own[0])

    async def _install(self, message: InstallSnapshot, payload: Bytes) -> Response:
        await self._obey(message.controller_epoch)
        if message.offset > self._tail.start_offset:
            snapshot = await self._env.off_loop(
                lambda: MetadataSnapshot.decode(message.offset, message.epoch, payload)
            )
            await self._begin_with(snapshot)
            await self._become_durable()
        return self._appended(True, message.epoch, message.offset)

    async def _begin_with(self, snapshot: MetadataSnapshot) -> None:
        agrees = self._tail.epoch_before(snapshot.version) == snapshot.epoch
        if agrees:
            self._commit(snapshot.version)  # there are snapshots of what is committed only
        elif snapshot.version <= self._version:
            raise MetadataDiverged(snapshot.version, self._version)
        if self.is_durable:
            await self._on_disk(lambda now_ms: self._files.install(snapshot, agrees, now_ms))
        self._tail.replace_start(snapshot)
        if not agrees:
            self._version = snapshot.version
            self._on_snapshot(snapshot)

    def _commit(self, offset: int) -> None:
        if offset <= self._version:
            return
        for batch in self._tail.batches_from(self._version):
            if batch.end_offset > offset:
                break
            self._version = batch.end_offset
            self._on_committed(batch.committed)

    async def _on_disk(self, work: Callable[[int], _T]) -> _T:
        """Do slow work beside the loop, with the time of day as the log wants it. Nothing else runs meanwhile."""
        now_ms = self._env.wall_ms()
        return await self._env.off_loop(lambda: work(now_ms))


def _refuse(answer: asyncio.Future[Response], error: RaylogError) -> None:
    if not answer.done():
        answer.set_exception(error)
