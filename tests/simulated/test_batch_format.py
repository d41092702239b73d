"""Seeds in which `batch.format` changes all the time, under the clients of both kinds and all faults."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.api.kafka import column_conversion
from raylog.api.kafka.rules.batch_conversion import stored_columns
from raylog.api.producer.rules.producer_batch import Columns, Encoded, Writer
from raylog.storage.format.batch_codec import BatchForm
from raylog.storage.format.record_batch import MAGIC_COLUMNS, MAGIC_KAFKA, Bytes, read_header
from tests.simulator.clients import kafka_scenario, real_clients


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Return how many batches of each magic gateways have stored. All are converted beside the loop."""
    counts: Counter[int] = Counter()

    def counted(batch: Bytes, max_batch_bytes: int) -> Bytes:
        found = stored_columns(batch, max_batch_bytes)
        counts[read_header(found).magic] += 1
        return found

    monkeypatch.setattr(column_conversion, "stored_columns", counted)
    monkeypatch.setattr(column_conversion, "CONVERTED_ON_LOOP", 0)
    return counts


@pytest.mark.parametrize("seed", range(12))
def test_what_kafka_clients_write_becomes_columns_or_stays(seed: int, stored: Counter[int]) -> None:
    outcome = kafka_scenario.run_seed(seed, changes_format=True)
    assert outcome.acknowledged > 0
    assert stored[MAGIC_COLUMNS] > 0


@pytest.mark.parametrize("seeds", [range(4), range(4, 8), range(8, 12)])
def test_what_handles_write_has_the_form_of_the_moment(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[int] = Counter()
    encode = Columns.encode

    def counted(self: Columns, form: BatchForm, writer: Writer, sequence: int) -> Encoded:
        counts[form.magic] += 1
        return encode(self, form, writer, sequence)

    monkeypatch.setattr(Columns, "encode", counted)
    for seed in seeds:
        assert real_clients.run_seed(seed, changes_format=True).acknowledged > 0
    assert counts.keys() == {MAGIC_KAFKA, MAGIC_COLUMNS}


def test_the_seeds_notice_batches_that_pass_those_that_are_converted(
    monkeypatch: pytest.MonkeyPatch, stored: Counter[int]
) -> None:
    async def out_of_turn(
        self: column_conversion.ColumnConversion, before: object, convert: Callable[[], Bytes], size: int
    ) -> Bytes:
        return await self._large.convert(convert, size) if size else convert()

    def run_some() -> None:
        for seed in (2, 3, 9, 10, 11, 12, 14, 17):
            kafka_scenario.run_seed(seed, changes_format=True)

    monkeypatch.setattr(column_conversion.ColumnConversion, "_after", out_of_turn)
    with pytest.raises(AssertionError, match="Writers do not get their last batches acknowledged"):
        run_some()
    assert stored[MAGIC_COLUMNS] > 0
