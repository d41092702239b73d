"""The history of what clients were told, kept outside of the system under test, and checks that it stays true.

One `PartitionHistory` holds everything that writers sent and heard, and that readers saw, of one partition. It trusts
nothing that the system says of itself: the final records are handed to it as they were read.

What it demands (of a partition in which the promised minimum of replicas survived):
- what was acknowledged under acks=all is there, at its offset, once;
- what any reader has seen is there, at its offset, with the same value;
- no value is there twice, none that nobody sent, and the offsets have no gaps;
- the records of an idempotent producer stand in the order in which it sent them;
- an end offset once seen is never lower afterwards, for the same client or for whoever looks when all is at rest. (A
  leader that is cut off and does not know that it was replaced may show others what it knew.)
- nothing is deleted but what somebody asked to delete.

Two things are allowed where they are known: deletion up to an offset (`will_delete`), and the loss of what was on no
disk when all machines lost their power at once (`was_lost_from`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


class InvariantBroken(AssertionError):
    """The system lost, doubled, changed or reordered something."""


@dataclass
class PartitionHistory:
    name: str
    sent: set[bytes] = field(default_factory=set)
    ordered: set[bytes] = field(default_factory=set)  # producers whose records stand in the order of their numbers
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    seen: dict[int, bytes] = field(default_factory=dict)
    highest_end: int = 0
    may_start_at: int = 0  # deletion was asked for up to here
    starts_at: int = 0  # and has been done up to here, as a leader said
    losses: int = 0
    forgiven: str = ""  # why anything may be lost: elections may be unclean

    @property
    def may_have_lost(self) -> bool:
        return bool(self.losses or self.forgiven)

    # --- what clients do and hear ---

    def will_send(self, producer: bytes, values: Iterable[bytes], *, ordered: bool) -> None:
        self.sent.update(values)
        if ordered:
            self.ordered.add(producer)

    def was_acknowledged(self, values: Iterable[bytes], base_offset: int) -> None:
        for offset, value in enumerate(values, base_offset):
            before = self.acknowledged.setdefault(value, offset)
            if before != offset:
                self._broken(f"{value!r} was acknowledged at {before} and then at {offset}")
            self._agree(offset, value, "acknowledged")

    def was_read(self, offset: int, value: bytes) -> None:
        if value not in self.sent:
            self._broken(f"offset {offset} was read as {value!r}, which nobody sent")
        self._agree(offset, value, "read")

    def was_out_of_order(self, expected: int, offset: int) -> None:
        """A reader asked for `expected` and got what begins later."""
        if offset > self.may_start_at:
            self._broken(f"offset {expected} is missing for a reader: {offset} follows")

    def was_out_of_range(self, offset: int) -> None:
        """A reader that has read everything below `offset` was told that there is no such place."""
        if offset >= self.may_start_at:
            self._broken(f"a reader at offset {offset} was told that this is out of range")

    def has_diverged(self, offset: int) -> None:
        """A leader says that what a reader has read up to there is not what its log holds."""
        self._broken(f"a reader at offset {offset} was told that its log is another one")

    def end_was_seen(self, end_offset: int, seen_before: int) -> None:
        """Note the end that a client saw, who had seen it at `seen_before`."""
        if end_offset < seen_before:
            self._broken(f"the end is at {end_offset}, after it had been seen at {seen_before}")
        self.highest_end = max(self.highest_end, end_offset)

    def will_delete(self, before_offset: int) -> None:
        self.may_start_at = max(self.may_start_at, before_offset)

    def was_deleted(self, before_offset: int) -> None:
        self.starts_at = max(self.starts_at, before_offset)

    # --- what is given up ---

    def was_lost_from(self, offset: int) -> None:
        """No disk held anything from there on when all machines lost their power."""
        self.losses += 1
        self.acknowledged = {value: at for value, at in self.acknowledged.items() if at < offset}
        self.seen = {at: value for at, value in self.seen.items() if at < offset}
        self.highest_end = min(self.highest_end, offset)

    # --- the reckoning ---

    def check_final(self, records: list[tuple[int, bytes]], start_offset: int, end_offset: int) -> None:
        """`records` is the whole partition, as read when all had come to rest."""
        if start_offset > self.may_start_at or start_offset < self.starts_at:
            asked = f"deletion was asked for up to {self.may_start_at} and done up to {self.starts_at}"
            self._broken(f"the log starts at {start_offset}, but {asked}")
        found: dict[bytes, int] = {}
        expected = start_offset
        for offset, value in records:
            if offset < start_offset:  # in one batch with the start
                continue
            if offset != expected:
                self._broken(f"offset {expected} is missing: {offset} follows")
            expected = offset + 1
            if value not in self.sent:
                self._broken(f"offset {offset} holds {value!r}, which nobody sent")
            if value in found:
                self._broken(f"{value!r} is there twice, at {found[value]} and {offset}")
            found[value] = offset
            self._agree(offset, value, "finally there")
        if expected != end_offset:
            self._broken(f"the log ends at {end_offset}, the records at {expected}")
        self._check_order(found)
        for value, offset in self.acknowledged.items():
            if offset >= start_offset and found.get(value) != offset:
                self._broken(f"{value!r} was acknowledged at {offset} and is {self._where(found.get(value))}")
        for offset, value in self.seen.items():
            if offset >= start_offset and found.get(value) != offset:
                self._broken(f"{value!r} was read at {offset} and is {self._where(found.get(value))}")
        self.end_was_seen(end_offset, self.highest_end)

    def _check_order(self, found: dict[bytes, int]) -> None:
        """Values are named `producer-number`, and `found` stands in the order of the log."""
        last: dict[bytes, int] = {}
        for value, offset in found.items():
            producer, _, number = value.partition(b"-")
            if producer in self.ordered and int(number) < last.get(producer, -1):
                self._broken(f"{value!r} stands at {offset}, behind number {last[producer]} of the same producer")
            last[producer] = int(number)

    def _agree(self, offset: int, value: bytes, how: str) -> None:
        before = self.seen.setdefault(offset, value)
        if before != value:
            self._broken(f"offset {offset} was {before!r} and is now {how} as {value!r}")

    @staticmethod
    def _where(offset: int | None) -> str:
        return "gone" if offset is None else f"at {offset}"

    def _broken(self, what: str) -> None:
        if not self.forgiven:
            raise InvariantBroken(f"{self.name}: {what}")
