"""Runs seeds of the simulated cluster, many of them in worker processes, or one with all that happened in it.

    python -m tests.simulator.simulate --seeds 1000 --from 0 --workers 2
    python -m tests.simulator.simulate --of transactions --seed 123

What must stay true: a seed gives the same outcome wherever and however often it runs, in whichever order, so what a
worker has found is found again by the one command that is printed with it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from types import FrameType
from typing import Final

from tests.simulator.coordinator_scenario import run_coordinators_seed
from tests.simulator.group_scenario import run_groups_seed
from tests.simulator.mutations.mutations import MUTATIONS, switched_off
from tests.simulator.scenario import Outcome, run_seed
from tests.simulator.transaction_scenario import run_transaction_seed
from tests.simulator.world.world import World

RECORDS: Final = "records"
KINDS: Final[dict[str, Callable[..., Outcome]]] = {
    RECORDS: run_seed,
    "groups": run_groups_seed,
    "transactions": run_transaction_seed,
    "coordinators": run_coordinators_seed,
}
_COUNTED: Final = {RECORDS: "records", "groups": "commits", "transactions": "transactions", "coordinators": "numbers"}

_CHUNK: Final = 8  # seeds that a worker is given at once
_PROGRESS_SECONDS: Final = 10.0
_LONGEST_SEED: Final = 60.0  # CPU seconds: one that takes longer goes round in circles within one event
_TRACE_LINES: Final = 1_000_000


class SeedTooLong(AssertionError):
    """A seed does not end."""


@dataclass(frozen=True)
class SeedRun:
    """`failure` is empty, or the one line that says best what went wrong."""

    seed: int
    outcome: Outcome | None
    failure: str = ""


@dataclass
class Totals:
    seeds: int = 0
    events: int = 0
    acknowledged: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failed: list[SeedRun] = field(default_factory=list)

    def add(self, run: SeedRun) -> None:
        self.seeds += 1
        if run.outcome is None:
            self.failed.append(run)
        else:
            self.events += run.outcome.events
            self.acknowledged += run.outcome.acknowledged
            self.faults.update(run.outcome.faults)


# --- one seed -------------------------------------------------------------------------------------------------------


def try_seed(seed: int, mutation: str = "", kind: str = RECORDS) -> SeedRun:
    """Never raises for what the seed finds."""
    try:
        with switched_off(mutation), _bounded():
            return SeedRun(seed, KINDS[kind](seed))
    except Exception as error:  # noqa: BLE001 (whatever it is, it is what the seed has found)
        return SeedRun(seed, None, summary_of(error))


def summary_of(error: BaseException) -> str:
    """The last line of a traceback says more than the first line of a report; that says where to look."""
    lines = [line.strip() for line in str(error).split("\nSeed ")[0].splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    first, last = lines[0], lines[-1]
    name = "" if type(error).__name__ == "SimulationFailed" else f"{type(error).__name__}: "
    return name + (first if first == last else f"{first} … {last}")


@contextmanager
def _bounded() -> Iterator[None]:
    """Interrupt a seed that does not come back from one event. Handlers that swallow it are interrupted again."""

    def interrupt(signal_number: int, frame: FrameType | None) -> None:
        raise SeedTooLong(f"It has taken {_LONGEST_SEED:.0f} s of CPU time.")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, _LONGEST_SEED, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


# --- many seeds -----------------------------------------------------------------------------------------------------


def _begin_worker() -> None:
    """A sixth of the time goes into what nobody looks at: asyncio's set of all tasks, and modules as possible garbage.

    A task still gets the hash that it would get there, so a seed is the same with and without this.
    """
    logging.disable(logging.CRITICAL)
    for name in ("_all_tasks", "_scheduled_tasks"):  # until Python 3.11, and since
        tasks = getattr(asyncio.tasks, name, None)
        if tasks is not None:
            tasks.add = hash
    gc.collect()
    gc.freeze()


def _try_all(seeds: Iterable[int], mutation: str, kind: str) -> list[SeedRun]:
    return [try_seed(seed, mutation, kind) for seed in seeds]


def run_seeds(seeds: range, workers: int, mutation: str = "", kind: str = RECORDS) -> Iterator[SeedRun]:
    """Yield runs as they are done. Workers begin with a fresh interpreter, so nothing of this process is in them."""
    chunks = iter([seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK)])
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin_worker) as pool:
        under_way: set[Future[list[SeedRun]]] = set()
        try:
            while True:
                while len(under_way) < 2 * workers and (chunk := next(chunks, None)) is not None:
                    under_way.add(pool.submit(_try_all, chunk, mutation, kind))
                if not under_way:
                    return
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for each in done:
                    yield from each.result()
        finally:
            for each in under_way:
                each.cancel()


def simulate(seeds: range, workers: int, mutation: str = "", kind: str = RECORDS) -> int:
    totals, began = Totals(), time.monotonic()
    said_at = began
    for run in run_seeds(seeds, workers, mutation, kind):
        totals.add(run)
        if run.failure:
            say(f"seed {run.seed} FAILED: {run.failure}\n    {replay_command(run.seed, mutation, kind)}")
        if time.monotonic() - said_at >= _PROGRESS_SECONDS:
            said_at = time.monotonic()
            say(_progress(totals, len(seeds), said_at - began, kind))
    say(_progress(totals, len(seeds), time.monotonic() - began, kind))
    say("faults: " + ", ".join(f"{name} {count}" for name, count in sorted(totals.faults.items())))
    return 1 if totals.failed else 0


def _progress(totals: Totals, wanted: int, seconds: float, kind: str) -> str:
    rate, events = totals.seeds / seconds, totals.events / seconds
    return (
        f"{totals.seeds} of {wanted} seeds, {len(totals.failed)} failed; {rate:.1f} seeds/s, {events:.0f} events/s; "
        f"{totals.acknowledged} {_COUNTED[kind]} acknowledged"
    )


def replay_command(seed: int, mutation: str = "", kind: str = RECORDS) -> str:
    target = "simulate" if kind == RECORDS else f"simulate-{kind}"
    return f"make {target} SEED={seed}" + (f" MUTATION={mutation}" if mutation else "")


# --- one seed, with all that happened -------------------------------------------------------------------------------


def replay(seed: int, mutation: str = "", kind: str = RECORDS) -> int:
    try:
        with switched_off(mutation), _bounded():
            outcome = KINDS[kind](seed, trace_lines=_TRACE_LINES, look=_print_trace)
    except AssertionError as error:
        say(f"\nseed {seed} FAILED: {summary_of(error)}\n")
        say(str(error).split("\nSeed ")[0])
        return 1
    say(f"\nseed {seed} passed: {outcome}")
    return 0


def _print_trace(world: World) -> None:
    say(world.trace_text())


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", default=RECORDS, choices=list(KINDS), dest="kind", help="what is simulated")
    parser.add_argument("--seed", type=int, help="replay this one, and print all that happened in it")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    names = sorted(MUTATIONS)
    parser.add_argument("--mutation", default="", choices=["", *names], metavar="NAME", help="with this rule off")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return replay(options.seed, options.mutation, options.kind)
    seeds = range(options.first, options.first + options.seeds)
    return simulate(seeds, options.workers, options.mutation, options.kind)


if __name__ == "__main__":
    sys.exit(main())
