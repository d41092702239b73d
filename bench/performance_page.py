"""docs/performance.md: the last figures of each group of benchmarks, and when and of what they were taken.

    <!-- bench: replication -->          everything between the two signs is what `python -m bench --write` wrote last;
    …                                    all else on the page is written by people, and stays
    <!-- end of bench: replication -->

A group without signs gets a section of its own at the end of the page.
"""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from bench.measuring import Figure

PAGE: Final = Path(__file__).parents[1] / "docs" / "performance.md"
_WIDTH: Final = 120
_VERDICTS: Final = {None: "", True: "met", False: "missed"}


@dataclass(frozen=True)
class Taken:
    """The origin of figures: day, commit and machine."""

    day: date
    commit: str
    machine: str


def present_commit() -> str:
    """The checkout's commit, with a `+` where files differ from it; "unknown" outside of a checkout."""
    command = ("git", "describe", "--always", "--dirty=+", "--exclude=*")
    try:
        found = subprocess.run(command, cwd=PAGE.parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def with_figures(page: str, group: str, figures: Sequence[Figure], taken: Taken) -> str:
    """The page with these figures in place of the group's former ones."""
    begin, end = f"<!-- bench: {group} -->\n", f"<!-- end of bench: {group} -->\n"
    section = begin + _section(group, figures, taken) + end
    before, sign, rest = page.partition(begin)
    if not sign:
        return f"{page.rstrip()}\n\n## {group}\n\n{section}"
    _, sign, after = rest.partition(end)
    if not sign:
        raise ValueError(f"The page has {begin.strip()!r} without {end.strip()!r} behind it.")
    return before + section + after


def _section(group: str, figures: Sequence[Figure], taken: Taken) -> str:
    notes = [f"{figure.name}: {figure.note}." for figure in figures if figure.note]
    parts = [
        _wrapped(f"{taken.day.isoformat()}, commit `{taken.commit}`, {taken.machine}: `python -m bench {group}`"),
        "| what | median | least to most | unit | goal | |\n|---|--:|--:|---|--:|---|\n" + "".join(map(_row, figures)),
        "".join(_wrapped(note, "- ") for note in notes),
    ]
    return "\n".join(filter(None, parts))


def _row(figure: Figure) -> str:
    sign = "≤" if figure.smaller_is_better else "≥"
    cells = (
        figure.name,
        f"{figure.median:.4g}",
        f"{min(figure.rounds):.4g} to {max(figure.rounds):.4g}",
        figure.unit,
        "" if figure.goal is None else f"{sign} {figure.goal:g}",
        _VERDICTS[figure.meets_goal],
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _wrapped(text: str, bullet: str = "") -> str:
    indent = " " * len(bullet)
    return textwrap.fill(text, _WIDTH, initial_indent=bullet, subsequent_indent=indent, break_long_words=False) + "\n"
