"""The sparse indexes: offsets to places, timestamps to offsets, and aborted transactions."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.storage.disk.sealed_file import SealBroken
from raylog.storage.format.record_batch import NO_TIMESTAMP
from raylog.storage.segment import transaction_index
from raylog.storage.segment.indexes import IndexEntries, OffsetIndex, TimeIndex
from raylog.storage.segment.transaction_index import AbortedRange, AbortedTransaction, TransactionIndex
from tests.unit.storage.small_log import new_disk

PATH = "/data/an.index"
LOG_BYTES = 123_456

pairs = st.lists(st.tuples(st.integers(1, 1_000), st.integers(0, 1_000)), max_size=40)


def rising(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pairs whose first numbers rise strictly and whose second ones do not fall."""
    first = second = 0
    made = []
    for first_step, second_step in steps:
        first, second = first + first_step, second + second_step
        made.append((first, second))
    return made


def growing(layout: struct.Struct, entries: list[tuple[int, int]]) -> IndexEntries:
    index = IndexEntries(layout)
    for first, second in entries:
        index.append(first, second)
    return index


def both(layout: struct.Struct, entries: list[tuple[int, int]]) -> list[IndexEntries]:
    """The same entries as they grow in memory, and as they stand in a file."""
    memory = growing(layout, entries)
    return [memory, IndexEntries.over(layout, memoryview(memory.encoded()))]


@pytest.mark.parametrize("layout", [OffsetIndex.ENTRY, TimeIndex.ENTRY])
@given(steps=pairs, asked=st.integers(-5, 50_000))
def test_look_ups_agree_with_looking_at_every_entry(
    layout: struct.Struct, steps: list[tuple[int, int]], asked: int
) -> None:
    entries = rising(steps)
    for index in both(layout, entries):
        assert [index[at] for at in range(len(index))] == entries
        assert index.last == (entries[-1] if entries else None)
        assert index.floor(asked) == max((each for each in entries if each[0] <= asked), default=None)
        assert index.before(asked) == max((each for each in entries if each[0] < asked), default=None)
        assert index.floor_by_second(asked) == max((each for each in entries if each[1] <= asked), default=None)


@pytest.mark.parametrize("layout", [OffsetIndex.ENTRY, TimeIndex.ENTRY])
@given(steps=pairs, cut=st.integers(0, 40_000), more=pairs)
def test_a_cut_index_grows_on(
    layout: struct.Struct, steps: list[tuple[int, int]], cut: int, more: list[tuple[int, int]]
) -> None:
    entries = rising(steps)
    left = [each for each in entries if each[1] < cut]
    for index in both(layout, entries):
        index.cut(cut)
        grown = left.copy()
        for first, second in more:
            last = grown[-1] if grown else (0, 0)
            grown.append((last[0] + first, last[1] + second))
            index.append(*grown[-1])
        assert [index[at] for at in range(len(index))] == grown
        assert index.encoded() == b"".join(layout.pack(*each) for each in grown)


def test_the_layouts_are_kafkas() -> None:
    assert (OffsetIndex.ENTRY.size, TimeIndex.ENTRY.size) == (8, 12)
    assert growing(OffsetIndex.ENTRY, [(1, 2)]).encoded() == b"\0\0\0\1\0\0\0\2"
    assert growing(TimeIndex.ENTRY, [(1, 2)]).encoded() == b"\0\0\0\0\0\0\0\1\0\0\0\2"


# --- offsets to places ------------------------------------------------------------------------------------------------


def offset_index() -> OffsetIndex:
    index = OffsetIndex(1_000)
    for base_offset, position in [(1_010, 500), (1_020, 900), (1_050, 4_000)]:
        index.add(base_offset, position)
    return index


@pytest.mark.parametrize(
    ("offset", "place"),
    [(1_000, (1_000, 0)), (1_009, (1_000, 0)), (1_010, (1_010, 500)), (1_049, (1_020, 900)), (9_999, (1_050, 4_000))],
)
def test_an_offset_leads_to_an_indexed_batch_at_or_before_it(offset: int, place: tuple[int, int]) -> None:
    assert offset_index().place(offset) == place


@pytest.mark.parametrize(
    ("position", "place"), [(-1, (1_000, 0)), (499, (1_000, 0)), (500, (1_010, 500)), (3_999, (1_020, 900))]
)
def test_a_position_leads_to_an_indexed_batch_at_or_before_it(position: int, place: tuple[int, int]) -> None:
    assert offset_index().place_before_position(position) == place


@pytest.mark.parametrize(("position", "left"), [(0, 0), (500, 0), (501, 1), (4_000, 2), (5_000, 3)])
def test_an_offset_index_knows_its_size_also_when_it_was_cut_or_loaded(position: int, left: int) -> None:
    disk, index = new_disk(), offset_index()
    index.save(disk, "/index", 5_000)
    assert (index.size_bytes, OffsetIndex.load(disk, "/index", 1_000, 5_000).size_bytes) == (24, 24)
    index.cut(position)
    assert index.size_bytes == len(index) * 8 == left * 8


def test_an_index_speaks_of_one_size_of_its_log_file_only() -> None:
    disk = new_disk()
    offset_index().save(disk, PATH, LOG_BYTES)
    assert OffsetIndex.load(disk, PATH, 1_000, LOG_BYTES).pairs() == offset_index().pairs()
    for size in (LOG_BYTES - 1, LOG_BYTES + 1, 0):
        with pytest.raises(SealBroken):
            OffsetIndex.load(disk, PATH, 1_000, size)


def test_an_index_is_not_taken_for_one_of_another_kind() -> None:
    disk = new_disk()
    offset_index().save(disk, PATH, LOG_BYTES)
    with pytest.raises(SealBroken):
        TimeIndex.load(disk, PATH, 1_000, LOG_BYTES)
    with pytest.raises(SealBroken):
        TransactionIndex.load(disk, PATH, LOG_BYTES)


def test_every_cut_or_changed_byte_of_an_index_is_noticed() -> None:
    disk = new_disk()
    offset_index().save(disk, PATH, LOG_BYTES)
    data = disk.read_file(PATH)
    for at in range(len(data)):
        for broken in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            disk.write_file(PATH, broken)
            with pytest.raises(SealBroken):
                OffsetIndex.load(disk, PATH, 1_000, LOG_BYTES)


# --- timestamps to offsets --------------------------------------------------------------------------------------------


def time_index() -> TimeIndex:
    index = TimeIndex(1_000)
    for timestamp, offset in [(50, 1_000), (40, 1_007), (50, 1_008), (70, 1_010), (90, 1_010 + 30)]:
        index.add(timestamp, offset)
    return index


def test_only_a_larger_timestamp_makes_an_entry() -> None:
    assert time_index().pairs() == [(50, 1_000), (70, 1_010), (90, 1_040)]
    assert time_index().largest_timestamp == 90
    assert TimeIndex(0).largest_timestamp == NO_TIMESTAMP


@pytest.mark.parametrize(
    ("timestamp", "start"), [(0, 1_000), (50, 1_000), (51, 1_000), (70, 1_000), (71, 1_010), (90, 1_010), (91, 1_040)]
)
def test_before_the_start_for_a_timestamp_everything_is_older(timestamp: int, start: int) -> None:
    assert time_index().start_for(timestamp) == start


@pytest.mark.parametrize(("offset", "largest"), [(1_041, 90), (1_040, 70), (1_010, 50), (1_000, NO_TIMESTAMP)])
def test_cutting_forgets_the_batches_at_the_offset_and_after_it(offset: int, largest: int) -> None:
    index = time_index()
    index.cut(offset)
    assert index.largest_timestamp == largest


# --- aborted transactions ---------------------------------------------------------------------------------------------


def aborted() -> TransactionIndex:
    return TransactionIndex(
        [AbortedTransaction(1, 10, 20, 5), AbortedTransaction(2, 5, 25, 22), AbortedTransaction(1, 26, 30, 31)]
    )


@pytest.mark.parametrize(
    ("start", "end", "producers"),
    [
        (0, 5, []),
        (0, 6, [2]),
        (0, 11, [1, 2]),
        (20, 21, [1, 2]),
        (21, 26, [2]),
        (26, 27, [1]),
        (31, 99, []),
        (0, 99, [1, 2, 1]),
    ],
)
def test_transactions_that_reach_into_a_range(start: int, end: int, producers: list[int]) -> None:
    assert [each.producer_id for each in aborted().overlapping(start, end)] == producers


@pytest.mark.parametrize(("end", "complete"), [(5, True), (22, True), (31, True), (32, False)])
def test_beyond_a_last_stable_offset_later_segments_cannot_matter(end: int, complete: bool) -> None:
    assert aborted().complete_for(end) is complete


@pytest.mark.parametrize(("offset", "left"), [(31, 3), (30, 2), (25, 1), (20, 0)])
def test_cutting_forgets_the_transactions_whose_marker_goes(offset: int, left: int) -> None:
    index = aborted()
    index.cut(offset)
    assert len(index.aborted) == left
    assert index.size_bytes == left * 34


def test_the_transaction_index_is_kept_in_kafkas_layout() -> None:
    disk = new_disk()
    aborted().save(disk, PATH, LOG_BYTES)
    assert TransactionIndex.load(disk, PATH, LOG_BYTES).aborted == aborted().aborted
    body = disk.read_file(PATH)[-3 * 34 :]
    assert struct.unpack(">hqqqq", body[:34]) == (0, 1, 10, 20, 5)


@given(
    spans=st.lists(st.tuples(st.integers(0, 2_000), st.integers(1, 900)), max_size=60),
    blocks=st.integers(1, 8),
    cut=st.integers(0, 3_000),
    start=st.integers(0, 3_000),
    length=st.integers(1, 600),
    at_most=st.integers(1, 12),
)
def test_a_look_up_finds_what_a_visit_of_all_entries_finds(
    spans: list[tuple[int, int]], blocks: int, cut: int, start: int, length: int, at_most: int
) -> None:
    """Also after a cut, with blocks of any size; with a limit, up to the first record of the one too many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_index, "_BLOCK", blocks)
        entries = _as_a_log_has_them(spans)
        index, end = TransactionIndex(entries[: len(entries) // 2]), start + length
        index.overlapping(start, end)  # from now on it remembers about blocks
        for entry in entries[len(entries) // 2 :]:
            index.add(entry)
        index.overlapping(start, end)
        index.cut(cut)
        entries = [entry for entry in entries if entry.last_offset < cut]
        expected = [entry for entry in entries if entry.last_offset >= start and entry.first_offset < end]
        assert index.overlapping(start, end) == expected
        wanted = AbortedRange(start, end, at_most)
        index.look_up(wanted)
        wanted.shorten()
        expected.sort(key=lambda entry: entry.first_offset)
        assert sorted(wanted.found, key=lambda entry: entry.first_offset) == expected[:at_most]
        assert wanted.end_offset == (expected[at_most].first_offset if len(expected) > at_most else end)


def _as_a_log_has_them(spans: list[tuple[int, int]]) -> list[AbortedTransaction]:
    """In the order of their markers, with the first offset of what was still open at each."""
    firsts = dict.fromkeys(first for first, _ in spans)
    lengths = dict(spans)
    ends: dict[int, int] = {}
    for last, first in sorted((2 * (first + lengths[first]) + 1, 2 * first) for first in firsts):
        ends[next(each for each in range(last, last + 10_000, 2) if each not in ends.values())] = first
    in_order = sorted((last, first) for last, first in ends.items())
    return [
        AbortedTransaction(number, first, last, min([last + 1, *(other for end, other in in_order if end > last)]))
        for number, (last, first) in enumerate(in_order)
    ]


def test_a_look_up_among_many_visits_few() -> None:
    """A read of committed records looked at each of two million entries, every time."""
    index = TransactionIndex(AbortedTransaction(1, 2 * at, 2 * at + 1, 2 * at + 2) for at in range(50_000))
    visited = _Counted(70_000, 70_010)
    index.look_up(visited)
    assert len(visited.found) == 5
    assert visited.visited <= 512


class _Counted(AbortedRange):
    visited = 0

    def take(self, entries: Iterable[AbortedTransaction]) -> None:
        entries = list(entries)
        self.visited += len(entries)
        super().take(entries)
