"""Starting a cluster: join the one that runs, restore what is on disk, or form a new one. And finding a running one.

    a controller of this name is there         join it with this node's data directory
    none; a directory holds an identity        restore: that cluster, with that secret, from all directories there are
    none; claimed for one, but it holds nothing  form: the attempt that was interrupted is completed
    none; all directories are blank            form: with form=True, or on a Ray cluster of one node unless form=False;
                                               else ClusterNotFound says what to do

What must stay true:
- Where several processes start a cluster at once, Ray lets one make the controller's actor; the others join it.
- Nothing is formed beside data: a directory of a cluster is restored, or refused, and never taken for a blank one.
- A cluster has one name at a time: one that runs is not started under another.
- A start that fails ends what it has made, unless all brokers are there by then, or another start has succeeded.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import ray
from ray.exceptions import GetTimeoutError, RayError

from raylog.actors.on_ray.actor_options import head_actor_options
from raylog.actors.on_ray.broker_homes import BrokerHome, first_voters, number_all
from raylog.actors.on_ray.controller_actor import ControllerActor, ControllerPost
from raylog.actors.on_ray.data_directories import (
    FoundDirectory,
    check_free,
    check_no_copies,
    check_runs_as,
    check_writable,
    cluster_of,
    interrupted_formation,
)
from raylog.actors.on_ray.directory_search import Found, search, search_for_brokers, search_node
from raylog.actors.on_ray.runtime.join_ray import is_none_to_join, join_or_start_ray, tell_if_open
from raylog.actors.on_ray.runtime.nodes import RayNode, living_nodes, nodes_for_brokers
from raylog.actors.protocol.actor_names import CONTROLLER, DEFAULT_CLUSTER, namespace
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.actors.protocol.gateway_spec import KafkaListeners, kafka_listeners
from raylog.actors.protocol.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from raylog.api.admin.cluster import Cluster
from raylog.api.admin.cluster_shutdown import cluster_names, end_actors
from raylog.api.connection.controller_calls import ControllerCalls, plain_error
from raylog.api.connection.former_names import formerly
from raylog.api.connection.named_cluster import find_cluster
from raylog.api.connection.progress import Progress
from raylog.errors import (
    ClusterNotFound,
    ClusterNotReady,
    ClusterRunsAlready,
    DirectoryLocked,
    RaylogError,
    WrongCluster,
)

START_SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 30.0
# By topic, the dotted name of what makes the core of its coordinators.
_COORDINATORS: Final[Mapping[str, str]] = {
    OFFSETS_TOPIC: "raylog.groups.coordinator.process.make",
    TRANSACTIONS_TOPIC: "raylog.actors.transactions.coordinator.make",
}
_ABANDON_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 1.0
_GRACE_SECONDS: Final = 2.0  # so that the controller's own word on what is missing comes first

_log = logging.getLogger(__name__)


@formerly(name="cluster")
def start(
    data_dir: str | os.PathLike[str],
    brokers: int | None = None,
    *,
    cluster: str = DEFAULT_CLUSTER,
    form: bool | None = None,
    timeout: float = START_SECONDS,
    kafka: str | None = None,
    kafka_advertised: str | None = None,
    add_brokers: bool = False,
) -> Cluster:
    """A running cluster with brokers on this node, or where nodes carry the resource `raylog_broker`, on those.

    `brokers` per node, each with a directory below `data_dir`; None: as many as there are directories, at least one.
    `cluster`: its name, for clients where there are several.

    A cluster that runs already is joined. A blank `data_dir` adds brokers to it, for good: on a node that has none, or
    with `add_brokers`. Where this node has brokers in another folder, it is BrokersNotAdded otherwise.

    `kafka`: HOST:PORT, where Kafka clients are served without a password, beside each broker. With `SASL_PLAINTEXT://`
    before it, users' passwords are asked for (`create_user`), and nothing is encrypted. Several brokers of one node
    take consecutive ports; with port 0 any free ones. `kafka_advertised`: what clients are told in place of these,
    of all brokers alike. `Cluster.kafka_addresses` returns what clients take as `bootstrap.servers`.

    Starts Ray where none is running. Returns when the brokers have registered and every partition has a leader; a
    partition that cannot have one, because those that may lead it are away or damaged, is told in the log.

    RayUnreachable, RayNotAdmitted, RayNotStarted, RayClientRefused, ClusterNotFound, ClusterNotReady, BrokersLeftOut,
    BrokersNotAdded, BrokerWasRemoved, ClusterRunsAlready, WrongCluster, DirectoryLocked, DirectoryNotMade,
    DirectoryNotOurs, DirectoryCopied, DiskReadOnly, LogDamaged, InvalidConfig, KafkaAddressTaken, KafkaListenersDiffer,
    KafkaSchemasMissing. What was started is ended then, unless all brokers are there and only leaders are missing.
    """
    deadline = time.monotonic() + timeout
    data_dir = check_before_start(cluster, data_dir, brokers)
    listeners = kafka_listeners(kafka, kafka_advertised)
    join_or_start_ray(include_dashboard=False)
    tell_if_open()
    with Progress(f"starting the cluster {cluster!r}"):
        return _Start(cluster, data_dir, brokers, timeout, deadline, listeners, add_brokers).run(form)


def check_before_start(name: str, data_dir: str | os.PathLike[str], brokers: int | None) -> str:
    """The directory's whole path. Raises what is wrong with it or the name, as far as that shows so early."""
    namespace(name)
    data_dir = str(Path(data_dir).expanduser().absolute())
    found = search(data_dir, brokers).directories
    if is_none_to_join():
        check_writable(data_dir, found)
        check_runs_as(name, [(each.path, each) for each in found])
        check_free(found)
    return data_dir


@formerly(name="cluster")
def connect(cluster: str = DEFAULT_CLUSTER, timeout: float = CONNECT_SECONDS) -> Cluster:
    """The cluster of this name that runs on the Ray cluster of this process, or of this machine.

    RayUnreachable, RayNotAdmitted, RayClientRefused, ClusterNotFound, ClusterNotReady.
    """
    return find_cluster(Cluster, cluster, timeout)


class _Start:
    """One call of `start`."""

    def __init__(
        self,
        name: str,
        data_dir: str,
        brokers: int | None,
        timeout: float,
        deadline: float,
        kafka: KafkaListeners | None,
        may_add: bool,
    ) -> None:
        self._name = name
        self._data_dir = data_dir
        self._brokers = brokers
        self._timeout_ms = round(timeout * 1000)
        self._deadline = deadline
        self._kafka = kafka
        self._may_add = may_add
        self._calls = ControllerCalls(name)
        self._id = uuid.uuid4().hex

    def run(self, form: bool | None) -> Cluster:
        nodes = living_nodes()
        here = ray.get_runtime_context().get_node_id()
        places = nodes_for_brokers(nodes, here)
        if self._is_running():
            return self._joined([node for node in places if node.node_id == here], here)
        found = self._search(places, here)
        try:
            self._check_directories(places, found, here)
        except DirectoryLocked:
            if not self._is_running():  # another start was quicker, and its brokers have them
                raise
            return self._joined([node for node in places if node.node_id == here], here)
        self._make_controller(nodes, places, found, form)
        try:
            return self._joined(places, here)
        except BaseException:
            self._end_what_was_made()
            raise

    def _joined(self, awaited: Sequence[RayNode], here: str) -> Cluster:
        cluster = Cluster(self._name)
        self._join(cluster, awaited, self._search(awaited, here))
        return cluster

    def _end_what_was_made(self) -> None:
        """End what this start has made, unless another process made it or has it in use."""
        try:
            is_ours = self._calls.ask("is_abandoned", self._id, timeout=_ABANDON_SECONDS, repeatable=True)
        except ClusterNotFound:
            is_ours = False
        except (RaylogError, RayError) as error:
            _log.warning("The controller of %r does not answer, and is ended: %s", self._name, error)
            is_ours = True
        if is_ours:
            end_actors(self._calls, _ABANDON_SECONDS)

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _is_running(self) -> bool:
        try:
            self._calls.find()
        except ClusterNotFound:
            return False
        return True

    def _search(self, places: Sequence[RayNode], here: str) -> list[Found]:
        """Return what is on the disks of these nodes."""
        tasks = {
            node.node_id: search_node(node.node_id, self._data_dir, self._brokers)
            for node in places
            if node.node_id != here
        }
        try:
            answers = dict(zip(tasks, ray.get(list(tasks.values()), timeout=self._left()), strict=True))
        except GetTimeoutError:
            reason = "not all nodes told in time what is on their disks"
            raise ClusterNotReady(self._name, self._timeout_ms, reason) from None
        except RayError as error:
            raise plain_error(error) from error
        return [answers.get(node.node_id) or search_for_brokers(self._data_dir, self._brokers) for node in places]

    def _check_directories(self, places: Sequence[RayNode], found: Sequence[Found], here: str) -> None:
        named = [(f"{each.path} on {node.host}", each) for node, each in _each(places, found)]
        check_runs_as(self._name, named)
        cluster_id = cluster_of(tuple(each for _, each in named))
        if cluster_id is not None:
            self._check_has_no_other_name(cluster_id)
        check_no_copies(named)
        check_free(each for node, each in _each(places, found) if node.node_id == here)

    def _make_controller(
        self, nodes: Sequence[RayNode], places: Sequence[RayNode], found: Sequence[Found], form: bool | None
    ) -> None:
        """Make its actor, unless another process is quicker."""
        directories = tuple(each for one in found for each in one.directories)
        cluster_id = cluster_of(directories)
        if cluster_id is None:
            self._check_may_form(form, nodes)
        homes = [home for node, each in zip(places, found, strict=True) for home in _homes(node.node_id, each)]
        planned = interrupted_formation(directories)
        if cluster_id is None or planned:
            homes = list(number_all(homes))
            planned = planned or first_voters(homes)
        held = max((each.secrets for each in found if each.secrets), key=lambda each: each.version, default=None)
        head = next(node for node in nodes if node.is_head)
        post = ControllerPost(
            cluster=self._name,
            cluster_id=cluster_id or uuid.uuid4().hex,
            secrets=held or ClusterSecrets.draw(),
            head=head.node_id,
            first_voters=planned,
            homes=tuple(homes),
            later_data_dir=self._data_dir,
            coordinators=_COORDINATORS,
            start_id=self._id,
            kafka=self._kafka,
        )
        options = head_actor_options(self._name, CONTROLLER, max_restarts=-1, get_if_exists=True)
        ray.remote(ControllerActor).options(**options).remote(post)

    def _check_has_no_other_name(self, cluster_id: str) -> None:
        """Raise ClusterRunsAlready where a controller of this Ray has that cluster, even if it has no broker just now.
        """
        for name in cluster_names():
            if name == self._name:
                continue
            try:
                access = ControllerCalls(name).ask("access", timeout=_LOOK_SECONDS, repeatable=True)
            except (RaylogError, RayError) as error:  # the locks of the directories tell, too
                _log.info("The cluster %r does not say which it is: %s", name, error)
                continue
            if access.cluster_id == cluster_id:
                raise ClusterRunsAlready(self._name, name, self._data_dir)

    def _check_may_form(self, form: bool | None, nodes: Sequence[RayNode]) -> None:
        if form or (form is None and len(nodes) == 1):
            return
        reason = f"{self._data_dir} is blank on every node that may have brokers"
        if form is None:
            reason += f", and on a Ray cluster of {len(nodes)} nodes a new one is formed only with form=True"
        raise ClusterNotFound(self._name, reason)

    def _join(self, cluster: Cluster, places: Sequence[RayNode], found: Sequence[Found]) -> None:
        """Have brokers in the directories of these nodes, and wait for them."""
        owner = cluster_of(tuple(each for one in found for each in one.directories))
        own = cluster.cluster_id
        if owner is not None and owner != own:
            raise WrongCluster(self._data_dir, f"cluster {owner}", f"cluster {own}, which runs as {self._name!r}")
        homes = [home for node, each in zip(places, found, strict=True) for home in _homes(node.node_id, each)]
        left = self._left()
        leaderless, left_out = self._calls.ask(
            "join", homes, left, self._kafka, self._may_add, timeout=left + _GRACE_SECONDS, repeatable=True
        )
        for each in left_out:
            _log.warning(
                "%s is left as it is: its broker was removed from the cluster. Delete it, or move it away.", each
            )
        if leaderless:
            _log.error(
                "The cluster %r runs, but these partitions have no leader, and no reader or writer reaches them: %s. "
                "`raylog topic describe` shows what each of them waits for.", self._name, "; ".join(leaderless),
            )  # fmt: skip


def _homes(node_id: str, found: Found) -> list[BrokerHome]:
    return [BrokerHome(node_id, each.path, each.broker_id, is_claimed=not each.is_blank) for each in found.directories]


def _each(places: Sequence[RayNode], found: Sequence[Found]) -> Iterator[tuple[RayNode, FoundDirectory]]:
    for node, one in zip(places, found, strict=True):
        yield from ((node, each) for each in one.directories)
