"""A pool in a simulated world: the real decisions, second by second, over a trace of load.

Partitions have ends and committed offsets. Actors start late, read their share of the partitions, do so many records a
second, commit each second what they have done, and die when the trace says so. What a dead one has not committed is
done again by others. A record counts as handled when its offset is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from raylog.api.connection.records import TopicPartition
from raylog.api.pool.rules.fleet import Actor, Deaths, Fleet, Phase, plan
from raylog.api.pool.rules.load import LagMeter, RateMeter, WorkDone
from raylog.api.pool.rules.scaling import Load, ScalingPolicy, ScalingState, decide


@dataclass
class SimActor:
    name: str
    version: int
    made_at: int
    phase: Phase = Phase.WAITING
    since: float = 0.0
    carry: float = 0.0  # of a record that is not done yet
    work: WorkDone = field(default_factory=WorkDone)


@dataclass
class Moment:
    """What the world looked like at one second."""

    at: int
    lag: int
    wanted: int
    running: int
    there: int
    waits: float  # seconds that the oldest record would wait at the rate of those that run


class PoolWorld:
    def __init__(
        self,
        policy: ScalingPolicy,
        arrival: Callable[[int], float],
        actor_rate: Callable[[int], float],
        partitions: int = 12,
        start_seconds: int = 3,
        places: int = 1_000,
        deaths: Callable[[int], int] = lambda _: 0,
        used: int | None = None,
    ) -> None:
        self.policy = policy
        self.partitions = [TopicPartition("t", number) for number in range(partitions)]
        self.version = 1
        self.now = 0
        self.actors: dict[str, SimActor] = {}
        self.ends = dict.fromkeys(self.partitions, 0)
        self.committed = dict.fromkeys(self.partitions, 0)
        self.history: list[Moment] = []
        self._used = self.partitions[:used]  # get records
        self._arrival, self._actor_rate, self._deaths_at = arrival, actor_rate, deaths
        self._start_seconds, self._places = start_seconds, places
        self._state, self._deaths = ScalingState(), Deaths()
        self._lag, self._rate = LagMeter(), RateMeter()
        self._owed = 0.0
        self._first = 0  # the partition that gets the next record
        self._made = 0

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self._second()

    def _second(self) -> None:
        self._arrive()
        self._kill(self._deaths_at(self.now))
        self._start()
        self._work()
        self._supervise()
        self.now += 1

    def _arrive(self) -> None:
        self._owed += self._arrival(self.now)
        count, self._owed = int(self._owed), self._owed % 1
        share, rest = divmod(count, len(self._used))
        for place, partition in enumerate(self._used):
            self.ends[partition] += share + ((place - self._first) % len(self._used) < rest)
        self._first = (self._first + rest) % len(self._used)

    def _kill(self, count: int) -> None:
        running = [each for each in self.actors.values() if each.phase is Phase.RUNNING]
        for each in running[:count]:
            del self.actors[each.name]
            self._deaths = self._deaths.one_more(self.now, while_starting=False)

    def _start(self) -> None:
        used = sum(each.phase is not Phase.WAITING for each in self.actors.values())
        for each in self.actors.values():
            if each.phase is Phase.WAITING and used < self._places:
                used += 1
                each.phase, each.since, each.made_at = Phase.STARTING, self.now, self.now
            elif each.phase is Phase.STARTING and self.now - each.made_at >= self._start_seconds:
                each.phase, each.since = Phase.RUNNING, self.now

    def _work(self) -> None:
        for name in [each.name for each in self.actors.values() if each.phase is Phase.STOPPING]:
            del self.actors[name]
        running = [each for each in self.actors.values() if each.phase is Phase.RUNNING]
        for number, each in enumerate(running):
            room = self._actor_rate(self.now) + each.carry
            done = 0
            for partition in self.partitions[number :: len(running)]:
                count = min(int(room) - done, self.ends[partition] - self.committed[partition])
                self.committed[partition] += count
                done += count
            is_full = any(self.ends[p] > self.committed[p] for p in self.partitions[number :: len(running)])
            each.carry = room - done if is_full else 0.0
            if is_full:
                before = each.work
                each.work = WorkDone(before.full_records + done, before.full_seconds + 1, 1)
            else:
                each.work = replace(each.work, in_hand=0)

    def _supervise(self) -> None:
        now = float(self.now)
        self._lag.look(dict.fromkeys(self.partitions, 0), self.ends, self.committed, now)
        self._rate.hear({each.name: each.work for each in self.actors.values() if each.phase is Phase.RUNNING}, now)
        running = sum(each.phase is Phase.RUNNING for each in self.actors.values())
        lag = self._lag
        load = Load(lag.lag, lag.arrival, self._rate.rate, lag.partitions, lag.behind, running)
        decision = decide(self.policy, self._state, load, now)
        self._state = decision.state
        seen = [Actor(each.name, each.version, each.phase, each.since, now) for each in self.actors.values()]
        todo = plan(Fleet(seen, decision.wanted, self.version), self._deaths, now)
        for name in todo.kill:
            del self.actors[name]
        for name in todo.stop:
            self.actors[name].phase, self.actors[name].since = Phase.STOPPING, now
        for _ in range(todo.start):
            self._made += 1
            self.actors[f"a{self._made}"] = SimActor(f"a{self._made}", self.version, self.now, since=now)
        phases = [each.phase for each in self.actors.values()]
        left = sum(self.ends[each] - self.committed[each] for each in self.partitions)
        speed = phases.count(Phase.RUNNING) * self._actor_rate(self.now)
        self.history.append(
            Moment(
                self.now, left, decision.wanted, phases.count(Phase.RUNNING),
                len(phases) - phases.count(Phase.STOPPING), left / speed if speed else (1e9 if left else 0.0),
            )
        )  # fmt: skip

    # --- what tests ask -------------------------------------------------------------------------------------------

    def turns(self, since: int = 0) -> int:
        """Return how often the number that is wanted went up after it had gone down, or down after up."""
        wanted = [each.wanted for each in self.history[since:]]
        steps = [after - before for before, after in pairwise(wanted) if after != before]
        return sum((one > 0) != (other > 0) for one, other in pairwise(steps))

    def since(self, at: int) -> list[Moment]:
        return self.history[at:]
