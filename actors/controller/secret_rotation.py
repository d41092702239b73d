"""The controller's part in changing the secrets of a cluster without a stop (rule 33).

    one set ──rotate──► two are valid, the newer is dialled with ──the grace is over, all brokers keep it──► one set

What must stay true:
- The older set is valid until every broker that is registered has the newer one on its disk. Brokers that are away are
  started with the newest.
- The version of a set rises with each change, also where a later controller does not know what an earlier one drew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.actors.protocol.secret_messages import KeepSecrets
from raylog.errors import AdminTimedOut, StreamError

_LOOK_SECONDS: Final = 0.5
_TELL_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


class SecretRotation:
    """`brokers`: the streams of those that are registered."""

    def __init__(
        self,
        env: Environment,
        tasks: BackgroundTasks,
        epoch: Callable[[], int],
        brokers: Callable[[], Iterable[Stream]],
    ) -> None:
        self._env = env
        self._tasks = tasks
        self._is_looking = False
        self._epoch = epoch
        self._brokers = brokers
        self._coordinators: dict[Stream, None] = {}
        self._told: dict[Stream, int] = {}  # the version that it has said it holds

    # --- what others use ------------------------------------------------------------------------------------------

    async def rotate(self, grace_seconds: float, timeout: float) -> None:
        """Draw new secrets. Returns once every registered broker keeps them. AdminTimedOut: it goes on."""
        held = self._env.keys.secrets
        until_ms = self._env.wall_ms() + round(1000 * grace_seconds)
        self._env.keys.adopt(self._numbered(held.rotated(until_ms)))
        self.look()
        _log.warning("The secrets of this cluster change; the former are valid for %g s more.", grace_seconds)
        deadline = asyncio.get_running_loop().time() + timeout
        while not await self._tell_all():
            if asyncio.get_running_loop().time() >= deadline:
                raise AdminTimedOut("rotate_secrets", round(1000 * timeout))
            await asyncio.sleep(_LOOK_SECONDS)

    def heard_of(self, coordinator: Stream) -> None:
        """A coordinator has reported over this stream."""
        if coordinator not in self._coordinators:
            self._coordinators[coordinator] = None
            coordinator.closed.add_done_callback(lambda _: self._coordinators.pop(coordinator, None))

    def look(self) -> None:
        """A broker has registered. As long as the secrets are the first ones, there is nothing to tell it."""
        if not self._is_looking and self._env.keys.secrets.version > 1:
            self._is_looking = True
            self._tasks.start(self._run())

    async def _run(self) -> None:
        """Tell processes that came later, and end the grace period."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if await self._tell_all():
                self._end_grace()

    # --- how ------------------------------------------------------------------------------------------------------

    def _numbered(self, held: ClusterSecrets) -> ClusterSecrets:
        version = max(held.version, self._epoch() << 32)
        return ClusterSecrets(version, held.internal, held.client, held.previous_until_ms)

    def _end_grace(self) -> None:
        held = self._env.keys.secrets
        if held.has_previous and self._env.wall_ms() >= held.previous_until_ms:
            _log.warning("The former secrets of this cluster are not valid any more.")
            self._env.keys.adopt(self._numbered(held.without_previous()))

    async def _tell_all(self) -> bool:
        """Whether all brokers that are registered hold the newest."""
        version = self._env.keys.secrets.version
        brokers = list(self._brokers())
        everybody = [*brokers, *self._coordinators]
        self._told = {stream: told for stream, told in self._told.items() if not stream.closed.done()}
        await asyncio.gather(*(self._tell(each) for each in everybody if self._told.get(each) != version))
        return all(self._told.get(each) == version for each in brokers)

    async def _tell(self, stream: Stream) -> None:
        held = self._env.keys.secrets
        try:
            await stream.request(KeepSecrets.of(held), timeout=_TELL_SECONDS)
        except StreamError as error:
            _log.info("%s does not hold the new secrets yet: %s", stream.peer, error)
        else:
            self._told[stream] = held.version
