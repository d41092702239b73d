"""What compaction may do to a log: `thinned` holds what it left against what was there, and takes it over.

A record may go if its transaction was aborted, if a newer record of its key lies below the point the log was cleaned
to, or if it is a tombstone that has been there for `delete.retention.ms` since a compaction first met it. A marker may
go under the same delay once its transaction has left nothing. All offsets stay: what goes whole leaves a filler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raylog.storage.format.batch_codec import decode_batch
from raylog.storage.format.record_batch import CODEC_MASK, BatchHeader, read_header
from tests.unit.storage.batches import Record, rows
from tests.unit.storage.log_model import LogModel, ModelBatch, Transaction, is_aborted

# What compaction may change in the header of a batch that stays.
_FREE_FIELDS = ("batch_length", "crc", "max_timestamp", "record_count", "attributes")


@dataclass(frozen=True)
class Circumstances:
    """Of one compaction, or of one that may have died half way."""

    cleaned_to: int
    removable_below: int  # tombstones and markers there have waited long enough
    finished: bool


def thinned(model: LogModel, found: Sequence[bytes], given: Circumstances) -> list[ModelBatch]:
    """The batches of the log, of which `found` stand in its segments now. Raises where that cannot be right."""
    first = read_header(found[0]).base_offset if found else model.end
    deleted = [batch for batch in model.batches if batch.base_offset < first]
    there = {batch.base_offset: batch for batch in model.batches if batch.base_offset >= first}
    left = [_left_of(data, there) for data in found]
    assert [batch.base_offset for batch in left[1:]] == [batch.next_offset for batch in left[:-1]]
    assert (left[-1].next_offset if left else first) == model.end
    _check_what_is_gone(model, list(there.values()), left, given)
    if given.finished:
        _check_that_nothing_is_outdated(left, model.aborted(), given.cleaned_to)
    return deleted + left


def _left_of(data: bytes, there: dict[int, ModelBatch]) -> ModelBatch:
    """What became of the batch or batches in whose place `data` stands."""
    header = read_header(data)
    before = there[header.base_offset]
    if data == before.data:
        return before
    records = tuple(rows(decode_batch(data)))
    if header.record_count == 0 and header.producer_id < 0:
        spanned = [batch for batch in there.values() if header.base_offset <= batch.base_offset < header.next_offset]
        assert spanned[-1].next_offset == header.next_offset
        assert {batch.header.leader_epoch for batch in spanned} == {header.leader_epoch}
        return ModelBatch(data, header, ())
    _check_header(before.header, header)
    kept = [record for record in before.records if record in records]
    assert kept == list(records)
    return ModelBatch(data, header, records, before.marker if records else None)


def _check_header(before: BatchHeader, after: BatchHeader) -> None:
    same = {name: getattr(before, name) for name in before._fields if name not in _FREE_FIELDS}
    assert {name: getattr(after, name) for name in same} == same
    assert after.attributes & ~CODEC_MASK == before.attributes & ~CODEC_MASK


def _check_what_is_gone(
    model: LogModel, before: Sequence[ModelBatch], after: Sequence[ModelBatch], given: Circumstances
) -> None:
    stays = {record.offset for batch in after for record in batch.records}
    aborted = model.aborted()
    newest = _newest(before, aborted, given.cleaned_to)
    with_data = {batch.base_offset for batch in after if batch.is_data_of_producer}
    stable = model.last_stable_range()[1]
    for batch in before:
        for record in batch.records:
            if record.offset in stays:
                continue
            assert record.offset < stable
            if batch.marker is not None:
                assert record.offset < given.removable_below
                assert not _is_needed(batch, model.transactions(), with_data, before)
            elif not is_aborted(batch, aborted) and record.key is not None:
                outdated = newest[record.key] > record.offset
                assert outdated or (record.value is None and record.offset < given.removable_below), record


def _newest(
    batches: Sequence[ModelBatch], aborted: Sequence[Transaction], cleaned_to: int
) -> dict[bytes, int]:
    return {
        record.key: record.offset
        for batch in batches
        if batch.base_offset < cleaned_to and batch.marker is None and not is_aborted(batch, aborted)
        for record in batch.records
        if record.key is not None
    }


def _is_needed(
    marker: ModelBatch, transactions: Sequence[Transaction], with_data: set[int], before: Sequence[ModelBatch]
) -> bool:
    """Whether a batch of the transaction that `marker` ends still stands in the log, if only its header."""
    ended = [each for each in transactions if each.marker_offset == marker.base_offset]
    return any(
        batch.base_offset in with_data
        and batch.header.producer_id == marker.header.producer_id
        and ended[0].first_offset <= batch.base_offset < marker.base_offset
        for batch in before
        if ended
    )


def _check_that_nothing_is_outdated(
    batches: Sequence[ModelBatch], aborted: Sequence[Transaction], cleaned_to: int
) -> None:
    data = [batch for batch in batches if batch.base_offset < cleaned_to and batch.marker is None]
    assert not [batch for batch in data if batch.records and is_aborted(batch, aborted)]
    kept: list[Record] = [record for batch in data for record in batch.records]
    assert len(kept) == len({record.key for record in kept})
