"""The supervisor of a pool as a Ray actor: detached, with a name, started again by Ray as often as it is lost.

What must stay true: it ends with its pool, and nothing of it is left then: no actor, no spec, no wish for nodes. One
that finds no spec when it begins belongs to a pool that has ended.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from raylog.actors.kernel.metrics import (
    POOL_ACTORS,
    POOL_ACTORS_WANTED,
    POOL_DEAD_LETTERS,
    POOL_DEATHS,
    POOL_FAILURES,
    POOL_LAG,
    POOL_RECORDS,
    MetricChanges,
    Reading,
)
from raylog.actors.on_ray.actor_exit import end_process
from raylog.actors.on_ray.metrics import PERIOD_SECONDS, MetricTeller
from raylog.api.admin.cluster import Cluster
from raylog.api.admin.rules.pool_descriptions import PoolDescription
from raylog.api.pool.group_offsets import GroupOffsets
from raylog.api.pool.on_ray.pool_actors import ActorsOnRay
from raylog.api.pool.on_ray.spec_store import SpecStore
from raylog.api.pool.rules.poison import Place
from raylog.api.pool.supervisor import Supervisor

_STEP_SECONDS: Final = 1.0
_WAIT_SECONDS: Final = 0.1
_log = logging.getLogger(__name__)


class PoolActor:
    """The actor, made by `raylog.ConsumerPool`. Its core is `Supervisor`, on a thread of its own."""

    def __init__(self, cluster: str, group_id: str, making: str, reads_committed: bool) -> None:
        logging.getLogger("raylog").setLevel(logging.INFO)
        self._cluster, self._group_id = cluster, group_id
        store = SpecStore(cluster, group_id, making)
        spec = store.load()
        if spec is None:
            _log.warning("The pool of group %r has ended: there is no spec of it.", group_id)
            end_process()
            raise RuntimeError("this pool has ended")
        self._actors = ActorsOnRay(cluster, group_id)
        offsets = GroupOffsets(Cluster(cluster), spec, reads_committed=reads_committed)
        self._core = Supervisor(spec, self._actors, offsets.look, store, time.monotonic, time.time)
        self._spec = spec
        self._over = threading.Event()
        threading.Thread(target=self._run, name="raylog pool", daemon=True).start()

    def __repr__(self) -> str:
        return f"pool of group {self._group_id}"

    def describe(self) -> PoolDescription:
        return self._core.describe()

    def code(self) -> bytes:
        return self._core.code()

    def update(self, code: bytes) -> int:
        return self._core.update(code)

    def scale(self, least: int, most: int) -> None:
        self._core.scale(least, most)

    def note(self, name: str, place: Place) -> None:
        self._core.note(name, place)

    def stop(self) -> None:
        """Begin to stop. The process ends when all actors have."""
        self._core.stop()

    # --- how ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        teller = MetricTeller({"cluster": self._cluster})
        changes, told_at = MetricChanges(), 0.0
        while not self._core.is_over:
            began = time.monotonic()
            try:
                self._core.step()
            except Exception:  # noqa: BLE001 (of Ray's, say while its control store is away: the next step may do it)
                _log.exception("A step of the pool of group %r has failed.", self._group_id)
            if began - told_at >= PERIOD_SECONDS:
                told_at = began
                teller.tell(changes.since_last(_readings(self._core.describe())))
            time.sleep(max(_WAIT_SECONDS, began + _STEP_SECONDS - time.monotonic()))
        self._actors.want(0, self._spec)
        end_process()


def _readings(pool: PoolDescription) -> list[Reading]:
    tags = (pool.group_id,)
    return [
        Reading(POOL_ACTORS, tags, pool.running),
        Reading(POOL_ACTORS_WANTED, tags, pool.wanted),
        Reading(POOL_LAG, tags, pool.lag),
        Reading(POOL_RECORDS, tags, pool.handled),
        Reading(POOL_FAILURES, tags, pool.failed),
        Reading(POOL_DEAD_LETTERS, tags, pool.put_aside),
        Reading(POOL_DEATHS, tags, pool.deaths),
    ]
