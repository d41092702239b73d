"""Groups in a simulated cluster: real coordinators on a replicated `__consumer_offsets`, real members, under faults.

Members are those of `group_process.py`. What they were told is held against the log of `__consumer_offsets` afterwards:
the log is read whole, in order, as its leader serves it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from random import Random
from typing import Any, Final

from raylog.actors.cluster_link import ClusterLink
from raylog.actors.coordinator_claims import CLAIM_KEY
from raylog.actors.coordinator_state import OFFSETS_TOPIC, group_hash
from raylog.actors.environment import Environment
from raylog.actors.messages import Message
from raylog.actors.replication_messages import LATEST, NO_EPOCH, Fetch, Fetched, ListedOffset, ListOffset
from raylog.groups import group_core
from raylog.groups.group_messages import PartitionId, Profile
from raylog.groups.group_records import EncodedRecord
from raylog.storage.batch_codec import decode_batch
from raylog.storage.record_batch import split_batches
from tests.simulation.group_checks import GroupBroken, GroupChecker
from tests.simulation.group_process import MemberProcess
from tests.simulation.machines import Process
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.world import World

TOPIC: Final = "events"
PARTITIONS: Final = 5
GROUPS: Final = ("g1", "g2")
_SESSION_MS: Final = 6_000
_FIND_SECONDS: Final = 3.0
_READ_SECONDS: Final = 10.0
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


class LinkNetwork:
    """What a `MemberProcess` asks over: a real link, which finds the coordinator by itself."""

    def __init__(self, link: ClusterLink, group: str) -> None:
        self._link = link
        self._hashed = group_hash(group)

    def find_coordinator(self) -> None:
        """Each request looks for it."""

    async def ask(self, _to: Any, request: Message, timeout: float) -> Message:
        place = await self._link.find_coordinator(OFFSETS_TOPIC, self._hashed, _FIND_SECONDS)
        return (await self._link.ask(place, request, timeout=timeout)).message


class GroupCluster:
    def __init__(self, world: World) -> None:
        self.world = world
        self.random = Random(world.random.getrandbits(64))
        self.cluster = SimulatedCluster(world, coordinator_makers={OFFSETS_TOPIC: group_core.make})
        self.cluster.form(3)
        self.cluster.create_topic(TOPIC, PARTITIONS, 2, {})
        self.checker = LateChecker()
        self.members: list[tuple[Process, MemberProcess]] = []
        self._machine = world.add_machine("clients")
        self._names = 0

    # --- members --------------------------------------------------------------------------------------------------

    def start_member(self, group: str) -> None:
        self._names += 1
        process = self._machine.start(f"member-{self._names}", self._member_main, group, f"m{self._names}")
        assert process.is_alive

    async def _member_main(self, env: Environment, group: str, name: str) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        link = ClusterLink(env, self.cluster.broker_endpoints())
        profile = Profile("", "", "sim", "here", _SESSION_MS, 60_000, "", (TOPIC,), "")
        random = Random(env.random.getrandbits(64))
        member = MemberProcess(name, group, profile, 300_000, loop, LinkNetwork(link, group), self.checker, random)
        process = next(each for each in self._machine.processes if each.loop is loop)
        self.members.append((process, member))
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

    def disturb(self) -> None:
        """Kill or stop something. What is stopped comes back as a zombie."""
        random, chance = self.random, self.random.random()
        coordinators = [each for each in self._processes() if each.name.startswith("coordinator")]
        members = [process for process, each in self.members if process.is_alive and not each.member.is_over]
        if chance < 0.3 and coordinators:
            random.choice(coordinators).kill()
        elif chance < 0.5 and coordinators:
            random.choice(coordinators).pause(random.uniform(0.5, 6.0))
        elif chance < 0.6 and len(members) > 2:
            random.choice(members).kill()
        elif chance < 0.7 and members:
            random.choice(members).pause(random.choice((1.0, 9.0)))
        elif chance < 0.8 and len(members) < 7:
            self.start_member(random.choice(GROUPS))
        elif chance < 0.92:
            leaders = [each for each in self.cluster.replicas if each.spec.topic == OFFSETS_TOPIC]
            if leaders:
                random.choice(leaders).process.kill()
        elif self.cluster.controllers:
            self.cluster.controllers[-1].process.kill()

    def _processes(self) -> list[Process]:
        return [process for home in self.cluster.homes.values() for process in home.machine.processes]

    # --- afterwards -----------------------------------------------------------------------------------------------

    def check_log(self) -> None:
        """Nobody commits any more. GroupBroken."""
        for process, _ in self.members:
            if process.is_alive:
                process.kill()
        reading = self._machine.start("reader", self._reader_main)
        self._batches: list[list[EncodedRecord]] = []
        if not self.world.run_until_idle_or(lambda: not reading.is_alive, 30.0):
            raise GroupBroken("the log of the groups is not served")
        self.checker.hold_against(self._batches)

    async def _reader_main(self, env: Environment) -> None:
        link = ClusterLink(env, self.cluster.broker_endpoints())
        view = await link.find_topic(OFFSETS_TOPIC, _READ_SECONDS)
        for leader in view.partitions:
            self._batches += await _read_all(link, leader)
        await link.close()


async def _read_all(link: ClusterLink, leader: Any) -> list[list[EncodedRecord]]:
    listed = (await link.ask(leader, ListOffset(LATEST, NO_EPOCH, False), timeout=_READ_SECONDS)).message
    assert isinstance(listed, ListedOffset)
    offset, last_epoch = 0, NO_EPOCH
    batches: list[list[EncodedRecord]] = []
    while offset < listed.offset:
        request = Fetch(offset, NO_EPOCH, last_epoch, 1, _FETCH_BYTES, 500, False, "")
        response = await link.ask(leader, request, timeout=_READ_SECONDS)
        answer = response.message
        assert isinstance(answer, Fetched)
        for batch in split_batches(response.payload) if response.payload else ():
            records = decode_batch(batch)
            entries = zip(records.keys, records.values, strict=True)
            batches.append([(key, value) for key, value in entries if key is not None and key != CLAIM_KEY])
        offset, last_epoch = max(offset, answer.next_offset), answer.leader_epoch
    return batches

