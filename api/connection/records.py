"""Tuples with names that clients hand out and take in: partitions, offsets and records.

Fields are those of kafka-python where it has them. They are tuples because one is made per record: nothing else with
names is made as fast, and they compare, hash, unpack and pickle.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

CREATE_TIME: Final = 0  # values of `timestamp_type`, as in Kafka
LOG_APPEND_TIME: Final = 1


class TopicPartition(NamedTuple):
    """One partition of one topic.

    >>> TopicPartition("clicks", 0)
    TopicPartition(topic='clicks', partition=0)
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndTimestamp(NamedTuple):
    """The offset of the first record at or after some time, and its own timestamp (milliseconds since 1970)."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class OffsetAndMetadata(NamedTuple):
    """A position to be committed: the offset of the next record to read, and a note of the committer's."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """The member that a consumer was when it was given its records. A producer names it when it commits offsets in a
    transaction.
    """

    group_id: str
    member_id: str  # empty: none, or not a member yet, or not any more
    member_epoch: int  # −1: it has been told its partitions (`assign`) and needs no membership
    group_instance_id: str = ""


class RecordMetadata(NamedTuple):
    """The outcome of one sent record.

    `offset` is −1 under acks=0, and where a repeated batch was found in the log without its offset. `timestamp` is in
    milliseconds since 1970: the producer's, or the broker's where `message.timestamp.type` says LogAppendTime. Sizes
    are in bytes, as serializers made them.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int = CREATE_TIME
    serialized_key_size: int = -1  # −1: there is no key
    serialized_value_size: int = -1  # −1: there is no value
    log_start_offset: int = -1  # −1: under acks=0

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition as one value, as keys of dictionaries are."""
        return TopicPartition(self.topic, self.partition)


class ConsumerRecord(NamedTuple):
    """One record as a consumer hands it out. Key and value are bytes, or what a deserializer made of them."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: Any  # a sequence of (name, value) pairs
    leader_epoch: int


def as_partition(partition: TopicPartition | tuple[str, int]) -> TopicPartition:
    """Any pair of a topic and a number will do."""
    topic, number = partition
    if type(topic) is not str or type(number) is not int or number < 0:
        raise TypeError(f"A partition is a topic's name and a number from 0 on, and not {partition!r}.")
    return TopicPartition(topic, number)
