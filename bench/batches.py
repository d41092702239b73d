"""Records and batches that the benchmarks are fed with: 10-byte keys and 100-byte values, half of it random."""

from __future__ import annotations

import random

from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.record_batch import HEADER_BYTES

NOW_MS = 1_700_000_000_000
RECORD_BYTES = 110
_COLUMN_BYTES = 4 + 4 + 8  # two lengths and a timestamp, per record


def records(count: int, seed: int = 1) -> tuple[list[bytes], list[bytes], list[int]]:
    """(keys, values, timestamps)."""
    rng = random.Random(seed)
    keys = [b"user-%05d" % rng.randrange(10_000) for _ in range(count)]
    values = [rng.randbytes(50) + b'{"event":"click","page":"/index.html","ms":%07d}' % n for n, _ in enumerate(keys)]
    values = [value[:100].ljust(100, b".") for value in values]
    return keys, values, [NOW_MS + n for n in range(count)]


def batch_of(size: int, seed: int = 1) -> bytearray:
    """An uncompressed batch of nearly, and not over, `size` bytes."""
    count = (size - HEADER_BYTES - 64) // (RECORD_BYTES + _COLUMN_BYTES)
    keys, values, timestamps = records(count, seed)
    return encode_batch(values, keys=keys, timestamps=timestamps)
