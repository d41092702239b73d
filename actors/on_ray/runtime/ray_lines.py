"""Lines of Ray's that a reader takes for errors, and that raylog knows to be none: they are left out.

    worker processes   Ray expects as many as there are CPUs, and warns on every driver's stdout of more. Each replica
                       is one, so there are more on purpose. `RAY_DEDUP_LOGS_SKIP_REGEX`, where it is set, decides.
    strangers          Ray's C++ tells on stderr of each attempt to be let in without a token; `ray_tokens.py` makes one
                       on purpose.

What must stay true: whatever else comes on stderr meanwhile, of any thread, comes out a moment later, unchanged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ray._private.ray_logging import stdout_deduplicator

_WORKER_COUNTS: Final = re.compile(r"worker processes have been started on node: .* the maximum expected startup")
_OF_STRANGERS: Final = re.compile(rb"Unauthenticated|Unauthorized|InvalidAuthToken|[Aa]uthentication token")
_STDERR: Final = 2


def leave_out_worker_counts() -> None:
    """Leave out such lines about worker processes in this process, from now on."""
    if "RAY_DEDUP_LOGS_SKIP_REGEX" not in os.environ:
        stdout_deduplicator.skip_re = _WORKER_COUNTS


@contextmanager
def strangers_left_out() -> Iterator[None]:
    """Leave out what Ray tells of an attempt without a token, for as long as that takes."""
    try:
        kept = os.dup(_STDERR)
    except OSError:  # this process has none
        yield
        return
    with open(os.memfd_create("stderr"), "w+b", buffering=0) as meanwhile:
        os.dup2(meanwhile.fileno(), _STDERR)
        try:
            yield
        finally:
            os.dup2(kept, _STDERR)
            os.close(kept)
            meanwhile.seek(0)
            for line in meanwhile.readall().splitlines(keepends=True):
                if not _OF_STRANGERS.search(line):
                    os.write(_STDERR, line)
