"""Changing what a topic's log obeys.

What must stay true (rule 7): the record that lowers `min.insync.replicas` comes in one batch with those that clear the
eligible leavers, of partitions whose ISR is large enough from then on. Their leaders acknowledge with fewer in sync, so
who left before that may miss something. Where the ISR is too small even so, nothing is acknowledged, and who left stays
eligible. A leader hears of the minimum and its ISR together, so it never puts the new one beside an older ISR.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from raylog.actors.cluster.election.isr_and_elr import facts_of, with_isr
from raylog.actors.cluster.election.leader_election import settle
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import ClusterState, Liveness, TopicState
from raylog.actors.protocol.control_messages import Setting
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import PartitionChanged, TopicSettings
from raylog.config import ConfigValue, TopicConfig
from raylog.errors import InvalidConfig

MIN_INSYNC: Final = "min.insync.replicas"


def alter_topic_settings(
    state: ClusterState, live: Liveness, topic: str, changes: Mapping[str, ConfigValue | None]
) -> list[Message]:
    """Set these, and those with None back to their defaults; the others stay.

    Where unclean election is allowed by it, leaders are elected at once. UnknownTopic, UnknownConfig, InvalidConfig.
    """
    known = state.topic(topic)
    config = known.config.with_changes(changes)
    if MIN_INSYNC in changes:
        check_min_insync(config, min(len(each.intended) for each in state.partitions_of(known.id)))
    settings = settings_of(config)
    if settings == known.settings:
        return []
    records: list[Message] = [TopicSettings(known.id, settings)]
    for partition in state.partitions_of(known.id):
        records += _consequences(state, live, known, partition, config)
    return records


def check_min_insync(config: TopicConfig, replicas: int) -> None:
    """InvalidConfig: more would have to be in sync than there are, so that acks=all is never answered."""
    if config.min_insync_replicas > replicas:
        expected = f"no more than the {replicas} replicas of the topic"
        raise InvalidConfig(MIN_INSYNC, config.min_insync_replicas, expected)


def settings_of(config: TopicConfig) -> tuple[Setting, ...]:
    """The settings that differ from the defaults, as they are recorded."""
    return tuple(sorted((name, _text(value)) for name, value in config.overrides().items()))


def _text(value: ConfigValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _consequences(
    state: ClusterState, live: Liveness, topic: TopicState, partition: PartitionState, config: TopicConfig
) -> list[PartitionChanged]:
    facts = replace(facts_of(state, live, partition), config=config)
    before_minimum = topic.config.min_insync(len(partition.original))
    lowered = facts.minimum(partition) < before_minimum
    after = with_isr(partition, partition.isr, facts.minimum(partition)) if lowered else partition
    return settle(partition, after, facts, "settings altered")
