"""The threads of this process's client loops, and what the program's own code may do there.

What must stay true: nothing that a callback raises ends a client's loop, on which all clients of the process depend. In
the program's own threads SystemExit and KeyboardInterrupt end what they end everywhere.
"""

from __future__ import annotations

import threading
from typing import Final

SERVING_THREADS: Final[set[int]] = set()  # those that run producers' event loops


def goes_on_after(error: BaseException) -> bool:
    """Whether what the program's code has raised is told in the log, and no more."""
    return isinstance(error, Exception) or threading.get_ident() in SERVING_THREADS
