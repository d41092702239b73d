"""The nodes that one pool wants of Ray's autoscaler: told when they change, and again after a while.

What must stay true: a wish counts as told once it was. A supervisor that is started again does not know what the one
before has told, so it tells its first wish, also that it wants none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from raylog.api.pool.rules.pool_options import PoolSpec

AGAIN_SECONDS: Final = 60.0

Wish = list[dict[str, float]]  # what each actor needs


class NodesWish:
    """The part of one pool."""

    def __init__(self, tell: Callable[[Wish], None]) -> None:
        self._tell = tell
        self._told: Wish | None = None
        self._told_at = 0.0

    def want(self, count: int, spec: PoolSpec, now: float) -> None:
        """Have nodes for so many actors, as far as the autoscaler can. Nothing, where nothing has changed."""
        each = _resources(spec)
        if not each or not spec.options.request_nodes:
            return
        wish = [each] * count
        if wish == self._told and (not wish or now - self._told_at < AGAIN_SECONDS):
            return
        self._tell(wish)
        self._told, self._told_at = wish, now


def _resources(spec: PoolSpec) -> dict[str, float]:
    more = spec.options.actor_options
    found = {"CPU": spec.options.num_cpus, "GPU": more.get("num_gpus") or 0, **(more.get("resources") or {})}
    return {name: amount for name, amount in found.items() if amount}
