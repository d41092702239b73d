"""Options of consumers. Names and defaults are kafka-python 3's.

`ConsumerSettings` says the same to type checkers, for the keywords of `Consumer(...)`; a test holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from raylog.actors.protocol.replication_messages import EARLIEST, LATEST
from raylog.api.connection.client_options import (
    ClientOptions,
    a_callable,
    boolean,
    number,
    one_of,
    option,
    or_none,
    several,
    text,
    text_or_empty,
    whole_number,
)
from raylog.api.consumer.rules.deserializers import Deserializer, DeserializingObject, deserializer
from raylog.config import INT32_MAX, KIB, MIB
from raylog.errors import InvalidConfig

if TYPE_CHECKING:
    from raylog.actors.machine.cluster_access import ClusterAccess
    from raylog.api.admin.cluster import Cluster
    from raylog.api.connection.records import ConsumerRecord

_LONGEST_MS: Final = INT32_MAX
_RESETS: Final = {"earliest": EARLIEST, "latest": LATEST, "none": None}
_LEAST_FETCH: Final = KIB


@dataclass(frozen=True)
class ConsumerOptions(ClientOptions):
    """The options of one consumer, checked. Times are in milliseconds, sizes in bytes."""

    cluster: Any = option(
        None, lambda _, value: value, "The name of the cluster, or its handle; None: the one of this Ray cluster."
    )
    client_id: str = option("raylog", text, "What this client is called where its doings are logged.")
    group_id: str | None = option(None, or_none(text), "The consumer group to join; None: read alone.")
    group_instance_id: str | None = option(None, or_none(text), "The name of a static member of the group.")
    key_deserializer: Deserializer | None = option(
        None,
        or_none(deserializer),
        "Makes a key of bytes: a function of the bytes, or an object with deserialize(topic, headers, data).",
    )
    value_deserializer: Deserializer | None = option(
        None, or_none(deserializer), "Makes a value of bytes, in the same way."
    )
    interceptors: tuple[Callable[..., Any], ...] = option(
        (),
        several(a_callable(or_with="on_consume"), "functions"),
        "Functions, or objects with on_consume, that get each list of records before the program does, and return it.",
    )
    fetch_max_wait_ms: int = option(500, whole_number(0, _LONGEST_MS), "How long a fetch waits for fetch_min_bytes.")
    fetch_min_bytes: int = option(1, whole_number(0, INT32_MAX), "What a fetch waits for before it is answered.")
    fetch_max_bytes: int = option(
        50 * MIB, whole_number(_LEAST_FETCH, INT32_MAX), "The most that waits here, fetched and not yet handed out."
    )
    max_partition_fetch_bytes: int = option(
        MIB, whole_number(_LEAST_FETCH, INT32_MAX), "The most one fetch brings; one batch alone may be larger."
    )
    request_timeout_ms: int = option(
        30_000, whole_number(1, _LONGEST_MS), "How long an answer, or a reachable broker, is waited for."
    )
    retry_backoff_ms: int = option(100, whole_number(1, _LONGEST_MS), "A tenth of the longest pause between tries.")
    auto_offset_reset: str = option(
        "latest", one_of(*_RESETS), "Where to begin without a position, or with one that is not in the log any more."
    )
    isolation_level: str = option(
        "read_uncommitted",
        one_of("read_uncommitted", "read_committed"),
        "read_committed: nothing of transactions that are open or were aborted.",
    )
    max_poll_records: int = option(500, whole_number(1, INT32_MAX), "The most records that one poll returns.")
    consumer_timeout_ms: float = option(
        math.inf, number(0, math.inf), "How long iterating waits for a record before it ends."
    )
    use_local_files: bool = option(True, boolean, "Read the log's files where the leader is on the same Ray node.")
    exclude_internal_topics: bool = option(True, boolean, "Leave internal topics out of topics().")
    enable_auto_commit: bool = option(True, boolean, "In a group: commit positions now and then.")
    auto_commit_interval_ms: int = option(5_000, whole_number(1, _LONGEST_MS), "In a group: how often.")
    max_poll_interval_ms: int = option(300_000, whole_number(1, _LONGEST_MS), "In a group: longest time between polls.")
    group_remote_assignor: str = option(
        "", text_or_empty, "In a group: its assignor (range, roundrobin, sticky, or one of `group.assignors`)."
    )
    client_rack: str = option(
        "", text_or_empty, "In a group: the rack this consumer is in; it is given partitions with a replica there."
    )
    session_timeout_ms: int = option(45_000, whole_number(1, _LONGEST_MS), "In a group: the life of a silent member.")
    heartbeat_interval_ms: int = option(3_000, whole_number(1, _LONGEST_MS), "In a group: how often to be heard from.")

    @property
    def reads_committed(self) -> bool:
        return self.isolation_level == "read_committed"

    @property
    def reset_to(self) -> int | None:
        """The timestamp by which ListOffset knows `auto_offset_reset`; None: nowhere."""
        return _RESETS[self.auto_offset_reset]

    def check_together(self) -> None:
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise InvalidConfig("heartbeat_interval_ms", self.heartbeat_interval_ms, "less than session_timeout_ms")


class ConsumerSettings(TypedDict, total=False):
    """The keywords of `Consumer(...)`, for type checkers. What each means stands at `ConsumerOptions`."""

    cluster: Cluster | ClusterAccess | str | None
    client_id: str
    group_id: str | None
    group_instance_id: str | None
    key_deserializer: Callable[[bytes], Any] | DeserializingObject | None
    value_deserializer: Callable[[bytes], Any] | DeserializingObject | None
    interceptors: Sequence[Callable[[list[ConsumerRecord]], list[ConsumerRecord]] | Any]
    fetch_max_wait_ms: int | str
    fetch_min_bytes: int | str
    fetch_max_bytes: int | str
    max_partition_fetch_bytes: int | str
    request_timeout_ms: int | str
    retry_backoff_ms: int | str
    auto_offset_reset: Literal["earliest", "latest", "none"]
    isolation_level: Literal["read_uncommitted", "read_committed"]
    max_poll_records: int
    consumer_timeout_ms: float | str
    use_local_files: bool
    exclude_internal_topics: bool
    enable_auto_commit: bool
    auto_commit_interval_ms: int | str
    max_poll_interval_ms: int | str
    group_remote_assignor: str
    client_rack: str
    session_timeout_ms: int | str
    heartbeat_interval_ms: int | str
