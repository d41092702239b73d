"""Replicas of one partition in a simulated world, and a test that plays their controller.

Real hosts, of one replica each, with real logs on three machines. On each machine a scripted broker takes hellos and
proposals; what is assigned, and when, is up to the test.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Answer, Request, Response, Stream
from raylog.actors.protocol.control_messages import (
    Assign,
    ProposeIsr,
    ReplicaAddress,
    ReplicaId,
    StandDown,
)
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.host_messages import OWN, HostHello, OpenReplicas, ReplicaHello, ReplicaToOpen
from raylog.actors.protocol.replica_spec import HostSpec
from raylog.actors.protocol.replication_messages import NO_EPOCH, Append, Appended, Fetch
from raylog.actors.replica.follower import FollowerRole
from raylog.actors.replica.host import ReplicaHost
from raylog.actors.replica.hosted_replica import HostedReplica
from raylog.config import NO_LIMIT
from raylog.errors import EligibleLeadersNotAvailable
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.log.reader import Isolation
from tests.simulator.clients.clients import records_of, refuse
from tests.simulator.world.machines import Machine, Process
from tests.simulator.world.world import World

TOPIC_ID = b"sixteen bytes id"


@dataclass
class Member:
    """One broker's machine, and what runs there."""

    broker_id: int
    machine: Machine
    incarnation: int = 0
    broker: Process | None = None
    broker_endpoint: Endpoint | None = None
    process: Process | None = None
    host: ReplicaHost | None = None
    replica: HostedReplica | None = None
    stream: Stream | None = None  # from the host to its broker
    host_hello: HostHello | None = None
    hello: ReplicaHello | None = None
    ending: str | None = None


class _TrioHost(ReplicaHost):
    """It tells the test what becomes of its replica."""

    def __init__(self, member: Member, env: Environment, spec: HostSpec) -> None:
        super().__init__(env, spec, 1)
        self._member = member

    def _is_open(self, key: tuple[bytes, int], replica: HostedReplica) -> None:
        self._member.replica = replica
        super()._is_open(key, replica)

    def has_ended(self, replica: HostedReplica, why: str) -> None:
        self._member.ending = why


@dataclass
class Trio:
    """Give it a world; `start` what you need, `assign`, and ask."""

    world: World
    settings: dict[str, str] = field(default_factory=lambda: {"replica.lag.time.max.ms": "2000"})
    min_insync: int = 2
    topic: str = "topic"
    catch_up_rate: int = NO_LIMIT
    members: dict[int, Member] = field(default_factory=dict)
    proposals: list[ProposeIsr] = field(default_factory=list)
    stand_downs: list[StandDown] = field(default_factory=list)
    accepts_proposals: bool = True
    epoch: int = -1
    partition_epoch: int = 0
    settings_changes: int = 0
    leader: int = -1
    isr: tuple[int, ...] = ()
    client: Process | None = None

    # --- processes ---

    def start(self, *broker_ids: int) -> None:
        """Start replicas, and wait for their hellos."""
        for broker_id in broker_ids:
            if broker_id not in self.members:
                self.members[broker_id] = Member(broker_id, self.world.add_machine(f"machine-{broker_id}"))
            member = self.members[broker_id]
            member.incarnation += 1
            member.hello, member.ending, member.host_hello = None, None, None
            if member.broker is None or not member.broker.is_alive:
                member.broker = member.machine.start(f"broker-{broker_id}", self._broker_main, member)
                self.until(lambda member=member: member.broker_endpoint is not None)
            member.process = member.machine.start(f"replica-{broker_id}", self._replica_main, member)
        for broker_id in broker_ids:
            self.until(lambda broker_id=broker_id: self.members[broker_id].hello is not None)

    async def _broker_main(self, env: Environment, member: Member) -> None:
        def take(request: Request) -> Answer:
            if isinstance(request.message, HostHello):
                self.take_host(member, request.message, request.stream)
            elif isinstance(request.message, ReplicaHello):
                member.hello = request.message
            elif isinstance(request.message, ProposeIsr):
                self._take_proposal(request.message)
            elif isinstance(request.message, StandDown):
                self._take_stand_down(request.message)
            return None

        _, endpoints = await env.listen(f"broker-{member.broker_id}", "broker", take)
        member.broker_endpoint = endpoints[0]
        await asyncio.Event().wait()

    def take_host(self, member: Member, hello: HostHello, stream: Stream) -> None:
        """As a broker: have it open the replica, if it has not yet."""
        member.host_hello, member.stream = hello, stream
        order = ReplicaToOpen(
            self.topic, TOPIC_ID, 0, member.incarnation, tuple(self.settings.items()), "/data/topic-0"
        )
        stream.send(OpenReplicas(OWN, (order,)))

    async def _replica_main(self, env: Environment, member: Member) -> None:
        assert member.broker_endpoint is not None
        spec = HostSpec(
            "cluster", member.broker_id, member.incarnation, f"node-{member.broker_id}", member.broker_endpoint
        )
        member.host = _TrioHost(member, env, spec)
        await member.host.run()

    # --- the controller ---

    def _take_proposal(self, proposal: ProposeIsr) -> None:
        self.proposals.append(proposal)
        if self.accepts_proposals and (proposal.leader_epoch, proposal.partition_epoch) == (
            self.epoch,
            self.partition_epoch,
        ):
            self.world.after(0.001, lambda: self.assign(isr=tuple(broker_id for broker_id, _ in proposal.isr)))

    def _take_stand_down(self, asked: StandDown) -> None:
        """As the controller does it: only if somebody else in sync is alive."""
        self.stand_downs.append(asked)
        others = tuple(each for each in self.isr if each != asked.broker and self._is_alive(each))
        if not others:
            raise EligibleLeadersNotAvailable(self.topic, 0)
        leader = others[0] if self.leader == asked.broker else self.leader
        if asked.is_damaged:
            self.isr = others  # decided now, whoever asks next; they are told in a moment
        self.world.after(0.001, lambda: self.elect(leader, others if asked.is_damaged else self.isr))

    def _is_alive(self, broker_id: int) -> bool:
        process = self.members[broker_id].process
        return process is not None and process.is_alive

    def elect(self, leader: int, isr: tuple[int, ...], *to: int) -> None:
        """A new epoch; `to`: only these hear of it."""
        self.epoch += 1
        self.assign(leader=leader, isr=isr, to=to)

    def assign(
        self, *, leader: int | None = None, isr: tuple[int, ...] | None = None, to: tuple[int, ...] = ()
    ) -> None:
        self.leader = self.leader if leader is None else leader
        self.isr = self.isr if isr is None else isr
        self.partition_epoch += 1
        self.tell(*(to or self.members))

    def tell_settings(self) -> None:
        """They have changed, and nothing else has."""
        self.settings_changes += 1
        self.tell(*self.members)

    def assignment(self) -> Assign:
        addresses = tuple(
            ReplicaAddress(each.broker_id, each.incarnation, each.host_hello.endpoints if each.host_hello else ())
            for each in self.members.values()
        )
        isr: tuple[ReplicaId, ...] = tuple((each, self.members[each].incarnation) for each in self.isr)
        return Assign(
            self.topic, TOPIC_ID, 0, self.partition_epoch + self.settings_changes,
            self.leader, self.epoch, self.partition_epoch, isr, addresses,
            self.min_insync, tuple(self.settings.items()), 1, self.catch_up_rate,
        )  # fmt: skip

    def tell(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            member = self.members[broker_id]
            if member.broker is not None and member.broker.is_alive and member.stream is not None:
                member.broker.run(self._send(member.stream, self.assignment()))

    async def _send(self, stream: Stream, assigned: Assign) -> None:
        if not stream.closed.done():
            stream.send(assigned)

    # --- a client ---

    def append(
        self, broker_id: int, *values: bytes, acks: int = -1, sequence: int = -1, timeout_ms: int = 1_000
    ) -> asyncio.Task[Response]:
        has_producer = sequence >= 0
        data = encode_batch(
            list(values), timestamps=1, producer_id=7 if has_producer else -1,
            producer_epoch=0 if has_producer else -1, base_sequence=sequence,
        )  # fmt: skip
        return self._ask(broker_id, Append(NO_EPOCH, acks, timeout_ms), bytes(data))

    def fetch(
        self, broker_id: int, offset: int, *, max_wait_ms: int = 0, last_epoch: int = -1
    ) -> asyncio.Task[Response]:
        return self._ask(broker_id, Fetch(offset, NO_EPOCH, last_epoch, 1, 1 << 20, max_wait_ms, False, ""))

    def ask(self, broker_id: int, message: object, payload: bytes = b"") -> asyncio.Task[Response]:
        return self._ask(broker_id, message, payload)

    def _ask(self, broker_id: int, message: object, payload: bytes = b"") -> asyncio.Task[Response]:
        if self.client is None:
            self.client = self.world.add_machine("tester").start("client", _idle)
        hello = self.members[broker_id].host_hello
        assert hello is not None
        return self.client.run(self._request(self.client, hello.endpoints[-1], message, payload))

    async def _request(self, client: Process, endpoint: str, message: object, payload: bytes) -> Response:
        stream = await client.environment.dial(Endpoint.parse(endpoint), "client", refuse)
        return await stream.request(message, payload, topic_id=TOPIC_ID, partition=0, timeout=60)  # type: ignore[arg-type]

    # --- waiting and looking ---

    def until(self, predicate, limit: float = 20.0) -> None:  # type: ignore[no-untyped-def]
        assert self.world.run_until_idle_or(predicate, limit), "it did not happen in time"

    def answer(self, task: asyncio.Task[Response]) -> Response:
        self.until(task.done, 70.0)
        return task.result()

    def offset_of(self, task: asyncio.Task[Response]) -> int:
        message = self.answer(task).message
        assert isinstance(message, Appended)
        return message.base_offset

    def log(self, broker_id: int):  # type: ignore[no-untyped-def]
        replica = self.members[broker_id].replica
        assert replica is not None
        assert replica._hosted is not None
        return replica._hosted.log

    def follower(self, broker_id: int) -> FollowerRole:
        """A replica's role, which is to be that of a follower."""
        replica = self.members[broker_id].replica
        assert replica is not None
        assert replica._replica is not None
        assert isinstance(replica._replica._role, FollowerRole)
        return replica._replica._role

    def values(self, broker_id: int) -> list[bytes]:
        """All that is in a replica's log, committed or not."""
        log = self.log(broker_id)
        found, offset = [], log.log_start_offset
        while offset < log.log_end_offset:
            read = log.read(offset, 1 << 20, Isolation.LOG_END)
            found += [value for _, value in records_of(read.data)]
            offset = read.next_offset
        return found

    def have(self, count: int, *broker_ids: int) -> None:
        """Wait until these replicas hold so many records."""
        self.until(lambda: all(self.log(each).log_end_offset == count for each in broker_ids or self.members))


async def _idle(_: Environment) -> None:
    await asyncio.Event().wait()
