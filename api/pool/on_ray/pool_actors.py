"""The actors of a pool on Ray: made, asked, stopped, killed; and nodes for them.

What must stay true:
- Actors are detached and have names, so a supervisor that is started again finds them. Ray starts none again by itself
  (rule 26): the supervisor does, with the newest handler.
- No call waits for an actor for longer than a second. An answer that comes later is taken the next time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayActorError, RayError
from ray.util import list_named_actors

from raylog.actors.protocol.actor_names import namespace, pool_actor_name, pool_worker_of
from raylog.api.admin.cluster import Cluster
from raylog.api.pool.loops import client_id, transactional_id
from raylog.api.pool.nodes_wish import NodesWish
from raylog.api.pool.on_ray.shared_wishes import tell_wish
from raylog.api.pool.on_ray.worker_actor import PoolWorkerActor
from raylog.api.pool.rules.pool_options import PoolSpec
from raylog.api.pool.supervisor import Gone
from raylog.api.pool.worker import Orders, WorkerReport
from raylog.errors import RaylogError

_ANSWER_SECONDS: Final = 1.0
_CLEAR_SECONDS: Final = 30.0
_AT_ONCE: Final = 2  # calls that one actor answers beside each other: it is asked, and told to stop
_log = logging.getLogger(__name__)


class ActorsOnRay:
    """Used by the thread of the supervisor alone."""

    def __init__(self, cluster: str, group_id: str) -> None:
        self._cluster, self._group = cluster, group_id
        self._namespace = namespace(cluster)
        self._handles: dict[str, Any] = {}
        self._asked: dict[str, Any] = {}  # reports that are awaited
        self._wish = NodesWish(partial(tell_wish, cluster, group_id))

    def names(self) -> Collection[str]:
        found = list_named_actors(all_namespaces=True)
        named = [each["name"] for each in found if each["namespace"] == self._namespace]
        return [worker for each in named if (worker := pool_worker_of(each, self._group)) is not None]

    def start(self, name: str, spec: PoolSpec, orders: Orders) -> None:
        options = {
            **spec.options.actor_options,
            "name": pool_actor_name(name),
            "namespace": self._namespace,
            "lifetime": "detached",
            "num_cpus": spec.options.num_cpus,
            "max_restarts": 0,
            "max_task_retries": 0,
            "max_concurrency": _AT_ONCE,
        }
        self._handles[name] = ray.remote(PoolWorkerActor).options(**options).remote(name, spec, orders)

    def ask(self, names: Collection[str], orders: Orders) -> Mapping[str, WorkerReport | Gone]:
        found: dict[str, WorkerReport | Gone] = {}
        for name in names:
            if name in self._asked:
                continue
            actor = self._actor(name)
            if actor is None:
                found[name] = Gone("Ray has no actor of its name any more")
            else:
                self._asked[name] = actor.report.remote(orders)
        awaited = [self._asked[name] for name in names if name in self._asked]
        ready = set(ray.wait(awaited, num_returns=len(awaited), timeout=_ANSWER_SECONDS)[0]) if awaited else set()
        for name in names:
            if name in self._asked and self._asked[name] in ready:
                answer = self._answer(self._asked.pop(name))
                if answer is not None:
                    found[name] = answer
                if isinstance(answer, Gone):
                    self._handles.pop(name, None)
        return found

    @staticmethod
    def _answer(reference: Any) -> WorkerReport | Gone | None:
        try:
            report: WorkerReport = ray.get(reference, timeout=_ANSWER_SECONDS)
        except ActorUnavailableError:
            return None  # it may come back: it is asked again
        except (ActorDiedError, RayActorError) as error:
            return Gone(_short(error))
        except RayError as error:
            _log.warning("An actor's report cannot be read: %s", error)
            return None
        return report

    def _actor(self, name: str) -> Any:
        if name not in self._handles:
            try:
                self._handles[name] = ray.get_actor(pool_actor_name(name), namespace=self._namespace)
            except ValueError:
                return None
        return self._handles[name]

    def stop(self, name: str) -> None:
        actor = self._actor(name)
        if actor is not None:
            actor.stop.remote()

    def bury(self, name: str, spec: PoolSpec) -> None:
        threading.Thread(target=self._clear_away, args=(name, spec), name="raylog pool", daemon=True).start()

    def _clear_away(self, name: str, spec: PoolSpec) -> None:
        """Remove a dead worker from its group, so that its partitions wait for no time-out; end its transaction."""
        try:
            self._remove_member(client_id(name))
        except RaylogError as error:
            _log.warning("%s, which is dead, is not removed from its group, and will time out there: %s", name, error)
        if not spec.options.exactly_once:
            return
        try:
            Cluster(self._cluster).abort_transaction(transactional_id(self._group, name), timeout=_CLEAR_SECONDS)
        except RaylogError as error:  # mostly: none was open
            _log.info("No transaction of %s is aborted: %s", name, error)

    def _remove_member(self, member: str) -> None:
        cluster = Cluster(self._cluster)
        members = cluster.describe_group(self._group, timeout=_CLEAR_SECONDS).members
        dead = [each.member_id for each in members if each.client_id == member]
        if dead:
            cluster.remove_members(self._group, dead, reason="its actor has died", timeout=_CLEAR_SECONDS)

    def kill(self, name: str) -> None:
        actor = self._actor(name)
        self._handles.pop(name, None)
        self._asked.pop(name, None)
        if actor is not None:
            ray.kill(actor)

    def want(self, count: int, spec: PoolSpec) -> None:
        self._wish.want(count, spec, time.monotonic())


def _short(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:300] or type(error).__name__
