"""Programs' own eyes on what a producer sends: Kafka's ProducerInterceptor, as an object with any of these methods.

    on_send(record) → record               before serializing; what it returns is sent in its place
    on_acknowledgement(metadata, error)    when the record is delivered (error None) or has failed (metadata None)
    close()                                when the producer is closed

What must stay true: an interceptor that fails is logged and passed by, it neither keeps a record from being sent
nor another interceptor from being called. `on_acknowledgement` runs on the background thread: be quick there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from raylog.api.connection.client_threads import goes_on_after
from raylog.api.connection.records import RecordMetadata
from raylog.api.producer.buffer.record_future import RecordFuture

_log = logging.getLogger(__name__)


class ProducerRecord(NamedTuple):
    """The arguments of `send`. `record._replace(value=...)` makes another record."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor(Protocol):
    """The methods of an interceptor, for type checkers; any of them may be missing."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord: ...

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None: ...

    def close(self) -> None: ...


class Interceptors:
    """All of a producer, in their order."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._each = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._each)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for each in self._each:
            returned = _call(each, "on_send", record)
            if isinstance(returned, ProducerRecord):
                record = returned
        return record

    def watch(self, future: RecordFuture) -> None:
        """Tell of its outcome."""
        for each in self._each:
            if callable(getattr(each, "on_acknowledgement", None)):
                future.add_done_callback(_Told(each))

    def refused(self, error: Exception) -> None:
        """A record was not taken at all."""
        for each in self._each:
            _call(each, "on_acknowledgement", None, error)

    def close(self) -> None:
        for each in self._each:
            _call(each, "close")


class _Told:
    def __init__(self, interceptor: Any) -> None:
        self._interceptor = interceptor

    def __call__(self, future: RecordFuture) -> None:
        error = future.exception()
        metadata = None if error is not None else future.result()
        _call(self._interceptor, "on_acknowledgement", metadata, error)


def _call(interceptor: Any, name: str, *arguments: Any) -> Any:
    method: Callable[..., Any] | None = getattr(interceptor, name, None)
    if method is None:
        return None
    try:
        return method(*arguments)
    except BaseException as error:  # it is the program's, and sending goes on without it
        if not goes_on_after(error):
            raise
        _log.exception("%s of %r failed.", name, interceptor)
        return None
