"""A pool's supervisor: looks, decides, acts, once a second. The decisions are in `rules/`; Ray is behind `PoolActors`.

    reports of the actors ─► who has died, who is poison ─┐
    offsets ─► lag, arrival, rate ─► how many are wanted ─┴─► whom to start, to stop, to kill

What must stay true:
- What it cannot find out again lies in the store (`Store`): the spec, with the handler and the bounds, whether the pool
  stops or is halted, and what is poison. All else it is told by actors and brokers. So a supervisor that is started
  again goes on with the actors that are there.
- A request is carried out by the next step; only the store is written at once, before the request is answered.
- An actor that is spare and may have work in hand is asked to go, also one that this supervisor has found and that has
  not answered yet. Only one that is overdue is killed.
- Once the store is cleared nothing is saved there: requests may still come in before the process has ended.
- Without offsets nothing is decided anew: actors that die are replaced, and the number stays.
- An actor that nobody has asked to go counts as a death.
- An actor that has ended without leaving its group is removed from it, once its process is gone.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from raylog.api.admin.rules.pool_descriptions import PoolActorDescription, PoolDescription, PoolEvent
from raylog.api.connection.records import TopicPartition
from raylog.api.pool.rules.fleet import Actor, Deaths, Fleet, Phase, is_bad_handler, plan
from raylog.api.pool.rules.load import LagMeter, RateMeter
from raylog.api.pool.rules.poison import Place, Suspicion
from raylog.api.pool.rules.pool_options import PoolSpec
from raylog.api.pool.rules.scaling import Load, ScalingState, decide
from raylog.api.pool.work_meter import WorkCounts
from raylog.api.pool.worker import Orders, WorkerReport
from raylog.errors import RaylogError

_MOST_EVENTS: Final = 50
_NAME_DIGITS: Final = 8
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gone:
    """An answer in place of a report: this actor is dead."""

    reason: str


@dataclass(frozen=True)
class Offsets:
    """Offsets of a pool's partitions, as the brokers tell them."""

    begins: Mapping[TopicPartition, int]  # of those of which the group has committed nothing
    ends: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]


class PoolActors(Protocol):
    """The actors of a pool. No call waits for long."""

    def names(self) -> Collection[str]: ...
    def start(self, name: str, spec: PoolSpec, orders: Orders) -> None: ...
    def ask(self, names: Collection[str], orders: Orders) -> Mapping[str, WorkerReport | Gone]:
        """Return what those say that have answered within a second or so."""
        ...

    def stop(self, name: str) -> None: ...
    def bury(self, name: str, spec: PoolSpec) -> None:
        """Clear away what one that has died may have left: its membership, and a transaction that is open."""
        ...

    def kill(self, name: str) -> None: ...
    def want(self, count: int, spec: PoolSpec) -> None:
        """Have places for so many: Ray's autoscaler is asked for nodes."""
        ...


class Store(Protocol):
    """The place where the spec lies."""

    def load(self) -> PoolSpec | None: ...
    def save(self, spec: PoolSpec) -> None: ...
    def clear(self) -> None: ...


@dataclass
class _Known:
    """An actor, as far as is known of it."""

    version: int
    phase: Phase
    since: float
    heard_at: float
    report: WorkerReport | None = None
    is_found: bool = False  # it was there before this supervisor
    is_asked_to_go: bool = False
    in_hand: Place | None = None
    counts: WorkCounts = field(default_factory=WorkCounts)

    @property
    def has_left(self) -> bool:
        """Whether it has told that it left its group. One that ended with an error may have its handler stuck."""
        if self.report is None:
            return False
        return self.report.phase is Phase.HALTED or (self.report.phase is Phase.ENDED and not self.report.error)


class Supervisor:
    """The core. `step` is for one thread; `update`, `scale`, `stop`, `note` and `describe` are for any."""

    def __init__(
        self,
        spec: PoolSpec,
        actors: PoolActors,
        look: Callable[[], Offsets],
        store: Store,
        now: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._spec = spec
        self._actors, self._look, self._store, self._now, self._wall = actors, look, store, now, wall
        self._lock = threading.Lock()  # around the spec, and deaths with its version
        self._is_over = False
        self._trouble = ""  # with the brokers
        at = now()
        self._known = {name: _Known(spec.version, Phase.WAITING, at, at, is_found=True) for name in actors.names()}
        self._state = ScalingState(wanted=len(self._known))
        self._room_made: tuple[int, float] | None = None  # by the roll-out of which version, and when
        self._deaths, self._suspicion = Deaths(), Suspicion(poison=spec.poison)
        self._lag, self._rate = LagMeter(), RateMeter()
        self._has_looked = False
        self._rated = spec.version  # the version that the rate is of
        self._reason = "it has just begun"
        self._died = 0
        self._past = WorkCounts()  # of actors that are gone
        self._events: deque[PoolEvent] = deque(maxlen=_MOST_EVENTS)
        self._tell(f"the supervisor has begun, with {len(self._known)} actors")
        self._shown = self._description()

    # --- requests -------------------------------------------------------------------------------------------------

    def update(self, code: bytes) -> int:
        """Roll out another handler. Returns its version."""
        with self._lock:
            self._keep(self._spec.updated(code))
            self._deaths = Deaths()
        self._tell(f"version {self._spec.version} of the handler is to be rolled out")
        return self._spec.version

    def scale(self, least: int, most: int) -> None:
        """Set other bounds. A pool that is halted goes on. InvalidConfig."""
        with self._lock:
            self._keep(self._spec.scaled(least, most))
        self._tell(f"from {least} to {most} actors are allowed")

    def stop(self) -> None:
        """End, once all actors have ended what they have in hand."""
        with self._lock:
            self._keep(replace(self._spec, is_stopping=True))

    def note(self, name: str, place: Place) -> None:
        """Hear that this actor is about to handle this record."""
        known = self._known.get(name)
        if known is not None:
            known.in_hand = place

    def code(self) -> bytes:
        """Return the handler and the options of its consumers, pickled."""
        return self._spec.code

    def describe(self) -> PoolDescription:
        return self._shown

    @property
    def is_over(self) -> bool:
        """Whether it was stopped and has no actor left. Then nothing is in the store."""
        return self._is_over

    def _keep(self, spec: PoolSpec) -> None:
        if not self._is_over:
            self._store.save(spec)
        self._spec = spec

    # --- a step ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Look, decide and act once."""
        now = self._now()
        self._hear(now)
        self._take_back_a_bad_handler()
        wanted = self._decide(now)
        self._keep_poison()
        self._act(wanted, now)
        self._shown = self._description()
        if self._spec.is_stopping and not self._known:
            with self._lock:
                self._store.clear()
                self._is_over = True

    def _orders(self, now: float) -> Orders:
        return Orders(self._suspicion.is_careful(now), self._suspicion.poison)

    def _hear(self, now: float) -> None:
        answers = self._actors.ask(list(self._known), self._orders(now))
        for name, answer in answers.items():
            known = self._known[name]
            if isinstance(answer, Gone):
                self._lost(name, known, answer.reason, now)
            else:
                self._heard(name, known, answer, now)
        if self._rated != self._spec.version:
            self._rated = self._spec.version
            self._rate.forget()
        running = {name: each.counts.done for name, each in self._known.items() if each.phase is Phase.RUNNING}
        self._rate.hear(running, now)

    def _heard(self, name: str, known: _Known, report: WorkerReport, now: float) -> None:
        is_over = report.phase in (Phase.ENDED, Phase.HALTED)
        phase = Phase.STOPPING if known.is_asked_to_go and not is_over else report.phase
        if phase is not known.phase:
            known.since = now
        if report.came_up and not (known.report is not None and known.report.came_up):
            self._tell(f"{name} works, with version {report.version} of the handler")
            self._came_up(report.version)
        known.version, known.phase, known.heard_at, known.report = report.version, phase, now, report
        known.counts = report.counts
        if not report.counts.done.in_hand:
            known.in_hand = None
        self._lag.read_up_to(report.counts.positions)
        if phase is Phase.HALTED and not known.is_asked_to_go:
            with self._lock:
                self._keep(replace(self._spec, halted=report.error))
            self._tell(f"the pool is halted: {report.error}")
        elif phase is Phase.ENDED and not known.is_asked_to_go:
            known.is_asked_to_go = True
            if report.error:
                self._count_death(name, known, report.error, now)

    def _came_up(self, version: int) -> None:
        with self._lock:
            if version != self._spec.version:
                return
            self._deaths = self._deaths.came_up()
            if not self._spec.is_proven:
                self._keep(self._spec.proven())

    def _lost(self, name: str, known: _Known, reason: str, now: float) -> None:
        if not known.is_asked_to_go:
            self._count_death(name, known, reason, now)
        self._bury(name, known)

    def _bury(self, name: str, known: _Known) -> None:
        """Forget one whose process is gone, and clear away what it has left."""
        if not known.has_left:
            self._actors.bury(name, self._spec)
        self._forget(name)

    def _count_death(self, name: str, known: _Known, reason: str, now: float) -> None:
        came_up = known.report is not None and known.report.came_up
        self._died += 1
        with self._lock:
            is_newest = known.version == self._spec.version
            self._deaths = self._deaths.one_more(now, while_starting=not came_up and is_newest)
        before = self._suspicion.poison
        self._suspicion = self._suspicion.death(now, known.in_hand)
        with_it = "" if known.in_hand is None else " with offset {2} of {0}-{1} in hand".format(*known.in_hand)
        self._tell(f"{name} has died{with_it}: {reason}")
        for topic, partition, offset in self._suspicion.poison - before:
            self._tell(f"offset {offset} of {topic}-{partition} is poison, and is put aside")

    def _forget(self, name: str) -> None:
        counts, past = self._known.pop(name).counts, self._past
        self._past = WorkCounts(
            past.handled + counts.handled, past.failed + counts.failed, past.put_aside + counts.put_aside
        )

    def _take_back_a_bad_handler(self) -> None:
        with self._lock:
            if not is_bad_handler(self._deaths, has_former=self._spec.former_code is not None):
                return
            told = (each.text for each in reversed(self._events) if "has died" in each.text)
            self._keep(self._spec.taken_back(next(told, "it does not come up")))
            self._deaths = Deaths()
        self._tell(self._spec.problem)

    def _keep_poison(self) -> None:
        with self._lock:
            if self._suspicion.poison != self._spec.poison:
                self._keep(replace(self._spec, poison=self._suspicion.poison))

    # --- deciding -------------------------------------------------------------------------------------------------

    def _decide(self, now: float) -> int:
        try:
            offsets = self._look()
        except RaylogError as error:
            self._trouble = str(error)
        else:
            self._trouble, self._has_looked = "", True
            self._lag.look(offsets.begins, offsets.ends, offsets.committed, now)
            self._suspicion = self._suspicion.committed(offsets.committed.items())
        spec = self._spec
        if spec.is_stopping or spec.halted:
            self._reason = "the pool is stopping" if spec.is_stopping else "the pool is halted"
            self._state = ScalingState()
            return 0
        if self._trouble or not self._has_looked:
            return self._state.wanted
        there = sum(each.phase is Phase.RUNNING for each in self._known.values())
        meter = self._lag
        load = Load(meter.lag, meter.arrival, self._rate.rate, meter.partitions, meter.behind, there)
        before = self._state.wanted
        decision = decide(spec.options.policy, self._state, load, now)
        self._state, self._reason = decision.state, decision.reason
        if decision.wanted != before:
            self._tell(f"{decision.wanted} actors are wanted, {before} were: {decision.reason}")
        return decision.wanted

    def _act(self, wanted: int, now: float) -> None:
        spec = self._spec
        actors = [
            Actor(name, each.version, each.phase, each.since, each.heard_at, each.counts.partitions, each.is_found)
            for name, each in self._known.items()
        ]
        room = self._room_made
        room_made_at = room[1] if room is not None and room[0] == spec.version else None
        fleet = Fleet(actors, wanted, spec.version, spec.options.stop_timeout_seconds, room_made_at)
        todo = plan(fleet, self._deaths, now)
        if todo.makes_room:
            self._room_made = (spec.version, now)
        for name in todo.kill:
            self._kill(name, now)
        for name in todo.stop:
            known = self._known[name]
            if known.report is None and not known.is_found:  # it has no process yet
                self._actors.kill(name)
                self._forget(name)
            else:
                known.is_asked_to_go, known.phase, known.since = True, Phase.STOPPING, now
                self._actors.stop(name)
        self._actors.want(wanted, spec)
        for _ in range(todo.start):
            name = f"{spec.group_id}-{uuid.uuid4().hex[:_NAME_DIGITS]}"
            self._known[name] = _Known(spec.version, Phase.WAITING, now, now)
            self._actors.start(name, spec, self._orders(now))

    def _kill(self, name: str, now: float) -> None:
        known = self._known[name]
        if known.phase in (Phase.STARTING, Phase.RUNNING):
            self._count_death(name, known, "it did not answer, or did not come up, in time", now)
        elif known.phase is Phase.STOPPING:
            self._tell(f"{name} is killed: it did not end in time")
        elif known.phase is Phase.WAITING:
            self._tell(f"{name} is killed: it was there before the supervisor, and did not answer")
        self._actors.kill(name)
        self._bury(name, known)

    # --- what is shown --------------------------------------------------------------------------------------------

    def _tell(self, text: str) -> None:
        _log.info("Pool %r: %s", self._spec.group_id, text)
        self._events.append(PoolEvent(self._wall(), text))

    def _state_name(self) -> str:
        if self._spec.is_stopping:
            return "stopping"
        if self._spec.halted:
            return "halted"
        if any(each.version != self._spec.version for each in self._known.values()):
            return "updating"
        return "running" if self._known or self._state.wanted else "idle"

    def _totals(self) -> WorkCounts:
        every = [self._past, *(each.counts for each in self._known.values())]
        return WorkCounts(*(sum(getattr(each, name) for each in every) for name in ("handled", "failed", "put_aside")))

    def _description(self) -> PoolDescription:
        spec, totals = self._spec, self._totals()
        actors = [
            PoolActorDescription(
                name, each.phase.value, each.version,
                each.report.node_id if each.report else "", each.report.pid if each.report else 0,
                each.counts.partitions, each.counts.handled, each.report.error if each.report else "",
            )
            for name, each in sorted(self._known.items())
        ]  # fmt: skip
        return PoolDescription(
            group_id=spec.group_id,
            topics=spec.topics,
            state=self._state_name(),
            min_actors=spec.options.min_actors,
            max_actors=spec.options.max_actors,
            wanted=self._state.wanted,
            reason=self._reason,
            lag=self._lag.lag if self._has_looked else 0,
            arrival=self._lag.arrival if self._has_looked else 0.0,
            actor_rate=self._rate.rate,
            version=spec.version,
            handled=totals.handled,
            failed=totals.failed,
            put_aside=totals.put_aside,
            deaths=self._died,
            problem=spec.halted or spec.problem or self._trouble,
            actors=tuple(actors),
            events=tuple(self._events),
        )

