"""One line about a wait that lasts, on a terminal or in a notebook. Elsewhere nothing is shown.

    a wait begins ──1 s──► a line, drawn anew at most ten times a second ──the wait ends──► the line is gone

What must stay true:
- Nothing is shown where stderr goes into a file or a pipe, in a thread beside the main one, and after
  `show_progress(False)`.
- Of waits within each other the outermost one has the line: two would write over each other.
- No wait takes longer or fails because its line cannot be shown.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
import weakref
from collections.abc import Callable
from html import escape
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Protocol

_FIRST_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 0.1
_BAR_CELLS: Final = 24
_NARROWEST: Final = 20

_is_wanted = True
_outermost: weakref.ref[Progress] | None = None  # an interrupted `__enter__` keeps no line for ever


def show_progress(is_wanted: bool) -> None:
    """Show how far long waits are, on terminals and in notebooks, or show nothing. It is on by default."""
    global _is_wanted  # noqa: PLW0603 (one switch for the process)
    _is_wanted = is_wanted


class Surface(Protocol):
    """A place where a line is drawn."""

    def draw(self, text: str, share: float | None) -> None:
        """Show this in place of what was shown. `share`: how much is done, 0 to 1; None: nobody knows."""

    def clear(self) -> None:
        """Show nothing any more."""


class Progress:
    """One wait: `with Progress("sending to 'clicks'", 5_000, "records") as progress: progress.tell(1_200)`."""

    def __init__(
        self,
        what: str,
        total: int | None = None,
        unit: str = "",
        *,
        surface: Callable[[], Surface | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._total = total
        self._unit = unit
        self._find_surface = find_surface if surface is None else surface
        self._surface: Surface | None = None
        self._clock = clock
        self._began = clock()
        self._due = self._began + _FIRST_SECONDS
        self._done = 0
        self._outer: Progress | None = None

    def tell(self, done: int | None = None) -> None:
        """Show that it goes on, and that so much is `done`. It may be called often: it costs little."""
        if done is not None:
            self._done = done
        if self._outer is not None:
            self._outer.tell()
            return
        now = self._clock()
        if now >= self._due:
            self._due = now + _AGAIN_SECONDS
            self._draw(now - self._began)

    def _draw(self, seconds: float) -> None:
        if self._surface is None:
            self._surface = self._find_surface()
        if self._surface is None:
            self._due = float("inf")
            return
        counted = "" if not self._total else f": {self._done:,} of {self._total:,} {self._unit}".rstrip()
        share = self._done / self._total if self._total else None
        try:
            self._surface.draw(f"{self._what}{counted}, {seconds:.0f} s", share)
        except OSError:  # the terminal is gone
            self._due = float("inf")

    def __enter__(self) -> Progress:
        global _outermost  # noqa: PLW0603 (one line for the process)
        if threading.current_thread() is threading.main_thread():
            self._outer = None if _outermost is None else _outermost()
            if self._outer is None:
                _outermost = weakref.ref(self)
        else:
            self._due = float("inf")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _outermost  # noqa: PLW0603
        if _outermost is not None and _outermost() is self:
            _outermost = None
        if self._surface is not None:
            with contextlib.suppress(OSError):
                self._surface.clear()


def find_surface() -> Surface | None:
    """Return what this process can draw on; None: nothing."""
    if not _is_wanted:
        return None
    if _is_notebook():
        return NotebookOutput(import_module("IPython.display").display)
    return TerminalLine(sys.stderr) if sys.stderr is not None and sys.stderr.isatty() else None


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")  # the shell of a terminal has none


class TerminalLine:
    """The line that the cursor of a terminal stands in."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._width = 0

    def draw(self, text: str, share: float | None) -> None:
        if share is not None:
            full = min(_BAR_CELLS, round(share * _BAR_CELLS))
            text = f"[{'=' * full}{' ' * (_BAR_CELLS - full)}] {text}"
        columns = max(_NARROWEST, shutil.get_terminal_size().columns) - 1
        self._write(text[:columns])

    def clear(self) -> None:
        self._write("")

    def _write(self, text: str) -> None:
        """Write it over what stands there. Spaces, since not every terminal knows how to clear a line."""
        blank = " " * max(0, self._width - len(text))
        self._stream.write(f"\r{text}{blank}" + ("" if text else "\r"))
        self._stream.flush()
        self._width = len(text)


class NotebookOutput:
    """An output of the running cell. `display` is IPython's."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._handle: Any = None

    def draw(self, text: str, share: float | None) -> None:
        value = "" if share is None else f' value="{share:.3f}"'
        self._show({"text/plain": text, "text/html": f"<progress{value}></progress> {escape(text)}"})

    def clear(self) -> None:
        self._show({"text/plain": "", "text/html": ""})

    def _show(self, bundle: dict[str, str]) -> None:
        if self._handle is None:
            self._handle = self._display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)
