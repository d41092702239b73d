"""Options of reading with Spark: names and meanings of Spark's Kafka source. Decides; touches nothing.

What must stay true: an option that is not known, or that does nothing beside the others, is refused, and never
passed over. Values may be Python's or, as Spark's options are, text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from raylog.api.connection.kafka_hints import hint_for
from raylog.api.jobs.rules.subscription import Subscription
from raylog.errors import InvalidConfig, InvalidSparkOptions, UnknownSparkOption

LATEST: Final = -1  # as in Kafka's JSON
EARLIEST: Final = -2
NAMED: Final = {"earliest": EARLIEST, "latest": LATEST}

ByPartition: TypeAlias = "dict[str, dict[int, int]]"  # topic, partition: an offset or a time
_DURATION: Final = re.compile(r"\s*(\d+)\s*(ms|s|m|h|millis(?:econds?)?|seconds?|minutes?|hours?)?\s*")
_UNITS: Final = {"ms": 1, "mi": 60_000, "s": 1000, "se": 1000, "m": 60_000, "h": 3_600_000, "ho": 3_600_000}


@dataclass(frozen=True)
class Bound:
    """The place where reading begins or ends. Exactly one of them is set."""

    everywhere: int | None = None  # EARLIEST or LATEST
    offsets: ByPartition | None = None
    times: ByPartition | None = None
    time: int | None = None  # milliseconds since 1970


@dataclass(frozen=True)
class ReadOptions:
    """The options of `read` and `read_stream`, checked."""

    subscription: Subscription
    start: Bound
    end: Bound
    min_partitions: int | None
    fails_on_data_loss: bool
    includes_headers: bool
    reads_committed: bool
    without_time: str  # "error" or "latest": what a starting time means where nothing is as new
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 900_000
    group_id: str | None = None
    source_name: str = "source"

    @classmethod
    def of_batch(cls, given: Mapping[str, object]) -> ReadOptions:
        """Raises UnknownSparkOption, InvalidSparkOptions, InvalidConfig."""
        options = _Given(given, _BOTH | _BATCH, "read", _STREAM)
        start, end = options.bound("starting", EARLIEST), options.bound("ending", LATEST)
        _refuse(start, LATEST, "a batch cannot start at the latest offset")
        _refuse(end, EARLIEST, "a batch cannot end at the earliest offset")
        return options.build(start, end)

    @classmethod
    def of_stream(cls, given: Mapping[str, object]) -> ReadOptions:
        """Raises UnknownSparkOption, InvalidSparkOptions, InvalidConfig."""
        options = _Given(given, _BOTH | _STREAM, "read_stream", _BATCH)
        built = options.build(options.bound("starting", LATEST), Bound(everywhere=LATEST))
        if built.min_offsets and built.max_offsets and built.min_offsets > built.max_offsets:
            raise InvalidSparkOptions("minOffsetsPerTrigger is more than maxOffsetsPerTrigger")
        return built


# --- the options ------------------------------------------------------------------------------------------------------


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidConfig(name, value, "text that is not empty")
    return value


def _flag(name: str, value: object) -> bool:
    told = str(value).lower()
    if told not in ("true", "false"):
        raise InvalidConfig(name, value, "true or false")
    return told == "true"


def _number(name: str, value: object) -> int:
    told = str(value).strip()
    if isinstance(value, bool) or not told.isdecimal() or int(told) < 1:
        raise InvalidConfig(name, value, "a whole number from 1 on")
    return int(told)


def _time(name: str, value: object) -> int:
    told = str(value).strip()
    if isinstance(value, bool) or not told.isdecimal():
        raise InvalidConfig(name, value, "milliseconds since 1970")
    return int(told)


def _duration(name: str, value: object) -> int:
    """Milliseconds."""
    found = _DURATION.fullmatch(str(value).lower())
    if found is None or isinstance(value, bool):
        raise InvalidConfig(name, value, "a time such as 500ms, 30s or 15m")
    unit = found[2] or "ms"
    return int(found[1]) * (_UNITS.get(unit) or (1 if unit.startswith("milli") else _UNITS[unit[:2]]))


def _choice(*choices: str) -> Callable[[str, object], str]:
    def check(name: str, value: object) -> str:
        if value not in choices:
            raise InvalidConfig(name, value, "one of " + ", ".join(map(repr, choices)))
        return str(value)

    return check


def _topics(name: str, value: object) -> tuple[str, ...]:
    named = value.split(",") if isinstance(value, str) else value
    if not isinstance(named, list | tuple) or not named:
        raise InvalidConfig(name, value, "names of topics, as a list or with commas between them")
    return tuple(sorted({_text(name, each.strip() if isinstance(each, str) else each) for each in named}))


def _pattern(name: str, value: object) -> str:
    try:
        re.compile(_text(name, value))
    except re.error as error:
        raise InvalidConfig(name, value, f"a regular expression ({error})") from error
    return str(value)


def _mapping(name: str, value: object, what: str) -> Mapping[str, Any]:
    told = value
    if isinstance(value, str):
        try:
            told = json.loads(value)
        except ValueError:
            raise InvalidConfig(name, value, what) from None
    if not isinstance(told, Mapping) or not told:
        raise InvalidConfig(name, value, what)
    return told


def _by_partition(least: int, what: str) -> Callable[[str, object], ByPartition]:
    def check(name: str, value: object) -> ByPartition:
        found: ByPartition = {}
        for topic, partitions in _mapping(name, value, what).items():
            for partition, number in _mapping(name, partitions, what).items():
                is_number = type(number) is int and number >= least
                if not is_number or not str(partition).isdecimal():
                    raise InvalidConfig(name, value, what)
                found.setdefault(str(topic), {})[int(partition)] = number
        return found

    return check


_times_by_partition = _by_partition(0, 'times by topic and partition: {"clicks": {"0": 1700000000000}}')
_offsets_by_partition = _by_partition(-2, 'offsets by topic and partition: {"clicks": {"0": 23, "1": -2}}')


def _offsets(name: str, value: object) -> Bound:
    if isinstance(value, str) and value.lower() in NAMED:
        return Bound(everywhere=NAMED[value.lower()])
    if isinstance(value, str) and not value.lstrip().startswith("{"):
        raise InvalidConfig(name, value, "'earliest', 'latest', or JSON with offsets by topic and partition")
    return Bound(offsets=_offsets_by_partition(name, value))


def _assignment(name: str, value: object) -> dict[str, tuple[int, ...]]:
    what = 'partitions by topic: {"clicks": [0, 1]}'
    found = {}
    for topic, numbers in _mapping(name, value, what).items():
        if not isinstance(numbers, list | tuple) or not numbers or not all(type(n) is int and n >= 0 for n in numbers):
            raise InvalidConfig(name, value, what)
        found[str(topic)] = tuple(sorted(set(numbers)))
    return found


_Check: TypeAlias = "Callable[[str, object], Any]"
_BOTH: Final[dict[str, _Check]] = {
    "subscribe": _topics,
    "subscribePattern": _pattern,
    "assign": _assignment,
    "startingOffsets": _offsets,
    "startingOffsetsByTimestamp": _times_by_partition,
    "startingTimestamp": _time,
    "startingOffsetsByTimestampStrategy": _choice("error", "latest"),
    "minPartitions": _number,
    "failOnDataLoss": _flag,
    "includeHeaders": _flag,
    "isolationLevel": _choice("read_uncommitted", "read_committed"),
}
_BATCH: Final[dict[str, _Check]] = {
    "endingOffsets": _offsets,
    "endingOffsetsByTimestamp": _times_by_partition,
    "endingTimestamp": _time,
}
_STREAM: Final[dict[str, _Check]] = {
    "maxOffsetsPerTrigger": _number,
    "minOffsetsPerTrigger": _number,
    "maxTriggerDelay": _duration,
    "groupId": _text,
    "sourceName": _text,
}
_ALSO: Final = {"kafka.isolation.level": "isolationLevel", "kafka.group.id": "groupId"}


class _Given:
    """The options of one call."""

    def __init__(
        self, given: Mapping[str, object], known: Mapping[str, _Check], call: str, elsewhere: Mapping[str, _Check]
    ) -> None:
        by_lower = {name.lower(): name for name in [*known, *_ALSO]}
        self._values: dict[str, Any] = {}
        for written, value in given.items():
            if value is None:
                continue
            name = by_lower.get(written.lower(), written)
            name = _ALSO.get(name, name)
            if name not in known:
                other = "; it is one of the other kind of reading" if name in elsewhere else ""
                names = ", ".join(sorted(known)) + f" (of {call}){other}"
                raise UnknownSparkOption(written, names, hint_for(written))
            if name in self._values:
                raise InvalidSparkOptions(f"{name} is given twice")
            self._values[name] = known[name](name, value)

    def bound(self, which: str, default: int) -> Bound:
        """Return a bound, as Kafka's source chooses it: one time for all goes before times by partition, those before
        offsets.
        """
        names = [f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"]
        given = [name for name in names if name in self._values]
        if len(given) > 1:
            raise InvalidSparkOptions(f"{' and '.join(given)} say the same thing in two ways")
        value = self._values[given[0]] if given else Bound(everywhere=default)
        if isinstance(value, Bound):
            return value
        return Bound(time=value) if isinstance(value, int) else Bound(times=value)

    def build(self, start: Bound, end: Bound) -> ReadOptions:
        values = self._values
        if "startingOffsetsByTimestampStrategy" in values and start.time is None and start.times is None:
            raise InvalidSparkOptions("startingOffsetsByTimestampStrategy does nothing without a starting time")
        if "maxTriggerDelay" in values and "minOffsetsPerTrigger" not in values:
            raise InvalidSparkOptions("maxTriggerDelay does nothing without minOffsetsPerTrigger")
        options = ReadOptions(
            subscription=self._subscription(),
            start=start,
            end=end,
            min_partitions=values.get("minPartitions"),
            fails_on_data_loss=values.get("failOnDataLoss", True),
            includes_headers=values.get("includeHeaders", False),
            reads_committed=values.get("isolationLevel") == "read_committed",
            without_time=values.get("startingOffsetsByTimestampStrategy", "error"),
            max_offsets=values.get("maxOffsetsPerTrigger"),
            min_offsets=values.get("minOffsetsPerTrigger"),
            max_delay_ms=values.get("maxTriggerDelay", 900_000),
            group_id=values.get("groupId"),
            source_name=values.get("sourceName", "source"),
        )
        for bound in (start, end):
            _check_names(bound, options.subscription)
        return options

    def _subscription(self) -> Subscription:
        values = self._values
        given = [name for name in ("subscribe", "subscribePattern", "assign") if name in values]
        if len(given) != 1:
            said = f"{' and '.join(given)} were given" if given else "none was given"
            raise InvalidSparkOptions(f"exactly one of subscribe, subscribePattern and assign is needed, and {said}")
        return Subscription(
            values.get("subscribe", ()), values.get("subscribePattern", ""), values.get("assign", {})
        )


def _refuse(bound: Bound, offset: int, reason: str) -> None:
    by_partition = [each for offsets in (bound.offsets or {}).values() for each in offsets.values()]
    if bound.everywhere == offset or offset in by_partition:
        raise InvalidSparkOptions(reason)


def _check_names(bound: Bound, subscription: Subscription) -> None:
    """Refuse bounds of other topics than those that are read: they would be passed over."""
    named = set(bound.offsets or bound.times or ())
    known = set(subscription.topics) | set(subscription.partitions)
    if known and named - known:
        raise InvalidSparkOptions(f"offsets or times are given for {sorted(named - known)}, which are not read")


