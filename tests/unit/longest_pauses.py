"""Chance under which every pause of a `Backoff` is as long as it may be, for tests that count seconds."""

from __future__ import annotations

from random import Random


class LongestPauses(Random):
    def random(self) -> float:
        return 1.0
