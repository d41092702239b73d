"""Tables on a terminal of 80 columns: what is short stays in one line, and nothing is cut off."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence

import pytest

from raylog.api.cli.terminal.output import show_table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")  # no colours


def lines_of(columns: Sequence[str], row: Sequence[object], numbers: Sequence[str]) -> list[str]:
    with contextlib.redirect_stdout(Terminal()) as terminal:
        show_table(columns, [row], numbers=numbers)
    return terminal.getvalue().splitlines()


def test_long_things_are_folded_and_short_ones_are_not() -> None:
    columns = ("broker", "state", "host", "rack", "replicas", "leaders", "disk free", "directory")
    folder = "/mnt/disks/first/of/this/machine/raylog/broker-0"
    row = (0, "draining", "192.168.100.200", "-", 3, 1, "65.6 GiB", folder)
    lines = lines_of(columns, row, ("broker", "replicas", "leaders"))
    assert max(map(len, lines)) == 80
    assert all(any(str(cell) in line for line in lines) for cell in row[:-1])
    assert "".join(line[lines[0].index("DIRECTORY") :].strip() for line in lines[1:]) == folder


def test_a_long_name_is_whole() -> None:
    lines = lines_of(("topic", "partitions"), ("x" * 200, 3), ("partitions",))
    assert max(map(len, lines)) == 80
    assert "".join(lines).count("x") == 200
