"""Batches as Hypothesis draws them: what is in them, who writes them, and what they look like in the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from raylog.storage.format.batch_codec import decode_batch, encode_batch
from raylog.storage.format.control_records import Marker, MarkerType, encode_marker
from raylog.storage.format.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from tests.unit.storage.batches import Record, rows, written_by_aiokafka
from tests.unit.storage.log_model import (
    SEQUENCES,
    LogModel,
    ModelBatch,
    data_after_last_marker,
    next_sequence,
    stamped,
)

PRODUCERS = range(1, 5)


class Ids(NamedTuple):
    """What a producer signs a batch with."""

    producer: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    sequence: int = NO_SEQUENCE


class Draft(NamedTuple):
    """A batch to be. The timestamps of its records are ages."""

    records: tuple[Record, ...]
    magic: int
    codec: int
    producer: int
    transactional: bool
    new_epoch: bool
    marker: MarkerType | None  # what ends the producer's transaction, if one is open
    bump: bool  # whether the marker carries a newer epoch
    leader_step: int

    @property
    def with_keys(self) -> Draft:
        return self._replace(records=tuple(record._replace(key=record.key or b"") for record in self.records))

    def dated(self, now: int) -> list[Record]:
        return [record._replace(timestamp=now - record.timestamp) for record in self.records]

    def written(self, now: int, ids: Ids = Ids(), *, transactional: bool = False) -> bytearray:  # noqa: B008 (frozen)
        """The bytes as a client sends them."""
        records = self.dated(now)
        transactional = transactional and ids.producer >= 0
        if self.magic == 2:
            return bytearray(written_by_aiokafka(records, self.codec, transactional=transactional, producer=ids))
        return encode_batch(
            [record.value for record in records],
            timestamps=[record.timestamp for record in records],
            keys=[record.key for record in records],
            headers=[record.headers for record in records],
            codec=self.codec,
            transactional=transactional,
            producer_id=ids.producer,
            producer_epoch=ids.epoch,
            base_sequence=ids.sequence,
        )


class Prepared(NamedTuple):
    """A batch as it is sent, and as it has to stand in the log then."""

    sent: bytearray
    batch: ModelBatch


def prepared(draft: Draft, model: LogModel, epoch: int, now: int, append_time: int | None = None) -> Prepared:
    """The batch that `draft` says, valid at the end of `model`."""
    mine = model.batches_of(draft.producer)
    producer_epoch = mine[-1].header.producer_epoch if mine else 0
    in_transaction = any(batch.header.is_transactional for batch in data_after_last_marker(mine))
    if draft.producer < 0:
        sent = draft.written(now)
    elif draft.marker is not None and in_transaction:
        marker = Marker(draft.marker, len(mine) // 4)
        return prepared_marker(marker, draft.producer, producer_epoch + draft.bump, model, epoch, now, append_time)
    elif draft.new_epoch and not in_transaction:
        sent = draft.written(now, Ids(draft.producer, producer_epoch + 1, 0), transactional=draft.transactional)
    else:
        ids = Ids(draft.producer, producer_epoch, next_sequence(mine) if mine else SEQUENCES - 3)
        sent = draft.written(now, ids, transactional=draft.transactional or in_transaction)
    return Prepared(sent, stamped(sent, draft.dated(now), model.end, epoch, append_time=append_time))


def prepared_marker(
    marker: Marker, producer: int, producer_epoch: int, model: LogModel, epoch: int, now: int, append_time: int | None
) -> Prepared:
    sent = encode_marker(marker, producer, producer_epoch, now)
    records = [record._replace(offset=0) for record in rows(decode_batch(sent))]
    return Prepared(sent, stamped(sent, records, model.end, epoch, append_time=append_time, marker=marker))


# --- strategies -------------------------------------------------------------------------------------------------------

_keys = st.sampled_from([b"a", b"b", b"c", b"dd", b"", None])
_values = st.none() | st.binary(max_size=3) | st.binary(min_size=20, max_size=80)
_headers = st.sampled_from([(), (), (("h", b"x"),), (("h", None), ("i", b""))])
_ages = st.sampled_from([0, 0, 1, 10, 700, 5_000])


def _as_records(fields: Sequence[tuple[int, bytes | None, bytes | None, Any]]) -> tuple[Record, ...]:
    return tuple(Record(offset, age, key, value, headers) for offset, (age, key, value, headers) in enumerate(fields))


drafts = st.builds(
    Draft,
    records=st.lists(st.tuples(_ages, _keys, _values, _headers), min_size=1, max_size=4).map(_as_records),
    magic=st.sampled_from([16, 2]),
    codec=st.sampled_from([0, 0, 0, 3]),
    producer=st.sampled_from([NO_PRODUCER_ID, NO_PRODUCER_ID, *PRODUCERS]),
    transactional=st.booleans(),
    new_epoch=st.sampled_from([False, False, False, True]),
    marker=st.sampled_from([None, None, MarkerType.COMMIT, MarkerType.ABORT]),
    bump=st.booleans(),
    leader_step=st.sampled_from([0, 0, 0, 1, 2]),
)
