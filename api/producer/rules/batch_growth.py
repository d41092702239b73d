"""The time that an open batch waits for more records although it could be sent. Decides, and touches nothing.

On idle cores a leader answers at once, and whoever sends a batch as soon as the last one is answered sends many small
ones. Each costs the event loop a few hundred microseconds, in which the sending thread has to stand by, for they
share the GIL: 490 records a batch took 1.6 µs of processor each, 3,800 take 0.9. So a batch that is being filled fast
waits until it is worth its price.

What must stay true:
- Few records never wait: a lone `send`, and a program that sends what it has now and then.
- Neither does a batch that somebody waits for (`ProducerBatch.hurry`), that is flushed, or whose room is wanted.
- A batch that is no longer being filled is found out within the time that it has been open, and none waits for longer
  than LONGEST_SECONDS.
"""

from __future__ import annotations

from typing import Final

FEW: Final = 32
ENOUGH: Final = 4_096
FAST: Final = 20_000  # records a second; a batch in 1 ms is then dearer than the records in it
LONGEST_SECONDS: Final = 0.005
SHORTEST_SECONDS: Final = 0.001  # what the loop's timers are rounded to


class BatchGrowth:
    """The growth of one partition's batches. It is asked when a batch could be sent, and again when what it said is
    over.
    """

    def __init__(self, batch_size: int) -> None:
        self._enough_bytes = batch_size // 2
        self._opened_at = -1.0
        self._looked_at = 0.0
        self._records = 0

    def seconds_to_wait(self, opened_at: float, records: int, size: int, now: float) -> float:
        """0: send it."""
        if records < FEW or records >= ENOUGH or size >= self._enough_bytes:
            return 0.0
        left = opened_at + LONGEST_SECONDS - now
        if left < SHORTEST_SECONDS:
            return 0.0
        is_same = opened_at == self._opened_at
        since, before = (self._looked_at, self._records) if is_same else (opened_at, 0)
        self._opened_at, self._looked_at, self._records = opened_at, now, records
        if records - before < FAST * (now - since):
            return 0.0
        return min(left, max(SHORTEST_SECONDS, now - opened_at))
