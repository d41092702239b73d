"""What a Produce request may hold for a partition."""

from __future__ import annotations

import pytest

from raylog.api.kafka.rules.batch_conversion import as_kafka
from raylog.api.kafka.rules.produced_batch import check_produced
from raylog.errors import BatchError, CorruptBatch, InvalidBatch, UnsupportedCodec
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.compression import codec_named

COLUMNS = bytes(encode_batch([b"a", b"b"], timestamps=1_000))
BATCH = bytes(as_kafka(COLUMNS))
ZSTD = bytes(as_kafka(encode_batch([b"a" * 100], timestamps=1_000), codec_named("zstd").number))


def test_one_whole_batch_is_taken_as_it_is() -> None:
    for records in (BATCH, bytearray(BATCH), memoryview(BATCH)):
        assert check_produced(records, 3) is records


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, InvalidBatch),
        (b"", InvalidBatch),
        (BATCH + BATCH, InvalidBatch),
        (COLUMNS, InvalidBatch),
        (BATCH[:16] + b"\1" + BATCH[17:], InvalidBatch),
        (BATCH[:16] + b"\0" + BATCH[17:40], InvalidBatch),
        (BATCH[:-1], CorruptBatch),
        (BATCH[:40], CorruptBatch),
        (BATCH[:10], CorruptBatch),
        (BATCH[:8] + b"\0\0\0\1" + BATCH[12:], CorruptBatch),
        (BATCH[:8] + b"\xff\xff\xff\xff" + BATCH[12:], CorruptBatch),
        (ZSTD, UnsupportedCodec),
    ],
)
def test_anything_else_is_refused(records: bytes | None, error: type[BatchError]) -> None:
    with pytest.raises(error) as caught:
        check_produced(records, 6)
    assert type(caught.value) is error


def test_zstd_is_taken_from_version_7_on() -> None:
    assert check_produced(ZSTD, 7) is ZSTD
