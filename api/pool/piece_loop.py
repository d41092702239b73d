"""A worker's loop for handlers that take lists of records or Arrow tables, and for all that work exactly once.

    poll ──► piece ──► handler ──ok──► commit its offsets; exactly once: with what the handler has sent
                          │ fails
                          ├─ again, after growing pauses, `retries` times
                          ├─ then cut: until the record that fails is alone (`rules/pieces.py`)
                          └─ that one: dead letter topic, skipped, or HandlerFailed, which halts the pool

What must stay true:
- Offsets are committed after their records were handled or put aside, and never those of a later piece before.
- Exactly once: a piece's results, its dead letters and its offsets are in one transaction; the handler's error aborts
  it. Any other error ends the loop: its maker opens a new one, which begins at what is committed. Trouble with the
  cluster that a handler meets in `out` is such an error: it says nothing about the record.
- A stop is obeyed between pieces and in pauses. What is not handled then is not committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from raylog.api.connection.records import ConsumerRecord, TopicPartition
from raylog.api.consumer.rules.deserializers import Deserializer
from raylog.api.parallel.dead_letters import dead_letter_headers
from raylog.api.parallel.rules.parallel_options import SKIP
from raylog.api.pool.rules.pieces import ArrowPiece, Piece, RecordPiece, cut
from raylog.api.pool.rules.pool_options import ARROW, RECORD
from raylog.errors import HandlerFailed, RaylogError, RecordUnreadable, UnknownTopic

if TYPE_CHECKING:
    from raylog.actors.kernel.backoff import Backoff
    from raylog.api.consumer.consumer import Consumer
    from raylog.api.pool.careful_hands import CarefulHands
    from raylog.api.pool.handlers import Handler
    from raylog.api.pool.rules.pool_options import PoolOptions
    from raylog.api.pool.work_meter import WorkMeter
    from raylog.api.producer.producer import Producer

_POLL_MS: Final = 500
_SEND_SECONDS: Final = 120.0
_P = ParamSpec("_P")
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Out:
    """The second argument of handlers that work exactly once: it sends into the transaction of its piece.

    `trouble` is what it has raised during a call of the handler for which the cluster is to blame, not the handler.
    """

    def __init__(self, producer: Producer) -> None:
        self.trouble: RaylogError | None = None
        self.send = self._noting(producer.send)
        self.send_many = self._noting(producer.send_many)
        self.send_arrow = self._noting(producer.send_arrow)

    def _noting(self, send: Callable[_P, _T]) -> Callable[_P, _T]:
        @wraps(send)
        def noting(*arguments: _P.args, **named: _P.kwargs) -> _T:
            try:
                return send(*arguments, **named)
            except UnknownTopic:
                raise  # retriable, but it is the handler that has chosen the topic and the partition
            except RaylogError as error:
                if error.retriable or error.fatal:  # fatal: this producer is of no use, but the next loop's is
                    self.trouble = error
                raise

        return noting


class _Stopped(Exception):
    """The loop was asked to stop in the middle of a piece."""


class _RecordFailed(Exception):
    """The handler failed with the record at this place of its piece."""

    def __init__(self, place: int, error: Exception) -> None:
        super().__init__(place, error)
        self.place = place
        self.error = error


class PieceLoop:
    """One run of a worker. `pause(seconds)` waits, and says whether to stop; with 0 it only says that.

    `producer`: with `exactly_once` a transactional one, else the one for dead letters, if there are any.
    """

    def __init__(
        self,
        consumer: Consumer,
        producer: Producer | None,
        handler: Handler,
        options: PoolOptions,
        group_id: str,
        deserializers: tuple[Deserializer | None, Deserializer | None],
        hands: CarefulHands,
        meter: WorkMeter,
        pause: Callable[[float], bool],
        backoff: Backoff,
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._out = Out(producer) if producer is not None and options.exactly_once else None
        self._handler = handler
        self._options = options
        self._group_id = group_id
        self._key, self._value = deserializers
        self._hands = hands
        self._meter = meter
        self._pause = pause
        self._backoff = backoff

    def run(self) -> None:
        """Work until `pause` says stop. HandlerFailed, and what consumers and producers raise."""
        while not self._pause(0):
            piece = self._poll()
            if not len(piece):
                held = self._consumer.assignment()
                self._meter.rests(dict(self._positions(held)), len(held))
                continue
            self._meter.reads(len(self._consumer.assignment()))
            self._meter.has(len(piece), is_full=True)
            try:
                self._work_off(piece)
            except _Stopped:
                return

    # --- reading --------------------------------------------------------------------------------------------------

    def _poll(self) -> Piece:
        if self._options.takes == ARROW:
            from raylog.api.consumer.rules.arrow_poll import to_table  # needs pyarrow

            batches = self._consumer.poll_batches(_POLL_MS, self._options.batch_bytes)
            return ArrowPiece(to_table(batches, include_headers=True))
        found = self._consumer.poll(_POLL_MS)
        return RecordPiece([record for records in found.values() for record in records])

    def _positions(self, held: set[TopicPartition]) -> Iterator[tuple[TopicPartition, int]]:
        for each in held:
            try:
                yield each, self._consumer.position(each, 0)
            except RaylogError:
                continue  # it is not known yet, or the partition has just gone

    # --- working --------------------------------------------------------------------------------------------------

    def _work_off(self, whole: Piece) -> None:
        pieces = [(whole, self._options.retries)]
        while pieces:
            piece, retries = pieces.pop()
            if self._hands.is_careful and len(piece) > 1:
                pieces += [(piece.part(1, len(piece)), retries), (piece.part(0, 1), retries)]
                continue
            failure = self._attempts(piece, retries)
            if failure is None:
                continue
            error, place, attempts = failure
            if len(piece) == 1:
                self._put_aside(piece, error, attempts)
                continue
            parts = cut(piece, place)
            pieces += [(part, self._options.retries if len(part) == 1 else 0) for part in reversed(parts)]

    def _attempts(self, piece: Piece, retries: int | None) -> tuple[Exception, int | None, int] | None:
        """Return None: it is done. Else the last error, the record's place if that is known, and how many attempts."""
        attempts = 0
        while True:
            attempts += 1
            try:
                with self._counted(piece):
                    self._call(piece)
            except _RecordFailed as failure:
                error, place = failure.error, failure.place
            except _HandlerError as failure:
                error, place = failure.error, None
            else:
                self._meter.add(handled=len(piece))
                return None
            self._meter.add(failed=1)
            first, is_final = piece.record(0 if place is None else place), isinstance(error, RecordUnreadable)
            _log.warning(
                "Attempt %d with %d records from offset %d of %s-%d on failed: %r",
                attempts, len(piece), first.offset, first.topic, first.partition, error, exc_info=error,
            )  # fmt: skip
            if is_final or (retries is not None and attempts > retries):
                return error, place, attempts
            if self._pause(self._backoff.after(attempts)):
                raise _Stopped

    @contextmanager
    def _counted(self, piece: Piece) -> Iterator[None]:
        """Commit the offsets of a piece behind the block, unless it raises."""
        if not self._options.exactly_once:
            yield
            self._consumer.commit(piece.offsets)
            return
        producer = self._producer
        assert producer is not None
        with producer.transaction():
            yield
            producer.send_offsets_to_transaction(piece.offsets, self._consumer.group_metadata())

    def _call(self, piece: Piece) -> None:
        out = () if self._out is None else (self._out,)
        if isinstance(piece, ArrowPiece):
            self._guarded(piece.record(0) if len(piece) == 1 else None, piece.table, out)
            return
        assert isinstance(piece, RecordPiece)
        readable = [self._readable(place, record) for place, record in enumerate(piece.records)]
        if self._options.takes == RECORD:
            for place, (raw, record) in enumerate(zip(piece.records, readable, strict=True)):
                try:
                    self._guarded(raw, record, out)
                except _HandlerError as failure:
                    raise _RecordFailed(place, failure.error) from failure.error
            return
        self._guarded(piece.records[0] if len(piece) == 1 else None, readable, out)

    def _guarded(self, record: ConsumerRecord | None, given: Any, out: tuple[Any, ...]) -> None:
        """Call the handler. `record`: the one that it is about, if it is one."""
        if self._out is not None:
            self._out.trouble = None
        try:
            if record is None:
                self._handler(given, *out)
                return
            with self._hands.over(record):
                self._handler(given, *out)
        except Exception as error:
            if self._out is not None and self._out.trouble is not None:
                raise self._out.trouble from None
            raise _HandlerError(error) from error

    def _readable(self, place: int, record: ConsumerRecord) -> ConsumerRecord:
        try:
            self._hands.check(record)
            if self._key is None and self._value is None:
                return record
            key = _decoded(self._key, record, record.key)
            return record._replace(key=key, value=_decoded(self._value, record, record.value))
        except RecordUnreadable as error:
            raise _RecordFailed(place, error) from error
        except Exception as error:
            reason = f"its deserializer failed: {error!r}."
            place_of = (record.topic, record.partition, record.offset, record.offset + 1)
            raise _RecordFailed(place, RecordUnreadable(*place_of, reason)) from error

    def _put_aside(self, piece: Piece, error: Exception, attempts: int) -> None:
        record, topic = piece.record(0), self._options.dead_letter_topic
        if topic is None and self._options.when_exhausted != SKIP:
            failed = HandlerFailed(record.topic, record.partition, record.offset, attempts, repr(error))
            raise failed from error
        with self._counted(piece):
            if topic is None:
                _log.error("Offset %d of %s-%d is skipped.", record.offset, record.topic, record.partition)
            else:
                assert self._producer is not None
                headers = dead_letter_headers(self._group_id, record, error, attempts)
                sent = self._producer.send(topic, record.value, record.key, headers)
                if not self._options.exactly_once:
                    sent.result(_SEND_SECONDS)
        self._meter.add(handled=1, put_aside=1)


class _HandlerError(Exception):
    """Carries what a handler has raised, so that it is told apart from what raylog raises."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def _decoded(deserializer: Deserializer | None, record: ConsumerRecord, data: bytes | None) -> Any:
    if deserializer is None:
        return data
    return next(deserializer.over(record.topic, [record.headers], [data]))
