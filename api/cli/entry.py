"""Where the console script begins: an interrupt at any time, also while modules are imported, ends it with 130.

The first Ctrl-C is a KeyboardInterrupt, so that what is open is closed and what was taken is delivered. The second one
ends the process at once, and so does one that comes after the command's work, while the process is being left.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from raylog.api.cli.exit_codes import INTERRUPTED


class _Interrupts:
    def __init__(self) -> None:
        self.is_last = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_last:
            os._exit(INTERRUPTED)
        self.is_last = True
        raise KeyboardInterrupt


def main() -> None:
    interrupts = _Interrupts()
    try:
        signal.signal(signal.SIGINT, interrupts)
        from raylog.api.cli.program import run

        code = run(sys.argv[1:])
        interrupts.is_last = True
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)
