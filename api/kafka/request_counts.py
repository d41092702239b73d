"""Counts of requests by their kind: how many, their bytes, how long they took, and the errors in their answers.

An error is counted where an answer says it: for the whole, for a topic, a partition, a resource. Only the parts of an
answer that can say one are looked at.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

from raylog.actors.kernel.metrics import (
    KAFKA_BYTES_IN,
    KAFKA_BYTES_OUT,
    KAFKA_ERRORS,
    KAFKA_REQUEST_SECONDS,
    KAFKA_REQUESTS,
    LatencyCounts,
    Reading,
)
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.schemas import Struct, schema
from raylog.storage.format.record_batch import Bytes

_CODE: Final = "error_code"
_Find: TypeAlias = Callable[[Any, "list[int]"], None]


class RequestCounts:
    """Counts since the process began."""

    def __init__(self) -> None:
        self.arrived: Counter[str] = Counter()
        self.errors: Counter[tuple[str, int]] = Counter()
        self._bytes_in: Counter[str] = Counter()
        self._bytes_out: Counter[str] = Counter()
        self._seconds: defaultdict[str, LatencyCounts] = defaultdict(LatencyCounts)

    def request(self, name: str, frame: Bytes) -> None:
        """Count a request that has arrived."""
        self.arrived[name] += 1
        self._bytes_in[name] += len(frame)

    def answered(self, name: str, answer: Any, parts: Sequence[Bytes], seconds: float) -> None:
        """Count its answer."""
        self._bytes_out[name] += sum(map(len, parts))
        self._seconds[name].add(seconds)
        for code in error_codes(name, answer):
            self.errors[name, code] += 1

    def readings(self) -> Iterator[Reading]:
        """Metrics, by the names of requests in Kafka's protocol."""
        for metric, counts in (
            (KAFKA_REQUESTS, self.arrived), (KAFKA_BYTES_IN, self._bytes_in), (KAFKA_BYTES_OUT, self._bytes_out)
        ):  # fmt: skip
            for name, count in counts.items():
                yield Reading(metric, (name,), count)
        for (name, code), count in self.errors.items():
            yield Reading(KAFKA_ERRORS, (name, ErrorCode(code).name), count)
        for name, seconds in self._seconds.items():
            yield from seconds.readings(KAFKA_REQUEST_SECONDS, (name,))


def error_codes(name: str, answer: Any) -> list[int]:
    """Return the codes of all errors that the answer to a request of this name says."""
    find = _finder(name)
    found: list[int] = []
    if find is not None:
        find(answer, found)
    return found


@cache
def _finder(name: str) -> _Find | None:
    return _finder_in(schema(f"{name}Response").body)


def _finder_in(struct: Struct) -> _Find | None:
    """Return what adds the codes in such a structure to a list. None: it can say no error."""
    names = [field.name for field in struct.fields]
    place = names.index(_CODE) if _CODE in names else None
    parts = [
        (index, field.is_array, find)
        for index, field in enumerate(struct.fields)
        if field.struct is not None and (find := _finder_in(field.struct)) is not None
    ]
    if place is None and not parts:
        return None

    def find_in(value: Any, found: list[int]) -> None:
        if place is not None and value[place]:
            found.append(value[place])
        for index, is_array, find in parts:
            part = value[index]
            for each in (part or ()) if is_array else () if part is None else (part,):
                find(each, found)

    return find_in
