"""Rule 25 switched off at the controller, one clause at a time, to see that the checks of coordinators notice.

What must stay true: each of them is caught by a seed in the table, which passes otherwise. Those at the coordinators
themselves are in `group_mutations.py`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from raylog.actors.controller.coordinator_grants import CoordinatorGrants
from raylog.actors.metadata_log.writer import MetadataWriter
from tests.simulator.coordinator_scenario import run_coordinators_seed
from tests.simulator.mutations.mutations import Patches


def rule_25_grants_without_a_majority(patches: Patches) -> None:
    patches.attribute(MetadataWriter, "obeyed_at", lambda self: asyncio.get_running_loop().time())


def rule_25_successors_do_not_wait(patches: Patches) -> None:
    def at_once(self: CoordinatorGrants, partition: Any, now: float) -> float:
        return 0.0

    patches.attribute(CoordinatorGrants, "seconds_left", at_once)


COORDINATOR_MUTATIONS: Final[dict[str, Callable[[Patches], None]]] = {
    name: value for name, value in list(globals().items()) if name.startswith("rule_")
}

# Seeds that tell, one of which is enough. `python -m tests.simulator.mutations.coordinator_mutations` looks for others.
SEEDS: Final[dict[str, tuple[int, ...]]] = {
    "rule_25_grants_without_a_majority": (3, 5, 7),
    "rule_25_successors_do_not_wait": (15, 43, 47),
}


@contextmanager
def coordinator_rule_off(name: str) -> Iterator[None]:
    patches = Patches()
    try:
        COORDINATOR_MUTATIONS[name](patches)
        yield
    finally:
        patches.undo()


def failure_of_seed(seed: int) -> str:
    """Return how a seed fails; empty: it passes."""
    try:
        run_coordinators_seed(seed)
    except AssertionError as error:
        return str(error) or type(error).__name__
    return ""


def catches(name: str, seed: int) -> bool:
    """Whether this seed fails with the rule off, and passes with it on."""
    with coordinator_rule_off(name):
        failure = failure_of_seed(seed)
    return bool(failure) and not failure_of_seed(seed)


def main() -> None:
    """Three seeds below 200 for each mutation, or for those that are named."""
    logging.disable(logging.CRITICAL)
    for name in sys.argv[1:] or COORDINATOR_MUTATIONS:
        found: list[int] = []
        for seed in range(200):
            if len(found) < 3 and catches(name, seed):
                found.append(seed)
        sys.stdout.write(f'"{name}": {tuple(found)},\n')


if __name__ == "__main__":
    main()
