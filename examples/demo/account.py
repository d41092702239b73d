"""The demo's output: a title, a line for each step with the time it took, and a table in the end. 80 columns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

WIDTH: Final = 80


class Account:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def title(self, name: str, what: str) -> None:
        self._console.print(Text.assemble(("\n  " + name, "bold"), "  ", (what, "dim")), highlight=False)

    def chapter(self, name: str) -> None:
        self._console.print(Text("\n  " + name, "bold cyan"), highlight=False)

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """A line once it is done; on a terminal also one that turns meanwhile."""
        began = time.monotonic()
        turning = Padding(Spinner("dots", Text(what, "dim")), (0, 0, 0, 2))
        # It takes nothing of what others print meanwhile: that is to be seen by nobody.
        with Live(turning, console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False):
            yield
        self.done(what, time.monotonic() - began)

    def done(self, what: str, seconds: float | None = None, mark: str = "✓", style: str = "green") -> None:
        line = Text.assemble(("  " + mark + " ", style), what)
        if seconds is not None:
            time_taken = f"{seconds:.1f} s" if seconds >= 0.1 else milliseconds(seconds)
            line.append(" " * max(1, WIDTH - 2 - line.cell_len - len(time_taken)))
            line.append(time_taken, "dim")
        self._console.print(line, highlight=False, overflow="fold", width=WIDTH)

    def note(self, what: str) -> None:
        self._console.print(Text("    " + what, "dim"), highlight=False, width=WIDTH)

    def blow(self, what: str) -> None:
        self.done(what, mark="✗", style="bold red")

    def table(self, rows: Sequence[tuple[str, str]]) -> None:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
        table.add_column(style="dim")
        table.add_column(justify="right", style="bold")
        for name, value in rows:
            table.add_row(name, value)
        self._console.print(Padding(table, (0, 0, 0, 4), expand=False))

    def closing(self, what: str) -> None:
        self._console.print(Text("\n  " + what + "\n", "dim"), highlight=False)


def thousands(count: float) -> str:
    return f"{count:,.0f}".replace(",", " ")


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"
