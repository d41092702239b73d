"""Questions about offsets: asked until they are answered, within their time, of whoever leads."""

from __future__ import annotations

import asyncio

import pytest

from raylog.actors.protocol.replication_messages import EARLIEST, LATEST
from raylog.api.connection.leader_requests import NO_OFFSET, look_up
from raylog.api.connection.records import TopicPartition
from raylog.errors import ClusterUnreachable, OffsetNotAvailable, UnknownPartition, UnknownTopic
from tests.unit.api.consumer_world import Consuming, consuming
from tests.unit.api.fake_link import TIME, Faults

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_all_partitions_are_asked_at_once_through_failures() -> None:
    async def main(c: Consuming) -> None:
        first, second = c.link.add_topic("t", 2)
        first.append(b"a", b"b")
        second.append(b"c")
        second.new_epoch()  # nobody has been told
        c.link.faults = Faults(refusals=0.5)
        for _ in range(20):
            found = await look_up(c.link.as_link, {P0: LATEST, P1: EARLIEST}, False, 10.0)
            assert {partition: each.offset for partition, each in found.items()} == {P0: 2, P1: 0}

    consuming(main)


def test_times_have_offsets_or_none() -> None:
    async def main(c: Consuming) -> None:
        c.link.add_topic("t", 1)[0].append(b"a")
        link = c.link.as_link
        assert (await look_up(link, {P0: TIME}, False, 1.0))[P0].offset == 0
        assert (await look_up(link, {P0: TIME + 1}, False, 1.0))[P0].offset == NO_OFFSET
        assert await look_up(link, {}, False, 1.0) == {}

    consuming(main)


def test_committed_readers_are_told_the_last_stable_offset() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        log.append(b"a", b"b")
        log.last_stable = 1
        for committed, end in ((True, 1), (False, 2)):
            assert (await look_up(c.link.as_link, {P0: LATEST}, committed, 1.0))[P0].offset == end

    consuming(main)


def test_what_does_not_get_better_is_raised_at_once_and_what_may_when_the_time_is_over() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        loop, link = asyncio.get_running_loop(), c.link.as_link
        for wanted, error in ((TopicPartition("nope", 0), UnknownTopic), (P1, UnknownPartition)):
            with pytest.raises(error):
                await look_up(link, {P0: EARLIEST, wanted: EARLIEST}, False, 30.0)
        log.knows_end = False
        began = loop.time()
        with pytest.raises(OffsetNotAvailable):
            await look_up(link, {P0: LATEST}, False, 3.0)
        assert 2.9 < loop.time() - began < 3.5
        c.link.error = ClusterUnreachable("here", 3_000, "gone")
        with pytest.raises(ClusterUnreachable):
            await look_up(link, {P0: LATEST}, False, 3.0)

    consuming(main)


def test_a_question_that_waits_for_its_leader_says_why(caplog: pytest.LogCaptureFixture) -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        log.knows_end = False
        with pytest.raises(OffsetNotAvailable):
            await look_up(c.link.as_link, {P0: LATEST}, False, 14.0)

    consuming(main)
    told = [each.getMessage() for each in caplog.records if each.name.endswith("wait_notices")]
    assert [line.split(": ")[:2] for line in told] == [
        [f"Has waited {seconds} s for an answer of the leader of t-0", "OffsetNotAvailable"] for seconds in (3, 13)
    ]
