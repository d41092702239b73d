"""Runs rows of commands beside each other: `python -m tests.rows "make a b" "make c" --spare "make lint"`.

A test on a real Ray waits half of its time, for elections, starts and time-outs, so two such rows fit on two cores; the
row in spare time gets what they leave. The first row is seen as it runs, the others as they end. The first one that
fails ends the others, and its status is that of the whole.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Final

_LOOK_SECONDS: Final = 0.2
_END_SECONDS: Final = 20.0


class Row:
    """A command in a session of its own, with all that it starts there."""

    def __init__(self, command: list[str], output: IO[bytes] | None) -> None:
        self.output = output
        self._process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)

    def status(self) -> int | None:
        """Its exit status, or None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def show(self) -> None:
        if self.output is not None:
            self.output.seek(0)
            sys.stdout.buffer.write(self.output.read())
            sys.stdout.flush()

    def end(self) -> None:
        """End it, politely first."""
        for number in (signal.SIGINT, signal.SIGKILL):
            if self.status() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
                self.wait(_END_SECONDS)


@contextlib.contextmanager
def rows_of(commands: list[list[str]]) -> Iterator[list[Row]]:
    """Start all. Whatever happens, none is left."""
    rows: list[Row] = []
    with contextlib.ExitStack() as files:
        try:
            for command in commands:
                rows.append(Row(command, files.enter_context(tempfile.TemporaryFile()) if rows else None))
            yield rows
        finally:
            for row in rows:
                row.end()


def run(commands: list[list[str]]) -> int:
    """Wait until all rows have ended well, or the first one badly; the result is its status."""
    with rows_of(commands) as rows:
        left = list(rows)
        while left:
            ended = [row for row in left if row.status() is not None]
            for row in ended:
                row.show()
                left.remove(row)
            failed = next((row.status() for row in ended if row.status()), None)
            if failed is not None:
                return abs(failed)
            if left:
                left[0].wait(_LOOK_SECONDS)
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commands", nargs="+", metavar="COMMAND")
    parser.add_argument("--spare", action="append", default=[], metavar="COMMAND", help="in spare processor time")
    given = parser.parse_args()
    in_spare_time = [[sys.executable, "-m", "tests.spare_time", *shlex.split(each)] for each in given.spare]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(run([shlex.split(each) for each in given.commands] + in_spare_time))
    sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
