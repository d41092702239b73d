"""Options of producers. Names and defaults are kafka-python's where it has them.

`ProducerSettings` says the same to type checkers, for the keywords of `Producer(...)`; a test holds the two
together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from raylog.actors.protocol.names import MAX_ID_BYTES, check_transactional_id
from raylog.actors.protocol.transaction_messages import MAX_TIMEOUT_MS
from raylog.api.connection.client_options import (
    ClientOptions,
    boolean,
    number,
    one_of,
    option,
    or_none,
    several,
    text,
    whole_number,
)
from raylog.api.connection.serializers import Serialize, SerializingObject, serializer
from raylog.api.producer.rules.partitioners import PARTITIONERS
from raylog.config import INT32_MAX, KIB, MIB
from raylog.errors import InvalidConfig
from raylog.storage.format.compression import CODECS

if TYPE_CHECKING:
    from raylog.actors.machine.cluster_access import ClusterAccess
    from raylog.api.admin.cluster import Cluster

ACKS_ALL: Final = -1
_MAX_BATCH_BYTES: Final = 64 * MIB  # what fits into a frame of every version, with room to spare
_INTERCEPTOR_METHODS: Final = ("on_send", "on_acknowledgement")


def _acks(name: str, value: object) -> int:
    if value == "all":
        return ACKS_ALL
    number = int(value) if value in ("-1", "0", "1") else value  # as files of properties have it
    if type(number) is int and number in (ACKS_ALL, 0, 1):
        return number
    raise InvalidConfig(name, value, "0, 1, -1 or 'all'")


def _transactional_id(name: str, value: object) -> str:
    """Raises InvalidTransactionalId."""
    if not isinstance(value, str):
        raise InvalidConfig(name, value, f"text of 1 to {MAX_ID_BYTES} bytes")
    check_transactional_id(value)
    return value


def _partitioner(name: str, value: object) -> Any:
    if callable(value) or value in PARTITIONERS:
        return value
    raise InvalidConfig(name, value, "a callable, or one of " + ", ".join(map(repr, PARTITIONERS)))


def _interceptor(name: str, value: object) -> object:
    if not isinstance(value, type) and any(callable(getattr(value, method, None)) for method in _INTERCEPTOR_METHODS):
        return value
    raise InvalidConfig(name, value, "objects with a method on_send or on_acknowledgement")


@dataclass(frozen=True)
class ProducerOptions(ClientOptions):
    """Frozen, checked. `ProducerOptions.parse({"acks": 1})`."""

    cluster: Any = option(
        None, lambda _, value: value, "The name of the cluster, or its handle; None: the one of this Ray cluster."
    )
    client_id: str = option("raylog", text, "A name for this program, in logs and for source_hash.")
    key_serializer: Serialize | None = option(
        None,
        or_none(serializer),
        "Makes bytes of a key: a function of it, or an object with serialize(topic, headers, data).",
    )
    value_serializer: Serialize | None = option(None, or_none(serializer), "Makes bytes of a value, in the same way.")
    acks: int = option("all", _acks, "Whose word counts: nobody's (0), the leader's (1), that of all in sync ('all').")
    enable_idempotence: bool | None = option(
        None,
        or_none(boolean),
        "Whether repeated batches are recognized, so that nothing is written twice. None: yes, unless acks is 0.",
    )
    compression_type: str | None = option(
        None, or_none(one_of(*(codec.name for codec in CODECS))), "gzip, snappy, lz4, zstd, or None."
    )
    batch_size: int = option(
        1_000_000,  # what topics take by default, with room for a header
        whole_number(1, _MAX_BATCH_BYTES),
        "A batch is closed when its records take so many bytes of memory here; on the wire they are fewer.",
    )
    linger_ms: float = option(
        0, number(0, INT32_MAX), "How long an open batch waits for more records. 0: while an earlier "
        "one is sent, and for 5 ms at most where it is being filled fast."
    )
    max_in_flight: int = option(
        5, whole_number(1, 5), "Batches of one partition that may be under way at once. Their order is kept."
    )
    buffer_memory: int = option(
        64 * MIB, whole_number(64 * KIB, 2**40), "How many bytes may be taken and not delivered yet; then send waits."
    )
    max_block_ms: int = option(
        60_000, whole_number(0, INT32_MAX), "How long send waits for metadata, and for room in the buffer."
    )
    max_request_size: int = option(
        MIB, whole_number(1, _MAX_BATCH_BYTES), "The largest record that is taken, in bytes."
    )
    delivery_timeout_ms: int = option(
        120_000, whole_number(1, INT32_MAX), "From send until the record is acknowledged or has failed."
    )
    request_timeout_ms: int = option(
        30_000, whole_number(1, 10 * 60 * 1000), "How long one answer of a leader is waited for."
    )
    retry_backoff_ms: int = option(
        20, whole_number(1, 60_000), "The longest pause after a first failure; it doubles until retry_backoff_max_ms."
    )
    retry_backoff_max_ms: int = option(1_000, whole_number(1, 600_000), "The longest pause between two attempts.")
    partitioner: Any = option(
        "default",
        _partitioner,
        "default (murmur2 of the key; without one, one partition for a while), round_robin, random, "
        "least_loaded, source_hash, or a callable of (key bytes, all partitions, those with a leader).",
    )
    transactional_id: str | None = option(
        None,
        or_none(_transactional_id),
        "The name under which this producer writes transactions, the same after each start of the program. "
        "Another producer that takes it fences this one.",
    )
    transaction_timeout_ms: int = option(
        60_000,
        whole_number(1, MAX_TIMEOUT_MS),
        "A transaction that is open for longer is aborted by its coordinator.",
    )
    interceptors: tuple[Any, ...] = option((), several(_interceptor, "interceptors"), "See `interceptors.py`.")

    @property
    def is_idempotent(self) -> bool:
        return self.acks != 0 if self.enable_idempotence is None else self.enable_idempotence

    def check_together(self) -> None:
        if self.enable_idempotence and self.acks == 0:
            raise InvalidConfig("enable_idempotence", True, "False with acks=0, where nothing is ever repeated")
        if self.transactional_id is not None and (self.acks != ACKS_ALL or not self.is_idempotent):
            raise InvalidConfig("transactional_id", self.transactional_id, "None without idempotence or acks='all'")
        if self.linger_ms >= self.delivery_timeout_ms:
            raise InvalidConfig("linger_ms", self.linger_ms, "less than delivery_timeout_ms")
        if self.max_request_size > self.buffer_memory:
            raise InvalidConfig("max_request_size", self.max_request_size, "no more than buffer_memory")
        if self.retry_backoff_ms > self.retry_backoff_max_ms:
            raise InvalidConfig("retry_backoff_ms", self.retry_backoff_ms, "no more than retry_backoff_max_ms")


class ProducerSettings(TypedDict, total=False):
    """The keywords of `Producer`, for type checkers. `ProducerOptions` says what each one means."""

    cluster: Cluster | ClusterAccess | str | None
    client_id: str
    key_serializer: Callable[[Any], bytes | None] | SerializingObject | None
    value_serializer: Callable[[Any], bytes | None] | SerializingObject | None
    acks: Literal[0, 1, -1, "all", "0", "1", "-1"]
    enable_idempotence: bool | None
    compression_type: Literal["gzip", "snappy", "lz4", "zstd"] | None
    batch_size: int | str
    linger_ms: float | str
    max_in_flight: int
    buffer_memory: int | str
    max_block_ms: int | str
    max_request_size: int | str
    delivery_timeout_ms: int | str
    request_timeout_ms: int | str
    retry_backoff_ms: int | str
    retry_backoff_max_ms: int | str
    partitioner: (
        Literal["default", "round_robin", "random", "least_loaded", "source_hash"]
        | Callable[[bytes | None, Sequence[int], Sequence[int]], int]
    )
    transactional_id: str | None
    transaction_timeout_ms: int | str
    interceptors: Sequence[object]
