"""Records and partitions are plain tuples with names."""

from __future__ import annotations

import pickle

import pytest

from raylog.api.connection.records import (
    CREATE_TIME,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RecordMetadata,
    TopicPartition,
)

_EACH = [
    TopicPartition("clicks", 3),
    OffsetAndTimestamp(7, 1_000),
    OffsetAndMetadata(7, "mine"),
    RecordMetadata("clicks", 3, 7, 1_000),
    ConsumerRecord("clicks", 3, 7, 1_000, CREATE_TIME, None, b"v", (), 1),
]


@pytest.mark.parametrize("each", _EACH, ids=lambda each: type(each).__name__)
def test_pickles_to_an_equal_one_of_the_same_type(each: object) -> None:
    again = pickle.loads(pickle.dumps(each))
    assert again == each
    assert type(again) is type(each)


def test_a_partition_reads_as_people_write_it() -> None:
    assert str(TopicPartition("clicks", 3)) == "clicks-3"
    assert RecordMetadata("clicks", 3, 7, 1_000).topic_partition == ("clicks", 3)
