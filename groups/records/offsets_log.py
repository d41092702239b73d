"""Surroundings of a coordinator's core: one partition of `__consumer_offsets`, and the topics there are.

The shell hands out the real ones, the tests fake ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from raylog.errors import FrameInvalid, MessageUnknown
from raylog.groups.records.records import EncodedRecord

Racks: TypeAlias = tuple[tuple[bytes, tuple[frozenset[str], ...]], ...]  # topic id; for each partition where it is


class OffsetsLog(Protocol):
    """One partition, written by one coordinator at a time. What must stay true (rule 25):

    - After `claim(epoch)` has returned, no record that a claim of a lower epoch appends is ever committed.
    - `replay` yields every record that was committed before that, and was not compacted away, in order.
    - Appends are committed in the order in which `append` was called, each as a whole. When this coordinator ends, some
      of those under way may be committed, never one without those before it.
    """

    async def claim(self, coordinator_epoch: int) -> None:
        """Claim the partition. CoordinatorReplaced where a higher epoch has claimed it."""

    def replay(self) -> AsyncIterator[tuple[bytes | None, bytes | None, int]]:
        """(key, value, offset) of all committed records up to the claim."""

    def cannot_read(self, offset: int, error: FrameInvalid | MessageUnknown) -> None:
        """The record there is told and left out; an error where a later raylog wrote it (`claimed_log.py`)."""

    def append(self, records: Sequence[EncodedRecord]) -> Awaitable[object]:
        """Done when they are committed. It repeats what may be repeated itself: an error means that this coordinator
        has to end, CoordinatorReplaced above all.
        """


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """`racks`: for each partition, by number, where its replicas are; all empty where that is not known."""

    name: str
    topic_id: bytes
    racks: tuple[frozenset[str], ...]

    @property
    def partitions(self) -> int:
        return len(self.racks)


class Topics(Protocol):
    """The topics of the cluster, as far as this process has heard. They never go back to an older version."""

    @property
    def version(self) -> int:
        """The version of the metadata: comparable between processes."""

    def by_name(self) -> Mapping[str, KnownTopic]: ...

    def by_id(self, topic_id: bytes) -> KnownTopic | None: ...

    def end_offset(self, topic_id: bytes, partition: int) -> int | None:
        """No lower than any end that a reader can have seen; None where that is not known."""

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call it whenever the version has changed; returns what ends that."""
