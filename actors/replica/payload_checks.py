"""Batches for a compacted topic, where each record has to have a key: looked into before they are appended.

    small by what it says of itself    looked at on the loop, at once
    larger, or it does not say         looked at beside the loop; the producer's later batches wait behind it

What must stay true:
- No more than `QUICK_BYTES` are unpacked on the loop, and no more than 16 × `max.message.bytes` anywhere (rule 34).
- A producer's batches are appended in the order in which they came, whichever of them are parked here (rule 28). Who
  has no producer id is told by its stream.
- After the wait everything is asked again that was asked before it: who leads, and in which epoch (rule 28).
- How many bytes are parked has a bound, over all streams (rule 31).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Request, pass_on
from raylog.actors.replica.hosted_log import HostedLog
from raylog.config import MIB
from raylog.errors import PayloadTooLarge, RaylogError, TooManyBytesInFlight
from raylog.storage.format.append_checks import check_new_batch, check_payload, unpack_limit
from raylog.storage.format.batch_codec import QUICK_BYTES, opens_quickly
from raylog.storage.format.record_batch import HEADER_BYTES, BatchHeader, Bytes, read_header

MAX_PARKED_BYTES: Final = 32 * MIB  # one batch alone may be larger


class _Append(Protocol):
    def __call__(self, checked: BatchHeader | None) -> Answer | LaterAnswer: ...


class _Parked:
    """One batch that is looked at, or waits for those before it of its producer."""

    __slots__ = ("append", "check", "owed", "payload")

    def __init__(self, payload: Bytes, append: _Append, check: Callable[[], BatchHeader] | None) -> None:
        self.payload = payload
        self.append = append
        self.check = check  # None: nothing has to be unpacked
        self.owed = LaterAnswer()


class PayloadChecks:
    """`check_leading` raises once this replica does not lead any more."""

    def __init__(self, hosted: HostedLog, check_leading: Callable[[], None]) -> None:
        self._hosted = hosted
        self._check_leading = check_leading
        self.parked: dict[object, list[_Parked]] = {}  # by producer, in their order; the first is being looked at
        self._bytes = 0

    def append(self, request: Request, append: _Append) -> Answer | LaterAnswer:
        """Let `append` be called as soon as the batch may be taken in, in its producer's order.

        Appends to topics that are not compacted need not come here while nothing is `parked`.
        NullKey, PayloadTooLarge, TooManyBytesInFlight, and whatever else is wrong with a batch.
        """
        producer, batch = _producer(request), request.payload
        config, now_ms = self._hosted.log.config, self._hosted.env.wall_ms()
        if producer in self.parked:
            check = partial(check_new_batch, batch, config, now_ms, control=False) if config.is_compacted else None
            return self._park(producer, batch, append, check)
        if not config.is_compacted:
            return append(None)
        header = check_new_batch(batch, config, now_ms, control=False, unpacks=False)
        if self._is_fine(header, batch):
            return append(header)
        return self._park(producer, batch, append, partial(_opened, header, batch, unpack_limit(config)))

    def _is_fine(self, header: BatchHeader, batch: Bytes) -> bool:
        """False: the loop is not the place to open it. A record without a key is raised."""
        if not opens_quickly(header, batch):
            return False
        try:
            check_payload(header, batch, QUICK_BYTES)
        except PayloadTooLarge:
            return False  # it holds more than it says
        return True

    def _park(
        self, producer: object, batch: Bytes, append: _Append, check: Callable[[], BatchHeader] | None
    ) -> LaterAnswer:
        if self._bytes and self._bytes + len(batch) > MAX_PARKED_BYTES:
            raise TooManyBytesInFlight(len(batch), self._bytes, MAX_PARKED_BYTES)
        parked = _Parked(batch, append, check)
        self._bytes += len(batch)
        queue = self.parked.setdefault(producer, [])
        queue.append(parked)
        if len(queue) == 1:
            self._hosted.start(self._work_off(producer, queue))
        return parked.owed

    async def _work_off(self, producer: object, queue: list[_Parked]) -> None:
        try:
            while queue:
                await self._take_in(queue[0])
                self._bytes -= len(queue.pop(0).payload)
        finally:
            del self.parked[producer]

    async def _take_in(self, parked: _Parked) -> None:
        try:
            checked = None
            if parked.check is not None:
                async with self._hosted.opening:
                    checked = await self._hosted.env.off_loop(parked.check)
            self._check_leading()
            answer = parked.append(checked)
        except RaylogError as error:
            parked.owed.fail(error)
            return
        finally:
            self._hosted.check_offline()
        pass_on(answer, parked.owed)


def _opened(header: BatchHeader, batch: Bytes, limit: int) -> BatchHeader:
    check_payload(header, batch, limit)
    return header


def _producer(request: Request) -> object:
    """Whose order counts. A batch that is no batch is refused in its turn."""
    batch = request.payload
    if len(batch) >= HEADER_BYTES:
        header = read_header(batch)
        if header.has_producer:
            return header.producer_id
    return request.stream
