"""Columns of batches: the same records as one by one, of any layout, from any position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.api.connection.records import LOG_APPEND_TIME, TopicPartition
from raylog.api.consumer.rules.arrow_poll import to_table
from raylog.api.consumer.rules.column_batches import ColumnBatch
from raylog.api.consumer.rules.fetched import RecordRun
from raylog.errors import RecordUnreadable
from raylog.storage.format.record_batch import check_batch, stamp, stamp_log_append_time
from tests.unit.storage.batches import (
    CODECS,
    Record,
    encoded,
    fewer_examples,
    records,
    sealed,
    written_by_aiokafka,
)

PARTITION = TopicPartition("t", 3)


def stamped(batch: bytes | bytearray, base_offset: int, append_time: int | None) -> bytearray:
    made = bytearray(batch)
    stamp(made, base_offset, 7)
    if append_time is not None:
        stamp_log_append_time(made, append_time)
    return made


@pytest.mark.parametrize("is_kafkas", [True, False])
@given(
    drawn=records(),
    codec=st.sampled_from(CODECS),
    base_offset=st.integers(0, 2**40),
    passed=st.integers(0, 9),
    append_time=st.none() | st.just(5),
)
@fewer_examples
def test_columns_are_the_records_from_the_position_on(
    is_kafkas: bool, drawn: list[Record], codec: int, base_offset: int, passed: int, append_time: int | None
) -> None:
    batch = written_by_aiokafka(drawn, codec) if is_kafkas else encoded(drawn, codec)
    data = stamped(batch, base_offset, append_time)
    header = check_batch(data)
    position = base_offset + min(passed, len(drawn) - 1)
    view = ColumnBatch(PARTITION, header, data, position)
    run = RecordRun(PARTITION, header, data, position)
    one_by_one = run.take(100)
    assert run.position == header.next_offset
    assert len(view) == len(one_by_one)
    assert list(view.offsets) == [record.offset for record in one_by_one]
    assert view.timestamps == [record.timestamp for record in one_by_one]
    assert view.keys == [record.key for record in one_by_one]
    assert view.values == [record.value for record in one_by_one]
    assert list(map(tuple, view.headers)) == [tuple(record.headers) for record in one_by_one]
    assert {record.leader_epoch for record in one_by_one} == {view.leader_epoch} == {7}
    assert {record.timestamp_type for record in one_by_one} == {view.timestamp_type}
    assert (view.timestamp_type == LOG_APPEND_TIME) == (append_time is not None)
    table = to_table([view], include_headers=True)
    assert table.column("offset").to_pylist() == list(view.offsets)
    assert table.column("value").to_pylist() == view.values
    assert set(table.column("partition").to_pylist()) == {3}


def test_offsets_that_compaction_removed_are_not_counted() -> None:
    sparse = [Record(0, 5, b"a", b"1"), Record(4, 5, b"b", b"2"), Record(9, 5, b"c", b"3")]
    data = stamped(written_by_aiokafka(sparse), 100, None)
    view = ColumnBatch(PARTITION, check_batch(data), data, 102)
    assert (len(view), list(view.offsets), view.values) == (2, [104, 109], [b"2", b"3"])
    run = RecordRun(PARTITION, check_batch(data), data, 102)
    assert run.position == 104
    assert next(run.records).offset == 104
    assert (run.position, run.taken) == (109, 1)


def test_a_payload_that_is_not_what_its_header_says_is_an_error_when_it_is_looked_at() -> None:
    data = sealed(b"nothing of the kind", 3)
    view = ColumnBatch(PARTITION, check_batch(data), data, 0)
    assert len(view) == 3
    for look in (lambda: view.values, lambda: view.offsets, view.to_arrow):
        with pytest.raises(RecordUnreadable) as raised:
            look()
        assert raised.value.next_offset == 3
