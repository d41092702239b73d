"""Asking a log everything that its users may ask, and holding the answers against the model's.

What is asked is drawn from a seeded generator: the offsets, sizes and times of one round differ from those of the next.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from raylog.errors import OffsetOutOfRange, ProducerError
from raylog.storage.format.record_batch import BatchHeader, read_header
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.unit.storage.batches import Record
from tests.unit.storage.log_model import (
    SEQUENCES,
    LogModel,
    Marks,
    ModelBatch,
    Possible,
    ProducerAnswer,
    next_sequence,
)

FAR = 1 << 40


class Questions:
    """One log and its model, to be asked again and again."""

    def __init__(self, log: PartitionLog, model: LogModel, disk: FaultyDisk, rng: Random, now: int) -> None:
        self.log = log
        self.model = model
        self.disk = disk
        self.rng = rng
        self.now = now

    def ask_everything(self) -> None:
        self.ask_marks()
        self.ask_segments()
        self.ask_all_bytes()
        self.ask_some_offsets()
        self.ask_times()
        self.ask_epochs()
        self.ask_committed()
        self.ask_aborted()
        for producer in self.model.producer_ids():
            self.ask_producer(producer)

    def ask_marks(self) -> None:
        log, model = self.log, self.model
        assert list(log.broken_invariants()) == []
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        assert Marks(log.recovery_point, log.high_watermark, log.log_start_offset) == model.marks
        assert log.log_end_offset == model.end
        assert log.recovery_point <= log.log_end_offset
        low, high = model.last_stable_range()
        assert low <= log.last_stable_offset <= high

    def ask_segments(self) -> None:
        segments = list(self.log.segments)
        assert all(segment.is_sealed for segment in segments[:-1])
        assert not segments[-1].is_sealed
        assert all(before.next_offset == after.base_offset for before, after in pairwise(segments))
        kept = [batch for batch in self.model.batches if batch.base_offset >= segments[0].base_offset]
        assert self.log.size_bytes == sum(len(batch.data) for batch in kept)
        assert segments[0].base_offset <= self.log.log_start_offset or not kept

    # --- bytes ---

    def ask_all_bytes(self) -> None:
        offset, max_bytes = self.model.start, self.rng.choice([1, 300, 1_000, FAR])
        parts = []
        while offset < self.model.end:
            fetched = self.log.read(offset, max_bytes, Isolation.LOG_END)
            assert fetched.next_offset > offset
            parts.append(fetched.data)
            offset = fetched.next_offset
        expected = self.model.batches[self.model.containing(self.model.start) :]
        assert b"".join(parts) == b"".join(batch.data for batch in expected)

    def visible_end(self, isolation: Isolation) -> int:
        if isolation is Isolation.LOG_END:
            return self.model.end
        return self.model.high_watermark if isolation is Isolation.HIGH_WATERMARK else self.log.last_stable_offset

    def ask_some_offsets(self) -> None:
        bases = self.log.segments.bases()
        for isolation in Isolation:
            offset = self.rng.randint(self.model.start, self.model.end)
            max_bytes = self.rng.choice([0, 1, 400, 1_500, FAR])
            expected = self.model.read(offset, max_bytes, self.visible_end(isolation), bases)
            fetched = self.log.read(offset, max_bytes, isolation)
            assert (fetched.data, fetched.next_offset) == expected
            assert (fetched.log_start_offset, fetched.high_watermark) == (self.model.start, self.model.high_watermark)
            self.ask_slice(offset, max_bytes, isolation, expected[0])
        for outside in (self.model.start - 1, self.model.end + 1):
            with pytest.raises(OffsetOutOfRange):
                self.log.read(outside, FAR, Isolation.LOG_END)

    def ask_slice(self, offset: int, max_bytes: int, isolation: Isolation, expected: bytes) -> None:
        """A slice may be shorter than what is read, but is never empty where that is not."""
        piece = self.log.slice(offset, max_bytes, isolation)
        if piece is None:
            assert expected == b""
            return
        file = self.disk.open(piece.path)
        assert file.inode() == piece.inode
        data = file.read_at(piece.length, piece.position)
        file.close()
        assert data
        assert expected.startswith(data)
        assert len(data) == len(expected) or max_bytes < FAR
        assert read_header(data).base_offset == piece.base_offset
        position = 0
        while position < len(data):
            position += read_header(data, position).size
        assert position == len(data)

    # --- times and epochs ---

    def ask_times(self) -> None:
        times = [record.timestamp for record in self.model.records()]
        chosen = [self.rng.choice(times) + self.rng.choice([-1, 0, 0, 1]), max(times)] if times else []
        for time in [0, self.now + FAR, *chosen]:
            assert self.log.offset_for_timestamp(time) == self.model.offset_for_timestamp(time)

    def ask_epochs(self) -> None:
        assert list(self.log.epochs.history) == self.model.epochs
        for epoch in range(-1, self.model.latest_epoch + 2):
            answer = self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)
            assert answer == self.model.end_offset_for(epoch)

    # --- transactions ---

    def ask_committed(self) -> None:
        """A reader below the last stable offset, who leaves out what the log says was aborted."""
        model, stable = self.model, self.log.last_stable_offset
        aborted = self.log.aborted_between(model.start, stable, self.now)

        def is_left_out(batch: ModelBatch) -> bool:
            header = batch.header
            return header.is_control or (
                header.is_transactional
                and any(
                    gone.producer_id == header.producer_id
                    and gone.first_offset <= header.base_offset <= gone.last_offset
                    for gone in aborted
                )
            )

        got: list[Record] = []
        for batch in model.below(stable):
            if not is_left_out(batch):
                got += [record for record in batch.records if record.offset >= model.start]
        assert got == model.committed(stable)

    def ask_aborted(self) -> None:
        start = self.rng.randint(self.model.start, self.model.end)
        end = self.rng.randint(start, self.model.end)
        listed = {
            (gone.producer_id, gone.first_offset, gone.last_offset)
            for gone in self.log.aborted_between(start, end, self.now)
        }
        true = {
            (gone.producer_id, gone.first_offset, gone.marker_offset)
            for gone in self.model.aborted()
            if gone.marker_offset is not None and gone.marker_offset >= start and gone.first_offset < end
        }
        if self.model.is_exact:
            assert listed == true
        else:
            # A transaction whose first records are gone may seem to begin later, or before those that are left.
            assert {(producer, last) for producer, _, last in listed} <= self.model.aborts_ever()

    # --- producers ---

    def ask_producer(self, producer: int) -> None:
        """Ask about every batch that a producer might send now; narrows what the log may have forgotten."""
        possible = self.model.possible(producer)
        for header in self._possible_headers(producer):
            answers = self.model.answers(header)
            answer = self._answer(header)
            fitting: Possible = {each for each in possible if answers[each] == answer}
            assert fitting, f"{header} was answered with {answer}; expected {[answers[each] for each in possible]}"
            possible = fitting
        self.model.learn(producer, possible)

    def _answer(self, header: BatchHeader) -> ProducerAnswer:
        try:
            span = self.log.producers.check(header)
        except ProducerError as error:
            return type(error)
        return None if span is None else (span.first_offset, span.last_offset)

    def _possible_headers(self, producer: int) -> list[BatchHeader]:
        mine = self.model.batches_of(producer)
        if not mine:
            return []
        newest, expected = mine[-1].header, next_sequence(mine)
        sent_again = [batch.header for batch in mine if batch.is_data_of_producer][-7:]
        made = [
            (newest.producer_epoch, expected),
            (newest.producer_epoch, (expected + 1) % SEQUENCES),
            (newest.producer_epoch - 1, expected),
            (newest.producer_epoch + 1, 0),
            (newest.producer_epoch + 1, 1),
        ]
        template = newest._replace(last_offset_delta=1, record_count=2)
        return sent_again + [
            template._replace(producer_epoch=epoch, base_sequence=sequence, attributes=attributes)
            for epoch, sequence in made
            for attributes in (0, 0x10)
        ]
