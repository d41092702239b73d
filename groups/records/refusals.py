"""Errors about single partitions, in the answer to a request about many."""

from __future__ import annotations

from raylog.actors.protocol.messages import Failure
from raylog.actors.protocol.remote_errors import failure_of, remote_failed
from raylog.errors import GroupError, RaylogError
from raylog.groups.records.messages import PartitionId, Refusal
from raylog.groups.records.offsets_log import Topics


def refusal_of(partition: PartitionId, error: RaylogError) -> Refusal:
    failure = failure_of(error)
    return (*partition, failure.name, failure.text, failure.arguments)


def error_of(refusal: Refusal) -> RaylogError:
    """The error itself, where this version knows it; else one with its text."""
    _, _, name, text, arguments = refusal
    return remote_failed("The group's coordinator", Failure(name, text, arguments)).error or GroupError(text)


def partition_name(partition: PartitionId, topics: Topics) -> str:
    """Return a partition's name, for people; the topic's id where its name is not known (any more)."""
    topic_id, number = partition
    known = topics.by_id(topic_id)
    return f"{topic_id.hex() if known is None else known.name}-{number}"
