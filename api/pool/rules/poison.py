"""Records that end the process of whoever handles them: a crash of native code, say, or too much memory.

    one actor dies          that happens: its records are handled again
    two within a while      all actors become careful: one record at a time, and each is told to the supervisor before;
                            two that die together, with their node say, count as one
    a careful one dies      the record that it had told of is counted; at its second death it is poison
    poison                  no handler sees it any more: it goes where records go that have failed for good
    calm for a while        actors go on as usual

What must stay true: nothing is put aside because of a death alone, only because two processes died with this very
record in hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from raylog.api.connection.records import TopicPartition
from raylog.api.pool.rules.fleet import TOGETHER_SECONDS

CAREFUL_DEATHS: Final = 2
POISON_DEATHS: Final = 2
CAREFUL_SECONDS: Final = 120.0  # since the last death
MOST_KEPT: Final = 1_000

Place = tuple[str, int, int]  # topic, partition, offset


@dataclass(frozen=True)
class Suspicion:
    """All that is known of deaths, and of records that had a part in them."""

    deaths: tuple[float, ...] = ()
    counts: tuple[tuple[Place, int], ...] = ()
    poison: frozenset[Place] = field(default_factory=frozenset)

    def is_careful(self, now: float) -> bool:
        """Whether actors tell of each record before they handle it."""
        recent = [at for at in self.deaths if now - at < CAREFUL_SECONDS]
        return len(recent) >= CAREFUL_DEATHS

    def death(self, now: float, in_hand: Place | None) -> Suspicion:
        """Note a death that nobody had asked for. `in_hand`: the record that a careful actor had told of."""
        are_together = bool(self.deaths) and now - self.deaths[-1] < TOGETHER_SECONDS
        deaths = self.deaths if are_together else (*self.deaths, now)[-CAREFUL_DEATHS:]
        if in_hand is None:
            return replace(self, deaths=deaths)
        counts = dict(self.counts)
        counts[in_hand] = counts.get(in_hand, 0) + 1
        if counts[in_hand] < POISON_DEATHS:
            return replace(self, deaths=deaths, counts=tuple(counts.items())[-MOST_KEPT:])
        del counts[in_hand]
        return replace(self, deaths=deaths, counts=tuple(counts.items()), poison=self.poison | {in_hand})

    def committed(self, offsets: Iterable[tuple[TopicPartition, int]]) -> Suspicion:
        """Forget what lies before these offsets: it is done, or put aside."""
        if not self.poison and not self.counts:
            return self
        known = dict(offsets)

        def is_open(place: Place) -> bool:
            return place[2] >= known.get(TopicPartition(*place[:2]), -math.inf)

        return replace(
            self,
            counts=tuple((place, count) for place, count in self.counts if is_open(place)),
            poison=frozenset(filter(is_open, self.poison)),
        )
