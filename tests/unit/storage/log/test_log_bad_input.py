"""What the log refuses: each with its own error, without a trace, and the next good append goes on."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c

from raylog.errors import (
    BatchTooLarge,
    CoordinatorFenced,
    CorruptBatch,
    InvalidBatch,
    InvalidConfig,
    InvalidTimestamp,
    InvalidTransactionState,
    NullKey,
    OffsetOutOfRange,
    OffsetsNotContiguous,
    OutOfOrderSequence,
    PayloadTooLarge,
    ProducerFenced,
    RaylogError,
    StaleLeaderEpoch,
    UnknownConfig,
    UnsupportedCodec,
    UnsupportedMagic,
)
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.compression import DEFAULT_UNPACK_LIMIT, compress
from raylog.storage.format.control_records import Marker, MarkerType, encode_marker
from raylog.storage.format.record_batch import HEADER_BYTES, filler, stamp
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.unit.storage.batches import Record, sealed, written_by_aiokafka
from tests.unit.storage.small_log import (
    EPOCH,
    NOW_MS,
    append,
    batch,
    bytes_on_disk,
    contents,
    end_transaction,
    from_producer,
    new_log,
    refused,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

# Where the header's fields are, and how they are written.
BASE_OFFSET, LENGTH, MAGIC = (0, ">q"), (8, ">i"), (16, ">b")
CRC, ATTRIBUTES, LAST_DELTA = (17, ">I"), (21, ">h"), (23, ">i")
BASE_TIME, MAX_TIME, PRODUCER, COUNT = (27, ">q"), (35, ">q"), (43, ">q"), (57, ">i")


def changed(data: bytearray, *changes: tuple[tuple[int, str], int], summed: bool = True) -> bytearray:
    """`data` with other header fields, and a CRC that is right again."""
    for (position, layout), value in changes:
        struct.pack_into(layout, data, position, value)
    if summed:
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return data


def goes_on(log: PartitionLog) -> None:
    """The next good append is taken, at the next offset."""
    end = log.log_end_offset
    assert append(log, b"good", b"better")[:3] == (end, end + 1, False)


def flipped(data: bytearray, position: int) -> bytearray:
    data[position] ^= 0x10
    return data


def three() -> bytearray:
    return batch(b"one", b"two", b"three")


# --- batches from a client --------------------------------------------------------------------------------------------

BAD_BATCHES: dict[str, tuple[Callable[[], bytearray], type[RaylogError]]] = {
    "nothing": (bytearray, CorruptBatch),
    "less than a header": (lambda: three()[: HEADER_BYTES - 1], CorruptBatch),
    "a header and no payload": (lambda: three()[:HEADER_BYTES], CorruptBatch),
    "one byte short": (lambda: three()[:-1], CorruptBatch),
    "one byte too many": (lambda: three() + b"\0", CorruptBatch),
    "two batches in one": (lambda: three() + three(), CorruptBatch),
    "a length that is longer": (lambda: changed(three(), (LENGTH, 500)), CorruptBatch),
    "a length less than a header": (lambda: changed(three(), (LENGTH, 20)), CorruptBatch),
    "a negative length": (lambda: changed(three(), (LENGTH, -1)), CorruptBatch),
    "an absurd length": (lambda: changed(three(), (LENGTH, 2**31 - 1)), CorruptBatch),
    "another CRC": (lambda: changed(three(), (CRC, 1), summed=False), CorruptBatch),
    "a flipped bit in the payload": (lambda: flipped(three(), -2), CorruptBatch),
    "a flipped bit in the header": (lambda: flipped(three(), 30), CorruptBatch),
    "magic 0": (lambda: changed(three(), (MAGIC, 0)), UnsupportedMagic),
    "magic 1": (lambda: changed(three(), (MAGIC, 1)), UnsupportedMagic),
    "magic 3": (lambda: changed(three(), (MAGIC, 3)), UnsupportedMagic),
    "magic -1": (lambda: changed(three(), (MAGIC, -1)), UnsupportedMagic),
    "codec 5": (lambda: changed(three(), (ATTRIBUTES, 5)), UnsupportedCodec),
    "codec 7": (lambda: changed(three(), (ATTRIBUTES, 7)), UnsupportedCodec),
    "attributes without a meaning": (lambda: changed(three(), (ATTRIBUTES, 0x40)), InvalidBatch),
    "negative attributes": (lambda: changed(three(), (ATTRIBUTES, -0x8000)), InvalidBatch),
    "no records": (lambda: changed(three(), (COUNT, 0)), InvalidBatch),
    "a filler": (lambda: filler(0, 3, EPOCH), InvalidBatch),
    "a negative count": (lambda: changed(three(), (COUNT, -1)), InvalidBatch),
    "more records than offsets": (lambda: changed(three(), (COUNT, 4)), InvalidBatch),
    "fewer records than offsets": (lambda: changed(three(), (COUNT, 2)), InvalidBatch),
    "a negative last offset": (lambda: changed(three(), (LAST_DELTA, -1)), InvalidBatch),
    "offsets that leave 64 bits": (lambda: changed(three(), (BASE_OFFSET, 2**63 - 2)), InvalidBatch),
    "a negative offset": (lambda: changed(three(), (BASE_OFFSET, -1)), InvalidBatch),
    "a producer below -1": (lambda: changed(three(), (PRODUCER, -2)), InvalidBatch),
    "a producer without a sequence": (lambda: changed(three(), (PRODUCER, 5)), InvalidBatch),
    "a producer without an epoch": (lambda: batch(producer_id=5, base_sequence=0), InvalidBatch),
    "a transaction of nobody": (lambda: batch(transactional=True), InvalidBatch),
    "a control batch": (lambda: encode_marker(Marker(MarkerType.COMMIT, 0), 7, 0, NOW_MS), InvalidBatch),
    "a control batch of nobody": (lambda: batch(control=True), InvalidBatch),
    "a time before 1970": (lambda: changed(three(), (BASE_TIME, -5)), InvalidTimestamp),
    "no time": (lambda: changed(three(), (BASE_TIME, -1), (MAX_TIME, -1)), InvalidTimestamp),
    "a last time before the first": (lambda: changed(three(), (MAX_TIME, NOW_MS - 1)), InvalidTimestamp),
    "the broker's time, claimed": (lambda: changed(three(), (ATTRIBUTES, 0x08)), InvalidTimestamp),
    "the far future": (lambda: batch(timestamp=NOW_MS + HOUR_MS + 1), InvalidTimestamp),
    "the end of time": (lambda: batch(timestamp=2**63 - 1), InvalidTimestamp),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_bad_batch_is_refused_and_leaves_no_trace(name: str) -> None:
    make, error = BAD_BATCHES[name]
    log, disk = new_log()
    append(log, b"before")
    with refused(log, disk, error):
        log.append_as_leader(make(), EPOCH, NOW_MS)
    goes_on(log)


@pytest.mark.parametrize("size", [1_000, 1_001])
def test_max_message_bytes_is_the_largest_batch_with_its_header(size: int) -> None:
    log, disk = new_log({"max.message.bytes": 1_000})
    data = encode_batch([b"x" * (size - len(encode_batch([b""], timestamps=NOW_MS)))], timestamps=NOW_MS)
    assert len(data) == size
    if size == 1_000:
        assert log.append_as_leader(data, EPOCH, NOW_MS).first_offset == 0
        return
    with refused(log, disk, BatchTooLarge) as raised:
        log.append_as_leader(data, EPOCH, NOW_MS)
    assert isinstance(raised.value, BatchTooLarge)
    assert (raised.value.size, raised.value.limit) == (1_001, 1_000)
    goes_on(log)


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log, disk = new_log({"segment.bytes": 300})
    with refused(log, disk, BatchTooLarge):
        append(log, b"x" * 300)
    goes_on(log)


def test_the_size_of_a_batch_is_judged_before_its_content() -> None:
    """So that nobody makes a broker sum gigabytes that it will not take."""
    log, disk = new_log({"max.message.bytes": 200})
    with refused(log, disk, BatchTooLarge):
        log.append_as_leader(bytearray(1 << 20), EPOCH, NOW_MS)


@pytest.mark.parametrize("ahead", [0, HOUR_MS])
@pytest.mark.parametrize("behind", [0, DAY_MS])
def test_times_within_their_bounds_are_taken(ahead: int, behind: int) -> None:
    log, _ = new_log({"message.timestamp.before.max.ms": DAY_MS})
    data = encode_batch([b"a", b"b"], timestamps=[NOW_MS - behind, NOW_MS + ahead])
    assert log.append_as_leader(data, EPOCH, NOW_MS).first_offset == 0


def test_a_time_too_far_back_is_refused() -> None:
    log, disk = new_log({"message.timestamp.before.max.ms": DAY_MS})
    with refused(log, disk, InvalidTimestamp, says="behind"):
        log.append_as_leader(batch(timestamp=NOW_MS - DAY_MS - 1), EPOCH, NOW_MS)
    goes_on(log)


def test_with_the_brokers_time_no_time_of_the_writer_is_refused() -> None:
    log, _ = new_log({"message.timestamp.type": "LogAppendTime"})
    for timestamp in (0, NOW_MS + 10 * DAY_MS, 2**63 - 1):
        log.append_as_leader(batch(timestamp=timestamp), EPOCH, NOW_MS)
    found = log.offset_for_timestamp(NOW_MS)
    log.advance_high_watermark(3)
    assert found is None
    assert log.offset_for_timestamp(NOW_MS) == (NOW_MS, 0)
    assert log.offset_for_timestamp(NOW_MS + 1) is None


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1, -1])
def test_an_append_under_another_epoch_is_refused(epoch: int) -> None:
    log, disk = new_log()
    with refused(log, disk, StaleLeaderEpoch):
        log.append_as_leader(three(), epoch, NOW_MS)
    with refused(log, disk, StaleLeaderEpoch):
        log.begin_epoch(EPOCH - 1)
    goes_on(log)


# --- compacted topics -------------------------------------------------------------------------------------------------

COMPACTED = {"cleanup.policy": "compact"}


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("place", range(3))
def test_a_null_key_is_refused_on_a_compacted_topic(codec: int, place: int) -> None:
    keys = [None if at == place else b"key" for at in range(3)]
    columns = encode_batch([b"v"] * 3, keys=keys, timestamps=NOW_MS, codec=codec)
    kafka = bytearray(written_by_aiokafka([Record(at, NOW_MS, key, b"v") for at, key in enumerate(keys)], codec))
    for data in (columns, kafka):
        log, disk = new_log(COMPACTED)
        with refused(log, disk, NullKey):
            log.append_as_leader(data, EPOCH, NOW_MS)
        goes_on(log)
        log, _ = new_log()
        assert log.append_as_leader(data, EPOCH, NOW_MS).last_offset == 2


@pytest.mark.parametrize("codec", range(5))
def test_an_empty_key_is_a_key(codec: int) -> None:
    log, _ = new_log(COMPACTED)
    log.append_as_leader(encode_batch([b"v"], keys=[b""], timestamps=NOW_MS, codec=codec), EPOCH, NOW_MS)
    kafka = written_by_aiokafka([Record(0, NOW_MS, b"", b"v")], codec)
    assert log.append_as_leader(bytearray(kafka), EPOCH, NOW_MS).first_offset == 1


@pytest.mark.parametrize("magic", [2, 16])
def test_a_payload_that_makes_no_sense_is_refused_where_the_log_has_to_look_inside(magic: int) -> None:
    log, disk = new_log(COMPACTED)
    with refused(log, disk, InvalidBatch):
        log.append_as_leader(sealed(b"\xff" * 40, 1, magic=magic), EPOCH, NOW_MS)
    goes_on(log)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_refused_where_the_log_has_to_look_inside(codec: int) -> None:
    bomb = compress(codec, bytes(DEFAULT_UNPACK_LIMIT + 1))
    log, disk = new_log({**COMPACTED, "max.message.bytes": 64 << 20})
    data = changed(sealed(bomb, 1), (ATTRIBUTES, codec))
    with refused(log, disk, PayloadTooLarge):
        log.append_as_leader(data, EPOCH, NOW_MS)
    goes_on(log)


# --- producers and coordinators ---------------------------------------------------------------------------------------


def test_a_producer_that_breaks_its_order_is_refused() -> None:
    log, disk = new_log()
    log.append_as_leader(from_producer(0, epoch=4, count=3), EPOCH, NOW_MS)
    for sequence, epoch, error in [
        (4, 4, OutOfOrderSequence),
        (2, 4, OutOfOrderSequence),
        (1, 5, OutOfOrderSequence),
        (3, 3, ProducerFenced),
    ]:
        with refused(log, disk, error):
            log.append_as_leader(from_producer(sequence, epoch=epoch), EPOCH, NOW_MS)
    assert log.append_as_leader(from_producer(3, epoch=4), EPOCH, NOW_MS).first_offset == 3


def test_a_duplicate_is_answered_and_leaves_no_trace() -> None:
    log, disk = new_log()
    log.append_as_leader(from_producer(0, count=3), EPOCH, NOW_MS)
    append(log, b"between")
    before = bytes_on_disk(disk)
    again = from_producer(0, count=3)
    assert log.append_as_leader(again, EPOCH, NOW_MS) == (0, 2, True, -1)
    assert bytes_on_disk(disk) == before
    goes_on(log)


def test_writing_outside_ones_transaction_is_refused() -> None:
    log, disk = new_log()
    log.append_as_leader(from_producer(0, transactional=True), EPOCH, NOW_MS)
    with refused(log, disk, InvalidTransactionState):
        log.append_as_leader(from_producer(1), EPOCH, NOW_MS)
    assert log.append_as_leader(from_producer(1, transactional=True), EPOCH, NOW_MS).first_offset == 1


def test_a_marker_of_a_coordinator_that_was_replaced_is_refused() -> None:
    log, disk = new_log()
    log.append_as_leader(from_producer(0, epoch=2, transactional=True), EPOCH, NOW_MS)
    end_transaction(log, MarkerType.COMMIT, epoch=2, coordinator_epoch=5)
    with refused(log, disk, CoordinatorFenced):
        end_transaction(log, MarkerType.ABORT, epoch=2, coordinator_epoch=4)
    with refused(log, disk, ProducerFenced):
        end_transaction(log, MarkerType.ABORT, epoch=1, coordinator_epoch=6)
    assert end_transaction(log, MarkerType.ABORT, epoch=2, coordinator_epoch=5).first_offset == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\0\0\x02", b"\0\0\0\0\0\0"),  # an unknown type of marker
        (b"\0\0\xff\xff", b"\0\0\0\0\0\0"),
        (b"\0\0\0", b"\0\0\0\0\0\0"),
        (b"\0\0\0\x01", b"\0\0\0"),
        (None, b"\0\0\0\0\0\0"),
        (b"\0\0\0\x01", None),
    ],
)
def test_a_marker_that_is_none_is_refused(key: bytes | None, value: bytes | None) -> None:
    log, disk = new_log()
    data = encode_batch([value], keys=[key], timestamps=NOW_MS, producer_id=7, producer_epoch=0, control=True)
    with refused(log, disk, InvalidBatch):
        log.append_as_leader(data, EPOCH, NOW_MS, control=True)
    stamp(data, 0, EPOCH)
    with refused(log, disk, InvalidBatch):
        log.append_as_follower(data, NOW_MS)
    goes_on(log)


def test_a_coordinator_writes_nothing_but_markers() -> None:
    log, disk = new_log()
    with refused(log, disk, InvalidBatch):
        log.append_as_leader(three(), EPOCH, NOW_MS, control=True)
    goes_on(log)


# --- batches from a leader --------------------------------------------------------------------------------------------


def replicated(base_offset: int, epoch: int = EPOCH, *values: bytes) -> bytearray:
    data = batch(*(values or (b"one", b"two", b"three")))
    stamp(data, base_offset, epoch)
    return data


def bad_follower_data(end: int) -> dict[str, tuple[bytearray, type[RaylogError]]]:
    """What must not be taken at `end`. Each but the first few has a good batch in front."""
    good, after = replicated(end), end + 3
    return {
        "a gap": (replicated(end + 1), OffsetsNotContiguous),
        "an overlap": (replicated(end - 1), OffsetsNotContiguous),
        "what is there already": (replicated(end - 1, EPOCH, b"one"), OffsetsNotContiguous),
        "a gap behind a good batch": (good + replicated(after + 1), OffsetsNotContiguous),
        "an overlap behind a good batch": (good + replicated(after - 1), OffsetsNotContiguous),
        "an older epoch": (replicated(end, EPOCH - 1), StaleLeaderEpoch),
        "an older epoch behind a good batch": (good + replicated(after, EPOCH - 1), StaleLeaderEpoch),
        "an older epoch behind a newer one": (
            replicated(end, EPOCH + 2) + replicated(after, EPOCH + 1),
            StaleLeaderEpoch,
        ),
        "half a header behind a good batch": (good + replicated(after)[:30], CorruptBatch),
        "half a batch behind a good one": (good + replicated(after)[:-5], CorruptBatch),
        "a wrong CRC behind a good batch": (good + flipped(replicated(after), -1), CorruptBatch),
        "an unknown magic behind a good batch": (good + changed(replicated(after), (MAGIC, 5)), UnsupportedMagic),
        "a negative length": (changed(replicated(end), (LENGTH, -100)), CorruptBatch),
        "an unknown codec": (changed(replicated(end), (ATTRIBUTES, 6)), UnsupportedCodec),
    }


@pytest.mark.parametrize("name", bad_follower_data(0))
def test_bad_data_from_a_leader_is_refused_as_a_whole(name: str) -> None:
    log, disk = new_log()
    append(log, b"before")
    data, error = bad_follower_data(1)[name]
    with refused(log, disk, error):
        log.append_as_follower(data, NOW_MS)
    assert log.append_as_follower(replicated(1), NOW_MS) == 4


def test_nothing_from_a_leader_is_nothing() -> None:
    log, _ = new_log()
    assert log.append_as_follower(b"", NOW_MS) == 0


def test_an_empty_log_may_begin_inside_a_batch_and_no_other() -> None:
    """The leader's log start lies inside a batch; a follower begins there, and gets all of that batch."""
    log, disk = new_log()
    log.restart_at(11)
    data = replicated(10)
    assert log.append_as_follower(data, NOW_MS) == 13
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (11, 11, 13)
    assert contents(log) == [bytes(data)]
    with refused(log, disk, OffsetsNotContiguous):
        log.append_as_follower(replicated(12), NOW_MS)


# --- readers and administrators ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, 4, 2**63])
def test_reading_outside_the_log_is_refused(offset: int) -> None:
    log, disk = new_log()
    append(log, b"one", b"two", b"three")
    for ask in (log.read, log.slice):
        with refused(log, disk, OffsetOutOfRange) as raised:
            ask(offset, 1_000, Isolation.LOG_END)
        assert isinstance(raised.value, OffsetOutOfRange)
        assert (raised.value.start, raised.value.end) == (0, 3)


@pytest.mark.parametrize("max_bytes", [-(2**40), -1, 0, 1])
def test_a_reader_who_asks_for_too_little_gets_one_batch(max_bytes: int) -> None:
    log, _ = new_log()
    append(log, b"one")
    append(log, b"two")
    first = contents(log)[0]
    assert log.read(0, max_bytes, Isolation.LOG_END).data == first
    piece = log.slice(0, max_bytes, Isolation.LOG_END)
    assert piece is not None
    assert (piece.position, piece.length) == (0, len(first))


@pytest.mark.parametrize("before", [-1, 3, 2**63])
def test_deleting_records_that_are_not_replicated_is_refused(before: int) -> None:
    log, disk = new_log()
    append(log, b"one", b"two", b"three")
    log.advance_high_watermark(2)
    if before < 0:
        assert log.delete_records(before) == 0
        return
    with refused(log, disk, OffsetOutOfRange):
        log.delete_records(before)


def test_a_setting_that_cannot_be_is_refused() -> None:
    log, disk = new_log()
    for overrides, error in [({"segment.bytes": -1}, InvalidConfig), ({"segment.byte": 100}, UnknownConfig)]:
        with refused(log, disk, error):
            log.update_config(overrides)
    goes_on(log)


def test_a_hundred_refusals_leave_nothing_behind() -> None:
    log, disk = new_log()
    before = bytes_on_disk(disk)
    for make, error in BAD_BATCHES.values():
        with pytest.raises(error):
            log.append_as_leader(make(), EPOCH, NOW_MS)
    assert bytes_on_disk(disk) == before
    goes_on(log)
    assert isinstance(disk, FaultyDisk)
