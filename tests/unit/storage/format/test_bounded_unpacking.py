"""What a leader, and a compaction, unpack of a batch that holds far more than its size lets one expect (rule 34)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping

import pytest

from raylog.config import ConfigValue
from raylog.errors import InvalidBatch, NullKey, PayloadTooLarge
from raylog.storage.compaction.key_map import MemoryBudget, bytes_for
from raylog.storage.format import batch_codec, columns, kafka_records
from raylog.storage.format.batch_codec import QUICK_BYTES, encode_batch, has_null_key, opens_quickly
from raylog.storage.format.columns import encode_columns, pack_int32
from raylog.storage.format.compression import CODECS, compress, declared_size
from raylog.storage.format.record_batch import Bytes, read_header
from raylog.storage.log.reader import UnopenedBatch
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.unit.storage.batches import Record, sealed, written_by_aiokafka
from tests.unit.storage.compacted_log import committed_records, compact, live, open_log, write
from tests.unit.storage.format.test_compression import GZIP, LZ4, PACKING, SNAPPY, ZSTD, foreign_lz4, streamed_zstd
from tests.unit.storage.small_log import EPOCH, NOW_MS, bytes_on_disk, new_log

KIB = 1024
COMPACTED: Mapping[str, ConfigValue] = {"cleanup.policy": "compact", "max.message.bytes": 64 * KIB}
ALLOWED = 16 * 64 * KIB


def large(value_bytes: int, codec: int, keys: list[bytes | None] | None = None) -> bytearray:
    """One record that packs to next to nothing."""
    return encode_batch([bytes(value_bytes)], keys=keys or [b"k"], timestamps=NOW_MS, codec=codec)


def streamed(payload: bytes) -> dict[str, tuple[int, bytes]]:
    """The same payload, written so that it does not declare its size."""
    return {
        "gzip": (GZIP, compress(GZIP, payload)),
        "lz4": (LZ4, foreign_lz4(payload, store_size=False)),
        "zstd": (ZSTD, streamed_zstd(payload)),
    }


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("size", [0, 1, 100, 300_000])
def test_what_is_declared_is_what_there_is(codec: int, size: int) -> None:
    packed = compress(codec, bytes(size))
    assert declared_size(codec, packed) in (None, size)
    assert declared_size(codec, packed) is not None or codec == GZIP or size == 0


def test_a_stream_of_many_blocks_is_not_walked_to_its_end() -> None:
    packed = compress(SNAPPY, bytes(64 * KIB)) + compress(SNAPPY, bytes(1))[16:] * 100_000
    assert declared_size(SNAPPY, packed) is None


@pytest.mark.parametrize("codec", PACKING)
def test_a_leader_takes_what_unpacks_to_sixteen_times_the_size_of_a_message_and_no_more(codec: int) -> None:
    log, disk = new_log(COMPACTED)
    log.append_as_leader(large(ALLOWED - KIB, codec), EPOCH, NOW_MS)
    before = bytes_on_disk(disk)
    with pytest.raises(PayloadTooLarge) as refused:
        log.append_as_leader(large(ALLOWED + 1, codec), EPOCH, NOW_MS)
    assert refused.value.limit == ALLOWED
    assert bytes_on_disk(disk) == before


@pytest.mark.parametrize("writer", ["gzip", "lz4", "zstd"])
def test_without_a_declared_size_it_is_refused_by_what_it_holds_and_at_the_cost_of_the_limit(writer: str) -> None:
    log, _ = new_log(COMPACTED)
    payload = b"".join(encode_columns([b"k"], [bytes(12 << 20)], bytes(8)))
    codec, packed = streamed(payload)[writer]
    batch = sealed(packed, 1, codec=codec)
    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooLarge):
            log.append_as_leader(batch, EPOCH, NOW_MS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * ALLOWED


@pytest.mark.parametrize("codec", PACKING)
def test_on_other_topics_nothing_is_unpacked(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = new_log({"max.message.bytes": 1 << 20})
    batch = large(4 * ALLOWED, codec)
    monkeypatch.setattr(batch_codec, "decompress", lambda *_: pytest.fail("unpacked"))
    assert log.append_as_leader(batch, EPOCH, NOW_MS).first_offset == 0


# --- keys -----------------------------------------------------------------------------------------------------------


def test_of_columns_only_the_keys_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns.ColumnPayload, "parse", lambda *_: pytest.fail("parsed"))
    for keys in ([b"a", b"b"], [b"a", None]):
        batch = encode_batch([b"v", None], keys=keys, timestamps=NOW_MS, headers=[[("h", b"x")], None])
        assert has_null_key(read_header(batch), batch) == (None in keys)


def test_of_kafkas_records_nothing_behind_their_keys_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_records, "parse_records", lambda *_: pytest.fail("parsed"))
    for key in (b"", b"b" * 300, None):
        records = [Record(0, NOW_MS, b"a", b"v" * 200, (("h", b"x"),)), Record(1, NOW_MS + 70_000, key, None)]
        batch = bytearray(written_by_aiokafka(records, 0))
        assert has_null_key(read_header(batch), batch) == (key is None)


@pytest.mark.parametrize(
    "damage",
    [
        lambda payload: payload[:-1],
        lambda payload: payload + b"\x00",
        lambda payload: b"\x02" + payload[1:],
        lambda payload: b"\xff" * len(payload),
    ],
)
def test_records_that_do_not_hold_their_keys_are_refused(damage: Callable[[bytes], bytes]) -> None:
    whole = written_by_aiokafka([Record(0, NOW_MS, b"key", b"v"), Record(1, NOW_MS, b"key", b"v")], 0)
    batch = sealed(damage(bytes(whole[61:])), 2, magic=2)
    with pytest.raises(InvalidBatch):
        has_null_key(read_header(batch), batch)


def test_lengths_of_keys_that_cannot_be_are_refused() -> None:
    parts = [bytes(part) for part in encode_columns([b"k"], [b"v"], bytes(8))]
    payload = b"".join(parts).replace(pack_int32([1]) + parts[3], pack_int32([-7]) + parts[3], 1)
    batch = sealed(payload, 1)
    with pytest.raises(InvalidBatch):
        has_null_key(read_header(batch), batch)


def test_a_batch_says_whether_it_opens_quickly() -> None:
    def quick(batch: Bytes) -> bool:
        return opens_quickly(read_header(batch), batch)

    for codec in range(5):
        assert quick(large(1000, codec)) == (codec != GZIP), CODECS[codec].name
        assert not quick(large(QUICK_BYTES, codec))
    assert quick(written_by_aiokafka([Record(0, NOW_MS, b"k", b"v")], 0))
    assert not quick(written_by_aiokafka([Record(at, NOW_MS, b"k", b"v") for at in range(4_001)], 0))


@pytest.mark.parametrize("codec", [*PACKING, 0])
def test_a_record_without_a_key_is_found_in_a_large_batch(codec: int) -> None:
    log, _ = new_log(COMPACTED)
    keys: list[bytes | None] = [b"k", None]
    batch = encode_batch([bytes(20_000), bytes(20_000)], keys=keys, timestamps=NOW_MS, codec=codec)
    with pytest.raises(NullKey):
        log.append_as_leader(batch, EPOCH, NOW_MS)


# --- looking up a time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", range(5))
def test_a_large_batch_is_opened_by_whoever_asks_for_the_time(codec: int) -> None:
    log, _ = new_log({"max.message.bytes": 1 << 20, "segment.bytes": 4 << 20})
    values, times = [bytes(100_000)] * 4, [NOW_MS + step for step in range(4)]
    log.append_as_leader(encode_batch(values, timestamps=times, codec=codec), EPOCH, NOW_MS)
    log.advance_high_watermark(4)
    unopened = log.look_up_timestamp(NOW_MS + 2, {})
    assert isinstance(unopened, UnopenedBatch)
    found = unopened.first_moment()
    assert found == (NOW_MS + 2, 2)
    assert log.look_up_timestamp(NOW_MS + 2, {unopened: found}) == found
    assert log.offset_for_timestamp(NOW_MS + 2) == found


@pytest.mark.parametrize("codec", PACKING)
def test_the_time_of_a_batch_that_is_not_unpacked_is_that_of_the_batch(codec: int) -> None:
    """It begins no later than the record that was asked for."""
    log, _ = new_log({"max.message.bytes": 1 << 20})
    times = [NOW_MS, NOW_MS + 5]
    batch = encode_batch([b"a", bytes(4 * ALLOWED)], timestamps=times, codec=codec)
    log.append_as_leader(batch, EPOCH, NOW_MS)
    log.advance_high_watermark(2)
    log.update_config({"max.message.bytes": 64 * KIB})
    tracemalloc.start()
    try:
        assert log.offset_for_timestamp(NOW_MS + 3) == (NOW_MS + 5, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * ALLOWED


@pytest.mark.parametrize("codec", range(5))
def test_times_are_found_in_kafkas_layout_too(codec: int) -> None:
    log, _ = new_log()
    records = [Record(at, NOW_MS + at, b"k", b"v") for at in range(3)]
    log.append_as_leader(bytearray(written_by_aiokafka(records, codec)), EPOCH, NOW_MS)
    log.advance_high_watermark(3)
    assert log.offset_for_timestamp(NOW_MS + 1) == (NOW_MS + 1, 1)


# --- compaction -----------------------------------------------------------------------------------------------------


def test_compaction_goes_on_beside_a_batch_of_more_keys_than_any_map_has_room_for() -> None:
    """Records of next to nothing pack to a few bytes each; earlier that was tried for ever."""
    log = open_log(FaultyDisk(), {"segment.bytes": 200_000})
    before = write(log, [(b"a", b"old"), (b"a", b"new")])
    crowd = write(log, [(b"key-%d" % at, b"v") for at in range(3000)])
    after = write(log, [(b"b", b"old"), (b"b", b"new")])
    log.roll()
    report = compact(log, NOW_MS, MemoryBudget(bytes_for(1024)), force=True)
    assert report is not None
    assert report.cleaned_to == log.segments.active.base_offset
    assert committed_records(log) == [before[1], *crowd, after[1]]


def test_compaction_keeps_what_was_accepted_when_more_was_allowed() -> None:
    log = open_log(FaultyDisk(), {"segment.bytes": 200_000, "max.message.bytes": 64 * KIB})
    early = write(log, [(b"a", b"old"), (b"b", b"old")])
    batch = encode_batch([bytes(ALLOWED // 2)], keys=[b"a"], timestamps=NOW_MS, codec=ZSTD)
    log.append_as_leader(batch, log.epochs.latest, NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    late = write(log, [(b"b", b"new")])
    log.roll()
    log.update_config({"cleanup.policy": "compact", "segment.bytes": 200_000, "max.message.bytes": 16 * KIB})
    report = compact(log, NOW_MS, MemoryBudget(), force=True)
    assert report is not None
    there = committed_records(log)
    assert [each.offset for each in there] == [early[0].offset, 2, late[0].offset], "whole, and hiding nothing"
    assert live(there)[b"b"].value == b"new"
