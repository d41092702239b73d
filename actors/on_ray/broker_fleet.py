"""Keeps a broker actor running for every data directory on a living node. Part of the controller's process.

    named at the start, found on a node with the resource, or registered before ──► home (`broker_homes.py`)
    home on a living node without an actor of that name ──► actor made, at once; then after growing pauses

Ray's control store says which nodes live and which actors have a name. Nothing here is durable. A new process of the
controller learns the homes anew: from its start arguments, from the nodes, and from the cluster's state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from os.path import dirname
from random import Random
from typing import Any, Final

import ray
from ray.exceptions import RayError
from ray.util import list_named_actors

from raylog.actors.cluster.descriptions import BrokerDescription
from raylog.actors.controller.admin import ControllerAdmin
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.machine.actor_address import Address
from raylog.actors.machine.real_environment import Place
from raylog.actors.on_ray.actor_options import actor_options
from raylog.actors.on_ray.broker_actor import BrokerActor, BrokerPost
from raylog.actors.on_ray.broker_homes import BrokerHome, BrokerHomes
from raylog.actors.on_ray.data_directories import FoundDirectory
from raylog.actors.on_ray.directory_search import search_node
from raylog.actors.on_ray.runtime.nodes import RayNode, living_nodes
from raylog.actors.on_ray.silent_brokers import SilentBrokers
from raylog.actors.protocol.actor_names import BROKER_RESOURCE, broker_id_of, broker_name, namespace
from raylog.actors.protocol.cluster_secrets import KeyRing
from raylog.actors.protocol.gateway_spec import KafkaListeners
from raylog.errors import (
    BrokerNotAvailable,
    BrokersNotAdded,
    DirectoryCopied,
    DirectoryLocked,
    RaylogError,
    StorageError,
)

_LOOK_SECONDS: Final = 0.5
_TURN_SECONDS: Final = 2.0
_READY_SECONDS: Final = 60.0
_NUMBER_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 20.0
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 15.0
_RESOURCE_PIECE: Final = 0.001

_log = logging.getLogger(__name__)


class BrokerFleet:
    """The broker actors of one cluster. `later_data_dir`: the place of directories on nodes that join later.

    `kafka`: where Kafka clients are served; None: nowhere.

    `first_voters`: of the cluster that is being formed, if it is; told to its brokers until there is a controller.
    """

    def __init__(
        self,
        cluster: str,
        cluster_id: str,
        keys: KeyRing,
        later_data_dir: str,
        first_voters: tuple[int, ...],
        kafka: KafkaListeners | None = None,
    ) -> None:
        self.problems: dict[int, RaylogError] = {}  # by broker: why it does not run
        self.addresses: dict[int, Address] = {}  # of brokers that run, as far as is known
        self._cluster = cluster
        self._cluster_id = cluster_id
        self._keys = keys
        self._later_data_dir = later_data_dir
        self._first_voters = first_voters
        self._kafka = kafka
        self._homes = BrokerHomes()
        self._searches: dict[str, asyncio.Task[None]] = {}  # by node
        self._silent = SilentBrokers()
        self._random = Random()
        self._backoffs: dict[int, Backoff] = {}
        self._not_before: dict[int, float] = {}
        self._watched: dict[int, asyncio.Task[None]] = {}  # by broker: its actor is being asked whether it is ready
        self._is_ending = False

    def learn(self, homes: Iterable[BrokerHome]) -> None:
        for home in homes:
            self._homes.learn(home)

    async def admit(self, homes: Iterable[BrokerHome]) -> None:
        """Learn of homes, unless one is a copy of another one's directory: DirectoryCopied."""
        hosts = {node.node_id: node.host for node in await _beside(living_nodes)}
        for home in homes:
            copied = self._homes.copied(home, hosts)
            if copied is not None:
                raise DirectoryCopied(home.broker_id, *(_where(each, hosts) for each in (home, copied)))
            self._homes.learn(home)

    def check_adds_none(self, homes: Iterable[BrokerHome]) -> None:
        """Raise BrokersNotAdded where one of these would be a new broker beside those of another folder of its node."""
        for home in homes:
            present = self._homes.beside_others(home)
            if present:
                raise BrokersNotAdded(self._cluster, dirname(home.directory), present)

    def try_again(self, homes: Iterable[BrokerHome]) -> None:
        """Try again to start these brokers at once, since what kept them from running may have been mended."""
        for number in {self.broker_at(home) for home in homes} & self.problems.keys():
            del self.problems[number]
            self._backoffs.pop(number, None)
            self._not_before.pop(number, None)

    def learn_registered(self, brokers: Iterable[BrokerDescription]) -> None:
        """Learn from the cluster's state where brokers were last, for those that are known from nowhere else."""
        for each in brokers:
            if not self._homes.knows_broker(each.broker):
                self._homes.learn(BrokerHome(each.node_id, each.directory, each.broker))
            self._homes.bind(each.broker)

    def retire(self, broker_id: int) -> None:
        """Do not make this broker again."""
        self._homes.retire(broker_id)

    def keep(self, broker_id: int) -> None:
        """Undo `retire`: make this broker again after all."""
        self._homes.keep(broker_id)

    def broker_at(self, home: BrokerHome) -> int:
        """Return the number of the broker of this home; UNNUMBERED: none yet."""
        return self._homes.broker_at(home.node_id, home.directory)

    async def stop_broker(self, broker_id: int) -> None:
        """Have a broker close its logs and end."""
        try:
            actor = await _beside(partial(_find, self._cluster, broker_id))
            if actor is not None:
                await asyncio.wait_for(_awaited(actor.stop.remote()), _STOP_SECONDS)
        except (RayError, asyncio.TimeoutError) as error:
            _log.warning("Broker %d was not stopped cleanly: %r", broker_id, error)

    async def gateways_ready(self, brokers: Iterable[int], timeout: float) -> None:
        """Wait until the gateways of these brokers serve Kafka clients. Raises what keeps one from that."""
        for broker_id in brokers if self._kafka is not None else ():
            try:
                actor = await _beside(partial(_find, self._cluster, broker_id))
                if actor is not None:
                    await asyncio.wait_for(_awaited(actor.gateway_ready.remote()), timeout)
            except RayError as error:
                raise _problem(broker_id, error) from error
            except asyncio.TimeoutError:
                raise BrokerNotAvailable(broker_id, "its gateway for Kafka clients does not serve yet") from None

    def end(self) -> None:
        """Make no more brokers."""
        self._is_ending = True

    async def tend(self, serving: Callable[[], ControllerAdmin | None]) -> None:
        """Look after the brokers until `end`. `serving`: the controller; None: it does not serve just now."""
        while not self._is_ending:
            try:
                await self._look(serving())
            except RayError as error:
                _log.warning("Ray's control store does not answer: %r", error)
            except RaylogError as error:
                _log.warning("The brokers are looked after again in a moment: %s", error)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self, admin: ControllerAdmin | None) -> None:
        nodes = {node.node_id: node for node in await _beside(living_nodes)}
        named = await _beside(partial(broker_actors, self._cluster))
        for broker_id in self._watched.keys() - named.keys():
            del self._watched[broker_id]
            self.addresses.pop(broker_id, None)
        for broker_id in named.keys() - self._watched.keys():  # an earlier controller has made them
            self._watch(broker_id, await _beside(partial(_find, self._cluster, broker_id)))
        self._search_new(nodes)
        now = asyncio.get_running_loop().time()
        if admin is not None:
            self._first_voters = ()
            alive = {each.broker for each in admin.list_brokers() if each.alive}
            silent = self._silent.due(self.addresses.keys() - alive, now)
            await asyncio.gather(*(self._end_hanging(broker_id) for broker_id in silent))
            for broker_id in admin.removed_brokers():
                self._homes.retire(broker_id)
            await self._number(self._homes.unnumbered(nodes.keys()), {*named}, admin)
        for home in self._homes.wanted(nodes.keys(), named):
            if now >= self._not_before.get(home.broker_id, now) and not self._is_ending:
                await self._make(home, nodes[home.node_id])

    async def _number(self, homes: Sequence[BrokerHome], named: Set[int], admin: ControllerAdmin) -> None:
        if homes:
            highest = max((self._homes.highest(), *named))  # of those, too, that have not registered yet
            first = await admin.allocate_broker_ids(len(homes), above=highest, timeout=_NUMBER_SECONDS)
            self._homes.number(homes, first)

    async def _end_hanging(self, broker_id: int) -> None:
        """Kill a broker whose process is stopped or hangs, though Ray takes it for alive. Another one is made."""
        actor = await _beside(partial(_find, self._cluster, broker_id))
        if actor is None:
            return
        try:
            await asyncio.wait_for(_awaited(actor.turn.remote()), _TURN_SECONDS)
        except (RayError, asyncio.TimeoutError) as error:
            _log.warning("Broker %d does not register, and does not answer: it is killed. %r", broker_id, error)
            await _beside(partial(ray.kill, actor))

    def _search_new(self, nodes: dict[str, RayNode]) -> None:
        """Search nodes with the resource that are new, or came back under a new id with their directories."""
        for node in nodes.values():
            if node.is_for_brokers and node.node_id not in self._searches and not self._homes.knows(node.node_id):
                self._searches[node.node_id] = asyncio.ensure_future(self._search(node))

    async def _search(self, node: RayNode) -> None:
        try:
            found = await asyncio.wait_for(_awaited(search_node(node.node_id, self._later_data_dir)), _READY_SECONDS)
            await self.admit(self._usable(node, found.directories))
        except (RayError, RaylogError, asyncio.TimeoutError) as error:
            _log.error("Node %s cannot have a broker: %s", node.host, error)
            await asyncio.sleep(_LONGEST_PAUSE)
            del self._searches[node.node_id]  # it is searched again, if it is still there

    def _usable(self, node: RayNode, found: Iterable[FoundDirectory]) -> list[BrokerHome]:
        homes = []
        for each in found:
            if each.is_blank or each.cluster_id == self._cluster_id:
                homes.append(BrokerHome(node.node_id, each.path, each.broker_id, is_claimed=not each.is_blank))
            else:
                _log.error("%s on node %s belongs to cluster %s.", each.path, node.host, each.cluster_id)
        return homes

    async def _make(self, home: BrokerHome, node: RayNode) -> None:
        broker_id = home.broker_id
        backoff = self._backoffs.setdefault(broker_id, Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._random))
        self._not_before[broker_id] = asyncio.get_running_loop().time() + backoff.next()
        place = Place(self._cluster_id, self._keys.secrets, node.host, self._cluster)
        post = BrokerPost(
            self._cluster,
            broker_id,
            node.node_id,
            node.rack,
            home.directory,
            place,
            self._first_voters,
            may_claim=self._homes.may_claim(broker_id),
            kafka=None if self._kafka is None else self._kafka.of_broker(self._homes.place_on_node(home)),
        )
        self._watch(broker_id, await _beside(partial(_create, post, node.is_for_brokers)))

    def _watch(self, broker_id: int, actor: Any) -> None:
        if actor is not None:
            self._watched[broker_id] = asyncio.ensure_future(self._until_ready(broker_id, actor))

    async def _until_ready(self, broker_id: int, actor: Any) -> None:
        """Note where a broker is, or why it does not start. In that case kill its actor, for the next attempt."""
        try:
            self.addresses[broker_id] = await asyncio.wait_for(_awaited(actor.ready.remote()), _READY_SECONDS)
        except (RayError, RaylogError, asyncio.TimeoutError) as error:
            self.problems[broker_id] = _problem(broker_id, error)
            _log.error("Broker %d does not start: %s", broker_id, self.problems[broker_id])
            await _beside(partial(ray.kill, actor))
        else:
            self._homes.bind(broker_id)
            self.problems.pop(broker_id, None)
            self._backoffs.pop(broker_id, None)


def lasts(problem: RaylogError) -> bool:
    """Return whether a broker with this problem will not run before a person has mended it.

    A locked directory may be that of a broker which is ending.
    """
    is_on_disk = isinstance(problem, StorageError) and not isinstance(problem, DirectoryLocked)
    return is_on_disk and not problem.retriable


def _where(home: BrokerHome, hosts: Mapping[str, str]) -> str:
    return f"{home.directory} on {hosts.get(home.node_id, home.node_id)}"


def _problem(broker_id: int, error: BaseException) -> RaylogError:
    cause = getattr(error, "cause", error)
    if isinstance(cause, RaylogError):
        return cause
    return BrokerNotAvailable(broker_id, str(error).strip() or "it did not start in time")


def broker_actors(cluster: str) -> dict[int, str]:
    """Return the names of the broker actors that Ray takes for alive, by their numbers."""
    ours = namespace(cluster)
    names = [entry["name"] for entry in list_named_actors(all_namespaces=True) if entry["namespace"] == ours]
    return {number: name for name in names if (number := broker_id_of(name)) is not None}


def _find(cluster: str, broker_id: int) -> Any | None:
    """Return the broker's actor; None: there is none."""
    try:
        return ray.get_actor(broker_name(broker_id), namespace=namespace(cluster))
    except ValueError:
        return None


def _create(post: BrokerPost, hold_resource: bool) -> Any | None:
    """Make the actor and return it. None: another one has the name already."""
    resources = {BROKER_RESOURCE: _RESOURCE_PIECE} if hold_resource else {}
    options = actor_options(post.cluster, broker_name(post.broker_id), post.node_id, resources=resources)
    try:
        return ray.remote(BrokerActor).options(**options).remote(post)
    except ValueError:  # the name was taken meanwhile
        return None


async def _beside(work: Callable[[], Any]) -> Any:
    """Do this on another thread, since calls into Ray's control store block."""
    return await asyncio.get_running_loop().run_in_executor(None, work)


async def _awaited(reference: Any) -> Any:
    return await reference
