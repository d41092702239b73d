"""The actors that a pool starts, stops and kills, so that there are as many as wanted, with the newest handler.

    starting ──it answers──► running ──it is asked to──► stopping ──► ended
        └── dies, or does not come ──┴── dies, or does not answer ──► lost          halted: its handler has given up

A new handler is rolled out one actor at a time: one more is started with it, and when that one works, one with an older
handler stops. So no partition is without an actor for longer than a rebalance takes.

What must stay true:
- Actors that run or start are never more than wanted, but for the one of a roll-out. Those that stop do not count: they
  end what they have in hand.
- A roll-out stops an actor that works only when all with the newest handler work, or find no place: then it makes room,
  once. Until somebody takes that place, it makes no more, and starts no more.
- Actors that die one after the other are started again after growing pauses.
- A handler with which no actor ever comes up, three times in a row, is taken back if there was one before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

START_SECONDS: Final = 300.0  # for an actor whose process runs, to be ready: its handler may load a model
ANSWER_SECONDS: Final = 60.0  # for one that runs, to answer
PLACE_SECONDS: Final = 30.0  # for one with a new handler, to get a place beside those that it replaces
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final[float] = 60.0
_CALM_SECONDS: Final = 2 * _LONGEST_PAUSE  # without a death, and those before are forgotten
FAILED_STARTS: Final = 3
TOGETHER_SECONDS: Final = 1.5
_MOST_DOUBLINGS: Final = 10


class Phase(Enum):
    WAITING = "waiting"  # for a place: Ray has none yet
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    HALTED = "halted"


@dataclass(frozen=True)
class Actor:
    """One actor of a pool, as its supervisor sees it."""

    name: str
    version: int  # of the handler
    phase: Phase
    since: float  # in this phase
    heard_at: float  # when it has answered last, or was made
    load: int = 0  # partitions that it reads
    is_found: bool = False  # it was there before its supervisor, so it may work although nothing was heard of it


@dataclass(frozen=True)
class Plan:
    """The steps to take now."""

    start: int = 0  # so many, with the newest handler
    stop: tuple[str, ...] = ()
    kill: tuple[str, ...] = ()
    makes_room: bool = False  # the one that stops leaves its place to one that waits


@dataclass(frozen=True)
class Deaths:
    """Deaths that nobody has asked for, in a row. Those that come together, with a node say, count as one."""

    count: int = 0
    last_at: float = -math.inf
    failed_starts: int = 0  # of the newest handler, in a row

    def one_more(self, now: float, *, while_starting: bool) -> Deaths:
        if now - self.last_at < TOGETHER_SECONDS:
            return self
        calm = now - self.last_at >= _CALM_SECONDS
        return Deaths(1 if calm else self.count + 1, now, self.failed_starts + while_starting)

    def came_up(self) -> Deaths:
        return Deaths(self.count, self.last_at, 0)

    def next_start(self) -> float:
        """Return when an actor may be started again. The first death costs no time."""
        if self.count <= 1:
            return -math.inf
        return self.last_at + min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(self.count - 2, _MOST_DOUBLINGS))


@dataclass(frozen=True)
class Fleet:
    """All actors, and what is wanted of them."""

    actors: Sequence[Actor] = field(default_factory=tuple)
    wanted: int = 0
    version: int = 1
    stop_seconds: float = 60.0  # for one that stops
    room_made_at: float | None = None  # when this roll-out has made room last


def plan(fleet: Fleet, deaths: Deaths, now: float) -> Plan:
    """Decide what to do next. Called every second or so; what was asked for before is seen in the actors' phases."""
    kill = tuple(each.name for each in fleet.actors if _is_overdue(each, fleet.stop_seconds, now))
    left = [each for each in fleet.actors if each.name not in kill]
    there = [each for each in left if each.phase in (Phase.WAITING, Phase.STARTING, Phase.RUNNING)]
    old = [each for each in there if each.version != fleet.version]
    new = [each for each in there if each.version == fleet.version]
    extra = len(there) - fleet.wanted
    is_rolling = bool(old) and fleet.wanted > 0
    if extra > int(is_rolling):
        spare = sorted(there, key=lambda each: _worth(each, fleet.version))[:extra]
        return Plan(stop=tuple(each.name for each in spare), kill=kill)
    waits = any(each.phase is Phase.WAITING for each in new)
    is_room_left = waits and _is_room_left(new, fleet.room_made_at)
    if extra == 1:
        first = min(old, key=lambda each: _worth(each, fleet.version))
        if first.phase is Phase.WAITING:
            return Plan(stop=(first.name,), kill=kill)
        is_covered = all(each.phase is Phase.RUNNING or _finds_no_place(each, now) for each in new)
        if not is_covered or is_room_left:
            return Plan(kill=kill)
        return Plan(stop=(first.name,), kill=kill, makes_room=waits)
    is_calm = all(each.phase is not Phase.STOPPING for each in left)
    start = -extra or int(is_rolling and is_calm and not is_room_left)
    return Plan(start=start if now >= deaths.next_start() else 0, kill=kill)


def is_bad_handler(deaths: Deaths, *, has_former: bool) -> bool:
    """Whether the newest handler is to be taken back."""
    return has_former and deaths.failed_starts >= FAILED_STARTS


def _is_overdue(actor: Actor, stop_seconds: float, now: float) -> bool:
    if actor.phase in (Phase.ENDED, Phase.HALTED):
        return True
    if actor.phase is Phase.STOPPING:
        return now - actor.since >= stop_seconds
    if actor.phase is Phase.STARTING:
        return now - actor.since >= START_SECONDS
    must_answer = actor.phase is Phase.RUNNING or actor.is_found
    return must_answer and now - actor.heard_at >= ANSWER_SECONDS


def _worth(actor: Actor, version: int) -> tuple[bool, bool, int, str]:
    """Return what sorts actors, those first that are missed the least."""
    return actor.phase is Phase.RUNNING, actor.version == version, actor.load, actor.name


def _finds_no_place(actor: Actor, now: float) -> bool:
    return actor.phase is Phase.WAITING and now - actor.since >= PLACE_SECONDS


def _is_room_left(new: Sequence[Actor], made_at: float | None) -> bool:
    """Whether the place that was made last has been taken by none with the newest handler."""
    if made_at is None:
        return False
    return not any(each.phase in (Phase.STARTING, Phase.RUNNING) and each.since >= made_at for each in new)
