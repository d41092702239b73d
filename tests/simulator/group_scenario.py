"""One seed of groups, in both worlds: on a log that is made up, in which much more happens, and on a replicated one."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulator.cluster.group_cluster import run_group_cluster_seed
from tests.simulator.cluster.group_world import run_group_seed
from tests.simulator.scenario import Outcome
from tests.simulator.world.world import World


def run_groups_seed(seed: int, *, trace_lines: int = 200, look: Callable[[World], None] | None = None) -> Outcome:
    """Raises what was found."""
    run_group_seed(seed)
    return run_group_cluster_seed(seed, trace_lines=trace_lines, look=look)
