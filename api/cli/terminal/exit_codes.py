"""Exit codes of the command."""

from __future__ import annotations

from typing import Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130  # as a shell has it for what SIGINT has ended
TERMINATED: Final = 143  # and SIGTERM
CLOSED_PIPE: Final = 141  # and SIGPIPE
IN_WORDS: Final = (
    "Exit codes: 0 done, 1 the request failed, 2 wrong usage, 130 interrupted, 141 whoever read the output left, "
    "143 terminated."
)
