"""Settings, split by how far they reach. Here: what one topic's log obeys (`TopicConfig`).

Names and defaults are Kafka's. Values are checked once, where they enter (`TopicConfig.parse`), and frozen from
there on; nothing reads a setting from a dictionary or from the environment later. Each setting is defined in one
place, its field, and that is also what the configuration reference is generated from.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Final, TypeAlias

from raylog.errors import InvalidConfig, UnknownConfig

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
SECOND_MS: Final = 1000
HOUR_MS: Final = 3600 * SECOND_MS
DAY_MS: Final = 24 * HOUR_MS
NO_LIMIT: Final = -1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
MAX_BATCH_BYTES: Final = 64 * MIB  # a batch has to fit into one frame on its way to the followers

CLEANUP_POLICIES: Final = ("", "delete", "compact", "compact,delete")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
HOST_AUTO: Final = "auto"
HOST_OWN: Final = "own"
HOST_SHARED: Final = "shared"
FLUSH_POLICIES: Final = ("replicated", "fsync")
BATCHES_AS_PRODUCED: Final = "as-produced"
BATCHES_OF_KAFKA: Final = "kafka"
BATCHES_OF_COLUMNS: Final = "columns"
COMPRESSION_TYPES: Final = ("producer", "gzip", "snappy", "lz4", "zstd", "uncompressed")
_AS_LOCAL: Final = -2  # as the setting without `local.` says

ConfigValue: TypeAlias = str | int | float

_TIMES: Final = {"ms": 1, "s": SECOND_MS, "m": 60 * SECOND_MS, "h": HOUR_MS, "d": DAY_MS}
_SIZES: Final = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": 1024 * GIB}
_TIMES_TAKEN: Final = ", or a time such as 30s, 1h or 7d"
_SIZES_TAKEN: Final = ", or a size such as 64KiB or 512MiB"
_UNITS: Final = {  # by the last word of a setting's name: units, and what may be written beside numbers
    "ms": (_TIMES, _TIMES_TAKEN),
    "bytes": (_SIZES, _SIZES_TAKEN),
    "memory": (_SIZES, _SIZES_TAKEN),
    "size": (_SIZES, _SIZES_TAKEN),
}
_LAST_WORD: Final = re.compile(r"[._]([a-z]+)(?:\.per\.second)?$")
_WITH_UNIT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")


@dataclass(frozen=True)
class Setting:
    """The values that one configuration name accepts."""

    name: str
    doc: str
    read: Callable[[str, ConfigValue], Any]


def _integer(low: int, high: int) -> Callable[[str, ConfigValue], int]:
    def read(name: str, value: ConfigValue) -> int:
        expected = f"a whole number from {low} to {high}{units_taken(name)}"
        number = _number(name, str(value))
        if number is None:
            raise InvalidConfig(name, value, expected)
        if not low <= number <= high:
            raise InvalidConfig(name, value, expected)
        return number

    return read


def _number(name: str, text: str) -> int | None:
    """`7d` and `512MiB` are numbers too, of milliseconds and bytes. None: it is none."""
    try:
        return int(text)
    except ValueError:
        number = with_unit(name, text)
    return number if isinstance(number, int) else None


def with_unit(name: str, text: str) -> int | float | None:
    """Return how many milliseconds or bytes `7d`, `1.5s` or `512MiB` are, for the setting or option of this name.

    None: the text is no number with a unit, or not with one that fits.
    """
    found = _WITH_UNIT.fullmatch(text)
    unit = None if found is None else _units(name)[0].get(found[2])
    if found is None or unit is None:
        return None
    count = Fraction(found[1]) * unit
    return int(count) if count == int(count) else float(count)


def units_taken(name: str) -> str:
    """Return what may be written beside numbers, for people. Empty: nothing."""
    return _units(name)[1]


def _units(name: str) -> tuple[Mapping[str, int], str]:
    word = _LAST_WORD.search(name)
    return _UNITS.get(word[1] if word else "", ({}, ""))


def readable(name: str, value: ConfigValue) -> str:
    """A setting's value as people write it: `7d`, `512MiB`; the number where it is of no larger unit."""
    number = _number(name, str(value))
    if number is None or number <= 0:
        return str(value)
    units = _units(name)[0]
    unit, size = max(((u, s) for u, s in units.items() if number % s == 0), key=lambda each: each[1], default=("", 1))
    return f"{number // size}{unit}" if size > 1 else str(value)


def _fraction(name: str, value: ConfigValue) -> float:
    expected = "a number from 0 to 1"
    try:
        number = float(str(value))
    except ValueError:
        raise InvalidConfig(name, value, expected) from None
    if not 0.0 <= number <= 1.0:
        raise InvalidConfig(name, value, expected)
    return number


def _one_of(*choices: str) -> Callable[[str, ConfigValue], str]:
    def read(name: str, value: ConfigValue) -> str:
        if value not in choices:
            raise InvalidConfig(name, value, "one of " + ", ".join(choices))
        return str(value)

    return read


def _boolean(name: str, value: ConfigValue) -> bool:
    written = str(value).strip().lower()
    if written not in ("true", "false"):
        raise InvalidConfig(name, value, "true or false")
    return written == "true"


def _cleanup_policy(name: str, value: ConfigValue) -> str:
    policies = sorted({part.strip() for part in str(value).split(",")})
    joined = ",".join(policies)
    if joined not in CLEANUP_POLICIES:
        raise InvalidConfig(name, value, "delete, compact, both with a comma between, or nothing")
    return joined


def _throttled_replicas(name: str, value: ConfigValue) -> str:
    text = str(value).strip()
    if not re.fullmatch(r"|\*|\d+:\d+(,\d+:\d+)*", text):
        raise InvalidConfig(name, value, "partition:broker, with commas between, or *")
    return text


def _kafka_version(name: str, value: ConfigValue) -> str:
    if not re.fullmatch(r"\d{1,3}(\.\d{1,3}){1,3}(-IV\d{1,2})?", str(value)):
        raise InvalidConfig(name, value, "a version of Kafka, such as 3.0-IV1")
    return str(value)


def _setting(name: str, default: Any, read: Callable[[str, ConfigValue], Any], doc: str) -> Any:
    return dataclasses.field(default=default, metadata={"setting": Setting(name, doc, read)})


@dataclass(frozen=True)
class TopicConfig:
    """The behaviour of one topic's log. Field names are the Kafka names with underscores.

    Some are taken and shown, and have no effect, so that Kafka's tools find what they look for: their texts say so.
    """

    batch_format: str = _setting(
        "batch.format",
        BATCHES_AS_PRODUCED,
        _one_of(BATCHES_AS_PRODUCED, BATCHES_OF_KAFKA, BATCHES_OF_COLUMNS),
        "The form of new batches. as-produced: columns of Python handles, Kafka's own form of Kafka clients. "
        "kafka: handles write Kafka's form too. columns: gateways turn into columns what Kafka clients write.",
    )
    cleanup_policy: str = _setting(
        "cleanup.policy",
        "delete",
        _cleanup_policy,
        "What becomes of old records: delete drops whole segments, compact keeps the newest value per key. Empty: all "
        "are kept.",
    )
    compression_type: str = _setting(
        "compression.type",
        "producer",
        _one_of(*COMPRESSION_TYPES),
        "For Kafka's tools only, without effect: records stay as their producer has compressed them.",
    )
    delete_retention_ms: int = _setting(
        "delete.retention.ms",
        DAY_MS,
        _integer(0, INT64_MAX),
        "How long a compacted topic keeps a tombstone after the compaction that first met it.",
    )
    file_delete_delay_ms: int = _setting(
        "file.delete.delay.ms",
        60 * SECOND_MS,
        _integer(0, INT64_MAX),
        "How long a deleted segment's file stays on disk for readers that still hold it.",
    )
    flush_messages: int = _setting(
        "flush.messages", INT64_MAX, _integer(1, INT64_MAX), "Sync to disk after this many records."
    )
    flush_ms: int = _setting(
        "flush.ms", INT64_MAX, _integer(0, INT64_MAX), "Sync to disk when a record has waited this long."
    )
    flush_policy: str = _setting(
        "flush.policy",
        "replicated",
        _one_of(*FLUSH_POLICIES),
        "When a write counts: in the page cache of the in-sync replicas (replicated), or synced to disk (fsync).",
    )
    follower_replication_throttled_replicas: str = _setting(
        "follower.replication.throttled.replicas",
        "",
        _throttled_replicas,
        "For Kafka's tools only, without effect: moves have a throttle of their own (reassign_partitions).",
    )
    index_interval_bytes: int = _setting(
        "index.interval.bytes",
        4 * KIB,
        _integer(0, INT32_MAX),
        "Bytes of log between two index entries.",
    )
    leader_replication_throttled_replicas: str = _setting(
        "leader.replication.throttled.replicas",
        "",
        _throttled_replicas,
        "For Kafka's tools only, without effect: moves have a throttle of their own (reassign_partitions).",
    )
    leader_replication_throttled_rate: int = _setting(
        "leader.replication.throttled.rate",
        NO_LIMIT,
        _integer(NO_LIMIT, INT64_MAX),
        "Bytes a second with which all followers of a partition that are not in sync catch up together, "
        "in equal shares; -1: no limit. Moves have a throttle of their own besides (reassign_partitions).",
    )
    local_retention_bytes: int = _setting(
        "local.retention.bytes",
        _AS_LOCAL,
        _integer(_AS_LOCAL, INT64_MAX),
        "For Kafka's tools only, without effect: no part of a log is kept elsewhere.",
    )
    local_retention_ms: int = _setting(
        "local.retention.ms",
        _AS_LOCAL,
        _integer(_AS_LOCAL, INT64_MAX),
        "For Kafka's tools only, without effect: no part of a log is kept elsewhere.",
    )
    max_compaction_lag_ms: int = _setting(
        "max.compaction.lag.ms",
        INT64_MAX,
        _integer(1, INT64_MAX),
        "The longest a record may stay uncompacted, whatever the dirty ratio.",
    )
    max_message_bytes: int = _setting(
        "max.message.bytes",
        MIB + 12,
        _integer(0, MAX_BATCH_BYTES),
        "The largest record batch, as it is sent. A compacted topic refuses what unpacks to over 16 times as much.",
    )
    message_downconversion_enable: bool = _setting(
        "message.downconversion.enable",
        True,
        _boolean,
        "For Kafka's tools only, without effect: clients from before Kafka 0.11 are not served.",
    )
    message_format_version: str = _setting(
        "message.format.version",
        "3.0-IV1",
        _kafka_version,
        "For Kafka's tools only, without effect: batches have the form of Kafka 0.11 and later, or columns.",
    )
    message_timestamp_after_max_ms: int = _setting(
        "message.timestamp.after.max.ms",
        HOUR_MS,
        _integer(0, INT64_MAX),
        "How far a record's timestamp may lie ahead of the broker's clock (CreateTime only).",
    )
    message_timestamp_before_max_ms: int = _setting(
        "message.timestamp.before.max.ms",
        INT64_MAX,
        _integer(0, INT64_MAX),
        "How far a record's timestamp may lie behind the broker's clock (CreateTime only).",
    )
    message_timestamp_type: str = _setting(
        "message.timestamp.type",
        "CreateTime",
        _one_of(*TIMESTAMP_TYPES),
        "Whether records keep the writer's time or get the broker's when they are appended.",
    )
    metrics_per_partition: bool = _setting(
        "metrics.per.partition",
        False,
        _boolean,
        "Whether metrics tell each partition apart. Else a process reports the sums of those that it has of the topic.",
    )
    min_cleanable_dirty_ratio: float = _setting(
        "min.cleanable.dirty.ratio",
        0.5,
        _fraction,
        "The part of a log that must be uncompacted before a compaction is worth its while.",
    )
    min_compaction_lag_ms: int = _setting(
        "min.compaction.lag.ms",
        0,
        _integer(0, INT64_MAX),
        "The shortest time for which every version of a record stays readable.",
    )
    min_insync_replicas: int = _setting(
        "min.insync.replicas",
        0,
        _integer(0, INT32_MAX),
        "With fewer replicas in sync acks=all is refused; 0: one fewer than there are replicas, but at least 1.",
    )
    preallocate: bool = _setting(
        "preallocate",
        False,
        _boolean,
        "For Kafka's tools only, without effect: segment files grow as they are written.",
    )
    producer_id_expiration_ms: int = _setting(
        "producer.id.expiration.ms",
        DAY_MS,
        _integer(1, INT64_MAX),
        "How long an idle idempotent producer is remembered.",
    )
    remote_storage_enable: str = _setting(
        "remote.storage.enable",
        "false",
        _one_of("false"),
        "For Kafka's tools only: no part of a log is kept elsewhere.",
    )
    replica_host: str = _setting(
        "replica.host",
        HOST_AUTO,
        _one_of(HOST_AUTO, HOST_OWN, HOST_SHARED),
        "Whether a replica has a process of its own or shares one. auto: its own, for the first few of a broker.",
    )
    replica_lag_time_max_ms: int = _setting(
        "replica.lag.time.max.ms",
        10 * SECOND_MS,
        _integer(1, INT64_MAX),
        "A follower that has not caught up with the leader for this long is not in sync any more.",
    )
    retention_bytes: int = _setting(
        "retention.bytes",
        NO_LIMIT,
        _integer(NO_LIMIT, INT64_MAX),
        "Delete the oldest segments while the partition is larger than this; -1: no limit.",
    )
    retention_ms: int = _setting(
        "retention.ms",
        168 * HOUR_MS,
        _integer(NO_LIMIT, INT64_MAX),
        "Delete segments whose newest record is older than this; -1: no limit.",
    )
    scrub_bytes_per_second: int = _setting(
        "scrub.bytes.per.second",
        10 * MIB,
        _integer(NO_LIMIT, INT64_MAX),
        "How fast a broker's scrubber reads this topic's sealed segments, of all replicas one at a time; -1: no limit.",
    )
    scrub_interval_ms: int = _setting(
        "scrub.interval.ms",
        7 * DAY_MS,
        _integer(NO_LIMIT, INT64_MAX),
        "How often every replica reads all its sealed segments to find what has rotted on its disk; -1: never.",
    )
    segment_bytes: int = _setting(
        "segment.bytes", GIB, _integer(14, INT32_MAX), "Start a new segment file at this size."
    )
    segment_index_bytes: int = _setting(
        "segment.index.bytes",
        10 * MIB,
        _integer(8, INT32_MAX),
        "Start a new segment file when its offset index, or that of its aborted transactions, reaches this size.",
    )
    segment_jitter_ms: int = _setting(
        "segment.jitter.ms",
        0,
        _integer(0, INT64_MAX),
        "Start a new segment up to this much earlier, so that partitions do not all roll at once.",
    )
    segment_ms: int = _setting(
        "segment.ms", 168 * HOUR_MS, _integer(1, INT64_MAX), "Start a new segment file at this age of the present one."
    )
    unclean_leader_election_enable: bool = _setting(
        "unclean.leader.election.enable",
        False,
        _boolean,
        "Whether a replica that may lack acknowledged records may lead where no other can; loses what it lacks.",
    )

    def min_insync(self, replicas: int) -> int:
        """Return how many replicas have to be in sync, of a partition that has so many."""
        return self.min_insync_replicas or max(1, replicas - 1)

    @cached_property  # asked for every batch that is appended
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @cached_property  # as often
    def max_batch_bytes(self) -> int:
        """Return the size of the largest batch that a leader takes."""
        return min(self.max_message_bytes, self.segment_bytes)

    @property
    def deletes_old_segments(self) -> bool:
        return "delete" in self.cleanup_policy

    @classmethod
    def parse(cls, values: Mapping[str, ConfigValue]) -> TopicConfig:
        """Check `values`, whose names are Kafka's (`retention.ms`), and fill in the defaults."""
        return _parsed(tuple((name, type(value), value) for name, value in values.items()))

    def with_changes(self, values: Mapping[str, ConfigValue | None]) -> TopicConfig:
        """Return this configuration with some settings changed, checked together. None: back to the default."""
        changes: dict[str, Any] = {}
        for name, value in values.items():
            field = _FIELDS.get(name)
            if field is None:
                close = difflib.get_close_matches(name, _FIELDS, n=1)
                raise UnknownConfig(name, close[0] if close else None)
            changes[field.name] = field.default if value is None else field.metadata["setting"].read(name, value)
        changed = dataclasses.replace(self, **changes)
        changed._check_together()
        return changed

    def value(self, name: str) -> ConfigValue:
        """Return the value of the setting of this name."""
        value: ConfigValue = getattr(self, _FIELDS[name].name)
        return value

    def overrides(self) -> dict[str, ConfigValue]:
        """Return what differs from the defaults, under Kafka's names: `parse` makes the same configuration of it."""
        return {
            name: getattr(self, field.name)
            for name, field in _FIELDS.items()
            if getattr(self, field.name) != field.default
        }

    def _check_together(self) -> None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfig(
                "min.compaction.lag.ms", self.min_compaction_lag_ms, "no more than max.compaction.lag.ms"
            )


@lru_cache(maxsize=256)  # each replica of a topic asks several times for the same
def _parsed(values: tuple[tuple[str, type, ConfigValue], ...]) -> TopicConfig:
    return TopicConfig().with_changes({name: value for name, _, value in values})


_FIELDS: Final = {field.metadata["setting"].name: field for field in dataclasses.fields(TopicConfig)}
LIST_SETTINGS: Final = frozenset(
    {"cleanup.policy", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
)
TOPIC_SETTINGS: Final = tuple(field.metadata["setting"] for field in _FIELDS.values())
