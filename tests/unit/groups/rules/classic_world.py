"""Classic groups for unit tests: a machine with Kafka clients in it."""

from __future__ import annotations

from typing import Final

from raylog.errors import RaylogError
from raylog.groups.records.classic_messages import (
    NO_GENERATION,
    ClassicHeartbeat,
    ClassicJoined,
    ClassicSynced,
    JoinClassic,
    LeaveClassic,
    SyncClassic,
)
from raylog.groups.records.messages import CommitOffsets, OffsetsCommitted
from raylog.groups.rules.classic_group import ClassicGroup, HeldRequest, Released, Waiting
from tests.unit.groups.small_group import Machine, topic_id

SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 60_000


class Classic:
    """A machine, and the answers to held requests that have come about."""

    def __init__(self, machine: Machine, group: str = "g") -> None:
        self.machine = machine
        self.group = group
        self.told: dict[HeldRequest, Released] = {}

    @property
    def state(self) -> ClassicGroup:
        found = self.machine.group(self.group).classic
        assert found is not None
        return found

    def keep(self) -> None:
        self.told.update(self.machine.shard.classic.take_released(self.group))
        self.machine.keep()
        assert not [*self.machine.shard.state.broken_invariants()]

    def wait(self, ms: int) -> None:
        """Let the time pass, with a look whenever one is due."""
        end = self.machine.now_ms + ms
        while True:
            due = self.machine.shard.classic.due_ms(self.group)
            if due is None or due > end:
                break
            self.machine.now_ms = max(self.machine.now_ms, due)
            self.machine.shard.classic.look(self.group, self.machine.at)
            self.keep()
        self.machine.now_ms = end


class KafkaMember:
    """A Kafka client, as far as its words go."""

    def __init__(
        self, of: Classic, name: str, *protocols: str, instance: str = "", needs_id: bool = False, said: bytes = b""
    ) -> None:
        self.of = of
        self.name = name
        self.id = ""
        self.instance = instance
        self.needs_id = needs_id
        self.generation = NO_GENERATION
        self.is_leader = False
        self.members: tuple[str, ...] = ()
        self.assignment: bytes | None = None
        self.said = said or name.encode()
        self.protocols = protocols or ("range",)

    def join(self, session_ms: int = SESSION_MS, rebalance_ms: int = REBALANCE_MS) -> KafkaMember:
        request = JoinClassic(
            self.of.group, self.id, self.name, self.needs_id, self.instance, "test", "", session_ms, rebalance_ms,
            "consumer", tuple((each, self.said) for each in self.protocols),
        )  # fmt: skip
        try:
            answer = self.of.machine.shard.classic.enter(request, self.of.machine.at)
        finally:
            self.of.keep()
        self.id = self.id or self.name
        if isinstance(answer, ClassicJoined):
            self._take(answer)
        return self

    def joined(self) -> bool:
        """Take the answer to a join that was held. False: it still is."""
        answer = self.of.told.pop(HeldRequest(self.id, Waiting.JOIN), None)
        if isinstance(answer, RaylogError):
            raise answer
        if isinstance(answer, ClassicJoined):
            self._take(answer)
        return answer is not None

    def _take(self, answer: ClassicJoined) -> None:
        self.id, self.generation = answer.member, answer.generation
        self.is_leader = answer.leader == self.id and not answer.keeps_assignment
        self.members = tuple(each[0] for each in answer.members)

    def sync(self, **given: str) -> KafkaMember:
        """Ask for the assignment; the leader brings it, by member."""
        assignments = tuple((each, text.encode()) for each, text in given.items())
        request = SyncClassic(self.of.group, self.id, self.instance, self.generation, "consumer", "", assignments)
        self.assignment = None
        try:
            answer = self.of.machine.shard.classic.enter(request, self.of.machine.at)
        finally:
            self.of.keep()
        if isinstance(answer, ClassicSynced):
            self.assignment = answer.assignment
        return self

    def synced(self) -> bool:
        answer = self.of.told.pop(HeldRequest(self.id, Waiting.SYNC), None)
        if isinstance(answer, RaylogError):
            raise answer
        if isinstance(answer, ClassicSynced):
            self.assignment = answer.assignment
        return answer is not None

    def beat(self) -> None:
        self.of.machine.ask(ClassicHeartbeat(self.of.group, self.id, self.instance, self.generation))

    def leave(self) -> None:
        try:
            self.of.machine.ask(LeaveClassic(self.of.group, self.id, self.instance))
        finally:
            self.of.keep()

    def commit(self, offset: int) -> None:
        entries = ((topic_id("t"), 0, offset, -1, ""),)
        answer = self.of.machine.ask(CommitOffsets(self.of.group, self.id, self.generation, entries, self.instance))
        assert isinstance(answer, OffsetsCommitted)
        assert answer.refused == ()


def settled(of: Classic, *members: KafkaMember) -> None:
    """Let them all join, and the leader give each its own name."""
    for each in members:
        each.join()
    of.wait(1_000)
    for each in members:
        each.joined()
    for each in sorted(members, key=lambda one: one.is_leader):
        each.sync(**({one.id: one.name for one in members} if each.is_leader else {}))
    for each in members:
        each.synced()
        assert each.assignment == each.name.encode()
