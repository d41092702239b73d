"""Each codec: what it packs it unpacks, what others pack it unpacks, and what nobody may send it refuses."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from typing import Any

import aiokafka.codec
import cramjam
import lz4.frame
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raylog.errors import BatchError, CorruptBatch, PayloadTooLarge, UnsupportedCodec
from raylog.storage.format import compression
from raylog.storage.format.compression import codec_named, compress, decompress
from tests.unit.storage.batches import fewer_examples

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
PACKING = (GZIP, SNAPPY, LZ4, ZSTD)
KIB = 1024
LIMIT = 64 * KIB

TEXT = b"".join(b"line %d of a text that packs well\n" % number for number in range(300))
contents = st.binary(max_size=300) | st.builds(
    bytes.__mul__, st.binary(min_size=1, max_size=20), st.integers(0, 20_000)
)


def streamed_zstd(content: bytes) -> bytes:
    """As the Java client writes it: the frame does not declare its content size."""
    stream = cramjam.zstd.Compressor(3)
    stream.compress(content)
    return bytes(stream.finish())


def foreign_lz4(content: bytes, **options: Any) -> bytes:
    frame: bytes = lz4.frame.compress(content, **options)
    return frame


def lz4_of_other_library(content: bytes) -> bytes:
    stream = cramjam.lz4.Compressor(level=9, content_checksum=True, block_linked=False)
    stream.compress(content)
    return bytes(stream.finish())


def lz4_that_lies(declared: int, content: bytes) -> bytes:
    stream = lz4.frame.LZ4FrameCompressor(auto_flush=True)
    header: bytes = stream.begin(source_size=declared)
    body: bytes = stream.compress(content)
    return header + body + bytes(4)


def zstd_that_lies(declared: int, content: bytes) -> bytes:
    """Of more than 64 KiB + 255 bytes: their size takes four bytes of the frame header."""
    frame = bytearray(cramjam.zstd.compress(content))
    assert frame[4] >> 6 == 2
    at = 5 if frame[4] & 0x20 else 6
    assert int.from_bytes(frame[at : at + 4], "little") == len(content)
    frame[at : at + 4] = declared.to_bytes(4, "little")
    return bytes(frame)


def snappy_that_lies(declared: int, content: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(content))
    end_of_length = next(index for index, byte in enumerate(block) if byte < 0x80) + 1
    rest, length = declared, bytearray()
    while rest > 0x7F:
        length.append(0x80 | rest & 0x7F)
        rest >>= 7
    return bytes([*length, rest]) + block[end_of_length:]


# --- round trips ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", range(5))
@given(content=contents)
@fewer_examples
def test_round_trip(codec: int, content: bytes) -> None:
    packed = compress(codec, content)
    assert type(packed) is bytes
    for kind in (bytes, bytearray, memoryview):
        unpacked = decompress(codec, kind(packed))
        assert type(unpacked) is bytes
        assert unpacked == content
        assert decompress(codec, compress(codec, kind(content))) == content


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("size", [1, 100, 64 * KIB, 64 * KIB + 1, 200 * KIB])
def test_the_limit_is_exact(codec: int, size: int) -> None:
    content = (TEXT * 30)[:size]
    packed = compress(codec, content)
    assert decompress(codec, packed, size) == content
    with pytest.raises(PayloadTooLarge) as caught:
        decompress(codec, packed, size - 1)
    assert caught.value.size >= size
    assert caught.value.limit == size - 1


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs_have_kafkas_names_and_numbers(name: str) -> None:
    assert codec_named(name).number == ["none", "gzip", "snappy", "lz4", "zstd"].index(name)


def test_unknown_codecs_are_refused() -> None:
    for number in (-1, 5, 7, 99):
        with pytest.raises(UnsupportedCodec):
            decompress(number, b"")
        with pytest.raises(UnsupportedCodec):
            compress(number, b"")
    with pytest.raises(UnsupportedCodec):
        codec_named("brotli")


# --- what other writers make ------------------------------------------------------------------------------

FOREIGN: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip of several members": (GZIP, lambda data: gzip.compress(data[:99]) + gzip.compress(data[99:])),
    "gzip of aiokafka": (GZIP, aiokafka.codec.gzip_encode),
    "snappy of aiokafka": (SNAPPY, aiokafka.codec.snappy_encode),
    "snappy, one raw block": (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "lz4 of aiokafka": (LZ4, aiokafka.codec.lz4_encode),
    "lz4 with a content checksum, without a size": (LZ4, lz4_of_other_library),
    "lz4 with linked blocks": (LZ4, lambda data: foreign_lz4(data, block_linked=True)),
    "lz4 without a size": (LZ4, lambda data: foreign_lz4(data, block_linked=False, store_size=False)),
    "lz4 with large blocks": (LZ4, lambda data: foreign_lz4(data, block_size=7, block_checksum=True)),
    "zstd of aiokafka": (ZSTD, aiokafka.codec.zstd_encode),
    "zstd without a size": (ZSTD, streamed_zstd),
    "zstd of several frames": (ZSTD, lambda data: compress(ZSTD, data[:99]) + compress(ZSTD, data[99:])),
    "zstd, an empty frame first": (ZSTD, lambda data: compress(ZSTD, b"") + streamed_zstd(data)),
}


@pytest.mark.parametrize("writer", FOREIGN)
@pytest.mark.parametrize("content", [b"", b"x", TEXT, bytes(300 * KIB), TEXT * 30], ids=len)
def test_what_other_writers_make_is_unpacked(writer: str, content: bytes) -> None:
    codec, pack = FOREIGN[writer]
    assert decompress(codec, memoryview(pack(content)), 400 * KIB) == content


@pytest.mark.parametrize("content", [b"x", TEXT, TEXT * 30], ids=len)
def test_other_readers_unpack_what_is_packed_here(content: bytes) -> None:
    assert aiokafka.codec.gzip_decode(compress(GZIP, content)) == content
    assert aiokafka.codec.snappy_decode(compress(SNAPPY, content)) == content
    assert aiokafka.codec.lz4_decode(compress(LZ4, content)) == content
    assert aiokafka.codec.zstd_decode(compress(ZSTD, content)) == content


@pytest.mark.parametrize("step", [0, 1, 7, 64])
def test_lz4_in_steps_of_any_size(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content may end with a step, before it, or between two."""
    monkeypatch.setattr(compression, "_LZ4_STEP", step)
    for content in (TEXT, bytes(3_000), b"", b"x", *(bytes(range(size)) for size in range(28, 40))):
        frame = lz4_of_other_library(content)
        assert decompress(LZ4, frame, len(content)) == content


def test_lz4_blocks_stand_alone() -> None:
    """Kafka's Java client reads no linked blocks."""
    assert not lz4.frame.get_frame_info(compress(LZ4, TEXT * 30))["block_linked"]


# --- bombs ------------------------------------------------------------------------------------------------

ZEROS = bytes(8 * LIMIT)
BOMBS: dict[str, tuple[int, bytes]] = {
    "gzip": (GZIP, gzip.compress(ZEROS)),
    "gzip of several members": (GZIP, gzip.compress(bytes(LIMIT // 2)) * 3),
    "snappy": (SNAPPY, compress(SNAPPY, ZEROS)),
    "snappy, one raw block": (SNAPPY, bytes(cramjam.snappy.compress_raw(ZEROS))),
    "snappy that declares 4 GiB": (SNAPPY, snappy_that_lies(2**32 - 1, b"abc")),
    "lz4": (LZ4, compress(LZ4, ZEROS)),
    "lz4 without a size": (LZ4, foreign_lz4(ZEROS, store_size=False)),
    "lz4 with a content checksum": (LZ4, lz4_of_other_library(ZEROS)),
    "lz4 that declares 2 EiB": (LZ4, lz4_that_lies(2**61, b"abc")),
    "zstd": (ZSTD, compress(ZSTD, ZEROS)),
    "zstd without a size": (ZSTD, streamed_zstd(ZEROS)),
    "zstd of several frames": (ZSTD, compress(ZSTD, bytes(LIMIT // 2)) * 3),
    "zstd that declares 4 GiB": (ZSTD, zstd_that_lies(2**32 - 1, ZEROS)),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_too_large_and_costs_no_more_than_the_limit(bomb: str) -> None:
    codec, packed = BOMBS[bomb]
    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooLarge) as caught:
            decompress(codec, packed, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.limit == LIMIT
    assert caught.value.size > LIMIT
    # The content, once as it was unpacked and once as it is put together, and what is left of the input.
    assert peak < 2 * LIMIT + len(packed) + 64 * KIB


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (SNAPPY, snappy_that_lies(10, TEXT)),
        (SNAPPY, snappy_that_lies(len(TEXT) + 1, TEXT)),
        (LZ4, lz4_that_lies(1, ZEROS)),
        (LZ4, lz4_that_lies(len(TEXT) + 1, TEXT)),
        (ZSTD, zstd_that_lies(10, TEXT * 10)),
        (ZSTD, zstd_that_lies(len(TEXT) * 10 + 1, TEXT * 10)),
        (GZIP, gzip.compress(TEXT)[:-4] + (10).to_bytes(4, "little")),
    ],
)
def test_a_wrong_declared_size_below_the_limit_is_corrupt(codec: int, packed: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, packed, 2 * len(TEXT) * 10)


def test_members_by_the_thousand_are_refused() -> None:
    """Each one costs a copy of what follows: a megabyte of empty members would take seconds."""
    with pytest.raises(CorruptBatch, match="members"):
        decompress(GZIP, gzip.compress(b"") * 1_000)


def test_several_lz4_frames_are_refused() -> None:
    with pytest.raises(CorruptBatch):
        decompress(LZ4, compress(LZ4, TEXT) * 2)


def test_zstd_words_a_full_buffer_as_expected() -> None:
    """This text tells a payload that needs a larger buffer from one that is damaged."""
    with pytest.raises(cramjam.DecompressionError) as caught:
        cramjam.zstd.decompress_into(compress(ZSTD, TEXT), bytearray(10))
    assert str(caught.value) == compression._ZSTD_BUFFER_FULL


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_791, 65_792, 300_000])
def test_a_declared_zstd_size_is_read(size: int) -> None:
    """It takes 1, 2, 4 or 8 bytes, and two bytes count from 256."""
    content = (TEXT * 40)[:size]
    for level in (-5, 1, 3):
        frame = bytes(cramjam.zstd.compress(content, level=level))
        assert compression._zstd_declared_size(memoryview(frame)) == size
    if size:  # of a stream without content, zstd knows the size after all
        assert compression._zstd_declared_size(memoryview(streamed_zstd(content))) is None


def test_damage_in_a_zstd_stream_is_told_from_a_bomb_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = bytearray(streamed_zstd(TEXT * 30))
    packed[6] |= 0x06  # the first block is of the type that has no meaning
    tries: list[int] = []
    unpack = cramjam.zstd.decompress_into

    def counted(data: Any, buffer: Any) -> int:
        tries.append(len(buffer))
        return unpack(data, buffer)

    monkeypatch.setattr(cramjam.zstd, "decompress_into", counted)
    with pytest.raises(CorruptBatch):
        decompress(ZSTD, packed, 2**40)
    assert len(tries) == 1


# --- garbage ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", PACKING)
def test_a_payload_that_was_cut_is_corrupt(codec: int) -> None:
    packed = compress(codec, TEXT)
    for kept in range(0, len(packed), 7):
        if codec == SNAPPY and kept == 16:
            continue  # a stream of no blocks: its format has no end mark
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:kept])


@pytest.mark.parametrize("codec", PACKING)
@given(garbage=st.binary(max_size=100), whole=st.booleans())
@example(garbage=b"\x82SNAPPY\x00", whole=True)
@example(garbage=b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1\xff\xff\xff\xff", whole=True)
@example(garbage=b"\x28\xb5\x2f\xfd\x00\xff", whole=True)
@fewer_examples
def test_garbage_ends_in_a_batch_error(codec: int, garbage: bytes, whole: bool) -> None:
    # Half of the time behind a true beginning, so that it is not the magic alone that refuses it.
    packed = garbage if whole else compress(codec, TEXT)[:20] + garbage
    try:
        content = decompress(codec, packed, LIMIT)
    except BatchError:
        return
    assert len(content) <= LIMIT


@pytest.mark.parametrize("writer", FOREIGN)
@given(data=st.data())
@fewer_examples
def test_damage_ends_in_a_batch_error_or_in_bounded_content(writer: str, data: st.DataObject) -> None:
    codec, pack = FOREIGN[writer]
    packed = bytearray(pack(TEXT))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(packed) - 1) | st.integers(0, 20))
        packed[at] = data.draw(st.integers(0, 255))
    try:
        content = decompress(codec, packed, LIMIT)
    except BatchError:
        return
    assert len(content) <= LIMIT
