"""The housekeeping process of one broker as a Ray actor: see `housekeeper.py` for what it does.

What must stay true: none of its work is urgent. It waits for the processor and the disk behind all others, and the
kernel ends it before raylog's other processes when memory runs out.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import platform
from collections.abc import Iterable
from typing import Final

from raylog.actors.housekeeping.housekeeper import Housekeeper, HousekeeperSpec
from raylog.actors.kernel.metrics import Reading
from raylog.actors.machine.loop_thread import CoreThread
from raylog.actors.machine.real_environment import Place, RealEnvironment
from raylog.actors.machine.tls import RayTls
from raylog.actors.on_ray.actor_exit import end_process
from raylog.actors.on_ray.metrics import RayMetrics

_NICE: Final = 19  # where there is nothing better
_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30}  # the system call has no name in the C library
_OF_THIS_THREAD: Final = 1
_LAST_OF_ALL: Final = 2 << 13 | 7  # the default class, at its lowest level: the idle class might wait for ever
_log = logging.getLogger(__name__)


class HousekeeperActor:
    """The actor, started by `on_ray/housekeeper_keeper.py`. Everything else goes over its streams."""

    def __init__(self, spec: HousekeeperSpec, place: Place) -> None:
        self._spec = spec
        give_way()
        env = RealEnvironment(place, RayTls.from_environment())
        self._core = CoreThread(place.cluster_id)
        self._housekeeper: Housekeeper | None = None
        self._core.start(self._live(env), self._over)
        RayMetrics(self._core, self._readings, {"cluster": spec.cluster, "broker": str(spec.broker_id)})

    async def until_over(self) -> None:
        """Never answer: the call fails when the process ends, which Ray sees within milliseconds."""
        await asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"housekeeper of broker {self._spec.broker_id}"

    async def _live(self, env: RealEnvironment) -> str:
        self._housekeeper = Housekeeper(env, self._spec, os.getpid())
        return await self._housekeeper.run()

    def _readings(self) -> Iterable[Reading]:
        return () if self._housekeeper is None else self._housekeeper.readings()

    def _over(self, task: asyncio.Task[str]) -> None:
        if task.exception() is not None:
            _log.critical("%r: it ends after a mistake of its own.", self, exc_info=task.exception())
        else:
            _log.info("%r: it ends: %s.", self, task.result())
        end_process()


def give_way() -> None:
    """Lower the priority of the calling thread, and of those that it starts from now on.

    A thread under SCHED_IDLE is interrupted as soon as any other wants to run; one that is merely nice finishes its
    turn of some milliseconds first, and Ray's workers are nearly as nice as can be anyway.
    """
    if platform.system() != "Linux":
        os.nice(_NICE)
        return
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None and ctypes.CDLL(None, use_errno=True).syscall(number, _OF_THIS_THREAD, 0, _LAST_OF_ALL):
        _log.info("The priority of its disk access stays as it is: %s", os.strerror(ctypes.get_errno()))
