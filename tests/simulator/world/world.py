"""A whole simulated world from one seed: machines, processes, network, clocks, and what went wrong.

    with World(seed) as world:                                   # leaving it checks, and lets go of everything
        one, two = world.add_machine("one"), world.add_machine("two")
        broker = one.start("broker-1", broker_main, config)       # async def broker_main(environment, config)
        world.after(2.0, broker.kill)
        world.after(3.0, one.start, "broker-1", broker_main, config)
        world.network.partition([one], [two])
        world.run_for(5.0)
        world.network.heal()
        assert world.run_until_idle_or(lambda: checker.is_content, limit=30.0)

A failure, whether of a process, a handler, a call given to `after`, or `world.fail`, ends the run with the event in
which it happened, and raises `SimulationFailed` with the seed and the end of the trace.

What must stay true: all that happens follows from the seed and from what the test does. So nothing in a world, and no
code that runs in it, may depend on addresses of objects, PYTHONHASHSEED, or the time of day. `fingerprint` tells
whether two runs were the same.
"""

from __future__ import annotations

import gc
import math
import traceback
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Final

from tests.simulator.world.fake_network import Network, NetworkSettings
from tests.simulator.world.machines import Machine
from tests.simulator.world.scheduler import MICROSECONDS, Event, Scheduler, TooManyEvents

_SHOWN_LINES: Final = 60
_LONG_RUN: Final = 50_000  # events


class SimulationFailed(AssertionError):
    """A failure in the simulated world."""


_OF_CLIENTS = ("client", "reader", "hostile")


class World:
    """See the top of this file."""

    def __init__(self, seed: int, *, trace_lines: int = 2_000, settings: NetworkSettings | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)  # whoever draws from it changes what follows, in every run alike
        self.counters: Counter[str] = Counter()
        self.failures: list[str] = []
        self.scheduler = Scheduler(self.random)
        self.machines: list[Machine] = []
        self._had_gc = False
        self._trace: deque[tuple[int, str, tuple[object, ...]]] = deque(maxlen=trace_lines)
        self.network = Network(self.scheduler, self.random, self.counters, self.trace, self.fail, settings)

    def __enter__(self) -> World:
        self._had_gc = gc.isenabled()
        gc.disable()  # `Scheduler.run` says when
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.finish()
            elif (
                error is not None and kind is not SimulationFailed and hasattr(error, "add_note")
            ):  # from Python 3.11 on
                error.add_note(self._end_of_trace())
        finally:
            self.close()
            if self._had_gc:
                gc.enable()

    # --- time -----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the world began. The clocks of its machines show other times."""
        return self.scheduler.now / MICROSECONDS

    def at(self, seconds: float, callback: Callable[..., object], *args: object) -> Event:
        """Call at that time, outside of any process. `cancel` of what is returned takes it back."""
        return self.scheduler.at(int(seconds * MICROSECONDS), callback, *args)

    def after(self, seconds: float, callback: Callable[..., object], *args: object) -> Event:
        return self.scheduler.after(int(seconds * MICROSECONDS), callback, *args)

    def run_until(self, seconds: float, *, max_events: int | None = None) -> None:
        """Run up to that time. More than `max_events`: something goes round in circles, and that is a failure."""
        self._run(seconds, None, max_events)

    def run_for(self, seconds: float, *, max_events: int | None = None) -> None:
        self._run(self.now + seconds, None, max_events)

    def run_until_idle_or(
        self, predicate: Callable[[], bool], limit: float = math.inf, *, max_events: int | None = None
    ) -> bool:
        """Run until the predicate holds (True), or nothing is left to happen or so many seconds are over (False).

        It is asked after every event: it should be quick.
        """
        return predicate() or self._run(self.now + limit, predicate, max_events)

    def _run(self, until: float, is_enough: Callable[[], bool] | None, max_events: int | None) -> bool:
        last = self.scheduler.NEVER if math.isinf(until) else round(until * MICROSECONDS)
        found = False
        try:
            found = self.scheduler.run(last, is_enough, max_events)
        except TooManyEvents as error:
            self.fail(str(error))
        except Exception as error:  # noqa: BLE001 (whatever it is, it fails the run)
            self.fail("A call of the test's own failed.", error)
        self.check()
        return found

    # --- machines -------------------------------------------------------------------------------------------------

    def add_machine(self, name: str, *, ordered_names: bool | None = None) -> Machine:
        """A machine that is up and on which nothing runs. The seed chooses how its disk orders names.

        One of clients or readers, as its name says, holds the clients' secret only.
        """
        ordered = self.random.random() < 0.5 if ordered_names is None else ordered_names
        machine = Machine(self, name, ordered, is_of_cluster=not name.startswith(_OF_CLIENTS))
        self.machines.append(machine)
        self.network.add_node(machine)
        return machine

    # --- what went on, and what went wrong ------------------------------------------------------------------------

    def fail(self, text: str, error: BaseException | None = None) -> None:
        """Record a failure. The run ends with the present event."""
        details = "" if error is None else "\n" + "".join(traceback.format_exception(error))
        self.failures.append(f"At {self.now:.6f} s: {text}{details}")
        self.trace("FAILED: {}", text)
        self.scheduler.is_stopping = True

    def check(self) -> None:
        """Raise what was recorded."""
        if self.failures:
            raise SimulationFailed("\n".join([*self.failures, self._end_of_trace()]))

    def _end_of_trace(self) -> str:
        return "\n".join([f"Seed {self.seed}. Its trace ends:", *self.trace_text().splitlines()[-_SHOWN_LINES:]])

    def finish(self) -> None:
        """Look for errors that nobody has taken notice of, and check."""
        gc.collect(1 if self.scheduler.events < _LONG_RUN else 2)
        self.check()

    def trace(self, text: str, *args: object) -> None:
        """Note `text.format(*args)`. It is formatted when somebody reads it, so pass what does not change."""
        self._trace.append((self.scheduler.now, text, args))

    def trace_text(self) -> str:
        """The last lines, each with its time."""
        return "\n".join(f"{now / MICROSECONDS:12.6f}  {text.format(*args)}" for now, text, args in self._trace)

    @property
    def fingerprint(self) -> int:
        """Return the fingerprint of all events so far, their order and their times."""
        return self.scheduler.fingerprint

    def close(self) -> None:
        """The end. What processes have left behind is let go without a word."""
        self.scheduler.clear()
        for machine in self.machines:
            machine.dispose()
