"""Metadata for clients: the topics, leaders and brokers that a broker knows, as of its metadata version.

What must stay true:
- A version is answered for the state at that version and no other.
- Nothing is told before this process has heard all from a controller once. Until then its state is empty, or as old as
  its last snapshot, and a client would take topics for deleted.
- Those who wait for a newer version are bounded in number and in time (rule 31); one too many is answered at once with
  what there is.
"""

from __future__ import annotations

import asyncio
from typing import Final

from raylog.actors.cluster.assignments import broker_metadata_of, coordinator_metadata_of, metadata_of
from raylog.actors.cluster.metadata_fold import MetadataFold
from raylog.actors.kernel.answer_room import until_it_reads
from raylog.actors.kernel.background import Timers
from raylog.actors.kernel.stream_interface import Response, Stream
from raylog.actors.protocol.control_messages import GetMetadata, Metadata
from raylog.errors import MetadataNotReady

_MAX_WAITING: Final = 4096
_MAX_WAIT_MS: Final = 30_000


class MetadataService:
    def __init__(self, fold: MetadataFold, timers: Timers, broker_id: int) -> None:
        self._fold = fold
        self._broker_id = broker_id
        self._is_ready = False
        self._timers = timers
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._latest: Metadata | None = None  # of all topics: many ask for it at once after a change

    async def answer(self, request: GetMetadata, stream: Stream) -> Response:
        """Answer a question about the metadata. MetadataNotReady; StreamNotOpen: nobody waits any more."""
        is_known = self._is_ready and request.newer_than < self._fold.version
        if not is_known and request.max_wait_ms > 0 and len(self._waiting) < _MAX_WAITING:
            await self._newer(min(request.max_wait_ms, _MAX_WAIT_MS))
            await until_it_reads(stream)  # a change wakes all that it waits for at once
        if not self._is_ready:
            raise MetadataNotReady(self._broker_id)
        return Response(self._metadata(request.topics))

    def changed(self) -> None:
        """Answer all that wait: there is a newer version."""
        self._latest = None
        if self._is_ready:
            self._wake_all()

    def begin(self) -> None:
        """Begin to answer: the state is no older than the start of this process. A second call changes nothing."""
        if not self._is_ready:
            self._is_ready = True
            self._wake_all()

    def _wake_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            _wake(waiter)

    def close(self) -> None:
        """Answer all that wait with what there is."""
        self._wake_all()

    async def _newer(self, wait_ms: int) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        timer = self._timers.after(wait_ms, lambda: _wake(waiter))
        try:
            await waiter
        finally:
            self._timers.cancel(timer)
            self._waiting.pop(waiter, None)

    def _metadata(self, topics: tuple[str, ...]) -> Metadata:
        if topics:
            return self._make(topics)
        if self._latest is None:
            self._latest = self._make(())
        return self._latest

    def _make(self, topics: tuple[str, ...]) -> Metadata:
        state = self._fold.state
        return Metadata(
            self._fold.version,
            state.cluster_id,
            metadata_of(state, topics),
            broker_metadata_of(state),
            coordinator_metadata_of(state),
        )


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
