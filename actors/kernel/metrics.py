"""Every metric that raylog reports: its name, what it counts, and its tags.

`on_ray/metrics.py` passes them to Ray, on whose Prometheus endpoint they are called `ray_<name>`, counters
`ray_<name>_total`. docs/metrics.md lists them for people; a test compares that page and the dashboard with this file.

To add one: define it here, yield a `Reading` of it from the `readings` of the core that knows the number (a replica's
process, a broker, the controller, a `CoordinatorCore`), and describe it in docs/metrics.md. A core keeps plain numbers.
It never calls Ray, and computes nothing before it is read. (A driver of a stream tells Ray itself.)

What must stay true:
- A counter's reading is the total since its process began. The shell computes what is new.
- A metric always has the same tags. The shell adds those of the process, which come first: `cluster`, and `broker` for
  all but the controller.
- A counter that is lower than the last time has begun anew, for example with another controller in the same process.
  Its whole value is new to Ray then.
- A counter of a `ReadingGroup` that has not moved need not be read; a gauge is read each time.
- A gauge that is not read any more, for example of a deleted group, becomes 0 once. Otherwise Ray would repeat its last
  value as long as the process lives.
- Readings under the same tags are summed up. So a thousand partitions of a topic cost Ray as much as one, unless the
  topic asks for each of them (`metrics.per.partition`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias


class MetricKind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One of those below; there is no other of its name."""

    name: str
    kind: MetricKind
    tags: tuple[str, ...]
    description: str


class Reading(NamedTuple):
    """One number of a metric. `tags`: the values of the metric's own tags, in their order.

    `source` tells totals of several parts apart that are summed up under the same tags.
    """

    metric: Metric
    tags: tuple[str, ...]
    value: float
    source: Hashable = None


class ReadingGroup(NamedTuple):
    """Readings of one of many parts of a core. Its counters are read only when they have moved."""

    key: Hashable
    state: tuple[float, ...]  # the same as long as no counter has moved
    gauges: tuple[Reading, ...]
    counters: Callable[[], Iterable[Reading]]


METRICS: Final[dict[str, Metric]] = {}


@dataclass(frozen=True)
class LatencyMetric:
    """A histogram as three counters, with Prometheus' meaning: `_bucket` by `le`, cumulative; `_sum`; `_count`.

    Ray's own histogram takes one observation a call. That is more than a request may cost, so requests are counted
    where they are answered, and only the counts are reported.
    """

    name: str
    tags: tuple[str, ...]
    description: str
    bucket: Metric = field(init=False)
    total: Metric = field(init=False)
    count: Metric = field(init=False)

    def __post_init__(self) -> None:
        for part, suffix, tags in (
            ("bucket", "_bucket", (*self.tags, "le")),
            ("total", "_sum", self.tags),
            ("count", "_count", self.tags),
        ):
            object.__setattr__(self, part, _define(self.name + suffix, MetricKind.COUNTER, tags, self.description))

    def parts(self) -> Iterator[Metric]:
        yield from (self.bucket, self.total, self.count)


def _define(name: str, kind: MetricKind, tags: tuple[str, ...], description: str) -> Metric:
    metric = METRICS[name] = Metric(name, kind, tags, description)
    return metric


def _counter(name: str, tags: tuple[str, ...], description: str) -> Metric:
    return _define(name, MetricKind.COUNTER, tags, description)


def _gauge(name: str, tags: tuple[str, ...], description: str) -> Metric:
    return _define(name, MetricKind.GAUGE, tags, description)


_PROCESS: Final = ("cluster", "broker")
_REPLICA: Final = (*_PROCESS, "topic", "partition")
ALL_PARTITIONS: Final = "all"  # as the tag `partition`: of all that a process has of a topic
_CLUSTER: Final = ("cluster",)
_REQUEST: Final = (*_PROCESS, "request")

# --- a replica, while it leads -------------------------------------------------------------------------------------

BYTES_IN: Final = _counter("raylog_bytes_in", _REPLICA, "Bytes of batches that producers have appended, as stored")
RECORDS_IN: Final = _counter("raylog_records_in", _REPLICA, "Records that producers have appended")
BYTES_OUT: Final = _counter("raylog_bytes_out", _REPLICA, "Bytes of batches that consumers were given")
RECORDS_OUT: Final = _counter("raylog_records_out", _REPLICA, "Offsets that consumers were given")
APPEND_SECONDS: Final = LatencyMetric(
    "raylog_append_seconds", _REPLICA, "From an append's turn at the leader to its answer"
)
FETCH_SECONDS: Final = LatencyMetric(
    "raylog_fetch_seconds", _REPLICA, "From a fetch's turn at the leader to its answer, without those that waited"
)

# --- every replica -------------------------------------------------------------------------------------------------

LOG_SIZE_BYTES: Final = _gauge("raylog_log_size_bytes", _REPLICA, "Size of the replicas' logs on their disk")
LOG_START_OFFSET: Final = _gauge("raylog_log_start_offset", _REPLICA, "First offsets of the replicas' logs")
LOG_END_OFFSET: Final = _gauge("raylog_log_end_offset", _REPLICA, "Next offsets of the replicas' logs")
HIGH_WATERMARK: Final = _gauge("raylog_high_watermark", _REPLICA, "Ends of what is committed, as replicas know them")
IS_LEADER: Final = _gauge("raylog_is_leader", _REPLICA, "How many of the replicas lead")

# --- a broker ------------------------------------------------------------------------------------------------------

DISK_FREE_BYTES: Final = _gauge("raylog_disk_free_bytes", _PROCESS, "Free space on the disk of the broker's directory")
DISK_TOTAL_BYTES: Final = _gauge("raylog_disk_total_bytes", _PROCESS, "Size of the disk of the broker's directory")
REPLICAS: Final = _gauge("raylog_replicas", _PROCESS, "Replicas that this broker hears of")

SCRUB_BYTES: Final = _counter("raylog_scrub_bytes", _PROCESS, "Bytes of sealed segments that the scrubber has read")
SCRUB_SUSPECTS: Final = _counter("raylog_scrub_suspects", _PROCESS, "Segments in which the scrubber has met damage")
SCRUB_AGE_SECONDS: Final = _gauge(
    "raylog_scrub_age_seconds", _PROCESS, "Since the scrubber began to read the replica that waits the longest for it"
)

# --- a gateway for Kafka clients, of a broker ------------------------------------------------------------------------

KAFKA_CONNECTIONS: Final = _gauge("raylog_kafka_connections", _PROCESS, "Connections of Kafka clients to the gateway")
KAFKA_BYTES_HELD: Final = _gauge(
    "raylog_kafka_bytes_held", _PROCESS, "Bytes of requests and answers that a gateway holds for Kafka clients"
)
KAFKA_REQUESTS: Final = _counter(
    "raylog_kafka_requests", _REQUEST, "Requests of Kafka clients, by their name in Kafka's protocol"
)
KAFKA_BYTES_IN: Final = _counter("raylog_kafka_bytes_in", _REQUEST, "Bytes of requests of Kafka clients")
KAFKA_BYTES_OUT: Final = _counter("raylog_kafka_bytes_out", _REQUEST, "Bytes of answers to Kafka clients")
KAFKA_ERRORS: Final = _counter(
    "raylog_kafka_errors", (*_REQUEST, "error"), "Errors that answers to Kafka clients say, by Kafka's names of them"
)
KAFKA_REQUEST_SECONDS: Final = LatencyMetric(
    "raylog_kafka_request_seconds", _REQUEST, "From a request of a Kafka client to its answer, long polls too"
)

# --- the controller ------------------------------------------------------------------------------------------------

CONTROLLER_SERVING: Final = _gauge("raylog_controller_serving", _CLUSTER, "1 while the controller serves, else 0")
BROKERS: Final = _gauge("raylog_brokers", _CLUSTER, "Brokers that are registered")
BROKERS_ALIVE: Final = _gauge("raylog_brokers_alive", _CLUSTER, "Brokers that are registered and alive")
PARTITIONS: Final = _gauge("raylog_partitions", _CLUSTER, "Partitions of all topics")
OFFLINE_PARTITIONS: Final = _gauge("raylog_offline_partitions", _CLUSTER, "Partitions that nobody leads")
WAITING_PARTITIONS: Final = _gauge(
    "raylog_waiting_partitions", _CLUSTER, "Partitions that nobody leads before a person chooses a copy"
)
UNDER_REPLICATED_PARTITIONS: Final = _gauge(
    "raylog_under_replicated_partitions", _CLUSTER, "Partitions with fewer replicas in sync than replicas"
)
UNDER_MIN_ISR_PARTITIONS: Final = _gauge(
    "raylog_under_min_isr_partitions", _CLUSTER, "Partitions with fewer replicas in sync than min.insync.replicas"
)
ISR_SHRINKS: Final = _counter("raylog_isr_shrinks", _CLUSTER, "Times that replicas have left a partition's ISR")
ISR_EXPANDS: Final = _counter("raylog_isr_expands", _CLUSTER, "Times that replicas have come back into an ISR")
LEADER_CHANGES: Final = _counter("raylog_leader_changes", _CLUSTER, "Times that a partition got another leader")

# --- coordinators --------------------------------------------------------------------------------------------------

TRANSACTIONS: Final = _gauge(
    "raylog_transactions",
    (*_PROCESS, "partition", "state"),
    "Transactional ids by state, of those kept in this partition of __transaction_state",
)
_GROUP: Final = (*_PROCESS, "group", "topic", "partition")
GROUP_LAG: Final = _gauge("raylog_group_lag", _GROUP, "Records from a group's committed offset to the log's end")
GROUP_OFFSET: Final = _gauge("raylog_group_offset", _GROUP, "Offset that a group has committed")
GROUP_MEMBERS: Final = _gauge("raylog_group_members", (*_PROCESS, "group"), "Members that a group has")

# --- streams of Ray Data, told by their drivers ----------------------------------------------------------------------

_STREAM: Final = (*_CLUSTER, "group")
STREAM_LAG: Final = _gauge("raylog_stream_lag", _STREAM, "Offsets that a stream has not committed yet")
STREAM_OFFSETS: Final = _counter("raylog_stream_offsets", _STREAM, "Offsets that a stream has committed")
STREAM_BATCHES: Final = _counter("raylog_stream_batches", _STREAM, "Batches that a stream has committed")

# --- a pool of consumers -------------------------------------------------------------------------------------------

_POOL: Final = ("cluster", "group")
POOL_ACTORS: Final = _gauge("raylog_pool_actors", _POOL, "Actors of a pool that work")
POOL_ACTORS_WANTED: Final = _gauge("raylog_pool_actors_wanted", _POOL, "Actors that a pool wants")
POOL_LAG: Final = _gauge("raylog_pool_lag", _POOL, "Records that wait for a pool")
POOL_RECORDS: Final = _counter("raylog_pool_records", _POOL, "Records that a pool has handled or put aside")
POOL_FAILURES: Final = _counter("raylog_pool_failures", _POOL, "Attempts of a pool's handler that have failed")
POOL_DEAD_LETTERS: Final = _counter("raylog_pool_dead_letters", _POOL, "Records that a pool has put aside")
POOL_DEATHS: Final = _counter("raylog_pool_deaths", _POOL, "Actors of a pool that have died")


BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
_LABELS: Final = (*map(str, BOUNDS), "+Inf")


class LatencyCounts:
    """Durations of requests, as counts by upper bound. One observation takes about 0.2 µs."""

    __slots__ = ("_counts", "_seconds")

    def __init__(self) -> None:
        self._counts = [0] * len(_LABELS)
        self._seconds = 0.0

    @property
    def count(self) -> int:
        return sum(self._counts)

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    def readings(self, metric: LatencyMetric, tags: tuple[str, ...]) -> Iterator[Reading]:
        count = 0
        for label, count in zip(_LABELS, accumulate(self._counts), strict=True):
            yield Reading(metric.bucket, (*tags, label), count)
        yield Reading(metric.total, tags, self._seconds)
        yield Reading(metric.count, tags, count)


_Series: TypeAlias = tuple[Metric, tuple[str, ...]]


class MetricChanges:
    """Finds out what is new in the readings of a core, for Ray: of a counter what was added since the last time."""

    def __init__(self) -> None:
        self._totals: dict[Hashable, dict[_Series, float]] = {}  # by source
        self._gauges: set[_Series] = set()
        self._states: dict[Hashable, tuple[float, ...]] = {}
        self._states_read: dict[Hashable, tuple[float, ...]] = {}

    def to_read(self, group: ReadingGroup) -> Iterable[Reading]:
        """Return what has to be read of a group. `since_last` is to be given it, or it is read again the next time."""
        self._states_read[group.key] = group.state
        if self._states.get(group.key) == group.state:
            return group.gauges
        return (*group.gauges, *(each._replace(source=group.key) for each in group.counters()))

    def begin_reading(self) -> None:
        """Forget what was read, and perhaps not told."""
        self._states_read = {}

    def since_last(self, readings: Iterable[Reading]) -> list[Reading]:
        """Return what is new, and all gauges, each series once."""
        self._states = self._states_read
        sums: dict[_Series, float] = {}
        for metric, tags, value, source in readings:
            new = value if metric.kind is MetricKind.GAUGE else self._added(source, (metric, tags), value)
            sums[metric, tags] = sums.get((metric, tags), 0) + new
        self._totals = {
            source: totals for source, totals in self._totals.items() if source is None or source in self._states
        }
        gauges = {series for series in sums if series[0].kind is MetricKind.GAUGE}
        sums.update(dict.fromkeys(self._gauges - gauges, 0))
        self._gauges = gauges
        changes = [Reading(*series, value) for series, value in sums.items()]
        return [each for each in changes if each.value > 0 or each.metric.kind is MetricKind.GAUGE]

    def _added(self, source: Hashable, series: _Series, value: float) -> float:
        totals = self._totals.setdefault(source, {})
        last = totals.get(series, 0)
        totals[series] = value
        return value - last if value >= last else value
