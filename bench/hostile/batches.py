"""Record batches that cost whoever looks into them more than whoever sends them.

Each has a sound header and CRC, so that it is refused for what it holds or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from raylog.config import MIB
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.columns import encode_columns, pack_int64
from raylog.storage.format.compression import codec_named, compress
from raylog.storage.format.record_batch import MAGIC_COLUMNS, MAGIC_KAFKA, seal

_CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
_TIME: Final = 1_000


class Payload(NamedTuple):
    """A batch, and what is bad about it."""

    name: str
    data: bytes


def batches(limit: int) -> Iterator[Payload]:
    """`limit`: what a topic takes as `max.message.bytes`."""
    yield Payload("one record", bytes(encode_batch([b"v"], keys=[b"k"], timestamps=_TIME)))
    yield Payload("no batch", bytes(limit))
    yield Payload("many empty records", _many_empty(limit))
    for name in _CODECS:
        yield Payload(f"a bomb of zeros, {name}", _bomb(name, limit, MAGIC_COLUMNS))
        yield Payload(f"a bomb of zeros in Kafka's layout, {name}", _bomb(name, limit, MAGIC_KAFKA))
        yield Payload(f"a bomb of records, {name}", _many_empty(limit, name))
    yield Payload("headers in each other", _deep_headers(limit))


def _many_empty(limit: int, codec: str = "none") -> bytes:
    """Return as many empty records as fit: 16 bytes each, or fewer when packed."""
    count = (limit if codec == "none" else 16 * limit) // 16 - 8
    number = codec_named(codec).number
    batch = encode_batch([b""] * count, keys=[b""] * count, timestamps=_TIME, codec=number)
    return bytes(batch) if len(batch) <= limit else b""


def _bomb(codec: str, limit: int, magic: int) -> bytes:
    """Zeros that unpack to 256 MiB, or to what a batch of `limit` bytes can hold."""
    number = codec_named(codec).number
    size = 256 * MIB
    packed = compress(number, bytes(size))
    while len(packed) > limit - 1024:
        size //= 2
        packed = compress(number, bytes(size))
    return bytes(
        seal([packed], magic=magic, attributes=number, last_offset_delta=0, base_timestamp=_TIME, max_timestamp=_TIME,
             record_count=1)
    )  # fmt: skip


def _deep_headers(limit: int) -> bytes:
    """One record whose headers are arrays in arrays, each of which declares more than there is."""
    parts = encode_columns([b"k"], [b"v"], pack_int64([0]))
    deep = b"\xdd\x00\x0f\xff\xff" * (limit // 8)
    payload = [*parts[:-1], b"\x91", deep]
    return bytes(
        seal(payload, last_offset_delta=0, base_timestamp=_TIME, max_timestamp=_TIME, record_count=1)
    )
