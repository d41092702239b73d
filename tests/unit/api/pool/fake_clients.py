"""A log of one topic in memory, with a consumer and a producer on it, as far as a pool's worker uses them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from raylog.api.connection.records import ConsumerRecord, GroupMetadata, TopicPartition
from raylog.errors import FencedMember, RaylogError, RequestTimedOut

METADATA = GroupMetadata("group", "member", 3)


class Sent:
    def result(self, timeout: float | None = None) -> None:
        assert timeout


class FakeLog:
    """What is there, what is committed, and what was sent."""

    def __init__(self, counts: Mapping[int, int]) -> None:
        self.records = {
            TopicPartition("t", number): [
                ConsumerRecord("t", number, offset, 1000 + offset, 0, b"k", b"%d" % (100 * number + offset), (), 0)
                for offset in range(count)
            ]
            for number, count in counts.items()
        }
        self.committed: dict[TopicPartition, int] = {}
        self.commits: list[dict[TopicPartition, int]] = []
        self.sent: list[tuple[str, Any, Any]] = []
        self.failures: list[RaylogError] = []  # of the next commits

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        for place, offset in offsets.items():
            assert offset > self.committed.get(place, 0), "never backwards"
        self.committed.update(offsets)
        self.commits.append(dict(offsets))

    @property
    def is_done(self) -> bool:
        return all(self.committed.get(place, 0) == len(records) for place, records in self.records.items())


class FakeConsumer:
    """Begins where the group has committed."""

    def __init__(self, log: FakeLog, most: int = 4) -> None:
        self._log = log
        self._most = most
        self._at = {place: log.committed.get(place, 0) for place in log.records}
        self.polls = 0

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[ConsumerRecord]]:
        assert timeout_ms
        self.polls += 1
        found = {}
        for place, records in self._log.records.items():
            taken = records[self._at[place] : self._at[place] + self._most]
            if taken:
                found[place] = taken
                self._at[place] = taken[-1].offset + 1
        return found

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._log.commit(offsets)

    def assignment(self) -> set[TopicPartition]:
        return set(self._at)

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        if partition.partition == 9:
            raise RequestTimedOut("the leader", int(timeout_ms or 0))
        return self._at[partition]

    def group_metadata(self) -> GroupMetadata:
        return METADATA


class FakeProducer:
    def __init__(self, log: FakeLog) -> None:
        self._log = log
        self._open: list[tuple[str, Any, Any]] | None = None
        self._offsets: Mapping[TopicPartition, int] = {}
        self.aborts = 0
        self.refusals: list[RaylogError] = []  # of the next sends

    def send(self, topic: str, value: Any = None, key: Any = None, headers: Any = None) -> Sent:
        if self.refusals:
            raise self.refusals.pop(0)
        (self._log.sent if self._open is None else self._open).append((topic, value, headers))
        del key
        return Sent()

    send_many = send_arrow = send

    @contextmanager
    def transaction(self) -> Iterator[None]:
        assert self._open is None
        self._open, self._offsets = [], {}
        try:
            yield
        except BaseException:
            self._open = None
            self.aborts += 1
            raise
        sent, self._open = self._open, None
        self._log.commit(self._offsets)
        self._log.sent += sent

    def send_offsets_to_transaction(self, offsets: Mapping[TopicPartition, int], metadata: GroupMetadata) -> None:
        assert metadata == METADATA
        self._offsets = offsets


def fenced() -> RaylogError:
    return FencedMember("group", "member", 3, 4, 0)
