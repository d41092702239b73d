"""Start of the console script: an interrupt at any time, also while modules are imported, ends it with its code."""

from __future__ import annotations

import sys

from raylog.api.cli.terminal.interrupts import exit_code_of, interrupts


def main() -> None:
    try:
        interrupts.install()
        from raylog.api.cli.program import run

        code = run(sys.argv[1:])
        interrupts.is_last = True
    except KeyboardInterrupt as error:
        code = exit_code_of(error)
    sys.exit(code)
