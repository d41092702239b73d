"""The line of a long wait: when it is drawn, on what, and that it is gone in the end."""

from __future__ import annotations

import io
import shutil
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.api.connection.progress import NotebookOutput, Progress, TerminalLine, find_surface, show_progress


class Lines:
    """A surface that remembers."""

    def __init__(self) -> None:
        self.drawn: list[tuple[str, float | None]] = []
        self.is_clear = True

    def draw(self, text: str, share: float | None) -> None:
        self.drawn.append((text, share))
        self.is_clear = False

    def clear(self) -> None:
        self.is_clear = True


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Time that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture(autouse=True)
def wanted() -> Iterator[None]:
    yield
    show_progress(True)


def test_a_short_wait_shows_nothing_and_a_long_one_a_line_that_goes_away(lines: Lines, clock: Clock) -> None:
    with Progress("sending to 'clicks'", 5_000, "records", surface=lambda: lines, clock=clock) as wait:
        clock.now = 0.9
        wait.tell(1_000)
        assert lines.drawn == []
        clock.now = 1.2
        wait.tell(1_250)
        clock.now = 1.25
        wait.tell(1_300)  # too soon for another one
        clock.now = 3.0
        wait.tell(5_000)
        assert not lines.is_clear
    assert lines.drawn == [
        ("sending to 'clicks': 1,250 of 5,000 records, 1 s", 0.25),
        ("sending to 'clicks': 5,000 of 5,000 records, 3 s", 1.0),
    ]
    assert lines.is_clear


def test_an_interrupt_clears_the_line(lines: Lines, clock: Clock) -> None:
    def work() -> None:
        with Progress("waiting", surface=lambda: lines, clock=clock) as wait:
            clock.now = 2.0
            wait.tell()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert lines.is_clear
    assert lines.drawn == [("waiting, 2 s", None)]


def test_of_waits_within_each_other_the_outermost_has_the_line(lines: Lines, clock: Clock) -> None:
    inner = Lines()
    with (
        Progress("outer", surface=lambda: lines, clock=clock),
        Progress("inner", 10, surface=lambda: inner, clock=clock) as wait,
    ):
        clock.now = 2.0
        wait.tell(5)
    assert (lines.drawn, inner.drawn) == ([("outer, 2 s", None)], [])
    with Progress("next", surface=lambda: inner, clock=clock) as wait:
        clock.now = 4.0
        wait.tell()
    assert inner.drawn == [("next, 2 s", None)]


def test_a_wait_that_was_interrupted_while_it_began_keeps_no_line(lines: Lines, clock: Clock) -> None:
    Progress("forgotten", surface=lambda: lines, clock=clock).__enter__()  # and its end never comes
    with Progress("next", surface=lambda: lines, clock=clock) as wait:
        clock.now = 2.0
        wait.tell()
    assert lines.drawn == [("next, 2 s", None)]


def test_threads_beside_the_main_one_show_nothing(lines: Lines, clock: Clock) -> None:
    def work() -> None:
        with Progress("beside", surface=lambda: lines, clock=clock) as wait:
            clock.now = 2.0
            wait.tell()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert lines.drawn == []


def test_a_terminal_that_is_gone_fails_no_wait(clock: Clock) -> None:
    class Gone(Lines):
        def draw(self, text: str, share: float | None) -> None:
            raise OSError("gone")

    with Progress("waiting", surface=Gone, clock=clock) as wait:
        clock.now = 2.0
        wait.tell()
        clock.now = 3.0
        wait.tell()


def test_nothing_is_shown_where_stderr_is_piped_or_nobody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert find_surface() is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert isinstance(find_surface(), TerminalLine)
    show_progress(False)
    assert find_surface() is None


def test_a_notebook_is_known_by_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell of a terminal has none; nor has a program that has only imported IPython."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for shell, is_notebook in ((SimpleNamespace(kernel=1), True), (SimpleNamespace(), False), (None, False)):
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
        monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=print))
        assert isinstance(find_surface(), NotebookOutput) is is_notebook


def test_a_terminal_shows_a_bar_in_one_line_and_leaves_it_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: SimpleNamespace(columns=60))
    stream = Terminal()
    line = TerminalLine(stream)
    line.draw("sending: 5 of 10 records, 2 s", 0.5)
    line.draw("x" * 100, None)
    line.clear()
    first, second, blank, end = stream.getvalue().split("\r")[1:]
    assert first == f"[{'=' * 12}{' ' * 12}] sending: 5 of 10 records, 2 s"
    assert second == "x" * 59
    assert (blank, end) == (" " * 59, "")


def test_a_notebook_shows_one_output_that_changes() -> None:
    shown: list[dict[str, str]] = []

    def display(bundle: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        shown.append(bundle)
        return SimpleNamespace(update=lambda bundle, raw: shown.append(bundle))

    output = NotebookOutput(display)
    output.draw("sending <it>", 0.25)
    output.draw("waiting", None)
    output.clear()
    assert [each["text/html"] for each in shown] == [
        '<progress value="0.250"></progress> sending &lt;it&gt;',
        "<progress></progress> waiting",
        "",
    ]
