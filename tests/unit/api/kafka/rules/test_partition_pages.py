"""Pages of partitions: all of them together hold each partition once, in order, within the limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raylog.api.kafka.rules.partition_pages import MOST_PARTITIONS, page_of


@given(
    counts=st.dictionaries(st.text("abc", min_size=1, max_size=2), st.integers(1, 7), max_size=6),
    unknown=st.sets(st.text("abc", min_size=1, max_size=2), max_size=2),
    limit=st.integers(-1, 9),
)
def test_pages_hold_each_partition_once(counts: dict[str, int], unknown: set[str], limit: int) -> None:
    names = sorted(counts.keys() | unknown)
    found: list[tuple[str, int]] = []
    told: list[str] = []
    begin: tuple[str, int] | None = ("", 0)
    while begin is not None:
        page = page_of(names, counts, begin, limit)
        chosen = [(name, number) for name, numbers in page.topics for number in numbers]
        assert len(chosen) <= max(1, limit)
        assert page.next is None or chosen
        told += [name for name, _ in page.topics]
        found += chosen
        begin = page.next
    assert found == [(name, number) for name in sorted(counts) for number in range(counts[name])]
    assert sorted(set(told)) == names


def test_a_page_has_a_limit_of_its_own() -> None:
    page = page_of(["t"], {"t": 5_000}, ("", 0), 10**6)
    assert page == ([("t", range(MOST_PARTITIONS))], ("t", MOST_PARTITIONS))


def test_a_cursor_of_a_topic_that_has_shrunk_or_gone_goes_on_behind_it() -> None:
    assert page_of(["a", "b"], {"a": 1, "b": 1}, ("a", 5), 10).topics == [("a", range(5, 1)), ("b", range(1))]
    assert page_of(["a", "c"], {"a": 1, "c": 1}, ("b", 5), 10).topics == [("c", range(1))]
