"""Metadata for clients: the topics, leaders and brokers that a broker knows, as of its metadata version.

What must stay true:
- A version is answered for the state at that version and no other.
- Nothing is told before this process has heard all from a controller once. Until then its state is empty, or as old as
  its last snapshot, and a client would take topics for deleted.
- Those who wait for a newer version are bounded in number and in time (rule 31); one too many is answered at once with
  what there is.
- An answer waits for the version that was asked for: an older one wakes nobody. Otherwise a broker that is a moment
  behind would be taken for one that is cut off, and would tell all there is instead of what has changed.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

from raylog.actors.cluster.metadata_answers import metadata_answer
from raylog.actors.cluster.metadata_fold import MetadataFold
from raylog.actors.kernel.answer_room import until_it_reads
from raylog.actors.kernel.background import Timers
from raylog.actors.kernel.stream_interface import Response, Stream
from raylog.actors.protocol.control_messages import GetMetadata, Metadata
from raylog.actors.protocol.names import MAX_NAME_LENGTH
from raylog.errors import MetadataNotReady

_MAX_WAITING: Final = 4096
_MAX_WAIT_MS: Final = 30_000
_MOST_KEPT: Final = 16
_MOST_NAMES: Final = 64


class MetadataService:
    def __init__(self, fold: MetadataFold, timers: Timers, broker_id: int) -> None:
        self._fold = fold
        self._broker_id = broker_id
        self._is_ready = False
        self._timers = timers
        self._waiting: dict[asyncio.Future[None], int] = {}  # with the version than which each wants a newer one
        self._latest: dict[tuple[tuple[str, ...], int], Metadata] = {}  # many ask for the same after a change

    async def answer(self, request: GetMetadata, stream: Stream) -> Response:
        """Answer a question about the metadata. MetadataNotReady; StreamNotOpen: nobody waits any more."""
        is_known = self._is_ready and request.newer_than < self._fold.version
        if not is_known and request.max_wait_ms > 0 and len(self._waiting) < _MAX_WAITING:
            await self._newer(request.newer_than, min(request.max_wait_ms, _MAX_WAIT_MS))
            await until_it_reads(stream)  # a change wakes all that it waits for at once
        if not self._is_ready:
            raise MetadataNotReady(self._broker_id)
        return Response(self._metadata(request.topics, request.known))

    def changed(self) -> None:
        """Answer all that wait for this version."""
        self._latest.clear()
        if self._is_ready:
            self._wake(self._fold.version)

    def begin(self) -> None:
        """Begin to answer: the state is no older than the start of this process. A second call changes nothing."""
        if not self._is_ready:
            self._is_ready = True
            self._wake(self._fold.version)

    def close(self) -> None:
        """Answer all that wait with what there is."""
        self._wake(math.inf)

    def _wake(self, version: float) -> None:
        for waiter in [each for each, newer_than in self._waiting.items() if newer_than < version]:
            del self._waiting[waiter]
            _wake(waiter)

    async def _newer(self, newer_than: int, wait_ms: int) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = newer_than
        timer = self._timers.after(wait_ms, lambda: _wake(waiter))
        try:
            await waiter
        finally:
            self._timers.cancel(timer)
            self._waiting.pop(waiter, None)

    def _metadata(self, topics: tuple[str, ...], known: int) -> Metadata:
        question = topics, known
        answer = self._latest.get(question)
        if answer is None:
            answer = metadata_answer(self._fold, topics, known)
            if _is_short(topics):
                if len(self._latest) >= _MOST_KEPT:
                    self._latest.clear()
                self._latest[question] = answer
        return answer


def _is_short(topics: tuple[str, ...]) -> bool:
    """Return whether these names may be kept: what a client makes up must not fill the memory (rule 34)."""
    return len(topics) <= _MOST_NAMES and all(len(name) <= MAX_NAME_LENGTH for name in topics)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
