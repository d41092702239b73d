"""Options of the producers that a job's tasks write with, and for how long their transactions stay open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from raylog.api.producer.rules.producer_options import ProducerOptions

OF_PRODUCERS: Final = (
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
_MEMBERS_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True)
class TaskOptions:
    """`producer`: for those of the tasks. `timeout_ms`: how long a transaction stays open without its driver."""

    producer: Mapping[str, Any]
    timeout_ms: int
    max_block_ms: int

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> TaskOptions:
        """`values`: of OF_PRODUCERS. InvalidConfig."""
        options = ProducerOptions.parse(dict(values))
        of_tasks = {name: value for name, value in values.items() if name != "transaction_timeout_ms"}
        timeout_ms = options.transaction_timeout_ms if "transaction_timeout_ms" in values else _MEMBERS_TIMEOUT_MS
        return cls(of_tasks, timeout_ms, options.max_block_ms)
