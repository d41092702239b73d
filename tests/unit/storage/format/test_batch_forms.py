"""New batches in Kafka's own form: the same records as in columns, for our reader and for two of Kafka's clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.api.kafka.rules.batch_conversion import as_kafka
from raylog.errors import InvalidBatch, InvalidTimestamp
from raylog.storage.format.batch_codec import BatchForm, decode_batch, encode_raw
from raylog.storage.format.columns import NULL_LENGTH, Headers, join
from raylog.storage.format.record_batch import MAGIC_COLUMNS, MAGIC_KAFKA, check_batch
from tests.unit.storage.batches import (
    CODECS,
    MODERN,
    Record,
    fewer_examples,
    read_by_aiokafka,
    read_by_kafka_python,
    records,
    rows,
)

COLUMNS, KAFKA = (BatchForm(0, magic) for magic in (MAGIC_COLUMNS, MAGIC_KAFKA))


def written(drawn: Sequence[Record], form: BatchForm, **fields: Any) -> bytearray:
    key_lengths, keys = join([record.key for record in drawn])
    value_lengths, values = join([record.value for record in drawn])
    stamps = [record.timestamp for record in drawn]
    headers = [record.headers for record in drawn]
    return encode_raw(len(drawn), key_lengths, keys, value_lengths, values, stamps, headers, form=form, **fields)


@pytest.mark.parametrize("codec", CODECS)
@given(records())
@fewer_examples
def test_the_bytes_are_those_of_columns_that_were_converted(codec: int, drawn: list[Record]) -> None:
    fields = {"producer_id": 9, "producer_epoch": 3, "base_sequence": 77, "transactional": True}
    batch = written(drawn, KAFKA._replace(codec=codec), **fields)
    assert batch == as_kafka(written(drawn, COLUMNS._replace(codec=codec), **fields))
    assert check_batch(batch).magic == MAGIC_KAFKA


@given(records())
@fewer_examples
def test_kafkas_clients_read_what_was_written(drawn: list[Record]) -> None:
    batch = written(drawn, KAFKA)
    assert drawn == rows(decode_batch(batch)) == read_by_aiokafka(batch) == read_by_kafka_python(batch)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 2**50)), min_size=1, max_size=5))
@fewer_examples
def test_timestamps_may_come_as_runs_or_as_one(runs: list[tuple[int, int]]) -> None:
    stamps = [stamp for count, stamp in runs for _ in range(count)]
    count = len(stamps)
    columns = (NULL_LENGTH * count, b"", *join([b"v"] * count))
    batch = encode_raw(count, *columns, tuple(runs), form=KAFKA)
    assert [record.timestamp for record in read_by_aiokafka(batch)] == stamps
    assert encode_raw(count, *columns, stamps, form=KAFKA) == batch
    assert decode_batch(encode_raw(count, *columns, MODERN, form=KAFKA)).timestamps == [MODERN] * count


def test_columns_may_come_in_pieces() -> None:
    pieces = [join([b"a", None]), join([b"", b"bcd"])]
    lengths, values = ([piece[part] for piece in pieces] for part in (0, 1))
    batch = encode_raw(4, NULL_LENGTH * 4, b"", lengths, values, MODERN, form=KAFKA)
    assert decode_batch(batch).values == [b"a", None, b"", b"bcd"]
    assert decode_batch(batch).keys == [None] * 4


@pytest.mark.parametrize("form", [COLUMNS, KAFKA])
@pytest.mark.parametrize(
    "headers", [[[("name", "text")]], [[(b"name", b"")]], [[("\ud800", b"")]]], ids=["text", "binary name", "no text"]
)
def test_headers_that_nobody_could_read_are_refused(headers: Sequence[Headers], form: BatchForm) -> None:
    with pytest.raises(InvalidBatch):
        encode_raw(1, NULL_LENGTH, b"", *join([b"v"]), MODERN, headers, form=form)


@pytest.mark.parametrize("form", [COLUMNS, KAFKA])
def test_columns_of_other_counts_and_times_that_do_not_fit_are_refused(form: BatchForm) -> None:
    with pytest.raises(InvalidBatch):
        encode_raw(2, NULL_LENGTH, b"", *join([b"v"]), MODERN, form=form)
    with pytest.raises(InvalidTimestamp):
        encode_raw(2, NULL_LENGTH * 2, b"", *join([b"v", b"w"]), [-5, 2**63 - 1], form=form)


def test_headers_of_some_records_or_of_none() -> None:
    columns = (NULL_LENGTH * 2, b"", *join([b"v", b"w"]))
    some = encode_raw(2, *columns, MODERN, [None, [("n", None)]], form=KAFKA)
    assert [record.headers for record in read_by_aiokafka(some)] == [(), (("n", None),)]
    assert encode_raw(2, *columns, MODERN, [None, []], form=KAFKA) == encode_raw(2, *columns, MODERN, form=KAFKA)
