"""The requests of people to the controller: changing topics, partitions and brokers, and looking at them.

All that is refused is refused by the modules that decide, before anything is changed. What must stay true:
- Each call ends within its time: done, refused with a typed error, or AdminTimedOut, and then it may still happen.
- What is described is the newest state there is; what is not committed yet may be in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Final

from raylog.actors.cluster.admin_requests import EditClusterSettings, EditTopicSettings
from raylog.actors.cluster.broker_membership import allocate_broker_ids, check_removable, remove_broker
from raylog.actors.cluster.cluster_settings import (
    allowed_assignors,
    alter_cluster_settings,
    describe_cluster_settings,
)
from raylog.actors.cluster.descriptions import (
    BrokerDescription,
    BrokerLogs,
    ClusterDescription,
    CoordinatorDescription,
    PartitionDescription,
    ReplicaDescription,
    Reports,
    TopicDescription,
    TopicSettingsDescription,
    describe_broker_logs,
    describe_brokers,
    describe_cluster,
    describe_replicas,
    describe_topic,
    describe_topic_settings,
    planned_topic,
)
from raylog.actors.cluster.election.leader_election import elect_leaders
from raylog.actors.cluster.election.leaderless import Prospects, prospects
from raylog.actors.cluster.placement.draining import drain_broker, is_drained, undrain_broker
from raylog.actors.cluster.placement.reassignment import change_replication_factor, reassign_partitions
from raylog.actors.cluster.producer_ids import BLOCK_SIZE, allocate_producer_ids
from raylog.actors.cluster.setting_edits import changes_of
from raylog.actors.cluster.topic_admin import NewTopic, create_partitions, create_topic, delete_topic
from raylog.actors.cluster.topic_settings import alter_topic_settings
from raylog.actors.controller.changes import ClusterChanges
from raylog.actors.controller.copy_recovery import CopyRecovery
from raylog.actors.controller.security_admin import SecurityAdmin
from raylog.actors.controller.sessions import BrokerSessions
from raylog.actors.link.delete_records import check_deletable
from raylog.actors.metadata_log.writer import MetadataWriter
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.actors.protocol.messages import NO_TOPIC, Message
from raylog.actors.protocol.names import is_internal
from raylog.config import LIST_SETTINGS, ConfigValue
from raylog.errors import AdminTimedOut, RaylogError, TopicStillStarting

ADMIN_SECONDS: Final = 30.0
_TOPIC_ID_BYTES: Final = 16
_SHOWN: Final = 10

Records = Sequence[Message]


class ControllerAdmin(CopyRecovery):
    """The requests of administrators, and what they change.

    `on_broker_removed` is called for brokers that will not come back, `on_settings` for new settings of the cluster.
    `coordinators` describes them as they are; `internal_records` creates one of raylog's own topics.
    """

    def __init__(
        self,
        changes: ClusterChanges,
        sessions: BrokerSessions,
        writer: MetadataWriter,
        random: Random,
        on_broker_removed: Callable[[int], None],
        on_settings: Callable[[], None],
        coordinators: Callable[[], tuple[CoordinatorDescription, ...]],
        internal_records: Callable[[str], Records],
    ) -> None:
        super().__init__(changes, sessions)
        self._writer = writer
        self._random = random
        self._on_broker_removed = on_broker_removed
        self._on_settings = on_settings
        self._coordinators = coordinators
        self._internal_records = internal_records
        self.security = SecurityAdmin(lambda: self._changes.state.security, self._make)

    # --- topics ---------------------------------------------------------------------------------------------------

    async def ensure_coordinated(self, name: str, *, timeout: float = ADMIN_SECONDS) -> None:
        """Create one of raylog's own topics, unless it exists."""
        if self._changes.state.has_topic(name):
            await asyncio.shield(self._changes.submit(()))
            return
        await self._make(self._internal_records(name), timeout, f"creating topic {name!r}")

    def plan_topic(self, topic: NewTopic) -> TopicDescription:
        """Return the topic that `create_topic` would make just now; it raises the same errors."""
        return planned_topic(create_topic(self._changes.state, self._changes.live, topic, NO_TOPIC), topic.name)

    async def create_topic(
        self, topic: NewTopic, *, topic_id: bytes = b"", internal: bool = False, timeout: float = ADMIN_SECONDS
    ) -> TopicDescription:
        """Done once every partition has a leader. TopicStillStarting: it exists, but the time was over.

        `topic_id`: 16 bytes freshly drawn; empty: they are drawn here.

        InvalidTopicName, TopicExists, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment,
        BrokerNotAvailable, UnknownConfig, InvalidConfig.
        """
        deadline = self._now() + timeout
        topic_id = topic_id or self._random.randbytes(_TOPIC_ID_BYTES)
        records = create_topic(self._changes.state, self._changes.live, topic, topic_id, internal=internal)
        await self._make(records, timeout, f"creating topic {topic.name!r}")
        await self._until_led(topic.name, deadline, timeout)
        return self.describe_topic(topic.name)

    def plan_partitions(
        self, topic: str, total: int, assignment: Sequence[Sequence[int]] | None = None
    ) -> TopicDescription:
        """Check what `create_partitions` checks, and return the topic as it is."""
        create_partitions(self._changes.state, self._changes.live, topic, total, assignment)
        return self.describe_topic(topic)

    async def create_partitions(
        self,
        topic: str,
        total: int,
        assignment: Sequence[Sequence[int]] | None = None,
        *,
        timeout: float = ADMIN_SECONDS,
    ) -> TopicDescription:
        """Let it have `total` partitions. Done once all are led; TopicStillStarting as above."""
        deadline = self._now() + timeout
        records = create_partitions(self._changes.state, self._changes.live, topic, total, assignment)
        await self._make(records, timeout, f"adding partitions to topic {topic!r}")
        await self._until_led(topic, deadline, timeout)
        return self.describe_topic(topic)

    async def delete_topic(
        self, topic: str, *, topic_id: bytes = b"", internal: bool = False, timeout: float = ADMIN_SECONDS
    ) -> None:
        """Delete a topic. The name is free at once; its data is removed by and by. UnknownTopic.

        `topic_id`: delete no topic of this name but the one with this id; empty: any.
        """
        records = delete_topic(self._changes.state, topic, topic_id, internal=internal)
        await self._make(records, timeout, f"deleting topic {topic!r}")

    async def alter_topic_settings(
        self, topic: str, changes: Mapping[str, ConfigValue | None], *, timeout: float = ADMIN_SECONDS
    ) -> TopicDescription:
        """Set these; None: back to the default. UnknownTopic, UnknownConfig, InvalidConfig."""
        records = alter_topic_settings(self._changes.state, self._changes.live, topic, changes)
        await self._make(records, timeout, f"changing the settings of topic {topic!r}")
        return self.describe_topic(topic)

    async def edit_topic_settings(self, asked: EditTopicSettings, *, timeout: float = ADMIN_SECONDS) -> None:
        """Change settings of a topic. UnknownTopic, UnknownConfig, InvalidConfig, InvalidRequest."""
        config = self._changes.state.topic(asked.topic).config
        present = {**config.overrides(), **{name: config.value(name) for name in LIST_SETTINGS}}
        changes = changes_of(asked.edits, present, LIST_SETTINGS, replaces=asked.replaces)
        if asked.validate_only:
            alter_topic_settings(self._changes.state, self._changes.live, asked.topic, changes)
        else:
            await self.alter_topic_settings(asked.topic, changes, timeout=timeout)

    async def edit_cluster_settings(self, asked: EditClusterSettings, *, timeout: float = ADMIN_SECONDS) -> None:
        """Change settings of the cluster. UnknownConfig, InvalidConfig, InvalidRequest."""
        present = describe_cluster_settings(self._changes.state)
        changes = changes_of(asked.edits, present, (), replaces=False)
        if asked.validate_only:
            alter_cluster_settings(self._changes.state, changes)
        else:
            await self.alter_cluster_settings(changes, timeout=timeout)

    async def alter_cluster_settings(
        self, changes: Mapping[str, ConfigValue | None], *, timeout: float = ADMIN_SECONDS
    ) -> None:
        """Set these; None: back to the default. UnknownConfig, InvalidConfig."""
        before = allowed_assignors(self._changes.state)
        records = alter_cluster_settings(self._changes.state, changes)
        await self._make(records, timeout, "changing the settings of the cluster")
        if before != allowed_assignors(self._changes.state):
            self._on_settings()

    def describe_cluster_settings(self) -> dict[str, ConfigValue]:
        return describe_cluster_settings(self._changes.state)

    def check_deletable(self, topics: Iterable[str]) -> None:
        """Whether records of these may be deleted by their offsets; of topics that are not known nothing is said."""
        for topic in topics:
            if self._changes.state.has_topic(topic):
                check_deletable(topic, self._changes.state.topic(topic).config)

    def list_topics(self, *, internal: bool = False) -> tuple[str, ...]:
        names = sorted(topic.name for topic in self._changes.state.topics.values())
        return tuple(name for name in names if internal or not is_internal(name))

    def describe_topic(self, topic: str) -> TopicDescription:
        """UnknownTopic."""
        return describe_topic(self._changes.state, self._reports(), topic)

    def describe_topic_settings(self, topics: Iterable[str]) -> dict[str, TopicSettingsDescription]:
        """Return the settings of those of these topics that exist."""
        return describe_topic_settings(self._changes.state, topics)

    def describe_replicas(self, topic: str) -> tuple[ReplicaDescription, ...]:
        """UnknownTopic."""
        return describe_replicas(self._changes.state, self._changes.live, self._reports(), topic)

    # --- leaders and replicas -------------------------------------------------------------------------------------

    async def elect_leaders(
        self, kind: str, partitions: Iterable[tuple[str, int]] | None = None, *, timeout: float = ADMIN_SECONDS
    ) -> dict[tuple[str, int], RaylogError]:
        """`leader_election.PREFERRED` or `UNCLEAN`; None: wherever it changes something. Returns what was refused."""
        elections = elect_leaders(self._changes.state, self._changes.live, kind, partitions)
        await self._make(elections.records, timeout, f"{kind} elections")
        return elections.refused

    async def reassign(
        self,
        targets: Mapping[tuple[str, int], Sequence[int] | None],
        throttle: int | None = None,
        *,
        timeout: float = ADMIN_SECONDS,
    ) -> None:
        """Returns once they have begun; `list_reassignments` shows which are not complete. None cancels one.

        UnknownTopic, UnknownPartition, InvalidReplicaAssignment, BrokerNotAvailable, NoReassignment, InvalidConfig.
        """
        records = reassign_partitions(self._changes.state, self._changes.live, targets, throttle)
        await self._make(records, timeout, f"reassigning {len(targets)} partitions")

    async def cancel_reassignments(
        self, partitions: Iterable[tuple[str, int]] | None = None, *, timeout: float = ADMIN_SECONDS
    ) -> None:
        """Cancel the reassignments of these partitions; None: all. NoReassignment."""
        if partitions is None:
            partitions = [(each.topic, each.partition) for each in self.list_reassignments()]
        await self.reassign(dict.fromkeys(partitions), timeout=timeout)

    def list_reassignments(self) -> tuple[PartitionDescription, ...]:
        state = self._changes.state
        names = dict.fromkeys(state.name_of(partition) for partition in state.reassigning())
        found = (each for name in names for each in self.describe_topic(name).partitions)
        return tuple(each for each in found if state.partition_named(each.topic, each.partition).is_reassigning)

    async def change_replication_factor(
        self, topic: str, replication_factor: int, *, timeout: float = ADMIN_SECONDS
    ) -> None:
        """Returns once the reassignments have begun. UnknownTopic, InvalidReplicationFactor."""
        records = change_replication_factor(self._changes.state, self._changes.live, topic, replication_factor)
        await self._make(records, timeout, f"changing the replication factor of topic {topic!r}")

    # --- brokers and the cluster ----------------------------------------------------------------------------------

    async def drain_broker(
        self, broker_id: int, *, force: bool = False, wait: bool = True, timeout: float = ADMIN_SECONDS
    ) -> None:
        """Move everything away from it; done once it holds nothing. UnknownBroker, BrokerInUse."""
        deadline = self._now() + timeout
        what = f"draining broker {broker_id}"
        records = drain_broker(self._changes.state, self._changes.live, broker_id, force=force)
        await self._make(records, timeout, what)
        if wait and not await self._changes.until(lambda: self._is_drained(broker_id), deadline - self._now()):
            raise AdminTimedOut(what, _ms(timeout))

    def _is_drained(self, broker_id: int) -> bool:
        return is_drained(self._changes.state, broker_id) and broker_id not in self._writer.voting_brokers

    async def undrain_broker(self, broker_id: int, *, timeout: float = ADMIN_SECONDS) -> None:
        """Let a broker stay after all. UnknownBroker."""
        await self._make(undrain_broker(self._changes.state, broker_id), timeout, f"keeping broker {broker_id}")

    def check_removable(self, broker_id: int) -> None:
        """Refuse what may not be removed, before it is stopped: UnknownBroker, BrokerInUse."""
        check_removable(self._changes.state, self._changes.live, self._writer.voting_brokers, broker_id)

    async def remove_broker(self, broker_id: int, *, timeout: float = ADMIN_SECONDS) -> None:
        """Forget a broker that holds nothing, votes on nothing, and does not run. UnknownBroker, BrokerInUse."""
        voters = self._writer.voting_brokers
        records = remove_broker(self._changes.state, self._changes.live, voters, broker_id)
        await self._make(records, timeout, f"removing broker {broker_id}")
        self._on_broker_removed(broker_id)

    def unsettled(self) -> Prospects | None:
        """The partitions without a leader, and their prospects. None: not known, brokers are still waited for."""
        if not self._changes.live.brokers <= self._sessions.registered:
            return None
        return prospects(self._changes.state, self._changes.live)

    def describe_broker_logs(self, broker_id: int) -> BrokerLogs:
        """Describe the disk of a broker, and the logs on it. UnknownBroker."""
        return describe_broker_logs(self._changes.state, self._changes.live, self._reports(), broker_id)

    def removed_brokers(self) -> frozenset[int]:
        return frozenset(self._changes.state.removed_brokers)

    def list_brokers(self) -> tuple[BrokerDescription, ...]:
        return describe_brokers(self._changes.state, self._changes.live, self._reports())

    def describe_cluster(self) -> ClusterDescription:
        return describe_cluster(
            self._changes.state,
            self._changes.live,
            self._reports(),
            metadata_version=self._changes.version,
            controller_epoch=self._changes.epoch,
            voters=self._writer.voting_brokers,
            coordinators=self._coordinators(),
        )

    async def allocate_producer_ids(self, size: int = BLOCK_SIZE, *, timeout: float = ADMIN_SECONDS) -> tuple[int, int]:
        """A block of ids that are given out once: from, and up to but not including (rule 18)."""
        block = allocate_producer_ids(self._changes.state, size)
        await self._make(block.records, timeout, "allocating producer ids")
        return block.first, block.end

    async def allocate_broker_ids(self, count: int, *, above: int, timeout: float = ADMIN_SECONDS) -> int:
        """The first of so many numbers for new brokers, which are given out once."""
        first, records = allocate_broker_ids(self._changes.state, count, above)
        await self._make(records, timeout, "numbering new brokers")
        return first

    # --- how ------------------------------------------------------------------------------------------------------

    async def _make(self, records: Records, timeout: float, what: str) -> None:
        """Let it be committed in time."""
        committed = self._changes.submit(records)
        await asyncio.wait([committed], timeout=timeout)
        if not committed.done():
            raise AdminTimedOut(what, _ms(timeout))
        committed.result()

    async def _until_led(self, topic: str, deadline: float, timeout: float) -> None:
        def is_over() -> bool:
            return not self._leaderless(topic)

        if not await self._changes.until(is_over, deadline - self._now()):
            names = [f"{topic}-{partition}" for partition in self._leaderless(topic)]
            if not names:  # all are led, but that is not committed yet
                raise AdminTimedOut(f"electing leaders for topic {topic!r}", _ms(timeout))
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            raise TopicStillStarting(", ".join(names[:_SHOWN]) + more, _ms(timeout))

    def _leaderless(self, topic: str) -> list[int]:
        state = self._changes.state
        if not state.has_topic(topic):
            return []
        partitions = state.partitions_of(state.topic(topic).id)
        return [partition.partition for partition in partitions if partition.leader == NO_LEADER]

    def _reports(self) -> Reports:
        sessions = self._sessions.all()
        disks = {each.broker_id: (each.free_bytes, each.total_bytes) for each in sessions}
        return Reports(self._changes.live.marks, disks, frozenset(self._sessions.registered))

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
