"""Finding the segment of an offset, and when a log begins a new one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from raylog.errors import DiskFull
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.control_records import MarkerType
from raylog.storage.format.record_batch import MAX_OFFSET_DELTA, filler, read_header
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from raylog.storage.log.recovery import OpenedAfter
from raylog.storage.segment.segment import Segment
from raylog.storage.segment.segment_list import SegmentList
from tests.unit.storage.small_log import (
    EPOCH,
    NOW_MS,
    append,
    batch,
    contents,
    end_transaction,
    from_producer,
    new_disk,
    new_log,
    open_log,
)

SIZE_OF_ONE = len(batch(b"x" * 100))


def segments(*bases: int) -> SegmentList:
    disk = new_disk()
    return SegmentList([Segment.create(disk, "/data", base, 100, None) for base in bases])


def bases(found: list[Segment]) -> list[int]:
    return [segment.base_offset for segment in found]


# --- finding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "base"), [(5, 5), (9, 5), (10, 10), (29, 10), (30, 30), (10**12, 30), (4, 5), (0, 5)]
)
def test_the_segment_of_an_offset_begins_at_or_before_it(offset: int, base: int) -> None:
    assert segments(5, 10, 30).containing(offset).base_offset == base


@pytest.mark.parametrize(("offset", "found"), [(0, [5, 10, 30]), (9, [5, 10, 30]), (10, [10, 30]), (99, [30])])
def test_from_an_offset_on(offset: int, found: list[int]) -> None:
    assert bases(segments(5, 10, 30).from_offset(offset)) == found


def test_the_last_one_grows_and_the_others_are_sealed() -> None:
    found = segments(5, 10, 30)
    assert found.active.base_offset == 30
    assert bases(found.sealed) == [5, 10]
    assert (len(found), found[1].base_offset, bases(list(found))) == (3, 10, [5, 10, 30])


def test_taking_out_and_replacing_keeps_the_order() -> None:
    found = segments(0, 10, 20, 30, 40)
    found.remove(found[0])
    assert found.bases() == bases(list(found)) == [10, 20, 30, 40]
    merged = segments(10)[0]
    found.replace([found[0], found[1]], merged)
    assert found.bases() == bases(list(found)) == [10, 30, 40]
    assert found.containing(25) is merged
    found.add(segments(50)[0])
    assert found.active.base_offset == 50


# --- rolling ----------------------------------------------------------------------------------------------------------


def segment_bases(log: PartitionLog) -> list[int]:
    return log.segments.bases()


def follower_of(leader: PartitionLog, overrides: dict[str, int | str], at_once: int) -> PartitionLog:
    """A follower that has got everything, so many bytes at a time."""
    follower = open_log(new_disk(), overrides)
    while follower.log_end_offset < leader.log_end_offset:
        fetched = leader.read(follower.log_end_offset, at_once, Isolation.LOG_END)
        follower.append_as_follower(fetched.data, NOW_MS)
    return follower


def test_a_segment_is_full_at_segment_bytes() -> None:
    log, _ = new_log({"segment.bytes": 3 * SIZE_OF_ONE})
    for _ in range(7):
        append(log, b"x" * 100)
    assert segment_bases(log) == [0, 3, 6]


def test_a_segment_is_full_when_its_index_is() -> None:
    log, _ = new_log({"segment.index.bytes": 16, "index.interval.bytes": 0})
    for _ in range(8):
        append(log)
    assert segment_bases(log) == [0, 3, 6]  # the first batch of a segment needs no entry


def test_a_segment_is_full_when_its_transaction_index_is() -> None:
    """What a look-up may have to visit of one segment, and what an opening has to load, is bounded."""
    log, _ = new_log({"segment.index.bytes": 3 * 34})
    for producer in range(7):
        log.append_as_leader(from_producer(0, producer, transactional=True), EPOCH, NOW_MS)
        end_transaction(log, MarkerType.ABORT if producer < 5 else MarkerType.COMMIT, producer)
    assert segment_bases(log) == [0, 6]


def test_a_segment_is_over_when_its_first_record_is_segment_ms_older_than_the_next() -> None:
    log, _ = new_log({"segment.ms": 1_000})
    for later in (0, 900, 1_000, 1_001, 1_500, 2_002):
        append(log, now_ms=NOW_MS + later)
    assert segment_bases(log) == [0, 3, 5]


def test_segment_time_is_that_of_the_records_and_old_records_roll_nothing() -> None:
    log, _ = new_log({"segment.ms": 1_000})
    append(log, now_ms=NOW_MS)
    for earlier in (5_000, 10_000):
        log.append_as_leader(batch(timestamp=NOW_MS - earlier), EPOCH, NOW_MS)
    assert segment_bases(log) == [0]


def test_segment_time_goes_on_after_a_restart() -> None:
    log, disk = new_log({"segment.ms": 1_000})
    append(log)
    log.close()
    log = open_log(disk, {"segment.ms": 1_000})
    append(log, now_ms=NOW_MS + 1_000)
    append(log, now_ms=NOW_MS + 1_001)
    assert segment_bases(log) == [0, 2]
    disk.crash_process()
    log = open_log(disk, {"segment.ms": 1_000})
    append(log, now_ms=NOW_MS + 2_002)
    assert segment_bases(log) == [0, 2, 3]


def test_jitter_brings_a_roll_forward_and_by_no_more_than_all_of_it() -> None:
    """A jitter over `segment.ms` must not give every batch a segment of its own."""
    log, _ = new_log({"segment.ms": 1_000, "segment.jitter.ms": 10**9})
    for _ in range(5):
        append(log)
    assert segment_bases(log) == [0]
    append(log, now_ms=NOW_MS + 1_001)
    assert segment_bases(log) == [0, 5]


def test_jitter_differs_between_segments_and_is_the_same_in_every_process() -> None:
    def lengths() -> list[int]:
        log, _ = new_log({"segment.ms": 1_000, "segment.jitter.ms": 900})
        for later in range(0, 20_000, 10):
            append(log, now_ms=NOW_MS + later)
        found = segment_bases(log)
        return [after - before for before, after in pairwise(found)]

    assert len(set(lengths())) > 3
    assert lengths() == lengths()
    assert max(lengths()) <= 101


def test_an_offset_that_is_too_far_from_the_base_begins_a_new_segment() -> None:
    log, _ = new_log()
    append(log, b"first")
    far = filler(1, 1 + MAX_OFFSET_DELTA, EPOCH)
    assert log.append_as_follower(far, NOW_MS) == 1 + MAX_OFFSET_DELTA
    assert segment_bases(log) == [0]
    append(log, b"beyond")
    assert segment_bases(log) == [0, 1 + MAX_OFFSET_DELTA]
    assert [read_header(each).base_offset for each in contents(log)] == [0, 1, 1 + MAX_OFFSET_DELTA]


@pytest.mark.parametrize("at_once", [1, 3 * SIZE_OF_ONE + 50, 10**9])
@pytest.mark.parametrize(
    "overrides",
    [
        {"segment.bytes": 4 * SIZE_OF_ONE},
        {"segment.ms": 1_000},
        {"segment.index.bytes": 24, "index.interval.bytes": 150},
    ],
)
def test_a_follower_rolls_where_its_leader_did(overrides: dict[str, int | str], at_once: int) -> None:
    """However many batches it gets at once: a batch that waits to be written with others has a time and a size too."""
    leader, _ = new_log(overrides)
    for number in range(20):
        append(leader, b"x" * 100, now_ms=NOW_MS + number * 130)
    follower = follower_of(leader, overrides, at_once)
    assert contents(follower) == contents(leader)
    if "segment.index.bytes" not in overrides or at_once == 1:
        assert segment_bases(follower) == segment_bases(leader)
    assert len(segment_bases(leader)) > 2


def test_a_segment_that_begins_with_compacted_away_offsets_has_the_time_of_its_first_records() -> None:
    log, disk = new_log({"segment.ms": 1_000})
    log.append_as_follower(filler(0, 5, EPOCH), NOW_MS)
    for later in (0, 500, 1_000):
        append(log, now_ms=NOW_MS + later)
    assert segment_bases(log) == [0]
    log.close()
    log = open_log(disk, {"segment.ms": 1_000})
    append(log, now_ms=NOW_MS + 1_000)
    assert segment_bases(log) == [0]
    append(log, now_ms=NOW_MS + 1_001)
    assert segment_bases(log) == [0, 9]


def test_an_empty_segment_is_not_rolled() -> None:
    log, _ = new_log()
    for _ in range(3):
        log.roll()
    append(log)
    for _ in range(3):
        log.roll()
    assert segment_bases(log) == [0, 1]


def test_a_roll_that_is_refused_changes_nothing_and_succeeds_later() -> None:
    log, disk = new_log()
    for _ in range(3):
        append(log, b"x" * 50)
    before = contents(log)
    for room in range(0, 60, 7):
        disk.capacity = disk.used_bytes() + room
        with pytest.raises(DiskFull):
            log.roll()
        assert (segment_bases(log), contents(log)) == ([0], before)
    disk.capacity = None
    append(log)
    log.roll()
    log.close()
    assert open_log(disk).opened_after is OpenedAfter.CLEAN_CLOSE
    assert not [path for path in disk.files() if path.endswith(".deleted")]


def test_batches_of_any_size_follow_each_other_without_a_gap() -> None:
    log, _ = new_log({"segment.bytes": 2_000, "index.interval.bytes": 300})
    for number in range(60):
        data = encode_batch([b"x" * (number * 13 % 300)] * (1 + number % 4), timestamps=NOW_MS)
        log.append_as_leader(data, EPOCH, NOW_MS)
    headers = [read_header(each) for each in contents(log)]
    assert [each.next_offset for each in headers[:-1]] == [each.base_offset for each in headers[1:]]
    for offset in range(log.log_end_offset):
        found = read_header(log.read(offset, 1, Isolation.LOG_END).data)
        assert found.base_offset <= offset < found.next_offset
