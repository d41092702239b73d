"""Records that no handler could deal with, on a topic of their own: bytes as they were, and headers that say why.

A dead letter has the record's own headers first, and behind them those of `HEADERS`, as text. Its timestamp is its own.
What must stay true: a record counts as put aside when its dead letter is acknowledged, and not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from raylog.api.connection.records import ConsumerRecord
from raylog.api.producer.producer import Producer
from raylog.errors import BufferFull, ClusterUnreachable, DeliveryTimedOut, RaylogError, ResultNotReady

if TYPE_CHECKING:
    from raylog.storage.format.columns import Headers

HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "dead-letter.group": "the group whose handler failed",
        "dead-letter.topic": "where the record is",
        "dead-letter.partition": "in which partition",
        "dead-letter.offset": "at which offset",
        "dead-letter.timestamp": "its timestamp, in milliseconds since 1970",
        "dead-letter.attempts": "how often it was tried",
        "dead-letter.error": "the last error, by type",
        "dead-letter.reason": "and its text",
    }
)
_LONGEST_REASON: Final = 1_000
_MARGIN_SECONDS: Final = 5.0


def dead_letter_headers(group: str, record: ConsumerRecord, error: BaseException, attempts: int) -> Headers:
    kind = type(error)
    told: dict[str, Any] = {
        "dead-letter.group": group,
        "dead-letter.topic": record.topic,
        "dead-letter.partition": record.partition,
        "dead-letter.offset": record.offset,
        "dead-letter.timestamp": record.timestamp,
        "dead-letter.attempts": attempts,
        "dead-letter.error": f"{kind.__module__}.{kind.__qualname__}",
        "dead-letter.reason": _text_of(error)[:_LONGEST_REASON],
    }
    own = tuple((str(name), str(value).encode("utf-8", "backslashreplace")) for name, value in told.items())
    return (*record.headers, *own)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 (an exception's own code may be wrong, and its record is put aside)
        return f"(no text: {failure!r})"


class DeadLetters:
    """The dead letters of one consumer; any of its workers may `write`. UnknownTopic, and what a Producer raises."""

    def __init__(self, topic: str, group: str, cluster: Any) -> None:
        self.topic = topic
        self._group = group
        self._producer = Producer(cluster=cluster, acks="all")
        self._seconds = self._producer.options.delivery_timeout_ms / 1000 + _MARGIN_SECONDS

    def write(self, record: ConsumerRecord, error: BaseException, attempts: int) -> None:
        """Write a record; it is acknowledged when this returns."""
        headers = dead_letter_headers(self._group, record, error, attempts)
        self._producer.send(self.topic, record.value, record.key, headers).result(self._seconds)

    @staticmethod
    def may_succeed_later(error: RaylogError) -> bool:
        return error.retriable or isinstance(error, (BufferFull, ClusterUnreachable, DeliveryTimedOut, ResultNotReady))

    def close(self, seconds: float) -> None:
        self._producer.close(seconds)
