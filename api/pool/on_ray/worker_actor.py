"""One consumer of a pool as a Ray actor. Its worker runs on a thread of its own; Ray's calls are answered beside it.

What must stay true: it does not outlive its pool. One that its supervisor has not asked for a while looks for it, and
where there is none any more it stops by itself and ends its process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from random import Random
from typing import Any, Final

import ray
from ray.exceptions import RayError

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.on_ray.actor_exit import end_process
from raylog.actors.protocol.actor_names import namespace, pool_name
from raylog.api.pool.careful_hands import CarefulHands
from raylog.api.pool.loops import WorkerLoops
from raylog.api.pool.pickled_handler import PickledHandler
from raylog.api.pool.rules.poison import Place
from raylog.api.pool.rules.pool_options import PoolSpec
from raylog.api.pool.work_meter import WorkMeter
from raylog.api.pool.worker import Orders, Worker, WorkerReport

_TELL_SECONDS: Final = 5.0
_ALONE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 5.0
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 20.0
_log = logging.getLogger(__name__)


class PoolWorkerActor:
    """The actor, made by `pool_actors.py`. It is there at once; its worker may take long to begin."""

    def __init__(self, name: str, spec: PoolSpec, orders: Orders) -> None:
        logging.getLogger("raylog").setLevel(logging.INFO)
        self._name, self._spec = name, spec
        self._asked_at = time.monotonic()
        hands, meter = CarefulHands(self._tell), WorkMeter(time.monotonic)
        retries = Backoff(spec.options.retry_pause_ms / 1000, spec.options.longest_retry_pause_ms / 1000, Random())
        pauses = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, Random())
        code = PickledHandler(
            spec.code, lambda options: WorkerLoops(name, spec, options, hands, meter, retries).open
        )
        self._worker = Worker(name, spec.version, code.make, code.open, hands, meter, pauses, spec.handler_seconds)
        self._worker.report(orders)
        self._node = ray.get_runtime_context().get_node_id()
        threading.Thread(target=self._worker.run, name=f"raylog {name}", daemon=True).start()
        threading.Thread(target=self._watch, name="raylog pool", daemon=True).start()

    def __repr__(self) -> str:
        return f"pool actor {self._name}"

    def report(self, orders: Orders) -> WorkerReport:
        """Take orders, and say how it is."""
        self._asked_at = time.monotonic()
        return self._worker.report(orders, pid=os.getpid(), node_id=self._node)

    def stop(self) -> None:
        """End what is in hand, and then the worker. Its supervisor ends the process."""
        self._worker.stop()

    # --- how ------------------------------------------------------------------------------------------------------

    def _tell(self, place: Place) -> None:
        """Tell the supervisor what is about to be handled; without it the record is handled all the same."""
        try:
            ray.get(self._supervisor().note.remote(self._name, place), timeout=_TELL_SECONDS)
        except (RayError, ValueError) as error:
            _log.warning("%s could not tell what it is about to handle: %s", self._name, error)

    def _supervisor(self) -> Any:
        return ray.get_actor(pool_name(self._spec.group_id), namespace=namespace(self._spec.cluster))

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            if time.monotonic() - self._asked_at < _ALONE_SECONDS:
                continue
            try:
                self._supervisor()
            except ValueError:
                break
            except RayError as error:
                _log.warning("%s could not look for its supervisor: %s", self._name, error)
        _log.warning("%s ends: its pool has no supervisor any more.", self._name)
        self._worker.stop()
        deadline = time.monotonic() + self._spec.options.stop_timeout_seconds
        while not self._worker.is_over and time.monotonic() < deadline:
            time.sleep(_TELL_SECONDS / 10)
        end_process()
