"""Futures that `Producer.send` returns: a view of one record's place in its batch.

    future.result(timeout=10)          RecordMetadata, or the error; `get` is the same, under kafka-python's name
    future.exception(timeout=10)       the error, or None
    future.add_callback(f, *extra)     f(*extra, metadata) when it is delivered      } on the producer's background
    future.add_errback(f, *extra)      f(*extra, error) when it has failed           } thread: be quick, and do not
    future.add_done_callback(f)        f(future) in either case                      } wait for other records there
    future.done()                      whether either has happened
    await future                       the same inside a coroutine

A million of these are made a second, and most are dropped at once. A future is therefore a tuple, the cheapest object
with methods that Python makes. It holds the batch and twice the record's place in it (`PartitionQueue.records` has two
items a record), and nothing of its own: the outcome is the batch's.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from time import monotonic
from typing import Any, Final, NoReturn

from raylog.api.connection.client_threads import SERVING_THREADS
from raylog.api.connection.records import CREATE_TIME, LOG_APPEND_TIME, RecordMetadata
from raylog.api.producer.rules.producer_batch import ProducerBatch
from raylog.errors import ResultNotReady, WaitRefused

_SLICE_SECONDS: Final = 0.5  # a Ctrl-C that comes just before a thread goes to sleep does not wake it up


class RecordFuture(tuple):  # type: ignore[type-arg]  # what it holds is nobody's business
    """The outcome of one sent record. Made by `Producer.send` only."""

    __slots__ = ()

    def done(self) -> bool:
        """Whether the record is delivered or has failed."""
        batch: ProducerBatch = self[0]
        return batch.outcome is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return the record's place in the log. Raises why it failed; ResultNotReady after `timeout` seconds.

        >>> metadata = producer.send("clicks", b"value").result(timeout=10)      # doctest: +SKIP
        >>> metadata.partition, metadata.offset                                  # doctest: +SKIP
        (0, 42)
        """
        batch, index = self[0], self[1] >> 1
        if batch.outcome is None:
            wait_for(batch, timeout)
        return _metadata(batch, index)

    get = result

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Return why the record failed, or None once it is delivered."""
        batch, index = self[0], self[1] >> 1
        if batch.outcome is None:
            wait_for(batch, timeout)
        error: Exception | None = batch.outcome_of(index)[0].error
        return error

    def succeeded(self) -> bool:
        """Whether the record is delivered by now."""
        return self.done() and self.exception() is None

    def failed(self) -> bool:
        """Whether the record has failed by now."""
        return self.done() and self.exception() is not None

    def add_callback(self, callback: Callable[..., object], *extra: Any, **named: Any) -> RecordFuture:
        """Call `callback(*extra, metadata)` when the record is delivered."""
        batch, index = self[0], self[1] >> 1

        def told() -> None:
            if batch.outcome_of(index)[0].error is None:
                callback(*extra, _metadata(batch, index), **named)

        batch.listen(told)
        return self

    def add_errback(self, errback: Callable[..., object], *extra: Any, **named: Any) -> RecordFuture:
        """Call `errback(*extra, error)` when the record has failed."""
        batch, index = self[0], self[1] >> 1

        def told() -> None:
            error = batch.outcome_of(index)[0].error
            if error is not None:
                errback(*extra, error, **named)

        batch.listen(told)
        return self

    def add_both(self, callback: Callable[..., object], *extra: Any, **named: Any) -> RecordFuture:
        """Call it in either case, with the metadata or with the error."""
        return self.add_callback(callback, *extra, **named).add_errback(callback, *extra, **named)

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Call `callback(future)` in either case, as `concurrent.futures` does it."""
        batch: ProducerBatch = self[0]
        batch.listen(lambda: callback(self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Await the record's place in the log, on any event loop."""
        batch, index = self[0], self[1] >> 1
        if batch.outcome is None:
            batch.hurry()
            yield from told_on_this_loop(batch.listen)
        return _metadata(batch, index)

    def __repr__(self) -> str:
        batch, index = self[0], self[1] >> 1
        state = "pending" if batch.outcome is None else repr(batch.outcome_of(index)[0].error or "delivered")
        return f"<RecordFuture of {batch.topic}-{batch.partition}: {state}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordFuture) and self[0] is other[0] and bool(self[1] == other[1])

    def __hash__(self) -> int:
        return hash((id(self[0]), self[1]))

    def __reduce__(self) -> NoReturn:
        raise TypeError("The future of a record belongs to its process: send what result() returns.")


def _metadata(batch: ProducerBatch, index: int) -> RecordMetadata:
    outcome, place = batch.outcome_of(index)
    if outcome.error is not None:
        raise outcome.error
    stamped = outcome.append_time_ms >= 0
    key_size, value_size = batch.sizes_of(index)
    return RecordMetadata(
        topic=batch.topic,
        partition=batch.partition,
        offset=outcome.base_offset + place if outcome.base_offset >= 0 else -1,
        timestamp=outcome.append_time_ms if stamped else batch.timestamp_of(index),
        timestamp_type=LOG_APPEND_TIME if stamped else CREATE_TIME,
        serialized_key_size=key_size,
        serialized_value_size=value_size,
        log_start_offset=outcome.log_start_offset,
    )


def wait_for(
    batch: ProducerBatch, timeout: float | None, meanwhile: Callable[[], object] | None = None
) -> None:
    """Block until the batch has an outcome. ResultNotReady; WaitRefused on the thread that would bring it about."""
    refuse_on_serving_thread()
    told = threading.Lock()
    told.acquire()
    batch.listen(told.release)
    batch.hurry()
    until = None if timeout is None else monotonic() + timeout
    left = _SLICE_SECONDS if timeout is None else min(_SLICE_SECONDS, max(0.0, timeout))
    while not told.acquire(timeout=left):
        if meanwhile is not None:
            meanwhile()
        if until is not None:
            left = min(_SLICE_SECONDS, until - monotonic())
            if left <= 0:
                raise ResultNotReady(f"records for {batch.topic}-{batch.partition}", round(1000 * (timeout or 0)))


def told_on_this_loop(listen: Callable[[Callable[[], object]], None]) -> Generator[Any, None, None]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not future.done():
            future.set_result(None)

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # that loop is closed, and nobody waits on it
            loop.call_soon_threadsafe(finish)

    listen(tell)
    yield from future.__await__()


def refuse_on_serving_thread() -> None:
    """Waiting in a callback stops the loop that would deliver the record: for ever, were it not refused."""
    if threading.get_ident() in SERVING_THREADS:
        raise WaitRefused
