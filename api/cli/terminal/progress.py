"""Long work on a terminal: what is being done, and how far it is. Elsewhere nothing is drawn."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

Tell: TypeAlias = Callable[[int, int], None]  # how many of how many are done
_LOOK_SECONDS: Final = 0.5


@contextmanager
def working(text: str) -> Iterator[None]:
    """A spinner beside what is being done."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def _tell_nobody(_done: int, _total: int) -> None:
    pass


@contextmanager
def bar(text: str) -> Iterator[Tell]:
    """A bar, moved by what is yielded."""
    if not sys.stderr.isatty():
        yield _tell_nobody
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(text, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def follow(text: str, left: Callable[[], int], *, pause: float = _LOOK_SECONDS) -> None:
    """Wait until nothing is left. It may be interrupted: what is being waited for goes on by itself."""
    with bar(text) as tell:
        most = 0
        while True:
            now = left()
            most = max(most, now)
            tell(most - now, most)
            if not now:
                return
            time.sleep(pause)
