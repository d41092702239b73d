"""Compression of batch payloads: none, gzip, snappy, lz4, zstd, with Kafka's codec numbers and framings.

What must stay true: unpacking ends in the content or in a `BatchError`, and never makes more content than the
limit it is given, whatever the bytes declare or really hold. So each codec unpacks into bounded buffers. A
declared size is a claim: over the limit it refuses the payload, below it says where to start.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

import cramjam
import lz4.frame

from raylog.errors import CorruptBatch, PayloadTooLarge, UnsupportedCodec
from raylog.storage.format.record_batch import Bytes

# What a reader is willing to unpack from one batch unless it says otherwise.
DEFAULT_UNPACK_LIMIT: Final = 256 * 1024 * 1024

_GZIP_WINDOW = 31  # zlib's way to say: gzip header and trailer
_GZIP_LEVEL = 6
_GZIP_MAX_MEMBERS = 64  # clients write one; each further one costs a copy of all the bytes after it

# The stream of snappy-java, which is what Kafka means by snappy: 16 bytes of header, then blocks of
# (length i32, raw snappy). Some clients write one raw block without any of that.
_XERIAL_HEADER = struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1)
_XERIAL_MAGIC_BYTES = 8
_XERIAL_BLOCK = 64 * 1024
_BLOCK_LENGTH = struct.Struct(">i")

_LZ4_LEVEL = -2
_LZ4_STEP = 4  # times the packed size is unpacked at once, where the frame does not declare its content size

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_LEVEL = 1  # level 3 packs 1-2 % tighter on log records and takes half as long again
_ZSTD_FIRST_GUESS = 8  # times the packed size, where the frame does not declare its content size
# How Rust's standard library words a write past the end of a buffer; zstd words damage differently. Should it
# ever change, `test_compression.py` says so, and payloads that need a second try are refused, never misread.
_ZSTD_BUFFER_FULL = "failed to write whole buffer"
_BLOCKS_ASKED: Final = 32  # of a snappy stream, for the sizes they declare; writers fill 32 KiB or more


def _gzip_compress(data: Bytes) -> bytes:
    return gzip.compress(data, compresslevel=_GZIP_LEVEL, mtime=0)


def _gzip_decompress(data: Bytes, limit: int) -> bytes:
    parts: list[bytes] = []
    rest, total = data, 0
    while rest or not parts:  # a gzip file may have several members
        if len(parts) == _GZIP_MAX_MEMBERS:
            raise CorruptBatch(f"gzip payload has more than {_GZIP_MAX_MEMBERS} members.")
        stream = zlib.decompressobj(wbits=_GZIP_WINDOW)
        try:
            part = stream.decompress(rest, limit - total + 1)
        except zlib.error as error:
            raise CorruptBatch(f"gzip payload: {error}.") from error
        total += len(part)
        if total > limit:
            raise PayloadTooLarge(total, limit)
        if not stream.eof:
            raise CorruptBatch("gzip payload ends early.")
        parts.append(part)
        rest = stream.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy_compress(data: Bytes) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: Bytes, limit: int) -> bytes:
    view = memoryview(data)
    if view[:_XERIAL_MAGIC_BYTES] != _XERIAL_HEADER[:_XERIAL_MAGIC_BYTES]:
        return bytes(_snappy_block(view, 0, limit))
    parts, position, total = [], len(_XERIAL_HEADER), 0
    if len(view) < position:
        raise CorruptBatch("snappy payload ends inside its header.")
    while position < len(view):
        if position + _BLOCK_LENGTH.size > len(view):
            raise CorruptBatch("snappy payload ends inside a block length.")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if length <= 0 or position + length > len(view):
            left = len(view) - position
            raise CorruptBatch(f"snappy payload has a block of {length} bytes where {left} are left.")
        part = _snappy_block(view[position : position + length], total, limit)
        total += len(part)
        parts.append(part)
        position += length
    return b"".join(parts)


def _snappy_block(block: memoryview, unpacked_before: int, limit: int) -> bytearray:
    try:
        declared = cramjam.snappy.decompress_raw_len(block)
        if unpacked_before + declared > limit:
            raise PayloadTooLarge(unpacked_before + declared, limit)
        content = bytearray(declared)
        cramjam.snappy.decompress_raw_into(block, content)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy payload: {error}.") from error
    return content


def _lz4_compress(data: Bytes) -> bytes:
    # Blocks stand alone: Kafka's Java client cannot read linked ones. On log records blocks of 256 KiB pack up to 7 %
    # tighter than the smallest ones, and searching less (a negative level) takes a third off the time.
    frame: bytes = lz4.frame.compress(
        data,
        store_size=True,
        block_linked=False,
        block_size=lz4.frame.BLOCKSIZE_MAX256KB,
        compression_level=_LZ4_LEVEL,
    )
    return frame


def _lz4_decompress(data: Bytes, limit: int) -> bytes:
    view = memoryview(data)
    try:
        declared = _lz4_declared_size(view) or 0
        if declared > limit:
            raise PayloadTooLarge(declared, limit)
        return _lz4_unpack(view, declared, limit)
    except RuntimeError as error:
        raise CorruptBatch(f"lz4 payload: {error}.") from error


def _lz4_unpack(view: memoryview, declared: int, limit: int) -> bytes:
    """One frame, in steps: a buffer as large as the limit would cost more than the unpacking itself."""
    context = lz4.frame.create_decompression_context()
    step = declared or len(view) * _LZ4_STEP
    parts: list[bytes] = []
    position = total = 0
    full, ended = True, False
    while full and not ended:
        room = min(step, limit - total) + 1  # the byte over it shows content that goes on
        part, consumed, ended = lz4.frame.decompress_chunk(context, view[position:], max_length=room)
        parts.append(part)
        position += consumed
        total += len(part)
        if 0 < declared < total:
            raise CorruptBatch(f"lz4 payload holds more than the {declared} bytes it declares.")
        if total > limit:
            raise PayloadTooLarge(total, limit)
        full = len(part) == room
    if not ended or position != len(view):
        raise CorruptBatch("lz4 payload does not end where its frame ends.")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zstd_compress(data: Bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def _zstd_decompress(data: Bytes, limit: int) -> bytes:
    declared = _zstd_declared_size(memoryview(data))
    if declared is not None and declared > limit:
        raise PayloadTooLarge(declared, limit)
    # Streaming writers (Kafka's Java client) declare no size, and a second frame may follow the first one.
    room = min(limit, len(data) * _ZSTD_FIRST_GUESS) if declared is None else declared
    while True:
        content = bytearray(room)
        try:
            written = cramjam.zstd.decompress_into(data, content)
        except cramjam.DecompressionError as error:
            if str(error) != _ZSTD_BUFFER_FULL:
                raise CorruptBatch(f"zstd payload: {error}.") from error
            if room == limit:
                raise PayloadTooLarge(limit + 1, limit) from error
            room = min(limit, max(room, len(data)) * 4)
        else:
            return bytes(memoryview(content)[:written])


def _zstd_declared_size(data: memoryview) -> int | None:
    """The content size in the first frame's header (RFC 8878, 3.1.1.1), or None where it is not declared."""
    if len(data) < 6 or data[:4] != _ZSTD_MAGIC:
        raise CorruptBatch("zstd payload does not start with a zstd frame.")
    descriptor = data[4]
    single_segment = bool(descriptor & 0x20)
    size_bytes = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    if size_bytes == 0:
        return None
    start = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    field = bytes(data[start : start + size_bytes])
    if len(field) < size_bytes:
        raise CorruptBatch("zstd payload ends inside its frame header.")
    return int.from_bytes(field, "little") + (256 if size_bytes == 2 else 0)


def _gzip_declared_size(data: memoryview) -> int | None:
    del data  # its trailer holds the size of its last member only, and is nowhere compared with what is allowed
    return None


def _snappy_declared_size(data: memoryview) -> int | None:
    if data[:_XERIAL_MAGIC_BYTES] != _XERIAL_HEADER[:_XERIAL_MAGIC_BYTES]:
        return _snappy_block_size(data)
    position, total = len(_XERIAL_HEADER), 0
    for _ in range(_BLOCKS_ASKED):
        if position + _BLOCK_LENGTH.size >= len(data):
            return total
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if length <= 0:
            return total  # it is damaged, which unpacking tells
        total += _snappy_block_size(data[position : position + length])
        position += length
    return None


def _snappy_block_size(block: memoryview) -> int:
    try:
        return int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy payload: {error}.") from error


def _lz4_declared_size(data: memoryview) -> int | None:
    try:
        return int(lz4.frame.get_frame_info(data)["content_size"]) or None
    except RuntimeError as error:
        raise CorruptBatch(f"lz4 payload: {error}.") from error


def _plain_size(data: memoryview) -> int | None:
    return len(data)


class Codec(NamedTuple):
    """One compression codec; `number` is what stands in a batch's attributes."""

    number: int
    name: str
    compress: Callable[[Bytes], bytes]
    decompress: Callable[[Bytes, int], bytes]
    declared_size: Callable[[memoryview], int | None]


def _no_compress(data: Bytes) -> bytes:
    return bytes(data)


def _no_decompress(data: Bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise PayloadTooLarge(len(data), limit)
    return bytes(data)


CODECS: Final = (
    Codec(0, "none", _no_compress, _no_decompress, _plain_size),
    Codec(1, "gzip", _gzip_compress, _gzip_decompress, _gzip_declared_size),
    Codec(2, "snappy", _snappy_compress, _snappy_decompress, _snappy_declared_size),
    Codec(3, "lz4", _lz4_compress, _lz4_decompress, _lz4_declared_size),
    Codec(4, "zstd", _zstd_compress, _zstd_decompress, _zstd_declared_size),
)
_BY_NAME: Final = {codec.name: codec for codec in CODECS}


def codec_named(name: str) -> Codec:
    """The codec of this name, as users write it in `compression_type`."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise UnsupportedCodec(name) from None


def _codec(number: int) -> Codec:
    if not 0 <= number < len(CODECS):
        raise UnsupportedCodec(number)
    return CODECS[number]


def compress(codec: int, data: Bytes) -> bytes:
    return _codec(codec).compress(data)


def decompress(codec: int, data: Bytes, limit: int = DEFAULT_UNPACK_LIMIT) -> bytes:
    """Unpack `data`; raises `PayloadTooLarge` before more than `limit` bytes have been made."""
    return _codec(codec).decompress(data, limit)


def declared_size(codec: int, data: Bytes) -> int | None:
    """Return how many bytes `data` says that it unpacks to, without unpacking any; None where it does not say so.

    It is a claim. A later frame may add to it.
    """
    return _codec(codec).declared_size(memoryview(data))
