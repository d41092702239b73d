"""What a group has committed, where a transaction keeps it open for as long as somebody asks."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.api.connection.records import TopicPartition
from raylog.api.consumer.group.group_offsets import GroupOffsets
from raylog.errors import GroupRequestTimedOut, UnstableOffset
from raylog.groups.records.messages import OffsetsFetched
from raylog.groups.records.refusals import refusal_of
from tests.unit.api.consumer_world import Consuming, consuming

PARTITION = TopicPartition("t", 0)
ID = (bytes(16), 0)


class Calls:
    """The coordinator's answers are unstable so many times; then it is out of time."""

    group = "g"

    def __init__(self, unstable: int) -> None:
        self.left = unstable

    async def ask_until(self, request: Any, expect: Any, timeout: float) -> OffsetsFetched:
        if not self.left:
            raise GroupRequestTimedOut(self.group, round(1000 * timeout))
        self.left -= 1
        return OffsetsFetched((), (refusal_of(ID, UnstableOffset(self.group, str(PARTITION), 9)),))


@pytest.mark.parametrize(("unstable", "error"), [(0, GroupRequestTimedOut), (2, UnstableOffset)])
def test_who_has_heard_that_a_transaction_is_open_is_told_so(unstable: int, error: type[Exception]) -> None:
    """Also where there is no time left for another look."""

    async def ask(_: Consuming) -> None:
        calls: Any = Calls(unstable)
        link: Any = None
        with pytest.raises(error):
            await GroupOffsets(link, calls, lambda: None, lambda _: ID, lambda _: 0).committed([PARTITION], 10.0)

    consuming(ask)
