"""Records that were fetched and not yet returned to the program: fairly, in order, each once.

It belongs to whoever polls, and has no threads and no event loop. Per partition:

    chunks → VisibleBatches → the batch at hand → a run of its records from the position on

What must stay true:
- A batch is decoded once, however many polls its records are spread over; the exception is a batch whose run was cut.
- A position is behind what was handed out and before what was not, also while a program iterates over a run, and also
  where a poll ends in an error or in Ctrl-C.
- What was fetched under an older generation is dropped, unseen.
- A partition that cannot go on raises its error again and again, until somebody seeks, and holds no other up.

`PollErrors` are the errors that polls have to raise.

What must stay true:
- What there is to hand out is handed out first, and the poll after it raises; so neither does an error take records
  with it, nor do busy partitions keep an error from being seen.
- An error that passes by itself is raised once. One that ends a partition's reading is raised again and again, until
  the partition gets another position or is let go of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from raylog.actors.protocol.replication_messages import NO_EPOCH
from raylog.api.connection.records import ConsumerRecord, TopicPartition
from raylog.api.consumer.rules.column_batches import ColumnBatch
from raylog.api.consumer.rules.deserializers import Deserializer
from raylog.api.consumer.rules.fetched import (
    Batch,
    Chunk,
    Failed,
    Located,
    Piece,
    RecordList,
    RecordRun,
    VisibleBatches,
    deserialize,
)
from raylog.api.consumer.rules.positions import UNKNOWN, Positions
from raylog.errors import BatchError, RecordUnreadable

Interceptor: TypeAlias = Callable[[list[ConsumerRecord]], Sequence[ConsumerRecord]]

_MOST_REFETCHES: Final = 8  # of one position, with growing pauses: some ten seconds
_LIST_PIECE: Final = 256  # records made ahead of an iterating program where each has to be touched anyway


class PollErrors:
    """The errors of one consumer."""

    def __init__(self) -> None:
        self._final: dict[TopicPartition, Exception] = {}
        self._passing: dict[type[Exception], Exception] = {}
        self._is_owed = False

    def add_final(self, partition: TopicPartition, error: Exception) -> None:
        self._final[partition] = error

    def add_passing(self, error: Exception) -> None:
        """Many partitions may tell the same; one of a kind is enough."""
        self._passing[type(error)] = error

    def forget(self, partition: TopicPartition) -> None:
        self._final.pop(partition, None)

    def raise_of(self, partition: TopicPartition) -> None:
        """Raise what keeps this partition from being read, if anything does."""
        if partition in self._final:
            raise self._final[partition]
        self._raise_passing()

    def raise_owed(self) -> None:
        """Raise, at the beginning of a poll, what the one before could have raised."""
        if self._is_owed:
            self._is_owed = False
            self._raise_any()

    def raise_or_owe(self, found_some: bool) -> None:
        """Raise errors at the end of a poll, or with the next one if this one has found records."""
        if found_some:
            self._is_owed = bool(self._passing or self._final)
        else:
            self._raise_any()

    def _raise_any(self) -> None:
        self._raise_passing()
        for error in self._final.values():
            raise error

    def _raise_passing(self) -> None:
        if self._passing:
            raise self._passing.pop(next(iter(self._passing)))


class Fetching(Protocol):
    """The orders that are given to the fetcher. The positions have a new generation by then."""

    def refetch(self, partition: TopicPartition, suspicions: int = 0) -> None:
        """Fetch anew from the partition's position on. `suspicions`: how often what came from there was damaged."""

    def halt(self, partition: TopicPartition) -> None:
        """Fetch nothing until the partition gets another position."""


class _Held:
    """The fetched data of one partition."""

    __slots__ = ("batch", "chunks", "refetches", "run", "walk")

    def __init__(self) -> None:
        self.chunks: deque[Chunk | Located] = deque()
        self.walk: VisibleBatches | None = None
        self.batch: Batch | None = None
        self.run: RecordRun | None = None
        self.refetches = (UNKNOWN, 0)  # of which position, how often

    @property
    def is_empty(self) -> bool:
        return not self.chunks and self.walk is None and self.batch is None


class FetchCollector:
    """Positions are those of the same consumer."""

    def __init__(
        self,
        positions: Positions,
        fetching: Fetching,
        keys: Deserializer | None = None,
        values: Deserializer | None = None,
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        self._positions = positions
        self._fetching = fetching
        self._keys = keys
        self._values = values
        self._interceptors = tuple(interceptors)
        self._makes_lists = keys is not None or values is not None or bool(interceptors)
        self._held: dict[TopicPartition, _Held] = {}
        self._turns: deque[TopicPartition] = deque()  # who may have something and is not paused; the next is first
        self._iterated: tuple[TopicPartition, Piece] | None = None
        self._taken_before = 0  # of the records of that piece, by polls
        self._errors = PollErrors()
        self.held_bytes = 0  # of chunks that nobody has looked into
        self.handed_out = 0  # records

    # --- coming in ------------------------------------------------------------------------------------------------

    def accept(self, item: Chunk | Located) -> None:
        if not self._positions.is_current(item.partition, item.generation):
            return
        held = self._held.setdefault(item.partition, _Held())
        if isinstance(item, Located) and held.is_empty:
            self._positions.move(item.partition, item.offset, NO_EPOCH)
            return
        held.chunks.append(item)
        self.held_bytes += _size(item)
        self._give_turn(item.partition)

    def fail(self, failed: Failed) -> None:
        """Raised by the next poll that has nothing else, or the one after."""
        if not self._positions.is_current(failed.partition, failed.generation):
            return
        if failed.is_final:
            self._errors.add_final(failed.partition, failed.error)
        else:
            self._errors.add_passing(failed.error)

    def drop(self, partition: TopicPartition) -> None:
        """Drop what was fetched: the position is about to become another, or nobody reads the partition any more."""
        self._settle(partition)
        self._forget(partition)
        self._errors.forget(partition)

    def pause(self, partition: TopicPartition) -> None:
        self._settle(partition)
        if partition in self._turns:
            self._turns.remove(partition)

    def resume(self, partition: TopicPartition) -> None:
        if partition in self._held:
            self._give_turn(partition)

    def _give_turn(self, partition: TopicPartition) -> None:
        position = self._positions.get(partition)
        if partition not in self._turns and position is not None and not position.is_paused:
            self._turns.append(partition)

    def _forget(self, partition: TopicPartition) -> None:
        held = self._held.pop(partition, None)
        if held is not None:
            self.held_bytes -= sum(map(_size, held.chunks))
            held.chunks.clear()
            held.walk = held.batch = held.run = None
        if partition in self._turns:
            self._turns.remove(partition)

    @property
    def has_any(self) -> bool:
        """Whether there may be something to hand out."""
        return bool(self._turns)

    # --- going out ------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be handed out; UNKNOWN: not looked up yet. NotAssigned."""
        if self._iterated is not None and self._iterated[0] == partition:
            piece = self._iterated[1]
            if piece.position != piece.end:
                return piece.position
            self.settle()
        return self._positions[partition].offset

    def epoch(self, partition: TopicPartition) -> int:
        """Return the epoch of the record before the position; NO_EPOCH: not known just now. NotAssigned."""
        if self._iterated is not None and self._iterated[0] == partition:
            return NO_EPOCH
        return self._positions[partition].epoch

    def check(self, partition: TopicPartition) -> None:
        """Raise what keeps it from being read, or NotAssigned."""
        self._positions[partition]
        self._errors.raise_of(partition)

    def poll(self, most: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return up to `most` records; partitions take turns."""
        self.settle()
        self._errors.raise_owed()
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        before: dict[TopicPartition, tuple[int, int]] = {}
        try:
            for partition in list(self._turns):
                if most <= 0:
                    break
                before[partition] = self._place(partition)
                records = self._records(partition, most)
                if records:
                    found[partition] = records
                    most -= len(records)
                self._turn_over(partition)
        except BaseException:  # an interceptor's, or Ctrl-C: nothing was handed out
            self._undo(before)
            raise
        self.handed_out += sum(map(len, found.values()))
        self._errors.raise_or_owe(bool(found))
        return found

    def poll_batches(self, most: int) -> list[ColumnBatch]:
        """Batches of about so many bytes in all, and at least one; partitions take turns."""
        self.settle()
        self._errors.raise_owed()
        found: list[ColumnBatch] = []
        before: dict[TopicPartition, tuple[int, int]] = {}
        try:
            while self._turns and most > 0:
                partition = self._turns[0]
                before.setdefault(partition, self._place(partition))
                held = self._held[partition]
                batch = self._batch(partition, held)
                if batch is not None:
                    found.append(ColumnBatch(partition, *batch, self._positions[partition].offset))
                    most -= batch[0].size
                    self._finish_batch(partition, held)
                if held.walk is None:
                    self._turn_over(partition)
        except BaseException:  # Ctrl-C: nothing was handed out
            self._undo(before)
            raise
        self.handed_out += sum(batch.record_count for batch in found)
        self._errors.raise_or_owe(bool(found))
        return found

    def next_piece(self) -> Piece | None:
        """Records to iterate over, of the partition whose turn it is. The piece before it is over."""
        self.settle()
        self._errors.raise_owed()
        for partition in list(self._turns):
            piece = self._piece(partition)
            self._turn_over(partition)
            if piece is not None:
                self._iterated, self._taken_before = (partition, piece), piece.taken
                self._errors.raise_or_owe(True)
                return piece
        self._errors.raise_or_owe(False)
        return None

    def cut(self) -> None:
        """End iterations: they get nothing more before `next_piece`. Safe on any thread."""
        iterated = self._iterated
        if iterated is not None:
            iterated[1].cut()

    def settle(self) -> None:
        """Have the position where the iterating program is; what it has not taken can be taken by others."""
        if self._iterated is not None:
            self._settle(self._iterated[0])

    def _settle(self, partition: TopicPartition) -> None:
        if self._iterated is None or self._iterated[0] != partition:
            return
        piece = self._iterated[1]
        piece.cut()
        self._iterated = None
        self.handed_out += piece.taken - self._taken_before
        held = self._held[partition]
        if piece.position != piece.end:
            held.run = None  # made anew, from the position
        self._move_to(partition, held, piece.position)

    # --- one partition --------------------------------------------------------------------------------------------

    def _records(self, partition: TopicPartition, most: int) -> list[ConsumerRecord]:
        held = self._held[partition]
        found: list[ConsumerRecord] = []
        while len(found) < most:
            run = self._run(partition, held)
            if run is None:
                break
            records, end = self._take(partition, held, run, most - len(found))
            if found:
                found += records
            else:
                found = records
            self._move_to(partition, held, end)
        return found

    def _piece(self, partition: TopicPartition) -> Piece | None:
        held = self._held[partition]
        while (run := self._run(partition, held)) is not None:
            if not self._makes_lists:
                return run
            records, end = self._take(partition, held, run, _LIST_PIECE)
            if records:
                return RecordList(records, end)
            self._move_to(partition, held, end)
        return None

    def _take(
        self, partition: TopicPartition, held: _Held, run: RecordRun, most: int
    ) -> tuple[list[ConsumerRecord], int]:
        """The next records of a run, ready for the program, and the position behind them."""
        records = run.take(most)
        if not self._makes_lists:
            return records, run.position
        held.run = None  # should an interceptor raise, these records are made again
        records, unreadable = deserialize(records, self._keys, self._values)
        if unreadable is not None and not records:
            self._stop(partition, unreadable)
            return [], unreadable.offset
        for intercept in self._interceptors if records else ():
            records = list(intercept(records))
        if unreadable is not None:
            return records, unreadable.offset  # made again from there, and stopped
        held.run = run
        return records, run.position

    def _run(self, partition: TopicPartition, held: _Held) -> RecordRun | None:
        """Return the run that the next records come from."""
        while held.run is None:
            batch = self._batch(partition, held)
            if batch is None:
                return None
            header, data = batch
            try:
                held.run = RecordRun(partition, header, data, self._positions[partition].offset)
            except BatchError as error:
                self._stop(partition, self._unreadable(partition, error, header.next_offset))
                return None
            self._move_to(partition, held, held.run.position)  # offsets that compaction removed are passed over
        return held.run

    def _batch(self, partition: TopicPartition, held: _Held) -> Batch | None:
        """The batch at hand, or the next one."""
        while held.batch is None:
            if held.walk is None:
                if not held.chunks:
                    return None
                self._begin(partition, held, held.chunks.popleft())
            elif not self._look_ahead(partition, held):
                return None
        return held.batch

    def _begin(self, partition: TopicPartition, held: _Held, item: Chunk | Located) -> None:
        self.held_bytes -= _size(item)
        if isinstance(item, Located):
            self._positions.move(partition, item.offset, NO_EPOCH)
        elif item.position == self._positions[partition].offset:
            held.walk = VisibleBatches(item)
        elif item.end_offset > self._positions[partition].offset:  # an interrupt has cost what was before it
            self._fetch_again(partition)

    def _look_ahead(self, partition: TopicPartition, held: _Held) -> bool:
        """Go to the next batch that is seen. False: the partition was let go of, its bytes are damaged."""
        walk = held.walk
        assert walk is not None
        try:
            held.batch = walk.next()
        except BatchError as error:
            self._positions.move(partition, walk.position, walk.epoch)
            self._give_up_bytes(partition, held, error)
            return False
        self._positions.move(partition, walk.position, walk.epoch)
        if held.batch is None:
            held.walk = None
        return True

    def _move_to(self, partition: TopicPartition, held: _Held, position: int) -> None:
        """Move the position to within the batch at hand, or behind it."""
        if held.batch is None:  # it was let go of
            return
        header = held.batch[0]
        if position >= header.next_offset:
            self._finish_batch(partition, held)
        else:
            epoch = header.leader_epoch if position > header.base_offset else NO_EPOCH
            self._positions.move(partition, position, epoch)

    def _finish_batch(self, partition: TopicPartition, held: _Held) -> None:
        """Go on behind the batch at hand, and behind what follows and nobody sees."""
        assert held.batch is not None
        assert held.walk is not None
        held.walk.passed(held.batch[0])
        held.batch = held.run = None
        self._look_ahead(partition, held)

    def _turn_over(self, partition: TopicPartition) -> None:
        """Let the others come first. Without anything left there is no turn."""
        if partition not in self._turns:  # it was let go of
            return
        self._turns.remove(partition)
        if not self._held[partition].is_empty:
            self._turns.append(partition)

    # --- what cannot be read --------------------------------------------------------------------------------------

    def _give_up_bytes(self, partition: TopicPartition, held: _Held, error: BatchError) -> None:
        """Fetched anew: a leader whose copy is damaged lets another one lead, and else it happened on their way.

        Where nobody else could lead, the fetcher says so (`OnlyCopyDamaged`).
        """
        position = self._positions[partition].offset
        times = held.refetches[1] if held.refetches[0] == position else 0
        if times >= _MOST_REFETCHES:
            self._stop(partition, self._unreadable(partition, error, position + 1))
            return
        self._fetch_again(partition, times + 1)
        self._held[partition] = again = _Held()
        again.refetches = (position, times + 1)

    def _fetch_again(self, partition: TopicPartition, suspicions: int = 0) -> None:
        """All from its position on."""
        self._positions.refetch(partition)
        self._forget(partition)
        self._fetching.refetch(partition, suspicions)

    def _stop(self, partition: TopicPartition, error: Exception) -> None:
        self._positions.refetch(partition)
        self._forget(partition)
        self._errors.add_final(partition, error)
        self._fetching.halt(partition)

    def _place(self, partition: TopicPartition) -> tuple[int, int]:
        position = self._positions[partition]
        return position.offset, position.epoch

    def _undo(self, before: dict[TopicPartition, tuple[int, int]]) -> None:
        for partition, (offset, epoch) in before.items():
            if self._positions[partition].offset != offset:
                self._positions.seek(partition, offset, epoch)
                self._forget(partition)
                self._fetching.refetch(partition)

    def _unreadable(self, partition: TopicPartition, error: BatchError, next_offset: int) -> RecordUnreadable:
        unreadable = RecordUnreadable(*partition, self._positions[partition].offset, next_offset, error.describe())
        unreadable.__cause__ = error
        return unreadable


def _size(item: Chunk | Located) -> int:
    return len(item.data) if isinstance(item, Chunk) else 0
