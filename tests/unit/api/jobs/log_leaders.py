"""Leaders that answer questions about two logs, as `LogQuestions.offsets` would pass them on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raylog.actors.protocol.replication_messages import EARLIEST, LATEST
from raylog.api.connection.records import TopicPartition

LOGS: Final = {TopicPartition("clicks", 0): (10, 110), TopicPartition("clicks", 1): (0, 50)}


class Leaders:
    """`logs`: first offset and end of each. The record at offset n was written at time 1000 + n."""

    def __init__(self, logs: Mapping[TopicPartition, tuple[int, int]] = LOGS) -> None:
        self.logs = logs

    def ask(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {place: self._one(*self.logs[place], what) for place, what in wanted.items()}

    def _one(self, first: int, last: int, what: int) -> int:
        if what in (EARLIEST, LATEST):
            return first if what == EARLIEST else last
        offset = max(first, what - 1000)
        return offset if offset < last else -1
