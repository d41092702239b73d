"""The controller as a Ray actor, on the head node: its core, the fleet of brokers, and administration.

    one life of the process:  fleet ──brokers──► controller core ──over (another epoch, no quorum)──► another core ──► …

What must stay true:
- Ray keeps one actor of this name, and restarts it with the same arguments when its process dies. It then comes to the
  same numbers of brokers. So a formation that was interrupted is completed, not begun anew.
- It looks up its node when it starts: a head that was lost comes back as another node of Ray, with its directories.
- A core that is over is closed before the next one begins.
- Calls that come through Ray wait for the core on Ray's own event loop, never on the core's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import ray

from raylog.actors.cluster.admin_requests import AdminRequest
from raylog.actors.cluster.descriptions import ClusterDescription
from raylog.actors.controller.admin import ControllerAdmin
from raylog.actors.controller.admin_calls import carry_out
from raylog.actors.controller.controller import Controller, ControllerSpec
from raylog.actors.kernel.metrics import CONTROLLER_SERVING, Reading
from raylog.actors.link.delete_records import delete_records
from raylog.actors.link.hanging_transactions import Hanging, end_hanging
from raylog.actors.machine.actor_address import Address
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.actors.machine.loop_thread import CoreThread
from raylog.actors.machine.own_processes import outlive_others, take_normal_priority
from raylog.actors.machine.real_environment import Place, RealEnvironment
from raylog.actors.machine.socket_directory import remove_dead_sockets, socket_directory
from raylog.actors.machine.tls import RayTls
from raylog.actors.on_ray.broker_fleet import BrokerFleet, lasts
from raylog.actors.on_ray.broker_homes import BrokerHome, moved, without_removed
from raylog.actors.on_ray.coordinator_launcher import RayCoordinatorLauncher
from raylog.actors.on_ray.host_launcher import RayHostLauncher
from raylog.actors.on_ray.metrics import RayMetrics
from raylog.actors.on_ray.runtime.control_store import control_store
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.gateway_spec import KafkaListeners
from raylog.errors import ClusterNotReady, ControllerNotReady, KafkaListenersDiffer, RaylogError

_SHOWN: Final = 10  # names of partitions in an error
_BEGIN_SECONDS: Final = 15.0
_PAUSE_SECONDS: Final = 0.2
_LOOK_SECONDS: Final = 0.02
_PATIENCE_SECONDS: Final = 10.0  # with a broker that cannot run, say because its predecessor is still ending

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ControllerPost:
    """The arguments of the controller's actor."""

    cluster: str  # its name
    cluster_id: str
    secrets: ClusterSecrets
    head: str  # the head's node when the actor was made
    first_voters: tuple[int, ...]  # there was no data anywhere: begin a new cluster with these; else empty
    homes: tuple[BrokerHome, ...]
    later_data_dir: str
    coordinators: Mapping[str, str]  # by topic, the dotted name of what makes the core of its coordinators
    start_id: str  # of the call of `raylog.start` that made this actor
    kafka: KafkaListeners | None = None  # where Kafka clients are served; None: nowhere


class Joined(NamedTuple):
    """The outcome of a start, once its brokers have joined."""

    leaderless: tuple[str, ...]  # partitions that can have no leader, and why
    left_out: tuple[str, ...]  # directories of brokers that were removed


class ControllerActor:
    def __init__(self, post: ControllerPost) -> None:
        outlive_others()
        take_normal_priority()
        self._post = post
        self._problem = "its controller has just been started"
        self._controller: Controller | None = None
        self._is_ending = False
        self._attempts = 0
        self._is_in_use = _was_restarted()
        self._core = CoreThread(post.cluster_id)
        self._node_id: str = ray.get_runtime_context().get_node_id()
        host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        remove_dead_sockets(socket_directory(post.cluster_id, host))
        place = Place(post.cluster_id, post.secrets, host, post.cluster, run=secrets.token_hex(4))
        self._env = RealEnvironment(place, RayTls.from_environment())
        self._fleet = BrokerFleet(
            post.cluster, post.cluster_id, self._env.keys, post.later_data_dir, post.first_voters, post.kafka
        )
        self._fleet.learn(moved(post.homes, post.head, self._node_id))
        self._launcher = RayHostLauncher(post.cluster, post.cluster_id, self._env.keys, self._host_ended)
        self._coordinator_launcher = RayCoordinatorLauncher(
            post.cluster, post.cluster_id, self._env.keys, post.coordinators, self._coordinators_ended
        )
        self._core.start(self._live(), self._over)
        RayMetrics(self._core, self._readings, {"cluster": post.cluster})

    def __repr__(self) -> str:
        return f"controller of {self._post.cluster}"

    # --- calls through Ray ----------------------------------------------------------------------------------------

    async def address(self, held: ClusterSecrets) -> tuple[Address, ClusterSecrets]:
        """Return where brokers and coordinators dial it, and the secrets. `held`: what the caller has.

        A controller that Ray has started again learns so what was changed since the first time.
        """
        await self._core.call(self._adopt(held))
        controller = self._controller
        if controller is None or not controller.endpoints:
            raise ControllerNotReady("It has just been started.")
        address = Address(self._node_id, tuple(map(str, controller.endpoints)))
        return address, self._env.keys.secrets

    async def access(self) -> ClusterAccess:
        held = self._env.keys.secrets.for_clients()
        return ClusterAccess(self._post.cluster_id, held, dict(self._fleet.addresses))

    async def wait_until_ready(self, timeout: float) -> None:
        """Wait until it serves. ClusterNotReady says what it is waiting for."""
        if not await _until(lambda: self._serving() is not None, timeout):
            raise self._not_ready(timeout)

    async def join(
        self, homes: Sequence[BrokerHome], timeout: float, kafka: KafkaListeners | None, may_add: bool
    ) -> Joined:
        """Start brokers in these homes, and wait for leaders.

        ClusterNotReady, KafkaListenersDiffer, BrokersNotAdded, BrokerWasRemoved where none is left, or what keeps a
        broker or its gateway from running. `kafka`: where Kafka clients are to be served; None: as the cluster does it.
        `may_add`: brokers may be added to nodes that have some in another folder.
        """
        if kafka not in (None, self._post.kafka):
            present = self._post.kafka
            raise KafkaListenersDiffer(self._post.cluster, str(kafka), "" if present is None else str(present))
        return await self._core.call(self._join(homes, timeout, may_add))

    async def is_abandoned(self, start_id: str) -> bool:
        """Return whether only the start that made this actor has used it. If that has failed, it may end the actor."""
        return start_id == self._post.start_id and not self._is_in_use

    async def admin(self, request: AdminRequest[Any], timeout: float) -> object:
        """Return the answer to an administrator's request."""
        return await self._core.call(self._carry_out(request, timeout))

    async def delete_records(self, before: Mapping[tuple[str, int], int], timeout: float) -> dict[tuple[str, int], int]:
        """Delete records of these (topic, partition). Return where each begins now, as its leader answers."""
        return await self._core.call(self._delete_records(before, timeout))

    async def remove_broker(self, broker_id: int, timeout: float) -> None:
        """Stop a drained broker, and forget it. UnknownBroker; BrokerInUse: it goes on running."""
        await self._core.call(self._remove_broker(broker_id, timeout))

    async def end_hanging(self, hanging: Hanging, timeout: float) -> None:
        """End a hanging transaction at its partition. See `hanging_transactions.end_over`."""
        brokers = [address.nearest_to(self._node_id) for address in self._fleet.addresses.values()]
        await self._core.call(end_hanging(self._env, brokers, hanging, timeout))

    async def rotate_secrets(self, grace_seconds: float, timeout: float) -> None:
        """Change the secrets, and keep the former ones valid for so long. AdminTimedOut: it goes on."""
        await self._core.call(self._rotate_secrets(grace_seconds, timeout))

    async def stop(self, timeout: float) -> None:
        """Stop the whole cluster cleanly. The caller ends this actor afterwards."""
        await self._core.call(self._stop(timeout))

    # --- living ---------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        tending = asyncio.ensure_future(self._fleet.tend(self._admin_if_serving))
        tending.add_done_callback(self._over)
        attempt = int(_was_restarted())
        has_served = False
        while not self._is_ending:
            # An interrupted formation is tried again, a completed one is recovered: one of the two works.
            controller = self._controller = self._new_controller(forms=not has_served and attempt % 2 == 0)
            attempt += 1
            self._attempts += 1
            try:
                await controller.start(_BEGIN_SECONDS)
                has_served = True
                self._attempts = 0
                self._fleet.learn_registered(controller.admin.list_brokers())
                self._problem = str(await controller.stopped or "its controller was closed")
            except RaylogError as error:
                self._problem = str(error)
                _log.warning("The controller of %r does not serve: %s", self._post.cluster, error)
            if not self._is_ending:
                await controller.close()
                await asyncio.sleep(_PAUSE_SECONDS)
        await tending

    def _new_controller(self, *, forms: bool) -> Controller:
        post = self._post
        next_broker_id = 1 + max((home.broker_id for home in post.homes), default=-1)
        spec = ControllerSpec(
            post.cluster_id, repr(self), post.first_voters if forms else (), next_broker_id,
            coordinated=tuple(post.coordinators),
        )  # fmt: skip
        return Controller(self._env, spec, self._launcher, self._coordinator_launcher, self._find_brokers)

    def _over(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:  # Ray starts this actor again
            _log.critical("%r: it ends after a mistake of its own.", self, exc_info=error)
            logging.shutdown()
            os._exit(1)

    async def _find_brokers(self) -> Mapping[int, Endpoint]:
        return {broker: address.nearest_to(self._node_id) for broker, address in self._fleet.addresses.items()}

    def _host_ended(self, spec: Any) -> None:
        controller = self._serving()
        if controller is not None:
            controller.host_ended(spec)

    def _coordinators_ended(self, spec: Any, run: str) -> None:
        controller = self._serving()
        if controller is not None:
            controller.coordinators_ended(spec, run)

    def _serving(self) -> Controller | None:
        controller = self._controller
        return controller if controller is not None and controller.is_serving else None

    def _admin_if_serving(self) -> ControllerAdmin | None:
        controller = self._serving()
        return None if controller is None else controller.admin

    def _readings(self) -> Iterator[Reading]:
        controller = self._serving()
        yield Reading(CONTROLLER_SERVING, (), controller is not None)
        if controller is not None:
            yield from controller.readings()

    def _not_ready(self, timeout: float) -> ClusterNotReady:
        problems = [f"broker {broker}: {problem}" for broker, problem in sorted(self._fleet.problems.items())]
        return ClusterNotReady(self._post.cluster, round(timeout * 1000), "; ".join([self._problem, *problems]))

    # --- what the calls do, on the core's loop --------------------------------------------------------------------

    def _admin(self) -> ControllerAdmin:
        controller = self._serving()
        if controller is None:
            raise ControllerNotReady(f"Attempt {self._attempts} of its process: {self._problem.rstrip('.')}.")
        return controller.admin

    async def _carry_out(self, request: AdminRequest[Any], timeout: float) -> object:
        answer: object = await carry_out(self._admin(), request, timeout)
        if isinstance(answer, ClusterDescription):
            return replace(answer, control_store=control_store(os.environ))
        return answer

    async def _join(self, homes: Sequence[BrokerHome], timeout: float, may_add: bool) -> Joined:
        if not may_add:
            self._fleet.check_adds_none(homes)
        kept = self._not_removed(homes)
        await self._fleet.admit(kept)
        self._fleet.try_again(kept)
        began = asyncio.get_running_loop().time()

        def are_here() -> bool:
            numbers = {self._fleet.broker_at(home) for home in self._not_removed(homes)}
            is_late = asyncio.get_running_loop().time() - began > _PATIENCE_SECONDS
            for number in numbers & self._fleet.problems.keys():
                if is_late or lasts(self._fleet.problems[number]):
                    raise self._fleet.problems[number]
            controller = self._serving()
            return controller is not None and numbers <= {b.broker for b in controller.admin.list_brokers() if b.alive}

        if not await _until(are_here, timeout):
            raise self._not_ready(timeout)
        numbers = {self._fleet.broker_at(home) for home in self._not_removed(homes)}
        await self._fleet.gateways_ready(numbers, began + timeout - asyncio.get_running_loop().time())
        left = began + timeout - asyncio.get_running_loop().time()
        if not await _until(lambda: self._name_gateways(numbers), left):
            raise ClusterNotReady(self._post.cluster, round(timeout * 1000), "not all of its gateways are known yet")
        self._is_in_use = True
        left = began + timeout - asyncio.get_running_loop().time()
        if not await _until(lambda: self._are_settled(are_here), left):
            raise ClusterNotReady(self._post.cluster, round(timeout * 1000), self._what_is_unsettled())
        admin = self._admin_if_serving()
        found = None if admin is None else admin.unsettled()
        left_out = tuple(home.directory for home in homes if home not in self._not_removed(homes))
        return Joined(() if found is None else tuple(found.stuck), left_out)

    def _not_removed(self, homes: Sequence[BrokerHome]) -> Sequence[BrokerHome]:
        """Return those whose broker was not removed, as far as that is known yet. BrokerWasRemoved: none is left."""
        admin = self._admin_if_serving()
        return homes if admin is None else without_removed(homes, admin.removed_brokers())

    def _name_gateways(self, brokers: Set[int]) -> bool:
        """Return whether clients are told of the gateways of these brokers, if they have any."""
        admin = self._admin_if_serving()
        named = set() if admin is None else {each.broker for each in admin.list_brokers() if each.kafka}
        return self._post.kafka is None or brokers <= named

    def _are_settled(self, are_here: Callable[[], bool]) -> bool:
        """Return whether every partition that can have a leader has one."""
        admin = self._admin_if_serving()
        found = None if admin is None else admin.unsettled()
        return are_here() and found is not None and not found.expected

    def _what_is_unsettled(self) -> str:
        admin = self._admin_if_serving()
        found = None if admin is None else admin.unsettled()
        if found is None:
            return self._problem if admin is None else "some of its brokers have not registered again yet"
        names = ", ".join(found.expected[:_SHOWN])
        more = f" and {len(found.expected) - _SHOWN} more" if len(found.expected) > _SHOWN else ""
        return f"all brokers are there, and it goes on starting, but {names}{more} have no leader yet"

    async def _delete_records(
        self, before: Mapping[tuple[str, int], int], timeout: float
    ) -> dict[tuple[str, int], int]:
        """Raise where records may not be deleted, before any are: the leaders check again."""
        admin = self._admin_if_serving()
        if admin is not None:
            admin.check_deletable(topic for topic, _ in before)
        brokers = [address.nearest_to(self._node_id) for address in self._fleet.addresses.values()]
        return await delete_records(self._env, brokers, before, self._node_id, timeout)

    async def _adopt(self, held: ClusterSecrets) -> None:
        self._env.keys.adopt(held)

    async def _rotate_secrets(self, grace_seconds: float, timeout: float) -> None:
        controller = self._serving()
        if controller is None:
            raise ControllerNotReady("It does not serve just now.")
        await controller.rotate_secrets(grace_seconds, timeout)

    async def _remove_broker(self, broker_id: int, timeout: float) -> None:
        admin = self._admin()
        admin.check_removable(broker_id)
        self._fleet.retire(broker_id)
        try:
            await self._fleet.stop_broker(broker_id)
            await _until(lambda: not any(b.alive for b in admin.list_brokers() if b.broker == broker_id), timeout)
            await admin.remove_broker(broker_id, timeout=timeout)
        except RaylogError:
            self._fleet.keep(broker_id)
            raise

    async def _stop(self, timeout: float) -> None:
        self._is_ending = True
        self._fleet.end()
        controller = self._serving()
        if controller is not None:
            await controller.shutdown(timeout)
        else:  # then only their own actors can stop the brokers
            await asyncio.gather(*(self._fleet.stop_broker(broker) for broker in self._fleet.addresses))


def _was_restarted() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Ray asks a deprecated property of its own
        return bool(ray.get_runtime_context().was_current_actor_reconstructed)


async def _until(condition: Any, timeout: float) -> bool:
    """Return whether it came true in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while not condition():
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
    return True
