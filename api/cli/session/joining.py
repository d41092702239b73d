"""Joining the Ray that runs, for commands, quietly. Most commands need no more of Ray, and import no more than this."""

from __future__ import annotations

import atexit
import logging
import os

from ray._private import worker

from raylog.actors.on_ray.runtime.join_ray import join_ray
from raylog.api.cli.terminal.interrupts import interrupts

# Ray leaves at the end of a process by itself, but waits for half a second before that, for lines that workers print.
# Commands show none. What is registered last is called first, so the clients of this process still close before this.
atexit.register(worker.shutdown)


def keep_ray_off_stdout() -> None:
    """Ray prints what raylets complain of on the stdout of every driver, `log_to_driver` or not: among our data."""
    worker._worker_logs_enabled = False


def join_quietly() -> None:
    """Join the Ray that is running. What is wrong with it comes as an error, so what Ray prints meanwhile is dropped:

    it tells on stderr, past Python, of each attempt to be let in without a token (`runtime/join_ray.py` makes one).
    """
    keep_ray_off_stdout()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        join_ray(log_to_driver=False, logging_level=logging.ERROR)
    finally:
        interrupts.take_back()
        os.dup2(kept, 2)
        os.close(kept)
