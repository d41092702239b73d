"""Encoding and decoding record batches: one core, 110-byte records, 5,000 to a batch."""

from __future__ import annotations

from collections.abc import Iterator

from bench.batches import NOW_MS, records
from bench.measuring import Figure, rate_of, rounds_of
from raylog.storage.format.arrow_columns import batch_to_arrow
from raylog.storage.format.batch_codec import decode_batch, encode_batch
from raylog.storage.format.compression import codec_named

_COUNT = 5000
_MILLION = 1_000_000


def run() -> Iterator[Figure]:
    keys, values, timestamps = records(_COUNT)
    lz4 = codec_named("lz4").number
    amount = _COUNT / _MILLION

    def encode(codec: int, moments: list[int] | int = timestamps) -> bytearray:
        return encode_batch(values, keys=keys, timestamps=moments, codec=codec)

    plain, packed = encode(0), encode(lz4)
    one_time = "one timestamp for the batch, as send_many without timestamps has it"
    yield Figure("encode", rounds_of(rate_of(lambda: encode(0), amount)), "M records/s", 8)
    same_time = rounds_of(rate_of(lambda: encode(0, NOW_MS), amount))
    yield Figure("encode, one time", same_time, "M records/s", note=one_time)
    yield Figure("encode, lz4", rounds_of(rate_of(lambda: encode(lz4), amount)), "M records/s", 5)
    yield Figure("encode, lz4, one time", rounds_of(rate_of(lambda: encode(lz4, NOW_MS), amount)), "M records/s")
    yield Figure("decode to lists", rounds_of(rate_of(lambda: decode_batch(plain), amount)), "M records/s", 8)
    yield Figure("decode to lists, lz4", rounds_of(rate_of(lambda: decode_batch(packed), amount)), "M records/s")
    yield Figure("decode to Arrow", rounds_of(rate_of(lambda: batch_to_arrow(plain), amount)), "M records/s", 100)
    lengths = [value[: 60 + n % 40] for n, value in enumerate(values)]
    varied = encode_batch(lengths, keys=keys, timestamps=timestamps)
    many = rounds_of(rate_of(lambda: batch_to_arrow(varied), amount))
    yield Figure("decode to Arrow, values 60 to 99 B", many, "M records/s")
    yield Figure("decode to Arrow, lz4", rounds_of(rate_of(lambda: batch_to_arrow(packed), amount)), "M records/s")
