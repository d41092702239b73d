"""Fetching in the background: in order, within bounds, through whatever goes wrong."""

from __future__ import annotations

import asyncio

import pytest

from raylog.actors.protocol.replication_messages import EARLIEST, LATEST, Fetch, SuspectBatch
from raylog.api.connection.records import TopicPartition
from raylog.errors import (
    ClusterUnreachable,
    LogTruncated,
    NoOffsetReset,
    NotAssigned,
    PeerNotAdmitted,
    RecordUnreadable,
    UnknownPartition,
    UnknownTopic,
)
from raylog.storage.format.control_records import MarkerType
from tests.unit.api.consumer_world import Consuming, consuming
from tests.unit.api.fake_link import NODE, Faults

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_records_come_in_order_from_all_partitions() -> None:
    async def main(c: Consuming) -> None:
        for number, log in enumerate(c.link.add_topic("t", 2)):
            for batch in range(10):
                log.append(*[b"%d/%d" % (number, 3 * batch + each) for each in range(3)])
        c.subscriptions.assign([P0, P1])
        found = await c.values(60, most=7)
        for number in range(2):
            assert [each for each in found if each.startswith(b"%d" % number)] == [
                b"%d/%d" % (number, each) for each in range(30)
            ]
        assert c.subscriptions.collector.position(P0) == 30
        assert await c.poll(0.1) == {}

    consuming(main)


def test_a_parked_fetch_brings_what_is_appended_later() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        c.subscriptions.assign([P0])
        assert await c.poll(2.0) == {}
        log.append(b"late")
        began = asyncio.get_running_loop().time()
        assert await c.values(1) == [b"late"]
        assert asyncio.get_running_loop().time() - began < 0.05
        assert c.fetcher.marks[P0].high_watermark == 1

    consuming(main)


def test_latest_begins_at_the_end_and_committed_readers_at_the_last_stable_offset() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        log.append(b"a", b"b")
        log.append(b"open", producer_id=5)
        log.last_stable = 2
        c.subscriptions.assign([P0])
        assert await c.poll(0.5) == {}
        assert c.subscriptions.collector.position(P0) == 2
        log.last_stable = 3
        assert await c.values(1) == [b"open"]

    consuming(main, auto_offset_reset="latest", isolation_level="read_committed")


# --- damage -----------------------------------------------------------------------------------------------------------


def test_what_is_damaged_at_the_leader_is_read_from_the_next_one() -> None:
    """The consumer tells the leader, and goes on by itself."""

    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        for number in range(30):
            log.append(b"%d" % number)
        log.is_rotten = True
        c.subscriptions.assign([P0])
        began = asyncio.get_running_loop().time()
        assert await c.values(30) == [b"%d" % number for number in range(30)]
        assert asyncio.get_running_loop().time() - began < 2.0
        assert any(isinstance(each, SuspectBatch) for each in c.link.asked)

    for _ in range(5):  # in the payload, in the header
        consuming(main)
        consuming(main, node_id=NODE)


def test_what_is_damaged_in_the_only_copy_is_an_error_that_says_where() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        log.append(b"0")
        log.append(b"1")
        log.is_rotten = c.link.is_alone = True
        c.subscriptions.assign([P0])
        with pytest.raises(RecordUnreadable, match=r"0\.log at byte 61 .*raylog topic trim") as raised:
            await c.values(2)
        offset, next_offset = raised.value.offset, raised.value.next_offset
        assert next_offset == offset + 1
        log.is_rotten = False
        c.subscriptions.seek(P0, next_offset)
        log.append(b"2")
        assert (await c.values(2 - offset))[-1] == b"2"

    consuming(main)


def test_what_is_always_damaged_on_its_way_is_an_error_after_a_while() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        log.append(b"0" * 5_000)  # its header is hit hardly ever
        c.link.faults.damage = 1.0
        c.subscriptions.assign([P0])
        began = asyncio.get_running_loop().time()
        with pytest.raises(RecordUnreadable, match="CRC"):
            await c.values(1)
        assert 2.0 < asyncio.get_running_loop().time() - began < 30.0
        assert len(c.link.asked) < 100

    consuming(main)


def test_aborted_records_and_markers_are_passed_over() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        log.append(b"gone 1", producer_id=5)
        log.append(b"stays 1", producer_id=6)
        log.append(b"gone 2", producer_id=5)
        log.end_transaction(5, MarkerType.ABORT)
        log.append(b"stays 2", producer_id=5)
        log.end_transaction(5, MarkerType.COMMIT)
        log.end_transaction(6, MarkerType.COMMIT)
        log.aborted = [(5, 0, 3)]
        c.subscriptions.assign([P0])
        assert await c.values(2) == [b"stays 1", b"stays 2"]
        assert c.subscriptions.collector.position(P0) == log.end  # behind the last marker, without another poll

    for most in (1024, 1 << 20):
        consuming(main, isolation_level="read_committed", max_partition_fetch_bytes=most)


def test_uncommitted_readers_see_what_was_aborted_and_no_markers() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        log.append(b"aborted", producer_id=5)
        log.end_transaction(5, MarkerType.ABORT)
        log.add_filler(4)
        log.append(b"after")
        c.subscriptions.assign([P0])
        assert await c.values(2) == [b"aborted", b"after"]

    consuming(main)


def test_an_offset_out_of_range_is_reset() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        log.append(*[b"%d" % each for each in range(5)])
        c.subscriptions.assign([P0])
        c.subscriptions.seek(P0, 70)
        assert await c.values(5) == [b"%d" % each for each in range(5)]

    consuming(main)


def test_without_a_reset_an_offset_out_of_range_is_an_error_until_somebody_seeks() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        log.append(b"a", b"b")
        c.subscriptions.assign([P0])
        for _ in range(3):
            with pytest.raises(NoOffsetReset, match="no position"):
                await c.poll()
        c.subscriptions.seek(P0, 7)
        for _ in range(3):
            with pytest.raises(NoOffsetReset, match="offset 7 is not among 0 to 2"):
                await c.poll()
        c.subscriptions.seek(P0, 1)
        assert await c.values(1) == [b"b"]

    consuming(main, auto_offset_reset="none")


def test_a_partition_in_error_does_not_hold_up_the_others() -> None:
    async def main(c: Consuming) -> None:
        logs = c.link.add_topic("t", 2)
        for log in logs:
            log.append(*[b"%d" % each for each in range(100)])
        c.subscriptions.assign([P0, P1])
        c.subscriptions.seek(P1, 0)
        found, errors = 0, 0
        for _ in range(40):
            try:
                found += sum(map(len, (await c.poll(0.1, most=10)).values()))
            except NoOffsetReset:
                errors += 1
                await asyncio.sleep(0.01)
        assert found == 100
        assert errors >= 10

    consuming(main, auto_offset_reset="none")


def test_a_truncated_log_is_read_on_from_where_it_parts() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        log.append(b"a")
        log.append(b"b", b"c")
        c.subscriptions.assign([P0])
        assert await c.values(3) == [b"a", b"b", b"c"]
        log.truncate(1)
        log.append(b"B", b"C", b"D")
        c.link.publish()
        assert await c.values(3) == [b"B", b"C", b"D"]

    consuming(main)


def test_a_truncated_log_is_an_error_without_a_reset() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        log.append(b"a")
        log.append(b"b", b"c")
        c.subscriptions.assign([P0])
        c.subscriptions.seek(P0, 0)
        assert await c.values(3) == [b"a", b"b", b"c"]
        log.truncate(1)
        log.append(b"B")
        with pytest.raises(LogTruncated) as raised:
            await c.poll()
        assert (raised.value.offset, raised.value.safe_offset) == (3, 1)
        c.subscriptions.seek(P0, raised.value.safe_offset)
        assert await c.values(1) == [b"B"]

    consuming(main, auto_offset_reset="none")


def test_a_new_leader_is_found_within_moments() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        log.append(b"a")
        c.subscriptions.assign([P0])
        assert await c.values(1) == [b"a"]
        log.new_epoch()
        log.append(b"b")
        began = asyncio.get_running_loop().time()
        assert await c.values(1) == [b"b"]
        assert asyncio.get_running_loop().time() - began < 0.1

    consuming(main)


def test_an_end_that_is_not_known_yet_is_waited_for() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        log.append(b"a")
        log.knows_end = False
        c.subscriptions.assign([P0])
        await c.poll(1.0)
        log.knows_end = True
        await c.poll(2.0)
        assert c.subscriptions.collector.position(P0) == 1

    consuming(main, auto_offset_reset="latest")


@pytest.mark.parametrize(
    "error", [ClusterUnreachable("here", 30_000, "gone"), PeerNotAdmitted("broker", "another secret")]
)
def test_what_only_people_can_mend_is_told_and_tried_again(error: ClusterUnreachable | PeerNotAdmitted) -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        log.append(b"a")
        c.link.error = error
        c.subscriptions.assign([P0])
        with pytest.raises(type(error)):
            await c.poll()
        assert await c.poll(0.1) == {}
        c.link.error = None
        assert await c.values(1) == [b"a"]

    consuming(main)


def test_unknown_topics_and_partitions_are_told() -> None:
    async def main(c: Consuming) -> None:
        c.link.add_topic("t", 1)
        c.subscriptions.assign([TopicPartition("nope", 0)])
        with pytest.raises(UnknownTopic):
            await c.poll(5.0)
        c.subscriptions.assign([P1])
        with pytest.raises(UnknownPartition):
            await c.poll(5.0)
        c.link.add_topic("t", 2)[1].append(b"here now")
        assert await c.values(1, 5.0) == [b"here now"]
        with pytest.raises(NotAssigned):
            c.subscriptions.seek(P0, 1)

    consuming(main)


def test_a_topic_made_anew_is_read_from_its_beginning() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        c.subscriptions.assign([P0])
        await c.poll()
        log.append(b"old", b"old")
        assert await c.values(2) == [b"old", b"old"]
        c.link.remove_topic("t")
        del c.link.ids["t"]
        c.link.ids["other"] = bytes(16)
        c.link.add_topic("t", 1)[0].append(b"new", b"new", b"new")
        found: list[bytes] = []
        for _ in range(20):
            try:
                found += await c.values(3 - len(found), 1.0)
            except UnknownTopic:
                continue
        assert found == [b"new"] * 3

    consuming(main, auto_offset_reset="latest")


def test_a_subscription_follows_new_partitions_from_their_beginning() -> None:
    async def main(c: Consuming) -> None:
        c.link.add_topic("t", 1)[0].append(b"before")
        view = c.link.topic("t")
        assert view is not None
        c.subscriptions.subscribe([view])
        assert await c.poll(0.5) == {}
        c.link.logs["t", 1] = type(c.link.logs["t", 0])()
        c.link.logs["t", 1].append(b"first of the new one")
        c.link.publish()
        assert await c.values(1) == [b"first of the new one"]
        assert set(c.subscriptions.positions) == {P0, P1}

    consuming(main, auto_offset_reset="latest")


def test_seeking_drops_what_was_fetched_and_paused_partitions_keep_it() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        for number in range(100):
            log.append(b"%d" % number)
        c.subscriptions.assign([P0])
        assert await c.values(3, most=3) == [b"0", b"1", b"2"]
        c.subscriptions.seek(P0, 50)
        assert c.subscriptions.collector.position(P0) == 50
        assert await c.values(2, most=2) == [b"50", b"51"]
        c.subscriptions.pause([P0])
        assert await c.poll(1.0) == {}
        fetches = len(c.link.asked)
        c.subscriptions.resume([P0])
        assert await c.values(2, most=2) == [b"52", b"53"]
        assert len(c.link.asked) <= fetches + 1
        c.subscriptions.seek_to([P0], EARLIEST)
        assert await c.values(1, most=1) == [b"0"]
        c.subscriptions.seek_to([], LATEST)
        assert await c.poll(0.5) == {}
        assert c.subscriptions.collector.position(P0) == 100

    consuming(main)


def test_a_paused_partition_is_located_all_the_same() -> None:
    async def main(c: Consuming) -> None:
        c.link.add_topic("t", 1)[0].append(b"a")
        c.subscriptions.assign([P0])
        c.subscriptions.pause([P0])
        assert await c.poll(0.5) == {}
        assert c.subscriptions.collector.position(P0) == 0
        assert not any(isinstance(each, Fetch) for each in c.link.asked)

    consuming(main)


def test_a_sleeping_consumer_holds_no_more_than_it_may() -> None:
    limit = 64 * 1024

    async def main(c: Consuming) -> None:
        for log in c.link.add_topic("t", 4):
            for _ in range(400):
                log.append(bytes(1000))
        c.subscriptions.assign([TopicPartition("t", each) for each in range(4)])
        await c.wait(1.0)
        await asyncio.sleep(10.0)
        held = c.fetcher._room.used + c.subscriptions.collector.held_bytes
        assert limit / 2 < held <= limit
        assert len(await c.values(1600)) == 1600

    consuming(main, fetch_max_bytes=limit, max_partition_fetch_bytes=4096)


# --- many partitions --------------------------------------------------------------------------------------------------

_MANY = 200


def test_many_partitions_without_records_cost_one_open_question() -> None:
    async def main(c: Consuming) -> None:
        logs = c.link.add_topic("t", _MANY)
        c.subscriptions.assign([TopicPartition("t", each) for each in range(_MANY)])
        assert await c.poll(2.0) == {}
        c.link.asked.clear()
        assert await c.poll(30.0) == {}
        assert len(c.link.asked) <= 7
        for number in (3, 170):
            logs[number].append(b"late")
        began = asyncio.get_running_loop().time()
        assert await c.values(2) == [b"late", b"late"]
        assert asyncio.get_running_loop().time() - began < 0.05
        assert sum(isinstance(each, Fetch) for each in c.link.asked) <= 4
        for log in logs:
            log.append(b"everywhere")
        assert await c.values(_MANY) == [b"everywhere"] * _MANY

    consuming(main)


def test_each_of_many_partitions_is_looked_at_now_and_then() -> None:
    """Marks move without records to read, and a hint may be lost."""

    async def main(c: Consuming) -> None:
        logs = c.link.add_topic("t", _MANY)
        c.subscriptions.assign([TopicPartition("t", each) for each in range(_MANY)])
        assert await c.poll(2.0) == {}
        for log in logs:
            log.start = log.high_watermark = 0
        c.link.watches.clear()  # as a process that has forgotten them
        logs[7].append(b"missed")
        began = asyncio.get_running_loop().time()
        assert await c.values(1, seconds=150.0) == [b"missed"]
        assert asyncio.get_running_loop().time() - began < 130.0

    consuming(main)


def test_a_process_that_takes_no_more_watches_is_polled_at_leisure() -> None:
    async def main(c: Consuming) -> None:
        logs = c.link.add_topic("t", _MANY)
        c.link.refuses_watches = True
        c.subscriptions.assign([TopicPartition("t", each) for each in range(_MANY)])
        assert await c.poll(2.0) == {}
        c.link.asked.clear()
        assert await c.poll(20.0) == {}
        assert len(c.link.asked) < 3 * 20 * _MANY
        logs[3].append(b"late")
        began = asyncio.get_running_loop().time()
        assert await c.values(1) == [b"late"]
        assert asyncio.get_running_loop().time() - began < 1.0
        c.link.refuses_watches = False
        assert await c.poll(20.0) == {}
        c.link.asked.clear()
        assert await c.poll(20.0) == {}
        assert len(c.link.asked) < 10

    consuming(main)


def test_many_partitions_are_followed_to_new_leaders() -> None:
    async def main(c: Consuming) -> None:
        logs = c.link.add_topic("t", _MANY)
        c.subscriptions.assign([TopicPartition("t", each) for each in range(_MANY)])
        assert await c.poll(2.0) == {}
        for log in logs:
            log.new_epoch()
        c.link.publish()
        logs[9].append(b"of the new leader")
        began = asyncio.get_running_loop().time()
        assert await c.values(1) == [b"of the new leader"]
        assert asyncio.get_running_loop().time() - began < 1.0

    consuming(main)


def test_what_is_read_no_more_is_watched_no_more() -> None:
    async def main(c: Consuming) -> None:
        c.link.add_topic("t", _MANY)
        every = [TopicPartition("t", each) for each in range(_MANY)]
        c.subscriptions.assign(every)
        assert await c.poll(2.0) == {}
        c.subscriptions.assign(every[:100])
        assert await c.poll(2.0) == {}
        (watched,) = c.link.watches.values()
        assert sorted(partition for _, partition in watched) == list(range(100))
        await c.close()
        assert not c.link.watches

    consuming(main)


def test_many_partitions_behind_take_turns_within_the_room() -> None:
    limit = 64 * 1024

    async def main(c: Consuming) -> None:
        for log in c.link.add_topic("t", _MANY):
            for _ in range(10):
                log.append(bytes(1000))
        c.subscriptions.assign([TopicPartition("t", each) for each in range(_MANY)])
        await c.wait(1.0)
        await asyncio.sleep(10.0)
        assert limit / 2 < c.fetcher._room.used + c.subscriptions.collector.held_bytes <= limit
        c.link.asked.clear()
        assert len(await c.values(10 * _MANY)) == 10 * _MANY
        fetches = sum(isinstance(each, Fetch) for each in c.link.asked)
        assert fetches < 6 * _MANY  # 4 batches in each, where a share of the room would be one

    consuming(main, fetch_max_bytes=limit, max_partition_fetch_bytes=4096)


def test_files_are_read_where_they_can_be_and_given_up_where_they_are_wrong() -> None:
    async def main(c: Consuming) -> None:
        (log,) = c.link.add_topic("t", 1)
        for number in range(200):
            log.append(b"%d" % number)
        c.link.faults.wrong_files = 0.3
        c.subscriptions.assign([P0])
        assert await c.values(200) == [b"%d" % number for number in range(200)]
        assert c.link.files_read
        assert len(c.link.asked) > c.link.files_read

    for seed in range(5):
        consuming(main, seed, NODE, max_partition_fetch_bytes=1024)


def test_no_files_are_read_where_that_is_turned_off() -> None:
    async def main(c: Consuming) -> None:
        c.link.add_topic("t", 1)[0].append(b"a")
        c.subscriptions.assign([P0])
        assert await c.values(1) == [b"a"]
        assert not c.link.files_read

    consuming(main, 1, NODE, use_local_files=False)


def test_a_consumer_that_waits_for_its_leaders_says_so_once_for_all(caplog: pytest.LogCaptureFixture) -> None:
    async def main(c: Consuming) -> None:
        c.link.add_topic("t", 2)
        c.subscriptions.assign([P0, P1])
        c.link.faults = Faults(refusals=1.0)
        await asyncio.sleep(14.5)
        c.link.faults = Faults()
        await asyncio.sleep(30)

    consuming(main)
    told = [each.getMessage() for each in caplog.records if each.name.endswith("wait_notices")]
    assert [line.split(": ")[0] for line in told] == [
        "Has waited 3 s for records of t-0 and 1 more",
        "Has waited 13 s for records of t-0 and 1 more",
    ]
