"""A partition's log against a model, through whatever Hypothesis can think of: appends of every kind, truncation,
retention, compaction, flushes, restarts, and crashes of process and machine between two operations or in one.

A crash in the middle of an operation is lit with a fuse: the next one dies at its n-th step on disk. What the log then
shows has to be one of the states that the operation passes through.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raylog.errors import (
    BatchTooLarge,
    DiskFailed,
    InvalidLeaderEpoch,
    LogDamaged,
    NullKey,
    OffsetOutOfRange,
    OffsetsNotContiguous,
    ProducerError,
    RaylogError,
    StaleLeaderEpoch,
)
from raylog.storage.compaction.cleaner import CompactionReport
from raylog.storage.compaction.key_map import MemoryBudget
from raylog.storage.format.batch_codec import decode_batch
from raylog.storage.format.control_records import Marker, MarkerType
from raylog.storage.format.record_batch import read_header, split_batches
from raylog.storage.log.flushing import Flush
from raylog.storage.log.recovery import OpenedAfter
from tests.simulator.world.faulty_disk import MOMENTS, FaultyDisk, Moment, SimulatedCrash
from tests.unit.storage.batches import MODERN, rows
from tests.unit.storage.compacted_log import compact
from tests.unit.storage.compaction_rules import Circumstances, thinned
from tests.unit.storage.log_drafts import PRODUCERS, Draft, Ids, Prepared, drafts, prepared, prepared_marker
from tests.unit.storage.log_model import (
    SEQUENCES,
    LogModel,
    Marks,
    ModelBatch,
    ProducerAnswer,
    next_sequence,
    stamped,
)
from tests.unit.storage.log_questions import FAR, Questions
from tests.unit.storage.small_log import new_disk, open_log

pytestmark = pytest.mark.thorough


@dataclass
class Fuse:
    """Where the next operation dies, and what dies with it."""

    steps: int
    moment: Moment
    power_cut: bool


configs = st.fixed_dictionaries(
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
        "cleanup.policy": st.sampled_from(["delete", "compact", "compact", "compact,delete"]),
        "delete.retention.ms": st.sampled_from([1_000_000, 2_000]),
        "flush.policy": st.sampled_from(["replicated", "fsync"]),
    }
)
permille = st.integers(0, 1_000)


def between(low: int, high: int, part: int) -> int:
    return low + (high - low) * part // 1_000


class LogMachine(RuleBasedStateMachine):
    """The log and its model, side by side."""

    @initialize(
        overrides=configs,
        ordered_names=st.booleans(),
        seed=st.integers(0, 2**32),
        beginning=st.lists(st.lists(drafts, min_size=1, max_size=5), max_size=4),
    )
    def create(
        self, overrides: dict[str, Any], ordered_names: bool, seed: int, beginning: list[list[Draft]]
    ) -> None:
        self.disk: FaultyDisk = new_disk(ordered_names=ordered_names)
        self.rng = Random(seed)
        self.now = MODERN
        self.overrides = overrides
        self.model = LogModel()
        self.fuse: Fuse | None = None
        self.recovery_fuse: Fuse | None = None
        self.flush: tuple[Flush, int, bool] | None = None  # (flush, end it makes safe, whether it was synced)
        self.passes: list[tuple[int, int]] = []  # of compaction: (end, time)
        self.compacting = False
        self.open()
        assert self.log.opened_after is OpenedAfter.CREATION
        for arriving in beginning:
            self.append_as_follower(arriving)
            self.now += 1_500

    def open(self) -> None:
        self.log = open_log(self.disk, self.overrides, self.now)
        self.log.plan_role_start(None).run()  # the marks on the disk are those of now already

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
            for state in states:
                state.snapshots_doubtful = True
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
                self.crash(states, power_cut=power_cut or fuse.power_cut)
                return
            self.disk.crash_after(FAR)
        else:
            self.open()
        self.flush = None
        self.model = self.state_found(states, power_cut)
        if self.compacting:
            self.take_over_compaction(None)
        self.cut_passes()
        self.model.rebuild_producers(self.log.segments.bases())

    def state_found(self, states: Sequence[LogModel], power_cut: bool) -> LogModel:
        """The one of the possible states that the reopened log is in."""
        log = self.log
        found = log.log_end_offset, Marks(log.recovery_point, log.high_watermark, log.log_start_offset)
        for state in reversed(states):
            ends = state.boundaries(state.marks.recovery_point) if power_cut else [state.end]
            for end in reversed(ends):
                candidate = state.reopened(end)
                if (candidate.end, candidate.marks) == found and list(log.epochs.history) == candidate.epochs:
                    return candidate
        raise AssertionError(
            f"found end and marks {found}, epochs {log.epochs.history}; possible were: "
            + "; ".join(f"{state.on_disk}, {state.marks}, {state.boundaries()}, {state.epochs}" for state in states)
        )

    @rule(steps=st.integers(1, 14), moment=st.sampled_from(MOMENTS), power_cut=st.booleans(), later=st.booleans())
    def light_the_fuse(self, steps: int, moment: Moment, power_cut: bool, later: bool) -> None:
        """Let the next operation die, or (`later`) the recovery after the next crash."""
        if later:
            self.recovery_fuse = Fuse(steps, moment, power_cut)
        else:
            self.fuse = Fuse(steps, moment, power_cut)

    def refused(self, error: type[RaylogError], operation: Callable[[], Any]) -> None:
        with pytest.raises(error) as raised:
            operation()
        assert raised.type is error

    # --- appending as the leader ---

    @property
    def append_time(self) -> int | None:
        return self.now if self.log.config.message_timestamp_type == "LogAppendTime" else None

    def lead(self) -> int:
        if self.model.latest_epoch < 0:
            self.log.begin_epoch(1)
            self.model.assign(1)
        return self.model.latest_epoch

    def append(self, sent: bytearray, batch: ModelBatch) -> None:
        """Append `sent`, which is to become `batch`."""
        after = self.model.clone()
        after.append(batch)
        epoch, control = self.model.latest_epoch, batch.marker is not None
        appended = self.perform(lambda: self.log.append_as_leader(sent, epoch, self.now, control=control), after)
        if appended is not None:
            time = -1 if self.append_time is None else self.append_time
            assert appended == (batch.base_offset, batch.next_offset - 1, False, time)
            assert sent == batch.data
            assert rows(decode_batch(batch.data)) == list(batch.records)

    @rule(sent=st.lists(drafts, min_size=1, max_size=3))
    def append_as_leader(self, sent: list[Draft]) -> None:
        for draft in sent:
            self.append_one_as_leader(draft)

    def append_one_as_leader(self, draft: Draft) -> None:
        epoch = self.lead()
        if self.log.config.is_compacted:
            draft = self.with_keys(draft)
        sent, batch = prepared(draft, self.model, epoch, self.now, self.append_time)
        if len(sent) > self.log.config.segment_bytes:
            self.refused(BatchTooLarge, lambda: self.log.append_as_leader(sent, epoch, self.now))
            return
        producer = batch.header.producer_id
        if producer >= 0:
            Questions(self.log, self.model, self.disk, self.rng, self.now).ask_producer(producer)
            answers = self.model.answers(batch.header, batch.marker)
            taken = {memory for memory, answer in answers.items() if answer is None}
            if not taken:
                return  # the log has forgotten the producer, so what comes next for it is another batch
            self.model.learn(producer, taken)
        self.append(sent, batch)

    def with_keys(self, draft: Draft) -> Draft:
        if any(record.key is None for record in draft.records):
            sent = draft.written(self.now)
            if len(sent) <= self.log.config.segment_bytes:
                self.refused(NullKey, lambda: self.log.append_as_leader(sent, self.model.latest_epoch, self.now))
        return draft.with_keys

    @rule(draft=drafts, kind=st.sampled_from(["duplicate", "gap", "stale", "late", "new epoch, late"]))
    def append_what_a_producer_may_not(self, draft: Draft, kind: str) -> None:
        mine = self.model.batches_of(draft.producer) if draft.producer >= 0 else []
        if not mine:
            return
        epoch = self.lead()
        data = [batch for batch in mine if batch.is_data_of_producer]
        newest, sequence = mine[-1].header.producer_epoch, next_sequence(mine)
        if kind == "duplicate" and data:
            sent = bytearray(self.rng.choice(data[-7:]).data)
        else:
            ids = {
                "stale": Ids(draft.producer, newest - 1, sequence),
                "new epoch, late": Ids(draft.producer, newest + 1, 7),
                "gap": Ids(draft.producer, newest, (sequence + 2) % SEQUENCES),
            }.get(kind, Ids(draft.producer, newest, (sequence - 1) % SEQUENCES))
            if ids.epoch < 0:
                return
            sent = draft.with_keys.written(self.now, ids)
        is_log_append_time = bool(sent[22] & 0x08)
        if len(sent) > self.log.config.segment_bytes or is_log_append_time:
            return
        answers = set(self.model.answers(read_header(sent)).values())
        nameless = self.log.config.is_compacted and None in decode_batch(sent).keys
        if None not in answers and not nameless:
            self.expect_answer(answers, lambda: self.log.append_as_leader(sent, epoch, self.now))

    def expect_answer(self, answers: set[ProducerAnswer], operation: Callable[[], Any]) -> None:
        try:
            appended = operation()
        except ProducerError as refusal:
            answer: ProducerAnswer = type(refusal)
        else:
            assert appended.is_duplicate
            answer = (appended.first_offset, appended.last_offset)
        assert answer in answers

    @rule(
        producer=st.sampled_from(PRODUCERS),
        kind=st.sampled_from(MarkerType),
        epoch_step=st.sampled_from([0, 1, -1]),
        coordinator_step=st.sampled_from([0, 1, -1]),
    )
    def end_transaction(self, producer: int, kind: MarkerType, epoch_step: int, coordinator_step: int) -> None:
        epoch = self.lead()
        Questions(self.log, self.model, self.disk, self.rng, self.now).ask_producer(producer)
        mine = self.model.batches_of(producer)
        producer_epoch = (mine[-1].header.producer_epoch if mine else 0) + epoch_step
        coordinators = [batch.marker.coordinator_epoch for batch in mine if batch.marker is not None]
        marker = Marker(kind, (coordinators[-1] if coordinators else 0) + coordinator_step)
        if producer_epoch < 0 or marker.coordinator_epoch < 0:
            return
        sent, batch = prepared_marker(marker, producer, producer_epoch, self.model, epoch, self.now, self.append_time)
        answers = set(self.model.answers(batch.header, marker).values())
        if answers == {None}:
            self.append(sent, batch)
        elif None not in answers:
            append = self.log.append_as_leader
            self.expect_answer(answers, lambda: append(sent, epoch, self.now, control=True))

    @rule(draft=drafts, step=st.sampled_from([-1, 1]))
    def append_under_another_epoch(self, draft: Draft, step: int) -> None:
        epoch = self.lead()
        self.refused(
            StaleLeaderEpoch, lambda: self.log.append_as_leader(draft.written(self.now), epoch + step, self.now)
        )

    @rule(step=st.sampled_from([1, 0, 3, -1]))
    def begin_epoch(self, step: int) -> None:
        epoch = self.model.latest_epoch + step
        if epoch < max(0, self.model.latest_epoch):
            refusal = StaleLeaderEpoch if epoch >= 0 else InvalidLeaderEpoch
            self.refused(refusal, lambda: self.log.begin_epoch(epoch))
            return
        after = self.model.clone()
        after.assign(epoch)
        self.perform(lambda: self.log.begin_epoch(epoch), after)

    # --- appending as a follower ---

    def led_elsewhere(self, draft: Draft, model: LogModel) -> Prepared:
        return prepared(draft, model, max(0, model.latest_epoch + draft.leader_step), self.now)

    @rule(arriving=st.lists(drafts, min_size=1, max_size=5))
    def append_as_follower(self, arriving: list[Draft]) -> None:
        """What the log has forgotten of a producer does not matter: a follower takes what the leader took."""
        states = [self.model]
        data = b""
        for draft in arriving:
            after = states[-1].clone()
            batch = self.led_elsewhere(draft, after).batch
            after.append(batch)
            states.append(after)
            data += batch.data
        end = self.perform(lambda: self.log.append_as_follower(data, self.now), *states[1:])
        assert end is None or end == self.model.end

    @rule(arriving=st.lists(drafts, min_size=1, max_size=3), step=st.sampled_from([-1, 1, 100]))
    def append_what_does_not_join_on(self, arriving: list[Draft], step: int) -> None:
        """The last of the batches stands where it must not; none of them may be taken."""
        leader = self.model.clone()
        data = b""
        for draft in arriving[:-1]:
            batch = self.led_elsewhere(draft, leader).batch
            leader.append(batch)
            data += batch.data
        last = self.led_elsewhere(arriving[-1], leader).batch
        if step > 0 or (len(arriving) > 1 and last.base_offset > 0):
            # (One batch alone across the end of an empty log is where that log may begin.)
            data += stamped(last.data, (), last.base_offset + step, last.header.leader_epoch).data
            self.refused(OffsetsNotContiguous, lambda: self.log.append_as_follower(data, self.now))

    # --- marks and cuts ---

    @rule()
    def roll(self) -> None:
        self.perform(self.log.roll, self.model.clone())

    @rule(part=permille)
    def advance_high_watermark(self, part: int) -> None:
        offset = between(self.model.start, self.model.end, part)
        self.log.advance_high_watermark(offset)
        self.model.mark(high_watermark=max(self.model.high_watermark, offset))

    @rule()
    def replicate_everything(self) -> None:
        self.log.advance_high_watermark(self.model.end + 5)
        self.model.mark(high_watermark=self.model.end)

    @rule(part=st.sampled_from([990, 960, 900, 700]) | permille, all_of_it=st.sampled_from([False] * 4 + [True]))
    def truncate(self, part: int, all_of_it: bool) -> None:
        before = self.model
        low = before.start - 2 if all_of_it else before.start + 1
        offset = between(max(0, low), before.end + 1, part)
        if offset >= before.end:
            after = before.clone()
            after.cut(before.end)  # an epoch that wrote nothing goes all the same
            assert self.perform(lambda: self.log.truncate_to(offset, self.now), after) in (None, before.end)
            return
        self.flush_proves_nothing()
        end = max(before.boundaries()[0], *(bound for bound in before.boundaries() if bound <= offset), -1)
        if end < before.start or offset <= before.start:
            states = self.restart_states(before.start)
        else:
            states = []
            for cut in [before.end, *(cut for cut in reversed(before.boundaries(end)) if cut < before.end)]:
                state = before.clone()
                state.lower_marks(end)
                state.cut(cut)
                states.append(state)
        self.perform(lambda: self.log.truncate_to(offset, self.now), *states)
        self.cut_passes()
        self.model.rebuild_producers(self.log.segments.bases())

    @rule(part=permille, ahead=st.sampled_from([0, 0, 30]), wanted=st.sampled_from([False] * 5 + [True]))
    def restart_at(self, part: int, ahead: int, wanted: bool) -> None:
        if not wanted:
            return
        offset = between(0, self.model.end, part) + ahead
        self.flush_proves_nothing()
        self.perform(lambda: self.log.restart_at(offset), *self.restart_states(offset))
        self.cut_passes()

    def restart_states(self, offset: int) -> list[LogModel]:
        """Thrown away or not, nothing in between: a crash half way is finished by the next opening."""
        elsewhere = self.model.clone()
        elsewhere.restart(offset)
        return [elsewhere]

    @rule(part=permille)
    def delete_records(self, part: int) -> None:
        before = self.model
        offset = between(before.start - 1, before.high_watermark + 1, part)
        if offset > before.high_watermark:
            self.refused(OffsetOutOfRange, lambda: self.log.delete_records(offset))
            return
        after = before.clone()
        if offset > before.start:
            after.begin_at(offset)
        start = self.perform(lambda: self.log.delete_records(offset), after)
        assert start is None or start == self.model.start

    # --- cleaning ---

    @rule()
    def delete_old_segments(self) -> None:
        before = self.model
        ends = self.ends_of_expired_segments()
        after = before.clone()
        if ends and ends[-1] > before.start:
            after.begin_at(ends[-1])
        expired = self.perform(lambda: self.log.delete_old_segments(self.now), after)
        assert expired is None or len(expired) == len(ends)

    def ends_of_expired_segments(self) -> list[int]:
        """What retention has to take, by policy."""
        config, model = self.log.config, self.model
        bases = self.log.segments.bases()
        active = [batch for batch in model.batches if batch.base_offset >= bases[-1]]
        if active and config.deletes_old_segments and self.is_past(active):
            bases.append(model.end)
        total = sum(len(batch.data) for batch in model.batches if batch.base_offset >= bases[0])
        ends = []
        for base, end in pairwise(bases):
            batches = [batch for batch in model.batches if base <= batch.base_offset < end]
            size = sum(len(batch.data) for batch in batches)
            too_large = 0 <= config.retention_bytes <= total - size
            by_policy = config.deletes_old_segments and (self.is_past(batches) or too_large)
            if end > self.log.last_stable_offset or not (end <= model.start or by_policy):
                break
            ends.append(end)
            total -= size
        return ends

    def is_past(self, batches: Sequence[ModelBatch]) -> bool:
        newest = max(batch.header.max_timestamp for batch in batches)
        return 0 <= self.log.config.retention_ms < self.now - newest

    @rule(patient=st.booleans())
    def remove_deleted_files(self, patient: bool) -> None:
        self.now += 1_000 * patient
        self.perform(lambda: self.log.remove_deleted_files(self.now), self.model.clone())
        if patient:
            assert not [path for path in self.disk.files() if path.endswith(".deleted")]

    @rule(kind=st.sampled_from(MarkerType))
    def end_all_transactions(self, kind: MarkerType) -> None:
        for transaction in self.model.transactions():
            if transaction.marker_offset is None:
                self.end_transaction(transaction.producer_id, kind, 0, 0)

    @precondition(lambda self: self.log.config.is_compacted)
    @rule(force=st.booleans(), prepare=st.sampled_from([True, True, False]))
    def compact(self, force: bool, prepare: bool) -> None:
        if prepare:
            self.end_all_transactions(MarkerType.ABORT)
            self.roll()
            self.replicate_everything()
        self.compacting = True
        report = self.perform(lambda: compact(self.log, self.now, MemoryBudget(), force=force), self.model.clone())
        if report is not None:
            self.take_over_compaction(report)
        self.compacting = False

    def take_over_compaction(self, report: CompactionReport | None) -> None:
        """Check what became of the batches, and go on with that. Without a report it died somewhere on its way."""
        found = [
            bytes(data)
            for segment in self.log.segments
            for data in split_batches(self.disk.read_file(segment.path(".log")))
        ]
        patience = self.log.config.delete_retention_ms
        cleaned_to = self.log.segments.bases()[-1] if report is None else report.cleaned_to
        given = Circumstances(
            cleaned_to=cleaned_to,
            removable_below=max((end for end, time in self.passes if self.now - time > patience), default=0),
            finished=report is not None,
        )
        self.model.batches = thinned(self.model, found, given)
        self.model.is_compacted = True
        self.passes.append((cleaned_to, self.now))
        self.compacting = False

    def cut_passes(self) -> None:
        self.passes = [(min(end, self.model.end), time) for end, time in self.passes]

    @rule()
    def expire_producers(self) -> None:
        for producer in self.log.expire_producers(self.now):
            transactions = self.model.transactions(least=True)
            assert not [each for each in transactions if each.producer_id == producer and each.marker_offset is None]
            self.model.forget_producer(producer)

    @rule(overrides=configs)
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
        self.flush = (self.log.plan_flush(), self.model.end, False)

    @precondition(lambda self: self.flush is not None)
    @rule()
    def sync_flush(self) -> None:
        assert self.flush is not None
        flush, end, _ = self.flush
        self.flush = (flush, end, True)
        self.perform(flush.work, self.model.clone())

    @precondition(lambda self: self.flush is not None and self.flush[2])
    @rule()
    def finish_flush(self) -> None:
        assert self.flush is not None
        flush, end, _ = self.flush
        self.flush = None
        flush.apply()
        self.model.mark(recovery_point=max(self.model.marks.recovery_point, end))

    def flush_proves_nothing(self) -> None:
        """The one that is under way has been overtaken by a truncation."""
        if self.flush is not None:
            self.flush = (self.flush[0], 0, self.flush[2])

    @rule()
    def checkpoint(self) -> None:
        after = self.model.clone()
        after.checkpoint()
        self.perform(self.log.checkpoint, after)

    # --- ending and beginning again ---

    @rule(power_cut=st.booleans())
    def close_and_reopen(self, power_cut: bool) -> None:
        log = self.log
        flushed = self.model.clone()
        flushed.mark(recovery_point=flushed.end)
        closed = flushed.clone()
        closed.checkpoint()
        self.perform(log.close, flushed, closed)
        if self.log is not log:
            return  # it died while closing, and is open again
        if power_cut:
            self.disk.crash_machine(self.rng)
            closed.snapshots_doubtful = True
        undisturbed = self.recovery_fuse is None
        self.reopen([closed], power_cut=power_cut)
        assert not undisturbed or self.log.opened_after is OpenedAfter.CLEAN_CLOSE

    @rule(power_cut=st.booleans(), flushed=st.booleans())
    def crash_and_reopen(self, power_cut: bool, flushed: bool) -> None:
        if flushed:
            self.flush_all()
        self.crash([self.model], power_cut=power_cut)

    @rule()
    def fail_a_sync_and_restart(self) -> None:
        """The kernel drops the pages; the next process must not take a later sync for theirs (rule 2)."""
        if self.model.marks.recovery_point == self.model.end or self.fuse is not None:
            return
        self.disk.fail_next("sync", ".log")
        with pytest.raises(DiskFailed):
            self.log.flush()
        assert self.log.offline_because is not None
        self.crash([self.model], power_cut=False)

    @rule(part=permille, seed=st.integers(0, 2**32))
    def a_bit_rots_before_a_power_cut(self, part: int, seed: int) -> None:
        """On another disk, so that this one goes on whole: what was acknowledged is never missing in silence."""
        paths = [segment.path(".log") for segment in self.log.segments if segment.size]
        if self.fuse is not None or not paths:
            return
        self.flush_all()  # the marks on the disk say less
        rng, disk = Random(seed), self.disk.clone()
        path = rng.choice((rng.choice(paths), paths[-1]))
        disk.flip_bit(path, between(0, 8 * disk.files()[path] - 1, part))
        disk.crash_machine(rng)
        try:
            log = open_log(disk, self.overrides, self.now)
        except LogDamaged:
            return
        counted = self.log.recovery_point if self.log.directory.flush_policy == "fsync" else self.log.log_end_offset
        if log.log_end_offset < counted:
            assert log.unproven

    # --- what must hold after every step ---

    @invariant()
    def every_question_has_the_right_answer(self) -> None:
        Questions(self.log, self.model, self.disk, self.rng, self.now).ask_everything()


@pytest.fixture(autouse=True)
def _quietly() -> Iterator[None]:
    """A log that is opened ten thousand times has much to say."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    stateful_step_count=40, max_examples=max(200, settings().max_examples)
)
