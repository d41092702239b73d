"""The clients of a worker, around its loop: opened for one run, and closed with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from raylog.api.consumer.consumer import Consumer
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.parallel.parallel_consumer import ParallelConsumer
from raylog.api.pool.piece_loop import PieceLoop
from raylog.api.pool.record_loop import RecordLoop, watched
from raylog.api.pool.rules.pool_options import RECORD
from raylog.api.producer.producer import Producer

if TYPE_CHECKING:
    from raylog.actors.kernel.backoff import Backoff
    from raylog.api.pool.careful_hands import CarefulHands
    from raylog.api.pool.handlers import Handler
    from raylog.api.pool.rules.pool_options import PoolSpec
    from raylog.api.pool.work_meter import WorkMeter
    from raylog.api.pool.worker import Loop

_CLOSE_SECONDS: Final = 5.0
_LONGEST_TRANSACTION_MS: Final = 900_000  # what brokers take
_OF_STOP: Final = 0.8  # of the time to stop is for what is in hand


class WorkerLoops:
    """Opens loops for one worker. `pause(seconds)` waits, and says whether to stop."""

    def __init__(
        self, name: str, spec: PoolSpec, consumer: Mapping[str, Any], hands: CarefulHands, meter: WorkMeter,
        backoff: Backoff,
    ) -> None:  # fmt: skip
        self._name, self._spec, self._given = name, spec, consumer
        self._hands, self._meter, self._backoff = hands, meter, backoff
        self._options = ConsumerOptions.parse(consumer)

    @contextmanager
    def open(self, handler: Handler, pause: Callable[[float], bool]) -> Iterator[Loop]:
        """Open a loop, and close it behind the block. It raises what clients raise."""
        if self._spec.options.takes == RECORD and not self._spec.options.exactly_once:
            with self._records(handler, pause) as loop:
                yield loop
            return
        with self._pieces(handler, pause) as loop:
            yield loop

    @contextmanager
    def _records(self, handler: Handler, pause: Callable[[float], bool]) -> Iterator[Loop]:
        spec, options = self._spec, self._spec.options
        consumer = ParallelConsumer(
            *spec.topics,
            **self._common(),
            handler=watched(handler, self._hands),
            workers=options.concurrency,
            order=options.order,
            retries=options.retries,
            retry_pause_ms=options.retry_pause_ms,
            longest_retry_pause_ms=options.longest_retry_pause_ms,
            dead_letter_topic=options.dead_letter_topic,
            when_exhausted=options.when_exhausted,
            auto_commit_interval_ms=options.commit_interval_ms,
        )
        try:
            loop = RecordLoop(consumer, options.concurrency, self._meter, pause)
            yield loop
        finally:
            consumer.close(_OF_STOP * 1000 * options.stop_timeout_seconds, drain=False)
        loop.count()

    @contextmanager
    def _pieces(self, handler: Handler, pause: Callable[[float], bool]) -> Iterator[Loop]:
        spec = self._spec
        raw = {"key_deserializer": None, "value_deserializer": None, "enable_auto_commit": False}
        with ExitStack() as stack:
            producer = self._producer()
            if producer is not None:
                stack.callback(producer.close, _CLOSE_SECONDS)
            consumer = Consumer(*spec.topics, **{**self._common(), **raw})
            stack.enter_context(closing(consumer))
            decoders = self._options.key_deserializer, self._options.value_deserializer
            yield PieceLoop(
                consumer, producer, handler, spec.options, spec.group_id, decoders, self._hands, self._meter, pause,
                self._backoff,
            )  # fmt: skip

    def _producer(self) -> Producer | None:
        spec = self._spec
        if spec.options.exactly_once:
            producer = Producer(
                cluster=spec.cluster,
                transactional_id=transactional_id(spec.group_id, self._name),
                transaction_timeout_ms=min(self._options.max_poll_interval_ms, _LONGEST_TRANSACTION_MS),
            )
            try:
                producer.init_transactions()
            except BaseException:
                producer.close(_CLOSE_SECONDS)
                raise
            return producer
        return None if spec.options.dead_letter_topic is None else Producer(cluster=spec.cluster, acks="all")

    def _common(self) -> dict[str, Any]:
        spec = self._spec
        told = {"client_id": client_id(self._name), "cluster": spec.cluster, "group_id": spec.group_id}
        return {**self._given, **told}


def client_id(worker: str) -> str:
    """Return the name under which a worker joins its group, by which its supervisor removes a dead one."""
    return f"pool-{worker}"


def transactional_id(group_id: str, worker: str) -> str:
    """Return the id under which a worker writes, by which its supervisor aborts what a dead one has left open."""
    return f"pool-{group_id}-{worker}"
