"""Options of a `ParallelConsumer`, beside those of the `Consumer` that it reads with.

`ParallelSettings` says the same to type checkers; a test holds the two together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from raylog.api.connection.client_options import (
    ClientOptions,
    a_callable,
    number,
    one_of,
    option,
    or_none,
    text,
    whole_number,
)
from raylog.api.consumer.rules.consumer_options import ConsumerOptions, ConsumerSettings
from raylog.api.parallel.rules.parallel_work import BY_KEY, ORDERS
from raylog.config import INT32_MAX, KIB, MIB
from raylog.errors import GroupRequired, InvalidConfig

Handler: TypeAlias = Callable[[Any], Any]

_MOST_WORKERS: Final = 10_000
_LONGEST_REVOKE_MS: Final = 30_000
STOP: Final = "stop"
SKIP: Final = "skip"


@dataclass(frozen=True)
class ParallelOptions(ClientOptions):
    """The options of one parallel consumer, checked. Times are in milliseconds, sizes in bytes."""

    handler: Handler = option(
        None,
        a_callable(what="a function, or a coroutine function, of one record"),
        "What is done with each record: a function runs in threads, a coroutine function on a loop of their own.",
    )
    workers: int = option(16, whole_number(1, _MOST_WORKERS), "How many records are worked on at once.")
    order: str = option(
        BY_KEY,
        one_of(*ORDERS),
        "Which records wait for each other: those of a key, those of a partition, or none (unordered).",
    )
    window: int = option(
        1_000, whole_number(1, INT32_MAX), "Of each partition, the most records from the oldest that is not done on."
    )
    pending_memory: int = option(
        64 * MIB, whole_number(KIB, 2**63 - 1), "No more is taken while so many bytes are taken and not done."
    )
    retries: int | None = option(
        3, or_none(whole_number(0, INT32_MAX)), "How often a record that failed is tried again; None: until it is done."
    )
    retry_pause_ms: float = option(
        100, number(0, INT32_MAX), "The longest pause before the first retry; twice as long before each next."
    )
    longest_retry_pause_ms: float = option(30_000, number(0, INT32_MAX), "The longest pause between two attempts.")
    dead_letter_topic: str | None = option(
        None, or_none(text), "Where records go that have failed for good; None: see when_exhausted."
    )
    when_exhausted: str = option(
        STOP, one_of(STOP, SKIP), "Without a dead_letter_topic: end with HandlerFailed, or log the record and skip it."
    )
    revoke_timeout_ms: int | None = option(
        None,
        or_none(whole_number(0, INT32_MAX)),
        "How long a partition that moves waits for what is being worked on; "
        "None: 30 s, or half of max_poll_interval_ms.",
    )
    pattern: str | None = option(None, or_none(text), "Read all topics whose whole name matches, beside those named.")
    consumer: ConsumerOptions = option(None, lambda _, value: value, "Those of the Consumer.")

    @property
    def revoke_seconds(self) -> float:
        longest_ms = min(_LONGEST_REVOKE_MS, self.consumer.max_poll_interval_ms // 2)
        return (longest_ms if self.revoke_timeout_ms is None else self.revoke_timeout_ms) / 1000

    def check_together(self) -> None:
        if self.revoke_timeout_ms is not None and self.revoke_timeout_ms >= self.consumer.max_poll_interval_ms:
            raise InvalidConfig("revoke_timeout_ms", self.revoke_timeout_ms, "less than max_poll_interval_ms")


def parse(given: dict[str, Any]) -> tuple[ParallelOptions, dict[str, Any]]:
    """Ours, and the keywords for the Consumer. UnknownConfig, InvalidConfig, GroupRequired."""
    own = {field.name for field in dataclasses.fields(ParallelOptions)} - {"consumer"}
    for_consumer = {name: value for name, value in given.items() if name not in own}
    chosen = ConsumerOptions.parse(for_consumer)
    if chosen.group_id is None:
        raise GroupRequired("a ParallelConsumer")
    if for_consumer.get("enable_auto_commit"):
        raise InvalidConfig("enable_auto_commit", True, "left out: what is done is committed in any case")
    options = ParallelOptions.parse({name: given[name] for name in own if name in given} | {"consumer": chosen})
    # Keys are compared, and records put aside, as bytes; workers make values of them.
    raw = {"key_deserializer": None, "value_deserializer": None, "enable_auto_commit": False}
    return options, for_consumer | raw


class ParallelSettings(ConsumerSettings, total=False):
    """The keywords of `ParallelConsumer(...)`, for type checkers. What each means stands at `ParallelOptions`."""

    handler: Handler
    workers: int
    order: Literal["key", "partition", "unordered"]
    window: int
    pending_memory: int | str
    retries: int | None
    retry_pause_ms: float | str
    longest_retry_pause_ms: float | str
    dead_letter_topic: str | None
    when_exhausted: Literal["stop", "skip"]
    revoke_timeout_ms: int | str | None
    pattern: str | None
