"""Clients that ask for what they must not: every kind of message that only processes of the cluster may send (rule 33).

They hold the clients' secret, know all names, ids, epochs and incarnations, and ask replicas, brokers, coordinators and
the controller. What must stay true: each such request is answered with InternalOnly, and changes nothing.

Beside them somebody inside is wrong: a process with the internal secret, and an incarnation that nobody has heard of,
pulls in an epoch that cannot be (rule 13).
"""

from __future__ import annotations

import typing
from dataclasses import dataclass, fields
from random import Random
from types import UnionType
from typing import Any, Final, Union

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_requests import refuse_all
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Message, all_messages, is_for_clients
from raylog.actors.protocol.replication_messages import Pull, PullInstead, Push, WriteMarker
from raylog.errors import InternalOnly, RaylogError, RemoteFailed
from tests.simulator.cluster.simulated_cluster import RunningReplica, SimulatedCluster
from tests.simulator.world.machines import Machine, Process

_HIGHEST: Final = 2**31 - 1
_ASK_SECONDS: Final = 1.0
_MOST_ASKED: Final = 3


@dataclass
class HostileClients:
    """Part of `faults.py`."""

    cluster: SimulatedCluster
    random: Random

    def __post_init__(self) -> None:
        self._machine: Machine | None = None
        self._kinds = [
            each for each in all_messages() if each.__module__.startswith("raylog.") and not is_for_clients(each)
        ]

    def ask_for_what_is_internal(self) -> bool:
        processes = self.cluster.processes()
        if processes:
            if self._machine is None:
                self._machine = self.cluster.world.add_machine("hostile")
            target = self.random.choice(processes)
            kinds = self.random.sample(self._kinds, _MOST_ASKED)
            asked = [self._made(each) for each in kinds]
            self._machine.start("hostile", self._ask_all, target, asked + self._worst(target))
        return bool(processes)

    def pull_as_nobody(self) -> bool:
        """Pull from inside, with an incarnation that was never registered."""
        leaders = [each for each in self.cluster.replicas if each.leads_epoch is not None]
        up = [home.machine for home in self.cluster.homes.values() if home.machine.is_up]
        if leaders and up:
            leader = self.random.choice(leaders)
            broker_id = self.random.choice(list(self.cluster.homes))
            nobody = self.random.choice((0, leader.spec.incarnation + 1_000, _HIGHEST))
            pull = self._pull(leader, broker_id, nobody)
            self.random.choice(up).start("astray", self._pull_once, leader, pull)
        return bool(leaders and up)

    # --- asking -------------------------------------------------------------------------------------------------

    async def _ask_all(self, env: Environment, target: Process, asked: list[Message]) -> None:
        spec = next((each.spec for each in self.cluster.replicas if each.process is target), None)
        place = {} if spec is None else {"topic_id": spec.topic_id, "partition": spec.partition}
        for endpoint in self._endpoints(target):
            try:
                stream = await env.dial(endpoint, "client", refuse_all)
            except RaylogError:
                return
            for message in asked:
                try:
                    answer = await stream.request(message, timeout=_ASK_SECONDS, **place)  # type: ignore[arg-type]
                except RemoteFailed as error:
                    if not isinstance(error.error, InternalOnly):
                        self._fail(target, message, error)
                except RaylogError:
                    break  # it is paused, dead or cut off
                else:
                    self._fail(target, message, answer.message)
            await stream.close(0.0)

    def _fail(self, target: Process, message: Message, answer: object) -> None:
        self.cluster.world.fail(f"{target.name} answers a client's {type(message).__name__} with {answer!r}")

    async def _pull_once(self, env: Environment, leader: RunningReplica, pull: Pull) -> None:
        spec = leader.spec
        for endpoint in self._endpoints(leader.process):
            try:
                stream = await env.dial(endpoint, "follower", refuse_all)
                await stream.request(pull, topic_id=spec.topic_id, partition=spec.partition, timeout=_ASK_SECONDS)
            except RaylogError:
                continue
            await stream.close(0.0)

    def _endpoints(self, target: Process) -> list[Endpoint]:
        return self.cluster.world.network.endpoints_of(target.loop)

    # --- what they ask ------------------------------------------------------------------------------------------

    def _worst(self, target: Process) -> list[Message]:
        """Return the messages that would do most harm at a replica, with everything in them as it has to be."""
        replica = next((each for each in self.cluster.replicas if each.process is target), None)
        if replica is None:
            return []
        others = [each.spec for each in self.cluster.replicas if each.spec.partition == replica.spec.partition]
        other = self.random.choice(others)
        return [
            self._pull(replica, other.broker_id, other.incarnation),
            Push(_HIGHEST, 1, 0, -1, _HIGHEST, 0),
            PullInstead(_HIGHEST, 1),
            WriteMarker(self.random.choice((100, 200)), 1, _HIGHEST, False, 1_000),
        ]

    def _pull(self, replica: RunningReplica, broker_id: int, incarnation: int) -> Pull:
        epoch = self.random.choice((_HIGHEST, (replica.leads_epoch or 0) + 1))
        return Pull(epoch, 1, broker_id, incarnation, 0, -1, 0, 1 << 20)

    def _made(self, kind: type[Message]) -> Message:
        hints = typing.get_type_hints(kind)
        return kind(*(self._value(hints[field.name]) for field in fields(kind)))  # type: ignore[arg-type]

    def _value(self, annotation: Any) -> Any:
        """Return a value of that type, at its limits where it has some."""
        if hasattr(annotation, "_fields"):
            return annotation._make(map(self._value, typing.get_type_hints(annotation).values()))
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin in (Union, UnionType):
            return self._value(self.random.choice(arguments))
        if origin is tuple:
            if len(arguments) == 2 and arguments[1] is Ellipsis:
                return tuple(self._value(arguments[0]) for _ in range(self.random.randint(0, 2)))
            return tuple(map(self._value, arguments))
        topic_ids = [each.spec.topic_id for each in self.cluster.replicas] or [bytes(16)]
        values: dict[Any, tuple[Any, ...]] = {
            int: (-1, 0, 1, _HIGHEST, 2**63 - 1),
            float: (0.0, 1e300),
            bool: (True, False),
            str: ("", "t", "hostile"),
            bytes: (b"", *topic_ids),
        }
        return self.random.choice(values.get(annotation, (None,)))
