"""Options of writing with Spark. Decides; touches nothing.

Those of producers may be given under Python's names (`compression_type`), or under Kafka's, as Spark's Kafka sink
takes them (`kafka.compression.type`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from raylog.api.connection.kafka_hints import hint_for
from raylog.api.jobs.rules.task_options import OF_PRODUCERS, TaskOptions
from raylog.errors import FrameNotWritable, UnknownSparkOption

_PREFIX: Final = "kafka."


@dataclass(frozen=True)
class SinkOptions:
    """`topic` None: it is a column."""

    topic: str | None
    of_tasks: TaskOptions

    @classmethod
    def parse(cls, topic: str | None, given: Mapping[str, object]) -> SinkOptions:
        """Raises UnknownSparkOption, InvalidConfig, FrameNotWritable."""
        if topic is not None and not _is_text(topic):
            raise FrameNotWritable(f"the option 'topic' is {topic!r}, and not the name of one")
        return cls(topic, TaskOptions.parse({_name(name): value for name, value in given.items()}))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _name(given: str) -> str:
    name = given.removeprefix(_PREFIX).replace(".", "_") if given.startswith(_PREFIX) else given
    if name not in OF_PRODUCERS:
        known = ["topic", "cluster", *OF_PRODUCERS]
        others = "; producers' also as kafka.compression.type, and so on"
        raise UnknownSparkOption(given, ", ".join(known) + others, hint_for(given))
    return name
