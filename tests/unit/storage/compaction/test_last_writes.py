"""The newest writes of a log's producers, as the file that a compaction looks into."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.errors import LogDamaged
from raylog.storage.compaction import last_writes
from raylog.storage.compaction.last_writes import LastWriteRows, LastWrites
from raylog.storage.segment.producer_state import LastWrite
from tests.unit.storage.small_log import new_disk

PATH = "/data/producers"


@given(
    known=st.dictionaries(st.integers(0, 300), st.tuples(st.integers(-1, 2**62), st.integers(0, 2**15 - 1))),
    step=st.sampled_from([1, 3, 256]),
)
def test_each_producer_that_was_known_is_found_and_no_other(known: dict[int, tuple[int, int]], step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(last_writes, "_STEP", step)
        patch.setattr(last_writes, "_CHUNK_BYTES", 18 * step * 4)
        disk, rows = new_disk(), LastWriteRows()
        rows.add((producer_id, LastWrite(*write)) for producer_id, write in known.items())
        rows.save(disk, PATH)
        writes = LastWrites(disk, PATH)
        assert {each: writes.get(each) for each in range(-1, 302)} == {
            each: LastWrite(*known[each]) if each in known else None for each in range(-1, 302)
        }
        writes.close()


def test_a_flipped_bit_is_noticed() -> None:
    disk, rows = new_disk(), LastWriteRows()
    rows.add((each, LastWrite(each, 0)) for each in range(20))
    rows.save(disk, PATH)
    for bit in range(0, 8 * disk.files()[PATH], 5):
        flipped = disk.clone()
        flipped.flip_bit(PATH, bit)
        with pytest.raises(LogDamaged):
            LastWrites(flipped, PATH)


def test_what_stays_in_memory_of_a_million_producers_is_a_fraction_of_the_file() -> None:
    disk, rows = new_disk(), LastWriteRows()
    rows.add((each, LastWrite(each, 0)) for each in range(1_000_000))
    rows.save(disk, PATH)
    tracemalloc.start()
    try:
        writes = LastWrites(disk, PATH)
        assert [writes.get(each) for each in (0, 777_777, 999_999, 10**6)] == [
            LastWrite(0, 0), LastWrite(777_777, 0), LastWrite(999_999, 0), None,
        ]  # fmt: skip
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 200_000
    assert most < 4_000_000
