"""Written by `make mutations`."""

from __future__ import annotations

from typing import Final

SEEDS: Final[dict[str, int]] = {}
