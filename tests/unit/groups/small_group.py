"""A group or a few for unit tests: the real shard, a list for a log, topics as they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from raylog.actors.protocol.messages import Message
from raylog.errors import AssignorFailed, UnknownAssignor
from raylog.groups.assignors.calling import assign
from raylog.groups.records.messages import (
    JOINING,
    LEAVING,
    CommitOffsets,
    FetchOffsets,
    GroupHeartbeat,
    GroupHeartbeatAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    PartitionId,
    Profile,
    Refusal,
    each_of,
    grouped,
)
from raylog.groups.records.offsets_log import KnownTopic
from raylog.groups.records.records import EncodedRecord, decode, encode
from raylog.groups.records.settings import GroupSettings
from raylog.groups.rules.group import Group
from raylog.groups.rules.membership import Moment
from raylog.groups.rules.pattern_topics import match_patterns
from raylog.groups.rules.rebalance import TargetBasis
from raylog.groups.rules.shard import Due, GroupShard

_M = TypeVar("_M", bound=Message)

WALL_MS = 1_700_000_000_000
_USUAL = GroupSettings()


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


class ToldTopics:
    """Topics as a test says they are."""

    def __init__(self, **counts: int) -> None:
        self._version = 1
        self._topics: dict[str, KnownTopic] = {}
        self.ends: dict[PartitionId, int] = {}
        for name, count in counts.items():
            self.put(name, count)

    def put(self, name: str, count: int, racks: tuple[frozenset[str], ...] = ()) -> None:
        self._topics = {**self._topics, name: KnownTopic(name, topic_id(name), racks or (frozenset[str](),) * count)}
        self._version += 1

    def drop(self, name: str) -> None:
        self._topics = {each: known for each, known in self._topics.items() if each != name}
        self._version += 1

    def go_back_to(self, version: int) -> None:
        """As another process would see them that has heard less."""
        self._version = version

    @property
    def version(self) -> int:
        return self._version

    def by_name(self) -> Mapping[str, KnownTopic]:
        return self._topics

    def by_id(self, of: bytes) -> KnownTopic | None:
        return next((each for each in self._topics.values() if each.topic_id == of), None)

    def end_offset(self, of: bytes, partition: int) -> int | None:
        return self.ends.get((of, partition))

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


class Machine:
    """The shard, the time, and all records it has written."""

    def __init__(self, settings: GroupSettings = _USUAL, **topics: int) -> None:
        self.topics = ToldTopics(**topics)
        self.settings = settings
        self.shard = GroupShard(self.settings, self.topics)
        self.now_ms = 1_000
        self.written: list[EncodedRecord] = []
        self._sequence = 0

    @property
    def at(self) -> Moment:
        return Moment(self.now_ms, WALL_MS + self.now_ms)

    def ask(self, request: Message) -> Message:
        try:
            return self.shard.answer(request, self.at)
        finally:
            self.keep()

    def keep(self) -> int:
        """Write what has been changed; returns how many records that were."""
        records = self.shard.take_records()
        self.written += map(encode, records)
        return len(records)

    def assign(self, group: str = "g", *, regardless: bool = False) -> bool:
        """Run the group's assignor here and now. False: it has failed, or it is to be tried later."""
        self.match_patterns()
        basis = self.shard.begin_assignment(group, regardless=regardless)
        if not isinstance(basis, TargetBasis):
            self.keep()
            return basis is Due.NOT
        plan = basis.plan()
        try:
            given = assign(plan.call.name, plan.call.subscribers, plan.call.topics)
        except (AssignorFailed, UnknownAssignor) as error:
            self.shard.fail_assignment(plan, error)
            return False
        self.shard.finish_assignment(plan, given)
        self.keep()
        return True

    def match_patterns(self) -> None:
        while (work := self.shard.patterns_due()) is not None:
            self.shard.patterns_matched(work, match_patterns(work))

    def group(self, name: str = "g") -> Group:
        return self.shard.state.groups[name]

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def successor(self) -> Machine:
        """Another coordinator, with what this one has written."""
        other = Machine(self.settings)
        other.topics, other.now_ms, other._sequence = self.topics, self.now_ms, self._sequence
        other.shard = GroupShard(self.settings, self.topics)
        for encoded in self.written:
            other.shard.state.replay(*decode(*encoded))
        other.shard.finish_recovery(other.at)
        other.written = list(self.written)
        return other


class Client:
    """One member, as far as its words go. It owns what it says."""

    def __init__(
        self, machine: Machine, name: str, *topics: str, group: str = "g", instance: str = "", pattern: str = "",
        assignor: str = "", session_ms: int = 10_000, rebalance_ms: int = 60_000, rack: str = "",
    ) -> None:  # fmt: skip
        self.machine = machine
        self.name = name
        self.group = group
        self.epoch = JOINING
        self.owned: frozenset[PartitionId] = frozenset()
        self.profile = Profile(instance, rack, "test", "", session_ms, rebalance_ms, assignor, topics, pattern)

    def join(self) -> Client:
        self.epoch, self.owned = JOINING, frozenset()
        return self.beat(profile=self.profile)

    def request(self, profile: Profile | None = None, epoch: int | None = None) -> GroupHeartbeat:
        fields = None if profile is None else profile.fields()
        epoch = self.epoch if epoch is None else epoch
        owned = grouped(self.owned)
        return GroupHeartbeat(self.group, self.name, epoch, self.machine.next_sequence(), 0, owned, fields)

    def beat(self, profile: Profile | None = None) -> Client:
        """Say what is, and take what comes; what is to be given up is given up, but not said before the next time."""
        answer = self.machine.ask(self.request(profile))
        assert isinstance(answer, GroupHeartbeatAnswer)
        self.epoch = answer.epoch
        if answer.assignment is not None:
            self.owned = each_of(answer.assignment)
        return self

    def leave(self, epoch: int = LEAVING) -> None:
        self.machine.ask(self.request(epoch=epoch))

    def commit(self, *entries: tuple[str, int, int], epoch: int | None = None, text: str = "") -> tuple[Refusal, ...]:
        offsets = tuple((topic_id(topic), number, offset, -1, text) for topic, number, offset in entries)
        epoch = self.epoch if epoch is None else epoch
        answer = self.machine.ask(CommitOffsets(self.group, self.name, epoch, offsets))
        assert isinstance(answer, OffsetsCommitted)
        return answer.refused

    @property
    def partitions(self) -> list[str]:
        return sorted(f"{of.rstrip(bytes(1)).decode()}{number}" for of, number in self.owned)


def settle(machine: Machine, *clients: Client) -> None:
    """Assign, and let everybody speak until nothing changes."""
    for group in {client.group for client in clients}:
        machine.assign(group)
    for _ in range(4):
        for client in clients:
            client.beat()


def committed(machine: Machine, group: str = "g") -> dict[str, int]:
    answer = machine.ask(FetchOffsets(group, "", -1, None))
    assert isinstance(answer, OffsetsFetched)
    return {f"{of.rstrip(bytes(1)).decode()}{number}": offset for of, number, offset, _, _ in answer.offsets}
