"""Long lists of offsets travel in portions that a coordinator may be asked to look at in one go (rule 34)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.protocol.messages import CLIENT_MESSAGE_BYTES, pack
from raylog.groups.records.messages import MOST_OFFSETS, CommitOffsets, portions


def _entries(count: int, metadata: str) -> list[tuple[bytes, int, int, int, str]]:
    return [(bytes(16), number, 2**62, 2**31 - 1, metadata) for number in range(count)]


@given(st.integers(0, 3_000), st.sampled_from(["", "x", "ä" * 4_096, "x" * 60_000]))
def test_nothing_is_left_out_and_each_portion_fits_into_a_message(count: int, metadata: str) -> None:
    entries = _entries(count, metadata)
    cut = list(portions(entries))
    assert [entry for portion in cut for entry in portion] == entries
    for portion in cut:
        assert len(portion) <= MOST_OFFSETS
        assert len(pack(CommitOffsets("g" * 1_000, "m" * 1_000, 1, portion))[2]) <= CLIENT_MESSAGE_BYTES


def test_no_offsets_are_one_request() -> None:
    assert list(portions([])) == [()]
