"""The priority of the workers of a Ray that raylog starts.

Ray gives its workers niceness 15. Beside programs that keep all cores busy, each then has a thirtieth of what such a
program has. Brokers were fenced so, and topics not made in time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

NICENESS: Final = "RAY_worker_niceness"


def normal_priority(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what the environment of a new Ray needs for that. Nothing where it says what the user wants."""
    return {} if NICENESS in environment else {NICENESS: "0"}
