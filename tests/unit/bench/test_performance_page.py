"""`python -m bench --write` puts figures where they belong on the page, and leaves the rest of it alone."""

from __future__ import annotations

from datetime import date
from typing import Final

import pytest

from bench.measuring import Figure
from bench.performance_page import PAGE, Taken, with_figures

_TAKEN: Final = Taken(date(2026, 11, 19), "abc1234", "Python 3.11.9, 2 cores")
_FIGURES: Final = [
    Figure("append, acks=all", [0.2, 0.1, 0.3], "ms", goal=0.25, smaller_is_better=True, note="100 bytes"),
    Figure("a burst", [800.0], "MB/s", goal=900.0),
    Figure("keys a|b", [1.0], "s"),
]


def test_figures_replace_those_of_their_group_only() -> None:
    page = "# Page\n\n## log\n\n<!-- bench: log -->\nold\n<!-- end of bench: log -->\n\nA person's words.\n"
    found = with_figures(page, "log", _FIGURES, _TAKEN)
    assert found == (
        "# Page\n\n## log\n\n<!-- bench: log -->\n"
        "2026-11-19, commit `abc1234`, Python 3.11.9, 2 cores: `python -m bench log`\n\n"
        "| what | median | least to most | unit | goal | |\n|---|--:|--:|---|--:|---|\n"
        "| append, acks=all | 0.2 | 0.1 to 0.3 | ms | ≤ 0.25 | met |\n"
        "| a burst | 800 | 800 to 800 | MB/s | ≥ 900 | missed |\n"
        "| keys a\\|b | 1 | 1 to 1 | s |  |  |\n\n"
        "- append, acks=all: 100 bytes.\n"
        "<!-- end of bench: log -->\n\nA person's words.\n"
    )
    assert with_figures(found, "log", _FIGURES, _TAKEN) == found


def test_a_new_group_gets_a_section_at_the_end() -> None:
    found = with_figures("# Page\n", "timers", _FIGURES[1:2], _TAKEN)
    assert found.startswith("# Page\n\n## timers\n\n<!-- bench: timers -->\n2026-11-19")
    assert found.endswith("| missed |\n<!-- end of bench: timers -->\n")


def test_a_sign_without_its_end_is_refused() -> None:
    with pytest.raises(ValueError, match="end of bench: log"):
        with_figures("<!-- bench: log -->\nold\n", "log", _FIGURES, _TAKEN)


def test_long_notes_are_wrapped() -> None:
    wordy = Figure("a burst", [1.0], "s", note="words " * 60)
    assert max(map(len, with_figures("", "log", [wordy], _TAKEN).splitlines())) <= 120


@pytest.mark.parametrize("group", ["replication", "produce", "consume"])
def test_the_page_of_the_repository_takes_figures_under_their_heading(group: str) -> None:
    page = PAGE.read_text()
    found = with_figures(page, group, _FIGURES, _TAKEN)
    assert found.count(f"## {group}\n\n<!-- bench: {group} -->\n2026-11-19, commit `abc1234`") == 1
    assert found.count("\n## ") == page.count("\n## ")
