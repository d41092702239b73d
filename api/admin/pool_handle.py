"""The handle of a pool: calls to its supervisor's actor, each with an end.

A supervisor that is lost is started again by Ray, and found under the same name. A call that changes something and
loses it on the way may have been carried out; all of them may be repeated.
"""

from __future__ import annotations

import time
from typing import Any, Final

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayTaskError

from raylog.actors.protocol.actor_names import group_of_pool, namespace, pool_name
from raylog.api.admin.rules.pool_descriptions import PoolDescription
from raylog.api.connection.controller_calls import plain_error
from raylog.errors import PoolNotReady, UnknownPool

POOL_SECONDS: Final = 30.0
STOP_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.1
_AGAIN_SECONDS: Final = 5.0


class PoolHandle:
    """A pool of consumers that runs on this Ray. `Cluster.pool` returns it, and it is what `ConsumerPool` is, too."""

    def __init__(self, cluster: str, group_id: str) -> None:
        self.cluster = cluster
        self.group_id = group_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.group_id!r}, cluster={self.cluster!r})"

    def describe(self, timeout: float = POOL_SECONDS) -> PoolDescription:
        """Return how it is: its actors, its lag, how many are wanted and why. UnknownPool, PoolNotReady."""
        found: PoolDescription = self._ask("describe", timeout=timeout)
        return found

    def update(self, handler: Any, timeout: float = POOL_SECONDS) -> int:
        """Roll out another handler, without a gap, and return its version. `describe` shows how far it is.

        A handler with which no actor comes up is taken back; `describe().problem` says so. A pool that is halted goes
        on. UnknownPool, PoolNotReady; TypeError: it is none.
        """
        from importlib import import_module

        with_handler = import_module("raylog.api.pool.consumer_pool").with_handler  # which is above this package
        deadline = time.monotonic() + timeout
        code = with_handler(self._ask("code", timeout=timeout), handler)
        return int(self._ask("update", code, timeout=max(0.0, deadline - time.monotonic())))

    def scale(self, min_actors: int, max_actors: int, timeout: float = POOL_SECONDS) -> None:
        """Set other bounds. A pool that is halted goes on. InvalidConfig, UnknownPool, PoolNotReady."""
        self._ask("scale", min_actors, max_actors, timeout=timeout)

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """End the pool: actors end what they have in hand, commit and go. What is committed stays with the group.

        UnknownPool; PoolNotReady: they have not all gone in that time, and it goes on.
        """
        deadline = time.monotonic() + timeout
        self._ask("stop", timeout=timeout)
        asked_at = time.monotonic()
        while self._find() is not None:
            now = time.monotonic()
            if now >= deadline:
                raise PoolNotReady(self.group_id, round(timeout * 1000), "its actors have not all ended")
            if now - asked_at >= _AGAIN_SECONDS:  # its supervisor may have been lost
                asked_at = now
                self.begin_stop()
            time.sleep(_LOOK_SECONDS)

    def begin_stop(self) -> None:
        """Have it stop, and do not wait. Nothing, where there is no such pool."""
        actor = self._find()
        if actor is not None:
            actor.stop.remote()

    def wait_until_ready(self, timeout: float = POOL_SECONDS) -> None:
        """Wait until its supervisor answers. UnknownPool, PoolNotReady."""
        self.describe(timeout)

    def _find(self) -> Any:
        try:
            return ray.get_actor(pool_name(self.group_id), namespace=namespace(self.cluster))
        except ValueError:
            return None

    def _ask(self, call: str, *arguments: object, timeout: float) -> Any:
        deadline = time.monotonic() + timeout
        reason = "its supervisor does not answer"
        while (left := deadline - time.monotonic()) > 0:
            actor = self._find()
            if actor is None:  # one that Ray starts again keeps its name
                raise UnknownPool(self.group_id)
            try:
                return ray.get(getattr(actor, call).remote(*arguments), timeout=left)
            except RayTaskError as error:
                raise plain_error(error) from None
            except (RayActorError, ActorUnavailableError) as error:
                reason = str(error).strip().splitlines()[0]
            except GetTimeoutError:
                break
            time.sleep(min(_LOOK_SECONDS, max(0.0, left)))
        raise PoolNotReady(self.group_id, round(timeout * 1000), reason)


def pool_groups(names: list[str]) -> list[str]:
    """Return the groups of which there are supervisors among these names of actors."""
    return sorted(group for name in names if (group := group_of_pool(name)) is not None)
