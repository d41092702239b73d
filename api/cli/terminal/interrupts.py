"""Ctrl-C and SIGTERM end a command alike: what is open is closed, what was taken is delivered, what was done is told.

The first one raises KeyboardInterrupt (of a SIGTERM `Terminated`) wherever the command is. The second one ends the
process at once, and so does one that comes after the command's work, while the process is being left.

Ray puts handlers of its own in the place of ours when a process joins it; the one for SIGTERM prints a C++ stack. The
signals therefore have to be taken back (`take_back`) after each join.
"""

from __future__ import annotations

import atexit
import os
import signal
from types import FrameType
from typing import Final

from raylog.api.cli.terminal.exit_codes import INTERRUPTED, TERMINATED


class Terminated(KeyboardInterrupt):
    """Raised by SIGTERM."""


def exit_code_of(error: BaseException) -> int:
    return TERMINATED if isinstance(error, Terminated) else INTERRUPTED


class Interrupts:
    def __init__(self) -> None:
        self.is_last = False  # the next one ends the process
        self._is_installed = False

    def install(self) -> None:
        self._is_installed = True
        atexit.register(_ignore)  # the first that is registered is called last
        self.take_back()

    def take_back(self) -> None:
        """Nothing, in a process that has not installed them."""
        if self._is_installed:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._came)

    def _came(self, number: int, _frame: FrameType | None) -> None:
        error = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
        if self.is_last:
            os._exit(exit_code_of(error))
        self.is_last = True
        raise error


def _ignore() -> None:
    """Let the process end with its code. Python takes its handlers away at the very end, and a signal would kill it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


interrupts: Final = Interrupts()  # of this process
