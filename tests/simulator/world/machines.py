"""Machines, the processes on them, and the environment that a core sees.

    machine = world.add_machine("one")
    process = machine.start("replica-7", main, options, on_exit=again)   # async def main(environment, options)
    process.pause(5.0)                                    # or until `resume`: a zombie
    process.kill()
    process.kill_at_disk("sync", "/log-checkpoint")       # before, midway in or after: the seed decides
    machine.fail_disk("sync", seconds=2.0)                # EIO; also `fill_disk`, `slow_disk`
    machine.jump_wall_clock(-3600.0)
    machine.crash(); machine.restart()                    # nothing runs on it until somebody starts it

What must stay true:
- A process dies at once and whole: nothing of it runs on, its kernel closes its streams and releases its locks, and
  code of it that is still on the stack cannot touch anything. The page cache survives it; a power cut leaves what
  `crash_model.py` says.
- Clocks of different machines run at slightly different rates. The clock of the loop never goes back; the
  wall clock may jump.
- Work off the loop happens at one instant, between turns of the loop, later than it was asked for and in any order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from copy import copy
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from raylog.actors.kernel.answer_room import AnswerRoom
from raylog.actors.kernel.stream_interface import Handler, Stream
from raylog.actors.protocol.cluster_secrets import ClusterSecrets, KeyRing
from raylog.actors.protocol.endpoint import Endpoint
from raylog.errors import DiskFailed
from raylog.storage.disk.disk import Disk
from tests.simulator.world.delays import Delays, Rarely
from tests.simulator.world.fake_network import Network
from tests.simulator.world.fake_streams import FakeServer, FakeStream
from tests.simulator.world.faulty_disk import MOMENTS, FaultyDisk, SimulatedCrash
from tests.simulator.world.scheduler import MICROSECONDS
from tests.simulator.world.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from tests.simulator.world.world import World

_T = TypeVar("_T")
Main: TypeAlias = Callable[..., Coroutine[Any, Any, object]]

_WALL_AT_START: Final = 1_800_000_000.0
_CLOCK_DRIFT: Final = 2e-4
_WALL_SKEW: Final = 2.0
_SECRETS: Final = ClusterSecrets(1, (b"internal" * 4,), (b"client" * 6,))
_NOTICED: Final = (1_000, 20_000)  # microseconds until `on_exit` is called


class _Trouble:
    """Some operations of a disk fail for a while."""

    def __init__(self, operation: str, path_contains: str, error: BaseException | None, until: int) -> None:
        self.operation = operation
        self.path_contains = path_contains
        self.error = error
        self.until = until

    def matches(self, operation: str, path: str) -> bool:
        return self.operation in ("", operation) and self.path_contains in path


class Machine:
    """A disk, clocks, processes. Made by `World.add_machine`."""

    def __init__(self, world: World, name: str, ordered_names: bool, *, is_of_cluster: bool = True) -> None:
        """`is_of_cluster`: what runs on it holds the internal secret (rule 33); otherwise it is all clients."""
        self.world = world
        self.name = name
        self.is_of_cluster = is_of_cluster
        self.is_up = True
        self.boots = 1
        self.disk = FaultyDisk(ordered_names=ordered_names)  # to look at, also while the power is off
        self.processes: list[Process] = []  # that live, paused ones too
        self.started: list[Process] = []  # dead ones too; so that the numbers of processes do not depend on garbage
        random = world.random
        self.clock_rate = 1.0 + random.uniform(-_CLOCK_DRIFT, _CLOCK_DRIFT)
        self._clock_base = random.uniform(10.0, 1e6)
        self._wall_base = _WALL_AT_START + random.uniform(-_WALL_SKEW, _WALL_SKEW)
        self._troubles: list[_Trouble] = []
        self._slowness = 1.0
        slow = random.choice((0.0, 0.01, 0.1))
        self._disk_delays = Delays(random, 20, 600, Rarely(slow, 2_000, 100_000))

    def start(
        self, name: str, main: Main, *args: object, on_exit: Callable[[Process], object] | None = None
    ) -> Process:
        """A new process, which runs `main(environment, *args)` and exits when that returns.

        An error that leaves `main` fails the run. `on_exit` is called, outside of any process, soon after it has
        exited or was killed; not when the machine crashed.
        """
        if not self.is_up:
            raise RuntimeError(f"{self.name} has no power.")
        process = Process(self, name, on_exit)
        self.processes.append(process)
        self.started.append(process)
        self.world.counters["processes"] += 1
        self.world.trace("{} starts on {} as {}", name, self.name, process.pid)
        process.begin(main, args)
        return process

    def crash(self) -> None:
        """The power is cut: un-synced bytes go as the seed has it, and no peer of any stream is told."""
        if not self.is_up:
            return
        self.is_up = False
        self.world.counters["machine crashes"] += 1
        self.world.trace("{} loses its power", self.name)
        for process in list(self.processes):
            process.lose_power()
        self.world.network.machine_lost_power(self)
        self.disk.crash_machine(self.world.random)

    def restart(self) -> None:
        """The power is back, under a new boot id."""
        if not self.is_up:
            self.is_up = True
            self.boots += 1
            self._clock_base = self.world.random.uniform(5.0, 60.0) - self.world.now * self.clock_rate
            self.world.trace("{} boots", self.name)
            self.world.network.machine_is_up(self)

    def jump_wall_clock(self, seconds: float) -> None:
        self.world.trace("the wall clock of {} jumps by {} s", self.name, seconds)
        self._wall_base += seconds

    def fail_disk(
        self, operation: str = "", path_contains: str = "", *, seconds: float, error: BaseException | None = None
    ) -> None:
        """Fail every such operation of any process here for so long, by default with an I/O error."""
        self.world.trace("{}: {} of *{}* fails for {} s", self.name, operation or "all", path_contains, seconds)
        until = self.world.scheduler.now + int(seconds * MICROSECONDS)
        self._troubles.append(_Trouble(operation, path_contains, error, until))

    def fill_disk(self) -> None:
        """No file can grow, until `free_disk`."""
        self.world.trace("the disk of {} is full", self.name)
        self.disk.capacity = 0

    def free_disk(self) -> None:
        self.world.trace("the disk of {} has room", self.name)
        self.disk.capacity = None

    def slow_disk(self, factor: float) -> None:
        """Work off the loop takes so many times longer than usual."""
        self._slowness = factor

    # --- what processes ask ---------------------------------------------------------------------------------------

    def new_loop(self, name: str, report: Callable[[VirtualLoop, dict[str, Any]], object]) -> VirtualLoop:
        scheduler = self.world.scheduler
        # mypy counts what asyncio has and a virtual loop does not (sockets, signals) as missing.
        return VirtualLoop(scheduler, name, report, base=self._clock_base, rate=self.clock_rate)  # type: ignore[abstract]

    def wall_ms(self) -> int:
        return int((self._wall_base + self.world.now * self.clock_rate) * 1_000)

    def disk_delay(self) -> int:
        return int(self._disk_delays.draw() * self._slowness)

    def check_disk(self, operation: str, path: str) -> None:
        if self._troubles:
            self._troubles = [each for each in self._troubles if each.until > self.world.scheduler.now]
            for trouble in self._troubles:
                if trouble.matches(operation, path):
                    raise trouble.error or DiskFailed(f"{operation} of {path}: I/O error (simulated).")

    def dispose(self) -> None:
        for process in self.started:
            process.dispose()


class Process:
    """Made by `Machine.start`."""

    def __init__(self, machine: Machine, name: str, on_exit: Callable[[Process], object] | None) -> None:
        self.machine = machine
        self.name = name
        self.is_alive = True
        self.why_ended = ""
        self.disk = machine.disk.new_process()
        self.disk.on_operation = self._on_disk
        self.pid = self.disk.pid
        self.loop = machine.new_loop(name, self._report)
        self.environment = SimEnvironment(self)
        self._world = machine.world
        self._on_exit = on_exit
        self._boot = machine.boots
        self._is_gone = False  # for its kernel too
        self._doom: tuple[str, str, bool] | None = None  # operation, part of the path, with the machine
        self._doom_in = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._work: list[Callable[[], None]] = []  # off the loop, that came due while it was paused

    def begin(self, main: Main, args: tuple[object, ...]) -> None:
        self.run(main(self.environment, *args)).add_done_callback(self._returned)

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run something else in this process, beside what it does anyway."""
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)  # nobody else needs to hold it
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def is_paused(self) -> bool:
        return self.loop.is_paused

    # --- ends -----------------------------------------------------------------------------------------------------

    def kill(self, why: str = "killed") -> None:
        """SIGKILL. The page cache survives, and the peers of its streams hear of it soon."""
        if self.is_alive:
            self._die(why)
            self._is_gone_for_kernel()

    def kill_at_disk(
        self, operation: str = "", path_contains: str = "", *, skip: int = 0, with_machine: bool = False
    ) -> None:
        """Die at the next such operation on the disk after `skip` others. `with_machine`: its power is cut."""
        self._doom = operation, path_contains, with_machine
        self._doom_in = skip

    def lose_power(self) -> None:
        """End without a word, for `Machine.crash`, which looks after streams and disk."""
        self._die("its machine lost its power")
        self._is_gone = True

    def _die(self, why: str) -> None:
        self.is_alive = False
        self.why_ended = why
        self._world.counters["processes ended"] += 1
        self._world.trace("{} ends: {}", self.name, why)
        self.loop.kill()
        self.machine.processes.remove(self)

    def _is_gone_for_kernel(self) -> None:
        """Streams, files and locks go."""
        if self._is_gone:
            return
        self._is_gone = True
        self._world.network.process_ended(self.loop)
        self.disk.crash_process()
        if self._on_exit is not None:
            self._world.scheduler.after(self._world.random.randint(*_NOTICED), self._notice, self._on_exit)

    def _notice(self, on_exit: Callable[[Process], object]) -> None:
        if self.machine.is_up and self.machine.boots == self._boot:
            on_exit(self)

    def _returned(self, task: asyncio.Task[object]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, SimulatedCrash):
            self.kill("died at its disk")
        elif error is not None:
            self._world.fail(f"{self.name} failed.", error)
            self.kill("failed")
        else:
            self.kill("exited")

    def _report(self, _loop: VirtualLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, SimulatedCrash):
            self.kill("died at its disk")
        else:
            self._world.fail(f"{self.name}: {context['message']}", error)

    def dispose(self) -> None:
        """The world is over."""
        self.is_alive = False
        self.loop.kill()
        self.loop.dispose()

    # --- pauses ---------------------------------------------------------------------------------------------------

    def pause(self, seconds: float | None = None) -> None:
        """SIGSTOP: nothing of it runs, and nobody is told, until `resume` or so long."""
        if not self.is_alive:
            return
        self._world.trace("{} is paused", self.name)
        self.loop.pause()
        if seconds is not None:
            self._world.after(seconds, self.resume)

    def resume(self) -> None:
        """SIGCONT: it goes on as if nothing had been."""
        if not self.is_paused:
            return
        self._world.trace("{} goes on", self.name)
        self.loop.resume()
        work, self._work = self._work, []
        for each in work:
            self._world.scheduler.after(self.machine.disk_delay(), each)

    # --- the disk -------------------------------------------------------------------------------------------------

    def _on_disk(self, operation: str, path: str) -> None:
        """Called before every operation on its disk."""
        if not self.is_alive:
            raise SimulatedCrash(f"{operation} {path}: {self.name} is dead")
        if self._doom is not None and self._doom[0] in ("", operation) and self._doom[1] in path:
            self._doom_in -= 1
            if self._doom_in < 0:
                self._die_at_disk(f"{operation} {path}", with_machine=self._doom[2])
                return
        self.machine.check_disk(operation, path)

    def _die_at_disk(self, what: str, *, with_machine: bool) -> None:
        random = self._world.random
        moment = random.choice(MOMENTS)
        self._die(f"{moment} {what}")
        end = self.machine.crash if with_machine else self._is_gone_for_kernel
        self._world.scheduler.at(self._world.scheduler.now, end)
        if moment == "before":
            raise SimulatedCrash(f"{self.name} dies before {what}")
        self.disk.crash_after(1, moment, fraction=random.random())

    # --- off the loop ---------------------------------------------------------------------------------------------

    def off_loop(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        future: asyncio.Future[_T] = self.loop.create_future()
        self._world.scheduler.after(self.machine.disk_delay(), self._do, work, future)
        return future

    def _do(self, work: Callable[[], _T], future: asyncio.Future[_T]) -> None:
        if not self.is_alive:
            return
        if self.is_paused:
            self._work.append(lambda: self._do(work, future))
            return
        result: _T | None = None
        failure: Exception | None = None
        try:
            result = work()
        except SimulatedCrash:
            self.kill("died at its disk")
            return
        except Exception as error:  # noqa: BLE001 (it belongs to whoever asked for the work)
            failure = error
        self._world.scheduler.after(self.machine.disk_delay() // 8, self.loop.deliver, _done, future, result, failure)


def _done(future: asyncio.Future[Any], result: object, failure: Exception | None) -> None:
    if future.done():  # cancelled
        return
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(result)


class SimEnvironment:
    """The `Environment` of one process."""

    def __init__(self, process: Process) -> None:
        self.disk: Disk = process.disk
        held = _SECRETS if process.machine.is_of_cluster else _SECRETS.for_clients()
        self.keys = KeyRing(held)
        self.answers = AnswerRoom()
        self.random = Random(process.machine.world.random.getrandbits(64))
        self.process = process
        self._machine = process.machine
        self._network: Network = process.machine.world.network

    def wall_ms(self) -> int:
        return self._machine.wall_ms()

    def off_loop(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        return self.process.off_loop(work)

    async def dial(self, endpoint: Endpoint, role: str, handler: Handler) -> FakeStream:
        return await self._network.dial(
            self.process.loop, self._machine, self.keys, endpoint, role, handler
        )

    async def listen(
        self, name: str, role: str, handler: Handler, on_stream: Callable[[Stream], None] | None = None
    ) -> tuple[FakeServer, tuple[Endpoint, ...]]:
        return self._network.listen(self.process.loop, self._machine, self.keys, name, role, handler, on_stream)

    def as_client(self) -> SimEnvironment:
        """See `Environment.as_client`."""
        view = copy(self)
        view.keys = self.keys.for_clients()
        return view

    def kill(self, pid: int) -> None:
        for process in list(self._machine.processes):
            if process.pid == pid and self.process.is_alive:
                process.kill(f"killed by {self.process.name}")
