"""A partition's log against a model, through whatever Hypothesis can think of: appends of every kind, truncation,
retention, flushes, restarts, and crashes of process and machine between two operations or in the middle of one.

A crash in the middle is lit with a fuse: the next operation dies at its n-th step on disk. What the log then shows has
to be one of the states that the operation passes through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raylog.errors import (
    BatchTooLarge,
    OffsetOutOfRange,
    OffsetsNotContiguous,
    ProducerError,
    RaylogError,
    StaleLeaderEpoch,
)
from raylog.storage.batch_codec import decode_batch, encode_batch
from raylog.storage.control_records import Marker, MarkerType, encode_marker
from raylog.storage.log_flush import LogFlush
from raylog.storage.log_reader import Isolation
from raylog.storage.log_recovery import OpenedAfter
from raylog.storage.partition_directory import PartitionIdentity
from raylog.storage.partition_log import PartitionLog
from raylog.storage.record_batch import NO_PRODUCER_ID, BatchHeader, read_header
from tests.simulation.faulty_disk import MOMENTS, FaultyDisk, Moment, SimulatedCrash
from tests.unit.storage.batches import MODERN, Record, rows, written_by_aiokafka
from tests.unit.storage.log_model import (
    SEQUENCES,
    LogModel,
    Marks,
    ModelBatch,
    ProducerAnswer,
    data_after_last_marker,
    next_sequence,
    stamped,
)

PATH = "/data/orders-0"
IDENTITY = PartitionIdentity("cluster", "orders", "topic-id", 0)
PRODUCERS = range(1, 5)
FAR = 1 << 40


@dataclass
class Fuse:
    """Where the next operation dies, and what dies with it."""

    steps: int
    moment: Moment
    power_cut: bool


class Draft(NamedTuple):
    """A batch to be: its records, and who writes it."""

    records: tuple[Record, ...]
    magic: int
    codec: int
    producer: int
    transactional: bool
    new_epoch: bool
    marker: MarkerType | None
    bump: bool
    leader_step: int


# --- what is drawn ----------------------------------------------------------------------------------------------------

_keys = st.sampled_from([b"a", b"b", b"c", b"dd", b"", None])
_values = st.none() | st.binary(max_size=3) | st.binary(min_size=20, max_size=80)
_headers = st.sampled_from([(), (), (("h", b"x"),), (("h", None), ("i", b""))])
_ages = st.sampled_from([0, 0, 1, 10, 700, 5_000])


def _as_records(fields: list[tuple[int, bytes | None, bytes | None, Any]]) -> tuple[Record, ...]:
    return tuple(
        Record(offset, age, key, value, headers) for offset, (age, key, value, headers) in enumerate(fields)
    )


_records = st.lists(st.tuples(_ages, _keys, _values, _headers), min_size=1, max_size=4).map(_as_records)
_drafts = st.builds(
    Draft,
    records=_records,
    magic=st.sampled_from([16, 2]),
    codec=st.sampled_from([0, 0, 0, 3]),
    producer=st.sampled_from([NO_PRODUCER_ID, NO_PRODUCER_ID, *PRODUCERS]),
    transactional=st.booleans(),
    new_epoch=st.sampled_from([False, False, False, True]),
    marker=st.sampled_from([None, None, MarkerType.COMMIT, MarkerType.ABORT]),
    bump=st.booleans(),
    leader_step=st.sampled_from([0, 0, 0, 1, 2]),
)
_configs = st.fixed_dictionaries(
    {
        "segment.bytes": st.sampled_from([2_000, 700, 5_000]),
        "index.interval.bytes": st.sampled_from([200, 0, 1_000]),
        "segment.index.bytes": st.sampled_from([10_000, 8, 24]),
        "segment.ms": st.sampled_from([1_000_000, 3_000]),
        "retention.ms": st.sampled_from([-1, 4_000]),
        "retention.bytes": st.sampled_from([-1, 1_500]),
        "message.timestamp.type": st.sampled_from(["CreateTime", "LogAppendTime"]),
        "file.delete.delay.ms": st.sampled_from([1_000, 0]),
        "producer.id.expiration.ms": st.sampled_from([1_000_000, 2_000]),
    }
)
_permille = st.integers(0, 1_000)


def between(low: int, high: int, permille: int) -> int:
    return low + (high - low) * permille // 1_000


class LogMachine(RuleBasedStateMachine):
    """The log and its model, side by side."""

    @initialize(overrides=_configs, ordered_names=st.booleans(), seed=st.integers(0, 2**32))
    def create(self, overrides: dict[str, Any], ordered_names: bool, seed: int) -> None:
        self.disk = FaultyDisk(ordered_names=ordered_names)
        self.disk.make_directory("/data")
        self.disk.sync_everything()
        self.rng = Random(seed)
        self.now = MODERN
        self.overrides = overrides
        self.model = LogModel()
        self.fuse: Fuse | None = None
        self.recovery_fuse: Fuse | None = None
        self.flush: tuple[LogFlush, int, bool] | None = None  # (flush, end it covers, whether it was synced)
        self.snapshots_doubtful = False
        self.log = PartitionLog.open(PATH, IDENTITY, overrides, now_ms=self.now, disk=self.disk)
        assert self.log.opened_after is OpenedAfter.CREATION

    # --- doing something, which may be the last thing the process does ---

    def perform(self, operation: Callable[[], Any], *states: LogModel) -> Any:
        """Run `operation`, which takes the log through these states; None where it did not survive that."""
        if self.fuse is None:
            result = operation()
            self.model = states[-1]
            return result
        fuse, self.fuse = self.fuse, None
        self.disk.crash_after(fuse.steps, fuse.moment)
        try:
            result = operation()
        except SimulatedCrash:
            self.crash([self.model, *states], power_cut=fuse.power_cut)
            return None
        self.disk.crash_after(FAR)
        self.model = states[-1]
        return result

    def crash(self, states: Sequence[LogModel], *, power_cut: bool) -> None:
        if power_cut:
            self.disk.crash_machine(self.rng)
            self.snapshots_doubtful = True
        else:
            self.disk.crash_process()
        self.reopen(states, power_cut=power_cut)

    def reopen(self, states: Sequence[LogModel], *, power_cut: bool) -> None:
        if self.recovery_fuse is not None:
            fuse, self.recovery_fuse = self.recovery_fuse, None
            self.disk.crash_after(fuse.steps, fuse.moment)
            try:
                self.open()
            except SimulatedCrash:
                self.crash(states, power_cut=fuse.power_cut)
                return
            self.disk.crash_after(FAR)
        else:
            self.open()
        self.flush = None
        self.model = self.state_found(states, self.snapshots_doubtful)
        self.forget_what_is_doubtful()

    def open(self) -> None:
        self.log = PartitionLog.open(PATH, IDENTITY, self.overrides, now_ms=self.now, disk=self.disk)

    def state_found(self, states: Sequence[LogModel], torn: bool) -> LogModel:
        """The one of the possible states that the reopened log is in."""
        log = self.log
        found = log.log_end_offset, Marks(log.recovery_point, log.high_watermark, log.log_start_offset)
        for state in reversed(states):
            ends = state.boundaries(state.marks.recovery_point) if torn else [state.end]
            for end in reversed(ends):
                candidate = state.reopened(end)
                if (candidate.end, candidate.marks) == found and list(log.epochs.history) == candidate.epochs:
                    return candidate
        raise AssertionError(
            f"found end and marks {found}, epochs {log.epochs.history}; possible were: "
            + "; ".join(f"{state.on_disk}, {state.marks}, ends {state.boundaries()}, {state.epochs}" for state in states)
        )

    def forget_what_is_doubtful(self) -> None:
        if self.snapshots_doubtful:
            self.model.may_forget_before(self.log.segments[0].base_offset)

    @rule(
        steps=st.integers(1, 14), moment=st.sampled_from(MOMENTS), power_cut=st.booleans(), in_recovery=st.booleans()
    )
    def light_the_fuse(self, steps: int, moment: Moment, power_cut: bool, in_recovery: bool) -> None:
        fuse = Fuse(steps, moment, power_cut)
        if in_recovery:
            self.recovery_fuse = fuse
        else:
            self.fuse = fuse

    # --- making batches ---

    def written(self, draft: Draft, records: Sequence[Record], **producer: int) -> bytearray:
        identity = {"producer_id": NO_PRODUCER_ID, "producer_epoch": -1, "base_sequence": -1} | producer
        transactional = draft.transactional and identity["producer_id"] >= 0
        if draft.magic == 2:
            ids = (identity["producer_id"], identity["producer_epoch"], identity["base_sequence"])
            return bytearray(
                written_by_aiokafka(records, draft.codec, transactional=transactional, producer=ids)
            )
        return encode_batch(
            [record.value for record in records],
            timestamps=[record.timestamp for record in records],
            keys=[record.key for record in records],
            headers=[record.headers for record in records],
            codec=draft.codec,
            transactional=transactional,
            **identity,
        )

    def dated(self, draft: Draft) -> list[Record]:
        return [record._replace(timestamp=self.now - record.timestamp) for record in draft.records]

    def drafted(self, draft: Draft, model: LogModel, epoch: int, *, append_time: int | None = None) -> ModelBatch:
        """The batch that `draft` says, valid at the end of `model`."""
        producer = draft.producer
        mine = model.batches_of(producer)
        producer_epoch = mine[-1].header.producer_epoch if mine else 0
        open_transaction = any(batch.header.is_transactional for batch in data_after_last_marker(mine))
        if producer >= 0 and draft.marker is not None and open_transaction:
            marker = Marker(draft.marker, len(mine) // 4)
            return self.drafted_marker(marker, producer, producer_epoch + draft.bump, model.end, epoch, append_time)
        records = self.dated(draft)
        if producer < 0:
            return stamped(self.written(draft, records), records, model.end, epoch, append_time=append_time)
        if draft.new_epoch and not open_transaction:
            producer_epoch, sequence = producer_epoch + 1, 0
        else:
            sequence = next_sequence(mine) if mine else SEQUENCES - 3
        data = self.written(
            draft._replace(transactional=draft.transactional or open_transaction),
            records,
            producer_id=producer,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
        return stamped(data, records, model.end, epoch, append_time=append_time)

    def drafted_marker(
        self, marker: Marker, producer: int, producer_epoch: int, offset: int, epoch: int, append_time: int | None
    ) -> ModelBatch:
        data = encode_marker(marker, producer, producer_epoch, self.now)
        records = [record._replace(offset=0) for record in rows(decode_batch(data))]
        return stamped(data, records, offset, epoch, append_time=append_time, marker=marker)

    @property
    def append_time(self) -> int | None:
        return self.now if self.log.config.message_timestamp_type == "LogAppendTime" else None

    # --- appending as the leader ---

    def lead(self) -> int:
        if self.model.latest_epoch < 0:
            self.log.begin_epoch(1)
            self.model.assign(1)
        return self.model.latest_epoch

    def append(self, batch: ModelBatch, fresh: bytearray) -> None:
        """Append `fresh`, which is to become `batch`."""
        control = batch.marker is not None
        after = self.model.clone()
        after.append(batch)
        epoch = self.model.latest_epoch
        appended = self.perform(lambda: self.log.append_as_leader(fresh, epoch, self.now, control=control), after)
        if appended is not None:
            assert appended == (batch.base_offset, batch.next_offset - 1, False)
            assert fresh == batch.data
            self.log_holds(batch)

    def log_holds(self, batch: ModelBatch) -> None:
        assert rows(decode_batch(batch.data)) == list(batch.records)

    def refused(self, error: type[RaylogError], operation: Callable[[], Any]) -> None:
        with pytest.raises(error) as raised:
            operation()
        assert raised.type is error

    @rule(draft=_drafts)
    def append_as_leader(self, draft: Draft) -> None:
        epoch = self.lead()
        batch = self.drafted(draft, self.model, epoch, append_time=self.append_time)
        fresh = self.unstamped(draft, batch)
        if len(fresh) > self.log.config.segment_bytes:
            self.refused(BatchTooLarge, lambda: self.log.append_as_leader(fresh, epoch, self.now))
            return
        if batch.header.producer_id >= 0:
            points = self.points_allowing(batch)
            if not points:
                return  # the log has forgotten the producer, so what comes next for it is another batch
            self.model.learn(batch.header.producer_id, points)
        self.append(batch, fresh)

    def unstamped(self, draft: Draft, batch: ModelBatch) -> bytearray:
        """The bytes as their writer sent them."""
        if self.append_time is None:
            return bytearray(batch.data)
        header = batch.header
        if batch.marker is not None:
            return encode_marker(batch.marker, header.producer_id, header.producer_epoch, self.now)
        draft = draft._replace(transactional=header.is_transactional)
        return self.written(
            draft,
            self.dated(draft),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )

    def points_allowing(self, batch: ModelBatch) -> list[int]:
        """Where more than one memory of the producer is possible, ask the log which it has."""
        self.look_at_producer(batch.header.producer_id)
        answers = self.model.answers(batch.header, batch.marker)
        return [point for point, answer in answers.items() if answer is None]

    @rule(draft=_drafts, kind=st.sampled_from(["duplicate", "gap", "stale", "late", "fresh epoch late"]))
    def append_what_a_producer_may_not(self, draft: Draft, kind: str) -> None:
        if draft.producer < 0 or not self.model.batches_of(draft.producer):
            return
        epoch = self.lead()
        self.look_at_producer(draft.producer)
        mine = self.model.batches_of(draft.producer)
        newest = mine[-1].header.producer_epoch
        data = [batch for batch in mine if batch.is_data_of_producer]
        records = self.dated(draft)
        sequence, producer_epoch = next_sequence(mine), newest
        if kind == "duplicate" and data:
            again = self.rng.choice(data[-7:])
            fresh = bytearray(again.data)
        else:
            if kind == "stale":
                producer_epoch = newest - 1
            elif kind == "fresh epoch late":
                producer_epoch, sequence = newest + 1, 7
            else:
                sequence = (sequence + (2 if kind == "gap" else -1)) % SEQUENCES
            if producer_epoch < 0:
                return
            ids = {"producer_id": draft.producer, "producer_epoch": producer_epoch, "base_sequence": sequence}
            fresh = self.written(draft, records, **ids)
        if len(fresh) > self.log.config.segment_bytes or fresh[22] & 0x08:
            return
        answers = set(self.model.answers(read_header(fresh)).values())
        if None in answers:
            return
        self.expect_answer(answers, lambda: self.log.append_as_leader(fresh, epoch, self.now))

    def expect_answer(self, answers: set[ProducerAnswer], operation: Callable[[], Any]) -> None:
        try:
            appended = operation()
        except ProducerError as error:
            assert type(error) in answers, f"{error!r}, expected {answers}"
        else:
            assert appended.is_duplicate
            assert (appended.first_offset, appended.last_offset) in answers

    @rule(
        producer=st.sampled_from(PRODUCERS),
        kind=st.sampled_from(MarkerType),
        epoch_step=st.sampled_from([0, 1, -1]),
        coordinator_step=st.sampled_from([0, 1, -1]),
    )
    def end_transaction(self, producer: int, kind: MarkerType, epoch_step: int, coordinator_step: int) -> None:
        epoch = self.lead()
        self.look_at_producer(producer)
        mine = self.model.batches_of(producer)
        producer_epoch = (mine[-1].header.producer_epoch if mine else 0) + epoch_step
        coordinators = [batch.marker.coordinator_epoch for batch in mine if batch.marker is not None]
        marker = Marker(kind, (coordinators[-1] if coordinators else 0) + coordinator_step)
        if producer_epoch < 0 or marker.coordinator_epoch < 0:
            return
        append_time = self.append_time
        batch = self.drafted_marker(marker, producer, producer_epoch, self.model.end, epoch, append_time)
        fresh = encode_marker(marker, producer, producer_epoch, self.now)
        answers = set(self.model.answers(batch.header, marker).values())
        if answers == {None}:
            self.append(batch, fresh)
        elif None not in answers:
            operation = lambda: self.log.append_as_leader(fresh, epoch, self.now, control=True)  # noqa: E731
            self.expect_answer(answers, operation)

    @rule(draft=_drafts, step=st.sampled_from([-1, 1]))
    def append_under_another_epoch(self, draft: Draft, step: int) -> None:
        epoch = self.lead()
        fresh = self.written(draft, self.dated(draft))
        self.refused(StaleLeaderEpoch, lambda: self.log.append_as_leader(fresh, epoch + step, self.now))

    @rule(step=st.sampled_from([1, 0, 3, -1]))
    def begin_epoch(self, step: int) -> None:
        epoch = self.model.latest_epoch + step
        if epoch < self.model.latest_epoch:
            self.refused(StaleLeaderEpoch, lambda: self.log.begin_epoch(epoch))
            return
        after = self.model.clone()
        after.assign(epoch)
        self.perform(lambda: self.log.begin_epoch(epoch), after)

    # --- appending as a follower ---

    @rule(drafts=st.lists(_drafts, min_size=1, max_size=5))
    def append_as_follower(self, drafts: list[Draft]) -> None:
        states = [self.model]
        data = b""
        for draft in drafts:
            after = states[-1].clone()
            epoch = max(0, after.latest_epoch + draft.leader_step)
            batch = self.drafted(draft, after, epoch)
            after.append(batch)
            states.append(after)
            data += batch.data
        # What the log may have forgotten of a producer does not matter: a follower takes what the leader took.
        end = self.perform(lambda: self.log.append_as_follower(data, self.now), *states[1:])
        assert end is None or end == self.model.end

    @rule(drafts=st.lists(_drafts, min_size=1, max_size=3), step=st.sampled_from([-1, 1, 100]))
    def append_what_does_not_join_on(self, drafts: list[Draft], step: int) -> None:
        """The last of the batches stands where it must not; none of them may be taken."""
        other = self.model.clone()
        data = b""
        for number, draft in enumerate(drafts):
            batch = self.drafted(draft._replace(producer=NO_PRODUCER_ID), other, max(0, other.latest_epoch))
            other.append(batch)
            if number == len(drafts) - 1:
                base = max(0, batch.base_offset + step)
                if step == -1 and (number == 0 or base == batch.base_offset):
                    return  # a batch across the end of an empty log is where a leader's log may begin
                batch = stamped(batch.data, (), base, batch.header.leader_epoch)
            data += batch.data
        self.refused(OffsetsNotContiguous, lambda: self.log.append_as_follower(data, self.now))

    # --- marks, cuts, cleaning ---

    @rule()
    def roll(self) -> None:
        self.perform(self.log.roll, self.model.clone())

    @rule(permille=_permille)
    def advance_high_watermark(self, permille: int) -> None:
        offset = between(self.model.start, self.model.end, permille)
        self.log.advance_high_watermark(offset)
        self.model.mark(high_watermark=max(self.model.high_watermark, offset))

    @rule()
    def replicate_everything(self) -> None:
        self.log.advance_high_watermark(self.model.end + 5)
        self.model.mark(high_watermark=self.model.end)

    @rule(permille=_permille)
    def truncate(self, permille: int) -> None:
        before = self.model
        offset = between(max(0, before.start - 2), before.end + 1, permille)
        self.flush_is_overtaken(offset < before.end)
        if offset >= before.end:
            assert self.log.truncate_to(offset, self.now) == before.end
            return
        kept = before.below(offset)
        end = kept[-1].next_offset if kept else before.base
        if end < before.start or offset <= before.start:
            self.perform(
                lambda: self.log.truncate_to(offset, self.now), *self.restart_states(before.start, before.start)
            )
        else:
            states = []
            for cut in [before.end, *(cut for cut in reversed(before.boundaries(end)) if cut < before.end)]:
                state = before.clone()
                state.lower_marks(end)
                state.cut(cut)
                states.append(state)
            self.perform(lambda: self.log.truncate_to(offset, self.now), *states)
        self.forget_what_is_doubtful()

    @rule(permille=_permille, ahead=st.sampled_from([0, 0, 30]))
    def restart_at(self, permille: int, ahead: int) -> None:
        offset = between(0, self.model.end, permille) + ahead
        self.flush_is_overtaken(True)
        self.perform(lambda: self.log.restart_at(offset), *self.restart_states(offset, offset))

    def restart_states(self, base: int, start: int) -> list[LogModel]:
        """All counts as deleted, and is on its way out; the epochs are forgotten too; the log goes on elsewhere."""
        deleted = self.model.clone()
        end = deleted.end
        deleted.marks = deleted.on_disk = Marks(deleted.marks.recovery_point, end, end)
        deleted.may_forget_before(end)
        forgotten = deleted.clone()
        forgotten.restart(end)
        forgotten.marks = forgotten.on_disk = deleted.marks
        elsewhere = forgotten.clone()
        elsewhere.restart(base, start)
        return [deleted, forgotten, elsewhere]

    @rule(permille=_permille)
    def delete_records(self, permille: int) -> None:
        before = self.model
        offset = between(before.start - 1, before.high_watermark + 1, permille)
        if offset > before.high_watermark:
            self.refused(OffsetOutOfRange, lambda: self.log.delete_records(offset))
            return
        after = before.clone()
        if offset > before.start:
            after.begin_at(offset)
        start = self.perform(lambda: self.log.delete_records(offset), after)
        assert start is None or start == self.model.start

    @rule()
    def delete_old_segments(self) -> None:
        before = self.model
        expected = self.expected_expiry()
        after = before.clone()
        if expected and expected[-1] > before.start:
            after.begin_at(expected[-1])
        expired = self.perform(lambda: self.log.delete_old_segments(self.now), after)
        if expired is not None:
            assert len(expired) == len(expected)

    def expected_expiry(self) -> list[int]:
        """The ends of the segments that retention has to take."""
        config, model = self.log.config, self.model
        bases = [segment.base_offset for segment in self.log.segments]
        active = [batch for batch in model.batches if batch.base_offset >= bases[-1]]
        if active and self.is_past(active):
            bases.append(model.end)
        total = sum(len(batch.data) for batch in model.batches if batch.base_offset >= bases[0])
        gone = []
        for base, end in zip(bases, bases[1:], strict=False):
            batches = [batch for batch in model.batches if base <= batch.base_offset < end]
            size = sum(len(batch.data) for batch in batches)
            too_large = config.retention_bytes >= 0 and total - size >= config.retention_bytes
            if end > self.log.last_stable_offset or not (end <= model.start or self.is_past(batches) or too_large):
                break
            gone.append(end)
            total -= size
        return gone

    def is_past(self, batches: Sequence[ModelBatch]) -> bool:
        newest = max(batch.header.max_timestamp for batch in batches)
        return 0 <= self.log.config.retention_ms < self.now - newest

    @rule()
    def remove_deleted_files(self) -> None:
        self.perform(lambda: self.log.remove_deleted_files(self.now), self.model.clone())
        if self.log.config.file_delete_delay_ms == 0:
            assert not [path for path in self.disk.files() if path.endswith(".deleted")]

    @rule()
    def expire_producers(self) -> None:
        for producer in self.log.expire_producers(self.now):
            transactions = self.model.transactions()
            still_open = [t for t in transactions if t.producer_id == producer and t.marker_offset is None]
            assert not still_open or self.snapshots_doubtful
            self.model.forget_producer(producer)

    @rule(overrides=_configs)
    def change_config(self, overrides: dict[str, Any]) -> None:
        self.perform(lambda: self.log.update_config(overrides), self.model.clone())
        self.overrides = overrides
        self.log.update_config(overrides)

    @rule(milliseconds=st.sampled_from([1, 500, 3_000, 20_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.now += milliseconds

    # --- flushing ---

    @rule()
    def flush_all(self) -> None:
        after = self.model.clone()
        after.mark(recovery_point=after.end)
        point = self.perform(self.log.flush, after)
        assert point is None or point == self.model.end
        assert point is None or not self.log.flush_due(self.now)

    @precondition(lambda self: self.flush is None)
    @rule()
    def begin_flush(self) -> None:
        self.flush = (self.log.begin_flush(), self.model.end, False)

    @precondition(lambda self: self.flush is not None)
    @rule()
    def sync_flush(self) -> None:
        assert self.flush is not None
        flush, end, _ = self.flush
        self.flush = (flush, end, True)
        self.perform(flush.sync, self.model.clone())

    @precondition(lambda self: self.flush is not None and self.flush[2])
    @rule()
    def finish_flush(self) -> None:
        assert self.flush is not None
        flush, end, _ = self.flush
        self.flush = None
        self.log.finish_flush(flush)
        self.model.mark(recovery_point=max(self.model.marks.recovery_point, end))

    def flush_is_overtaken(self, overtaken: bool) -> None:
        if overtaken and self.flush is not None:
            flush, _, synced = self.flush
            self.flush = (flush, 0, synced)  # it proves nothing any more

    @rule()
    def checkpoint(self) -> None:
        after = self.model.clone()
        after.checkpoint()
        self.perform(self.log.checkpoint, after)

    # --- ending and beginning again ---

    def _closing(self) -> None:
        self.log.close()

    def _closed_model(self) -> LogModel:
        after = self.model.clone()
        after.mark(recovery_point=after.end)
        after.checkpoint()
        return after

    @rule(power_cut=st.booleans())
    def close_and_reopen(self, power_cut: bool) -> None:
        before, log = self.model, self.log
        after = self._closed_model()
        flushed = before.clone()
        flushed.mark(recovery_point=before.end)
        self.perform(self._closing, flushed, after)
        if self.log is not log:
            return  # it died while closing, and is open again
        if power_cut:
            self.disk.crash_machine(self.rng)
            self.snapshots_doubtful = True
        undisturbed = self.recovery_fuse is None
        self.reopen([after], power_cut=False)
        assert not undisturbed or self.log.opened_after is OpenedAfter.CLEAN_CLOSE

    @rule()
    def kill_and_reopen(self) -> None:
        self.crash([self.model], power_cut=False)

    @rule()
    def cut_power_and_reopen(self) -> None:
        self.crash([self.model], power_cut=True)

    # --- what must hold after every step ---

    @invariant()
    def marks_are_in_order(self) -> None:
        log, model = self.log, self.model
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        assert Marks(log.recovery_point, log.high_watermark, log.log_start_offset) == model.marks
        assert log.log_end_offset == model.end
        low, high = model.last_stable_range()
        assert low <= log.last_stable_offset <= high
        assert log.recovery_point <= log.log_end_offset
        assert list(log.epochs.history) == model.epochs

    @invariant()
    def segments_join_on(self) -> None:
        segments = list(self.log.segments)
        assert all(segment.is_sealed for segment in segments[:-1])
        assert not segments[-1].is_sealed
        for before, after in zip(segments, segments[1:], strict=False):
            assert before.next_offset == after.base_offset
        kept = [batch for batch in self.model.batches if batch.base_offset >= segments[0].base_offset]
        assert self.log.size_bytes == sum(len(batch.data) for batch in kept)
        assert segments[0].base_offset <= self.log.log_start_offset or not kept

    @invariant()
    def every_question_has_the_right_answer(self) -> None:
        self.look_at_all_bytes()
        self.look_at_some_offsets()
        self.look_at_times_and_epochs()
        self.look_at_transactions()
        for producer in self.model.producer_ids():
            self.look_at_producer(producer)

    def segment_bases(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments]

    def visible_end(self, isolation: Isolation) -> int:
        if isolation is Isolation.LOG_END:
            return self.model.end
        return self.model.high_watermark if isolation is Isolation.HIGH_WATERMARK else self.log.last_stable_offset

    def look_at_all_bytes(self) -> None:
        offset, max_bytes = self.model.start, self.rng.choice([1, 300, 1_000, FAR])
        parts = []
        while offset < self.model.end:
            fetched = self.log.read(offset, max_bytes, Isolation.LOG_END)
            assert fetched.next_offset > offset
            parts.append(fetched.data)
            offset = fetched.next_offset
        expected = self.model.batches[self.model.containing(self.model.start) :]
        assert b"".join(parts) == b"".join(batch.data for batch in expected)

    def look_at_some_offsets(self) -> None:
        for isolation in Isolation:
            offset = self.rng.randint(self.model.start, self.model.end)
            max_bytes = self.rng.choice([0, 1, 400, 1_500, FAR])
            end = self.visible_end(isolation)
            expected = self.model.read(offset, max_bytes, end, self.segment_bases())
            fetched = self.log.read(offset, max_bytes, isolation)
            assert (fetched.data, fetched.next_offset) == expected
            assert fetched.high_watermark == self.model.high_watermark
            self.look_at_slice(offset, max_bytes, isolation, expected[0])
        for outside in (self.model.start - 1, self.model.end + 1):
            self.refused(OffsetOutOfRange, lambda outside=outside: self.log.read(outside, FAR, Isolation.LOG_END))  # type: ignore[misc]

    def look_at_slice(self, offset: int, max_bytes: int, isolation: Isolation, expected: bytes) -> None:
        """A slice may be shorter than what is read, but never empty where that is not."""
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

    def look_at_times_and_epochs(self) -> None:
        times = [record.timestamp for record in self.model.records()]
        chosen = [self.rng.choice(times) + self.rng.choice([-1, 0, 0, 1]), max(times)] if times else []
        for time in [0, self.now + FAR, *chosen]:
            found = self.log.offset_for_timestamp(time)
            assert found == self.model.offset_for_timestamp(time)
        for epoch in range(-1, self.model.latest_epoch + 2):
            answer = self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)
            assert answer == self.model.end_offset_for(epoch)

    def look_at_transactions(self) -> None:
        """A reader below the last stable offset, who leaves out what the log says was aborted."""
        model, log = self.model, self.log
        stable = log.last_stable_offset
        aborted = log.aborted_between(model.start, stable, self.now)
        got = [
            record
            for batch in model.below(stable)
            if not batch.header.is_control
            and not any(
                batch.header.is_transactional
                and batch.header.producer_id == gone.producer_id
                and gone.first_offset <= batch.base_offset <= gone.last_offset
                for gone in aborted
            )
            for record in batch.records
            if record.offset >= model.start
        ]
        assert got == model.committed(stable)
        self.look_at_some_aborted()

    def look_at_some_aborted(self) -> None:
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
        if self.snapshots_doubtful:
            # A transaction that began in a deleted segment may seem to begin later, or have left nothing at all.
            ends = {(producer, last) for producer, _, last in listed}
            assert ends <= {(producer, last) for producer, _, last in true}
        else:
            assert listed == true

    def look_at_producer(self, producer: int) -> None:
        """Ask about every batch that a producer might send now; narrows what the log may have forgotten."""
        possible = self.model.known.get(producer, {0})
        for header in self.possible_headers(producer):
            answers = self.model.answers(header)
            try:
                span = self.log.producers.check(header)
                answer: ProducerAnswer = None if span is None else (span.first_offset, span.last_offset)
            except ProducerError as error:
                answer = type(error)
            possible = {point for point in possible if answers[point] == answer}
            assert possible, f"{header} was answered with {answer}; possible were {answers}"
        self.model.learn(producer, possible)

    def possible_headers(self, producer: int) -> list[BatchHeader]:
        mine = self.model.batches_of(producer)
        if not mine:
            return []
        newest = mine[-1].header
        model_header = next(batch.header for batch in [*reversed(mine)])
        again = [batch.header for batch in mine if batch.is_data_of_producer][-7:]
        expected = next_sequence(mine)
        made = [
            (newest.producer_epoch, expected),
            (newest.producer_epoch, (expected + 1) % SEQUENCES),
            (newest.producer_epoch - 1, expected),
            (newest.producer_epoch + 1, 0),
            (newest.producer_epoch + 1, 1),
        ]
        template = model_header._replace(attributes=0, last_offset_delta=1, record_count=2)
        return again + [
            template._replace(producer_epoch=epoch, base_sequence=sequence, attributes=attributes)
            for epoch, sequence in made
            for attributes in (0, 0x10)
        ]


class TestLog(LogMachine.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(settings.default, stateful_step_count=40)
