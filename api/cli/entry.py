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
    # An interrupt that went through the `exec` of a string (a module being imported made a dataclass) is remembered by
    # Python, which then ends `python -m` by the signal, whatever the code is. The next `exec` makes it forget.
    exec("")
    sys.exit(code)
