"""A consumer of librdkafka at the end of a topic's first partition."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # of the extra `bench`, which only those need who measure Kafka
    from confluent_kafka import Consumer

_WAIT_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.05


def go_to_end(consumer: Consumer, topic: str) -> None:
    """Assign the first partition from its end on. A new leader may not know yet that it leads: it is asked again."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_WAIT_SECONDS)
            break
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_SECONDS)
    consumer.assign([TopicPartition(topic, 0, end)])
