"""Groups in a simulated cluster: real coordinators on a replicated `__consumer_offsets`, real members, under faults.

Members are those of `group_process.py`. What they were told is held against the log of `__consumer_offsets` afterwards:
the log is read whole, in order, as its leader serves it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

from raylog.actors.kernel.environment import Environment
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.coordinator_records import CLAIM_KEY
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.names import OFFSETS_TOPIC, group_hash
from raylog.actors.protocol.replication_messages import LATEST, NO_EPOCH, Fetch, Fetched, ListedOffset, ListOffset
from raylog.errors import RaylogError
from raylog.groups.coordinator import core
from raylog.groups.records.messages import (
    CommitOffsets,
    FetchOffsets,
    GroupHeartbeat,
    GroupHeartbeatAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    PartitionId,
    Profile,
)
from raylog.groups.records.records import EncodedRecord
from raylog.storage.format.batch_codec import decode_batch
from raylog.storage.format.record_batch import split_batches
from tests.simulator.checks.group_checks import GroupBroken, GroupChecker
from tests.simulator.cluster.group_process import MemberProcess
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.faults.disturbances import Disturbances
from tests.simulator.scenario import Outcome
from tests.simulator.world.machines import Process, SimEnvironment
from tests.simulator.world.virtual_loop import VirtualLoop
from tests.simulator.world.world import World

TOPIC: Final = "events"
PARTITIONS: Final = 5
GROUPS: Final = ("g1", "g2")
_CLIENT_MACHINES: Final = 3
_MOST_MEMBERS: Final = 7
_SESSION_MS: Final = 6_000
_FAULT_SECONDS: Final = 20.0
_SETTLE_SECONDS: Final = 60.0  # an order to start a coordinator that got lost is repeated after 20
_COMMIT_SECONDS: Final = 10.0
_FIND_SECONDS: Final = 3.0
_READ_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.1
_FETCH_BYTES: Final = 4 * 2**20


class LateChecker(GroupChecker):
    """Keeps what members were told, until the log is there to be held against it."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[tuple[str, PartitionId], list[str]] = defaultdict(list)  # acknowledged, in order
        self._fetches: list[tuple[str, PartitionId, str, int]] = []

    def acknowledged(self, group: str, partition: PartitionId, metadata: str) -> None:
        self._told[group, partition].append(metadata)

    def before_fetch(self, group: str, partition: PartitionId) -> int:
        return len(self._told[group, partition])

    def fetched(self, group: str, partition: PartitionId, metadata: str, at_least: int) -> None:
        self._fetches.append((group, partition, metadata, at_least))

    def reads(self, group: str, process: str, member: str, partitions: Iterable[PartitionId]) -> None:
        self.grants += len(list(partitions))

    def hold_against(self, batches: Iterable[list[EncodedRecord]]) -> None:
        """Rules 23 and 24 in the log itself, and all that was acknowledged is in it. GroupBroken."""
        for records in batches:
            self.batch(records)
        for (group, partition), told in self._told.items():
            for metadata in told:
                super().acknowledged(group, partition, metadata)
        for group, partition, metadata, at_least in self._fetches:
            before = self._told[group, partition][:at_least]
            places = [self._place_of[group, partition, each] for each in before]
            super().fetched(group, partition, metadata, max(places, default=0))

    @property
    def commits_told(self) -> int:
        return sum(map(len, self._told.values()))


_ANSWERS: Final[dict[type[Message], type[Message]]] = {
    GroupHeartbeat: GroupHeartbeatAnswer,
    CommitOffsets: OffsetsCommitted,
    FetchOffsets: OffsetsFetched,
}


class LinkNetwork:
    """The network of a `MemberProcess`: a real link, which finds the coordinator by itself."""

    def __init__(self, link: ClusterLink, group: str) -> None:
        self._link = link
        self._hashed = group_hash(group)

    def find_coordinator(self) -> None:
        """Each request looks for it."""

    async def ask(self, _to: Any, request: Message, timeout: float) -> Message:
        expect = _ANSWERS[type(request)]
        place = await self._link.find_coordinator(OFFSETS_TOPIC, self._hashed, _FIND_SECONDS)
        return (await self._link.ask(place, request, expect=expect, timeout=timeout)).message


class GroupCluster:
    """`run` it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = Random(world.random.getrandbits(64))
        self.cluster = SimulatedCluster(world, coordinator_makers={OFFSETS_TOPIC: core.make})
        self.cluster.form(3)
        self.cluster.create_topic(TOPIC, PARTITIONS, 2, {})
        self.checker = LateChecker()
        self.members: list[tuple[Process, MemberProcess]] = []
        about_grants = 5 if world.seed % 16 == 9 else 0
        self.disturbances = Disturbances(self.cluster, self.random, self._faults(), about_grants)
        self._machines = [world.add_machine(f"clients-{number}") for number in range(_CLIENT_MACHINES)]
        self._names = 0
        self._batches: list[list[EncodedRecord]] = []

    def run(self) -> Outcome:
        """GroupBroken."""
        for group in GROUPS:
            self.start_member(group)
            self.start_member(group)
        self._settle()
        self.disturbances.go_on(_FAULT_SECONDS)
        for group in GROUPS:
            if not self.alive(group):
                self.start_member(group)
        self._settle()
        told = self.checker.commits_told
        if not self.world.run_until_idle_or(lambda: self.checker.commits_told > told, _COMMIT_SECONDS):
            raise GroupBroken("no member gets a commit acknowledged any more")
        self._check_log()
        self.cluster.is_over = True
        world = self.world
        counts = dict(self.disturbances.counts)
        return Outcome(world.seed, world.scheduler.events, self.checker.commits_told, world.fingerprint, counts)

    def _settle(self) -> None:
        if not self.world.run_until_idle_or(lambda: not self.unsettled(), _SETTLE_SECONDS):
            raise GroupBroken(f"not settled after {_SETTLE_SECONDS:.0f} s: {self.unsettled()}")

    # --- members --------------------------------------------------------------------------------------------------

    def start_member(self, group: str) -> None:
        self._names += 1
        machine = self._machines[self._names % _CLIENT_MACHINES]
        machine.start(f"member-{self._names}", self._member_main, group, f"m{self._names}")

    async def _member_main(self, env: SimEnvironment, group: str, name: str) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        link = ClusterLink(env, self.cluster.broker_endpoints())
        profile = Profile("", "", "sim", "here", _SESSION_MS, 60_000, "", (TOPIC,), "")
        random = Random(env.random.getrandbits(64))
        member = MemberProcess(name, group, profile, 300_000, loop, LinkNetwork(link, group), self.checker, random)
        self.members.append((env.process, member))
        member.start()
        while not member.member.is_over:
            await asyncio.sleep(1.0)
        await link.close()

    def alive(self, group: str) -> list[MemberProcess]:
        return [
            each
            for process, each in self.members
            if process.is_alive and each.group == group and not each.member.is_over
        ]

    def unsettled(self) -> str:
        """Each group reads each partition once. Empty: it is so."""
        for group in GROUPS:
            members = self.alive(group)
            for each in members:
                if not each.member.is_member or each.member.revoking:
                    return f"{each.name} of {group} is {each.member.state}"
            read = [partition for each in members for partition in each.member.reads]
            if len(read) != PARTITIONS or len(set(read)) != PARTITIONS:
                return f"{group} reads {len(set(read))} of {PARTITIONS} partitions, {len(read)} times"
        return ""

    # --- faults ---------------------------------------------------------------------------------------------------

    def _faults(self) -> list[tuple[int, Callable[[], bool]]]:
        return [(3, self._kill_member), (3, self._pause_member), (3, self._add_member), (4, self._kill_offsets_replica)]

    def _kill_member(self) -> bool:
        living = self._living()
        if len(living) > 2:
            self.random.choice(living).kill()
        return len(living) > 2

    def _pause_member(self) -> bool:
        """Pause a member, which comes back as a zombie or within its session."""
        living = self._living()
        if living:
            self.random.choice(living).pause(self.random.choice((1.0, 9.0)))
        return bool(living)

    def _add_member(self) -> bool:
        has_room = len(self._living()) < _MOST_MEMBERS
        if has_room:
            self.start_member(self.random.choice(GROUPS))
        return has_room

    def _kill_offsets_replica(self) -> bool:
        replicas = [each.process for each in self.cluster.replicas if each.spec.topic == OFFSETS_TOPIC]
        if replicas:
            self.random.choice(replicas).kill()
        return bool(replicas)

    def _living(self) -> list[Process]:
        return [process for process, each in self.members if process.is_alive and not each.member.is_over]

    # --- afterwards -----------------------------------------------------------------------------------------------

    def _check_log(self) -> None:
        """Check the log once nobody commits any more. GroupBroken."""
        for process, _ in self.members:
            if process.is_alive:
                process.kill()
        reading = self._machines[0].start("reader", self._reader_main)
        if not self.world.run_until_idle_or(lambda: not reading.is_alive, 30.0):
            raise GroupBroken("the log of the groups is not served")
        self.checker.hold_against(self._batches)

    async def _reader_main(self, env: Environment) -> None:
        link = ClusterLink(env, self.cluster.broker_endpoints())
        read: list[list[list[EncodedRecord]]] = []
        partitions = len((await link.find_topic(OFFSETS_TOPIC, _READ_SECONDS)).partitions)
        while len(read) < partitions:
            leader = (await link.find_topic(OFFSETS_TOPIC, _READ_SECONDS)).partitions[len(read)]
            try:
                read.append(await _read_all(link, leader))
            except RaylogError:  # another one leads by now, or nobody yet; it has a time limit
                await link.changed(_PAUSE_SECONDS)
        self._batches = [batch for batches in read for batch in batches]
        await link.close()


async def _read_all(link: ClusterLink, leader: Any) -> list[list[EncodedRecord]]:
    listed = (
        await link.ask(leader, ListOffset(LATEST, NO_EPOCH, False), expect=ListedOffset, timeout=_READ_SECONDS)
    ).message
    offset, last_epoch = 0, NO_EPOCH
    batches: list[list[EncodedRecord]] = []
    while offset < listed.offset:
        request = Fetch(offset, NO_EPOCH, last_epoch, 1, _FETCH_BYTES, 500, False, "")
        response = await link.ask(leader, request, expect=Fetched, timeout=_READ_SECONDS)
        answer = response.message
        for batch in split_batches(response.payload) if response.payload else ():
            records = decode_batch(batch)
            entries = zip(records.keys, records.values, strict=True)
            batches.append([(key, value) for key, value in entries if key is not None and key != CLAIM_KEY])
        offset, last_epoch = max(offset, answer.next_offset), answer.leader_epoch
    return batches


def run_group_cluster_seed(
    seed: int, *, trace_lines: int = 200, look: Callable[[World], None] | None = None
) -> Outcome:
    """Raises what was found. `look` sees the world at its end either way."""
    with World(seed, trace_lines=trace_lines) as world:
        try:
            return GroupCluster(world).run()
        finally:
            if look is not None:
                look(world)
