"""Options of a pool, beside those of the consumers in it. What a pool is made of, as it travels and is kept.

What must stay true: a `PoolSpec` holds no object of the user's but as bytes, so that supervisors can read it without
the user's modules. Each handler has a version of its own; actors are told apart by it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from raylog.api.connection.client_options import (
    ClientOptions,
    boolean,
    number,
    one_of,
    option,
    or_none,
    text,
    whole_number,
)
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.parallel.rules.parallel_options import SKIP, STOP
from raylog.api.parallel.rules.parallel_work import BY_KEY, ORDERS
from raylog.api.pool.rules.poison import Place
from raylog.api.pool.rules.scaling import ScalingPolicy
from raylog.config import INT32_MAX, MIB
from raylog.errors import InvalidConfig

if TYPE_CHECKING:
    from raylog.api.connection.records import ConsumerRecord
    from raylog.api.consumer.rules.deserializers import DeserializingObject

RECORD: Final = "record"
BATCH: Final = "batch"
ARROW: Final = "arrow"
_MOST_ACTORS: Final = 10_000
_COMMITS_IN_TARGET: Final = 5
_LONGEST_COMMIT_MS: Final = 1_000
OURS: Final = frozenset(
    {
        "auto_commit_interval_ms", "client_id", "cluster", "consumer_timeout_ms", "enable_auto_commit", "group_id",
        "group_instance_id",
    }
)  # fmt: skip


class PoolSettings(TypedDict, total=False):
    """The keywords of `ConsumerPool(...)`, for type checkers: of `PoolOptions`, and then of `ConsumerOptions`."""

    min_actors: int
    max_actors: int
    target_lag_seconds: float
    down_after_seconds: float
    takes: Literal["record", "batch", "arrow"]
    exactly_once: bool
    concurrency: int
    order: Literal["key", "partition", "unordered"]
    batch_bytes: int
    retries: int | None
    retry_pause_ms: float | str
    longest_retry_pause_ms: float | str
    dead_letter_topic: str | None
    when_exhausted: Literal["stop", "skip"]
    num_cpus: float
    actor_options: Mapping[str, Any] | None
    request_nodes: bool
    stop_timeout_seconds: float
    key_deserializer: Callable[[bytes], Any] | DeserializingObject | None
    value_deserializer: Callable[[bytes], Any] | DeserializingObject | None
    interceptors: Sequence[Callable[[list[ConsumerRecord]], list[ConsumerRecord]] | Any]
    fetch_max_wait_ms: int | str
    fetch_min_bytes: int | str
    fetch_max_bytes: int | str
    max_partition_fetch_bytes: int | str
    request_timeout_ms: int | str
    retry_backoff_ms: int | str
    auto_offset_reset: Literal["earliest", "latest"]
    isolation_level: Literal["read_uncommitted", "read_committed"]
    max_poll_records: int
    use_local_files: bool
    exclude_internal_topics: bool
    max_poll_interval_ms: int | str
    group_remote_assignor: str
    client_rack: str
    session_timeout_ms: int | str
    heartbeat_interval_ms: int | str


def _actor_options(name: str, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value):
        raise InvalidConfig(name, value, "a dictionary of options that Ray's actors take")
    refused = {"name", "namespace", "lifetime", "max_restarts", "max_task_retries", "num_cpus", "max_concurrency"}
    for each in refused.intersection(value):
        raise InvalidConfig(name, each, "an option that the pool does not set itself")
    return dict(value)


@dataclass(frozen=True)
class PoolOptions(ClientOptions):
    """The options of one pool, checked."""

    min_actors: int = option(0, whole_number(0, _MOST_ACTORS), "So many actors are there also when there is no work.")
    max_actors: int = option(10, whole_number(1, _MOST_ACTORS), "There are never more; nor more than partitions.")
    target_lag_seconds: float = option(5.0, number(0.1, INT32_MAX), "How long a record may wait, in seconds.")
    down_after_seconds: float = option(
        30.0, number(1, INT32_MAX), "Actors go when fewer were enough for so long, and the last when nothing came."
    )
    takes: str = option(
        RECORD, one_of(RECORD, BATCH, ARROW), "What the handler takes: one record, a list of them, an Arrow table."
    )
    exactly_once: bool = option(
        False, boolean, "Call handler(taken, out); what it sends with `out` and the offsets are committed together."
    )
    concurrency: int = option(1, whole_number(1, _MOST_ACTORS), "How many records one actor works on at once.")
    order: Any = option(BY_KEY, one_of(*ORDERS), "Which records of an actor wait for each other; see ParallelConsumer.")
    batch_bytes: int = option(8 * MIB, whole_number(1, INT32_MAX), "About so many bytes are in an Arrow table.")
    retries: int | None = option(
        3, or_none(whole_number(0, INT32_MAX)), "How often what has failed is tried again; None: until it is done."
    )
    retry_pause_ms: float = option(
        100, number(0, INT32_MAX), "The longest pause before the first retry; twice as long before each next."
    )
    longest_retry_pause_ms: float = option(30_000, number(0, INT32_MAX), "The longest pause between two attempts.")
    dead_letter_topic: str | None = option(
        None, or_none(text), "Where records go that have failed for good; None: see when_exhausted."
    )
    when_exhausted: Any = option(
        STOP, one_of(STOP, SKIP), "Without a dead_letter_topic: halt the pool, or log the record and skip it."
    )
    num_cpus: float = option(1.0, number(0, 1_000_000), "CPUs of Ray that each actor has.")
    actor_options: dict[str, Any] = option(
        None, _actor_options, "More options of Ray for each actor: num_gpus, resources, runtime_env."
    )
    request_nodes: bool = option(True, boolean, "Ask Ray's autoscaler for nodes as soon as actors are wanted.")
    stop_timeout_seconds: float = option(
        60.0, number(0.1, INT32_MAX), "How long an actor that stops may take to end what it has in hand."
    )

    @property
    def policy(self) -> ScalingPolicy:
        return ScalingPolicy(
            self.min_actors, self.max_actors, self.target_lag_seconds, self.down_after_seconds, self.down_after_seconds
        )

    @property
    def commit_interval_ms(self) -> int:
        """Lag counts from what is committed, so commits come several times within the target."""
        return max(1, min(_LONGEST_COMMIT_MS, round(self.target_lag_seconds * 1000 / _COMMITS_IN_TARGET)))

    def check_together(self) -> None:
        if self.min_actors > self.max_actors:
            raise InvalidConfig("min_actors", self.min_actors, f"at most max_actors, which is {self.max_actors}")
        if self.concurrency > 1 and (self.takes != RECORD or self.exactly_once):
            raise InvalidConfig("concurrency", self.concurrency, "1, unless the handler takes a record, without `out`")


@dataclass(frozen=True)
class PoolSpec:
    """A pool as it was asked for."""

    cluster: str
    group_id: str
    topics: tuple[str, ...]
    options: PoolOptions
    code: bytes  # pickled: (handler, the options of its consumers)
    version: int = 1  # of `code`
    is_proven: bool = False  # an actor has come up with `code`
    former_code: bytes | None = None  # of the last version that was proven, until this one is
    problem: str = ""  # of a version that was taken back
    halted: str = ""  # why the pool is halted; empty: it is not
    is_stopping: bool = False
    poison: frozenset[Place] = frozenset()
    handler_seconds: float = 300.0  # that a handler may take: max_poll_interval_ms of its consumers

    def scaled(self, least: int, most: int) -> PoolSpec:
        """Return the same with other bounds; a halted pool goes on. InvalidConfig."""
        given = {field.name: getattr(self.options, field.name) for field in dataclasses.fields(PoolOptions)}
        options = PoolOptions.parse({**given, "min_actors": least, "max_actors": most})
        return dataclasses.replace(self, options=options, halted="")

    def updated(self, code: bytes) -> PoolSpec:
        """Return the same with another handler; a halted pool goes on."""
        return dataclasses.replace(
            self, code=code, version=self.version + 1, is_proven=False, problem="", halted="",
            former_code=self.code if self.is_proven else self.former_code,
        )  # fmt: skip

    def proven(self) -> PoolSpec:
        """Return the same with a handler that works: it is never taken back."""
        return dataclasses.replace(self, is_proven=True, former_code=None)

    def taken_back(self, reason: str) -> PoolSpec:
        """Return the same with the former handler, under a version of its own."""
        assert self.former_code is not None
        return dataclasses.replace(
            self, code=self.former_code, version=self.version + 1, is_proven=True, former_code=None,
            problem=f"version {self.version} of the handler was taken back: {reason}",
        )  # fmt: skip


def parse(given: Mapping[str, Any]) -> tuple[PoolOptions, dict[str, Any], str]:
    """Return the pool's options, those of its consumers, and where the group begins. UnknownConfig, InvalidConfig."""
    own = {field.name for field in dataclasses.fields(PoolOptions)}
    options = PoolOptions.parse({name: given[name] for name in own if name in given})
    for_consumer = {name: value for name, value in given.items() if name not in own}
    for name in OURS.intersection(for_consumer):
        raise InvalidConfig(name, for_consumer[name], "left out: the pool sees to it")
    begins = for_consumer.get("auto_offset_reset", "earliest")
    if options.exactly_once:
        for_consumer.setdefault("isolation_level", "read_committed")
        if for_consumer["isolation_level"] != "read_committed":
            raise InvalidConfig("isolation_level", for_consumer["isolation_level"], "read_committed with exactly_once")
    ConsumerOptions.parse({**for_consumer, "auto_offset_reset": begins})
    if begins == "none":
        raise InvalidConfig("auto_offset_reset", begins, "earliest or latest")
    # The pool commits where the group begins; what comes later, also in new partitions, is read from its beginning.
    return options, {**for_consumer, "auto_offset_reset": "earliest"}, begins
