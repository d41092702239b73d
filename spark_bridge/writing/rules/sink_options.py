"""Options of writing with Spark. Decides; touches nothing.

Those of producers may be given under Python's names (`compression_type`), or under Kafka's, as Spark's Kafka sink
takes them (`kafka.compression.type`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from raylog.api.connection.kafka_hints import hint_for
from raylog.api.producer.rules.producer_options import ProducerOptions
from raylog.errors import FrameNotWritable, UnknownSparkOption

_OF_PRODUCERS: Final = (
    "batch_size",
    "buffer_memory",
    "compression_type",
    "delivery_timeout_ms",
    "linger_ms",
    "max_block_ms",
    "max_request_size",
    "request_timeout_ms",
    "transaction_timeout_ms",
)
_PREFIX: Final = "kafka."
_MEMBERS_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True)
class SinkOptions:
    """`producer`: for those of the tasks. `timeout_ms`: how long a transaction stays open without its driver."""

    topic: str | None
    producer: Mapping[str, Any]
    timeout_ms: int
    max_block_ms: int

    @classmethod
    def parse(cls, topic: str | None, given: Mapping[str, object]) -> SinkOptions:
        """Raises UnknownSparkOption, InvalidConfig, FrameNotWritable."""
        if topic is not None and not _is_text(topic):
            raise FrameNotWritable(f"the option 'topic' is {topic!r}, and not the name of one")
        values = {_name(name): value for name, value in given.items()}
        options = ProducerOptions.parse(values)
        of_tasks = {name: value for name, value in values.items() if name != "transaction_timeout_ms"}
        timeout_ms = options.transaction_timeout_ms if "transaction_timeout_ms" in values else _MEMBERS_TIMEOUT_MS
        return cls(topic, of_tasks, timeout_ms, options.max_block_ms)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _name(given: str) -> str:
    name = given.removeprefix(_PREFIX).replace(".", "_") if given.startswith(_PREFIX) else given
    if name not in _OF_PRODUCERS:
        known = ["topic", "cluster", *_OF_PRODUCERS]
        others = "; producers' also as kafka.compression.type, and so on"
        raise UnknownSparkOption(given, ", ".join(known) + others, hint_for(given))
    return name
