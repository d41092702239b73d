"""Finds for each mutation the first seed that catches it, and writes `mutation_seeds.py`.

    python -m tests.simulator.search_mutations --seeds 1000 --workers 2 [--only NAME,NAME] [--dry]

A seed catches a mutation if it fails with it and passes without. The seed that is known is tried first, so that running
this again after a change of the code costs little; with `--afresh` the search begins at 0.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from tests.simulator.mutation_seeds import SEEDS
from tests.simulator.mutations.mutations import MUTATIONS
from tests.simulator.scenario import plan_of
from tests.simulator.simulate import say, try_seed

_TABLE: Final = Path(__file__).with_name("mutation_seeds.py")
# No way for the code to lose records, but a mutation that is behind the code.
_BROKEN: Final = ("TypeError", "AttributeError", "NameError", "LookupError", "KeyError")
_HEAD: Final = '''"""Seeds by the mutation that they catch: written by `make mutations`, used by `make test`.

Seeds change their meaning whenever anything draws differently, in the scenario or in the code that it runs. The test
tries a few of the next seeds as well, and says so if none of them tells; then run `make mutations` again.
"""

from __future__ import annotations

from typing import Final

SEEDS: Final[dict[str, int]] = {
'''


class MutationBroken(Exception):
    """A mutation does not fit the code any more: the patched code has other names or arguments."""


def catch(name: str, seed: int) -> str:
    """Return how this seed fails with the mutation; empty if it does not, or if it fails without it too."""
    found = try_seed(seed, name).failure
    if any(error in found for error in _BROKEN):
        raise MutationBroken(f"it does not fit the code any more: {found}")
    return found if found and not try_seed(seed).failure else ""


def candidates(name: str, seeds: int, *, afresh: bool = False) -> Iterator[int]:
    """The known one, then those of the first `seeds` whose plans may tell."""
    known = SEEDS.get(name)
    first = [] if afresh or known is None else [known]
    others = (seed for seed in range(seeds) if seed not in first and MUTATIONS[name].where(plan_of(seed)))
    return chain(first, others)


def search(name: str, seeds: int, afresh: bool) -> tuple[str, int | None, str]:
    """(the mutation, the seed that catches it, how that was seen)"""
    logging.disable(logging.CRITICAL)
    for seed in candidates(name, seeds, afresh=afresh):
        try:
            found = catch(name, seed)
        except MutationBroken as broken:
            return name, None, str(broken)
        if found:
            return name, seed, found
    return name, None, ""


def write(found: dict[str, int]) -> None:
    lines = [f'    "{name}": {found[name]},\n' for name in MUTATIONS if name in found]
    _TABLE.write_text(_HEAD + "".join(lines) + "}\n")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, help="how many to try for each")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--only", default="", help="these mutations, with commas between them")
    parser.add_argument("--afresh", action="store_true", help="forget the seeds that are known")
    parser.add_argument("--dry", action="store_true", help="do not write the table")
    options = parser.parse_args(arguments)
    names = options.only.split(",") if options.only else [each.name for each in MUTATIONS.values() if not each.masked]
    if unknown := set(names).difference(MUTATIONS):
        parser.error(f"no mutations: {', '.join(sorted(unknown))}")
    found = {name: seed for name, seed in SEEDS.items() if name in MUTATIONS and name not in names}
    missed = []
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(search, name, options.seeds, options.afresh) for name in names]):
            name, seed, how = done.result()
            rule = MUTATIONS[name].rule
            if seed is None:
                missed.append(name)
                say(f"rule {rule:2} {name}: NOT CAUGHT by {options.seeds} seeds {how}")
            else:
                found[name] = seed
                if not options.dry:
                    write(found)
                say(f"rule {rule:2} {name}: seed {seed}: {how[:200]}")
    say(f"{len(names) - len(missed)} of {len(names)} mutations are caught.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
