"""Consumers in groups, for threads and for coroutines, with a real coordinator behind a make-believe cluster."""

from __future__ import annotations

import asyncio
import gc
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import pytest

import raylog
from raylog.actors.machine.real_environment import Place, RealEnvironment
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.api.connection.client_runtime import ClientRuntime, client_runtime
from raylog.api.connection.records import OffsetAndMetadata, TopicPartition
from raylog.api.consumer import consumer_core
from raylog.api.consumer.async_consumer import AsyncConsumer
from raylog.api.consumer.consumer import Consumer, core_of
from raylog.errors import (
    ConflictingSubscription,
    GroupRequestTimedOut,
    GroupRequired,
    InvalidConfig,
    InvalidGroupId,
    InvalidSubscription,
    ListenerFailed,
    OffsetBeyondEnd,
    OffsetMetadataTooLarge,
    PartitionNotOwned,
    RaylogError,
    UnknownAssignor,
    UnknownMember,
)
from tests.streams.group_link import GroupLink
from tests.unit.api.fake_link import ModelLog

P0, P1, P2, P3 = (TopicPartition("t", number) for number in range(4))


Read: TypeAlias = tuple[str, int, int]


class Cluster:
    def __init__(self) -> None:
        self.runtime = client_runtime()
        self.link = self.runtime.run(self._make(), 5.0)
        self.logs: list[ModelLog] = self.do(lambda: self.link.add_topic("t", 4))
        self._stack = ExitStack()

    async def _make(self) -> GroupLink:
        return GroupLink(RealEnvironment(Place("tests", ClusterSecrets.draw(), "127.0.0.1"), None), Random(1))

    def do(self, action: Callable[[], Any]) -> Any:
        """Do this on the loop."""

        async def run() -> Any:
            return action()

        return self.runtime.run(run(), 5.0)

    def fill(self, count: int) -> None:
        """Put so many records into each partition."""
        for log in self.logs:
            self.do(partial(log.append, *(b"%d" % each for each in range(log.end, log.end + count))))

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        chosen: Any = {"group_id": "g", "auto_offset_reset": "earliest", "session_timeout_ms": 6000, **settings}
        return self._stack.enter_context(Consumer(*topics, **chosen))

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster()

    async def release(self: ClientRuntime, link: object) -> None:
        """Release nothing: there is one link for all."""

    monkeypatch.setattr(consumer_core, "open_link", lambda *_: made.link)
    monkeypatch.setattr(ClientRuntime, "release_link", release)
    yield made
    made.close()


class Listener:
    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        self.calls.append(("assigned", partitions))

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        self.calls.append(("revoked", partitions))

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        self.calls.append(("lost", partitions))


def poll_until(condition: Callable[[], bool], *consumers: Consumer, seconds: float = 15.0) -> list[Read]:
    """Poll, and return what the consumers were handed meanwhile: topic, partition, offset."""
    found: list[Read] = []
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        for consumer in consumers:
            for records in consumer.poll(timeout_ms=10).values():
                found += [(each.topic, each.partition, each.offset) for each in records]
    return found


def test_members_share_partitions_and_each_record_is_read_once(cluster: Cluster) -> None:
    cluster.fill(10)
    one = cluster.consumer("t")
    poll_until(lambda: len(one.assignment()) == 4, one)
    cluster.fill(10)
    two = cluster.consumer("t")
    found = poll_until(lambda: len(two.assignment()) == 2 == len(one.assignment()), one, two)
    kept = one.assignment()
    assert kept | two.assignment() == {P0, P1, P2, P3}
    before = {each: one.position(each) for each in kept} | {each: two.position(each) for each in two.assignment()}
    cluster.fill(10)
    read = poll_until(lambda: all(c.position(p) == 30 for c in (one, two) for p in c.assignment()), one, two)
    assert len(read) == len(set(read)) == sum(30 - offset for offset in before.values())
    assert len(found) == len(set(found))
    two.close()
    poll_until(lambda: len(one.assignment()) == 4, one)
    assert poll_until(lambda: all(one.position(each) == 30 for each in one.assignment()), one) == []


def test_what_is_committed_is_where_the_next_one_begins(cluster: Cluster) -> None:
    cluster.fill(10)
    with cluster.consumer("t", enable_auto_commit=False) as first:
        poll_until(lambda: first.assignment() == {P0, P1, P2, P3}, first)
        first.commit({P0: 7, P1: OffsetAndMetadata(3, "a note")})
        assert (first.committed(P0), first.committed(P2)) == (7, None)
        assert first.committed(P1, metadata=True) == OffsetAndMetadata(3, "a note")
        with pytest.raises(OffsetMetadataTooLarge):
            first.commit({P0: OffsetAndMetadata(8, "x" * 5000)})
    second = cluster.consumer("t")
    poll_until(lambda: second.assignment() == {P0, P1, P2, P3}, second)
    second.pause(P0, P1, P2, P3)
    assert [second.committed(each) for each in (P0, P1, P2)] == [7, 3, None]


def test_the_application_is_told_before_a_partition_moves(cluster: Cluster) -> None:
    listener, other = Listener(), Listener()
    one = cluster.consumer()
    one.subscribe(["t"], listener=listener)
    poll_until(lambda: len(one.assignment()) == 4, one)
    two = cluster.consumer()
    two.subscribe(["t"], listener=other)
    poll_until(lambda: len(two.assignment()) == 2, one, two)
    (assigned, everything), (revoked, moved) = listener.calls
    assert (assigned, revoked) == ("assigned", "revoked")
    assert everything == {P0, P1, P2, P3}
    assert other.calls == [("assigned", moved)]
    two.close()
    assert other.calls[-1] == ("revoked", moved)


def test_the_listener_of_the_page_for_users_keeps_its_sums(cluster: Cluster) -> None:
    blocks = _code(Path(__file__).parents[2] / "docs" / "consumer_groups.md")
    (page,) = [each for each in blocks if "class Sums" in each]
    names: dict[str, Any] = {"raylog": raylog}
    exec(page, names)
    store: dict[TopicPartition, int] = {}
    cluster.fill(5)
    with cluster.consumer(enable_auto_commit=False) as one:
        listener = names["Sums"](one, store)
        one.subscribe(["t"], listener=listener)
        poll_until(lambda: set(listener.sums) == {P0, P1, P2, P3} and one.position(P0) == 5, one)
        listener.sums[P0] = 7
        one.pause(P0)
    assert (store[P0], listener.sums) == (7, {})
    assert cluster.consumer().committed(P0) == 5


def _code(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


class KafkaStyle:
    """A listener in the form of kafka-python's abstract class, whose parameters have other names."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append(("revoked", revoked))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append(("assigned", assigned))


def test_a_listener_of_kafka_python_works_unchanged(cluster: Cluster) -> None:
    listener = KafkaStyle()
    with cluster.consumer() as one:
        one.subscribe(["t"], listener=listener)
        poll_until(lambda: bool(one.assignment()), one)
    assert [name for name, _ in listener.calls] == ["assigned", "revoked"]


def test_what_is_lost_counts_as_revoked_unless_a_listener_says_otherwise() -> None:
    told: list[set[TopicPartition]] = []

    class Mine(raylog.RebalanceListener):
        def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            told.append(partitions)

    listener = Mine()
    listener.on_partitions_assigned({P1})
    listener.on_partitions_lost({P0})
    assert told == [{P0}]


def test_what_can_be_no_listener_is_refused_at_once(cluster: Cluster) -> None:
    one: Any = cluster.consumer()
    with pytest.raises(TypeError, match="not the class Listener"):
        one.subscribe(["t"], listener=Listener)
    with pytest.raises(TypeError, match="on_partitions_assigned, on_partitions_revoked, on_partitions_lost"):
        one.subscribe(["t"], listener=print)


def test_a_listener_that_raises_keeps_nothing_from_moving(cluster: Cluster) -> None:
    class Broken(Listener):
        def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            raise ValueError("no")

    one = cluster.consumer()
    one.subscribe(["t"], listener=Broken())
    poll_until(lambda: len(one.assignment()) == 4, one)
    two = cluster.consumer("t")
    told = r"on_partitions_revoked of the listener of group 'g' failed for t-.*no"
    with pytest.raises(ListenerFailed, match=told) as caught:
        poll_until(lambda: False, one, two)
    assert (len(caught.value.member), caught.value.epoch > 0, caught.value.elapsed_ms >= 0) == (32, True, True)
    poll_until(lambda: len(two.assignment()) == 2 == len(one.assignment()), one, two)
    one.subscribe(["t"])


def test_who_does_not_poll_loses_its_place_and_gets_it_back(cluster: Cluster) -> None:
    listener = Listener()
    cluster.fill(5)
    one = cluster.consumer(max_poll_interval_ms=400, enable_auto_commit=False)
    one.subscribe(["t"], listener=listener)
    poll_until(lambda: len(one.assignment()) == 4, one)
    member = one.group_metadata()
    deadline = time.monotonic() + 10.0
    while one.group_metadata().member_id:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(UnknownMember, match=r"nobody polled for \d+ ms \(max_poll_interval_ms 400\)") as caught:
        one.commit({P0: 1})
    assert (caught.value.member, caught.value.epoch) == (member.member_id, member.member_epoch)
    assert caught.value.elapsed_ms >= 0
    poll_until(lambda: [name for name, _ in listener.calls] == ["assigned", "lost", "assigned"], one)
    one.commit({P0: 1})


def test_commits_without_waiting_tell_a_later_poll(cluster: Cluster) -> None:
    cluster.fill(2)
    one = cluster.consumer("t", enable_auto_commit=False)
    poll_until(lambda: len(one.assignment()) == 4, one)
    told: list[Any] = []
    one.commit_async({P0: 1}, lambda offsets, error: told.append((offsets, error)))
    one.commit_async({P0: 2}).result(5.0)
    poll_until(lambda: bool(told), one)
    assert told == [({P0: OffsetAndMetadata(1)}, None)]
    assert one.committed(P0) == 2


def test_a_commit_that_nobody_waits_for_is_made_before_the_consumer_ends(cluster: Cluster) -> None:
    cluster.fill(9)
    one = cluster.consumer("t", enable_auto_commit=False)
    poll_until(lambda: len(one.assignment()) == 4, one)
    cluster.link.commit_seconds = 0.05
    outcomes = [one.commit_async({P0: each}) for each in range(1, 9)]
    one.close()
    assert [each.result(0.0) for each in outcomes] == [None] * 8
    assert cluster.consumer().committed(P0) == 8


def test_a_commit_that_nobody_waits_for_is_made_before_its_partition_moves(cluster: Cluster) -> None:
    class Committing(Listener):
        def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            outcomes.extend(one.commit_async(dict.fromkeys(partitions, each)) for each in range(1, 9))

    outcomes: list[Any] = []
    cluster.fill(9)
    one = cluster.consumer(enable_auto_commit=False)
    one.subscribe(["t"], listener=Committing())
    poll_until(lambda: len(one.assignment()) == 4, one)
    two = cluster.consumer("t", enable_auto_commit=False)
    poll_until(lambda: len(two.assignment()) == 2, one, two)
    assert [each.result(5.0) for each in outcomes] == [None] * 8
    one.close()
    assert [each.result(0.0) for each in outcomes] == [None] * 16, "its listener may commit to the end"


def test_partitions_that_stay_are_read_while_others_are_committed_and_move(cluster: Cluster) -> None:
    cluster.fill(10)
    one = cluster.consumer("t")
    found = poll_until(lambda: len(one.assignment()) == 4, one)
    found += poll_until(lambda: all(one.position(each) == 10 for each in one.assignment()), one)
    cluster.link.commit_seconds = 1.0
    two = cluster.consumer("t")
    longest, deadline = 0.0, time.monotonic() + 15.0
    while len(two.assignment()) < 2:
        assert time.monotonic() < deadline
        began = time.monotonic()
        one.poll(timeout_ms=10)
        longest = max(longest, time.monotonic() - began)
        two.poll(timeout_ms=10)
    assert longest < 0.5
    assert len(found) == 40
    assert poll_until(lambda: all(two.position(each) == 10 for each in two.assignment()), two) == []


def test_a_commit_waits_for_others_no_longer_than_it_may(cluster: Cluster) -> None:
    cluster.fill(9)
    one = cluster.consumer("t", enable_auto_commit=False)
    poll_until(lambda: len(one.assignment()) == 4, one)
    cluster.link.commit_seconds = 1.5
    slow = one.commit_async({P0: 1})
    began = time.monotonic()
    with pytest.raises(GroupRequestTimedOut):
        one.commit({P0: 2}, timeout_ms=200)
    assert time.monotonic() - began < 1.4
    slow.result(5.0)


def test_a_commit_that_has_waited_is_none_of_a_later_membership(cluster: Cluster) -> None:
    """Another member may have come further since."""
    cluster.fill(9)
    one = cluster.consumer("t", enable_auto_commit=False, max_poll_interval_ms=500)
    poll_until(lambda: len(one.assignment()) == 4, one)
    cluster.link.commit_seconds = 1.5
    first, late = one.commit_async({P0: 1}), one.commit_async({P0: 2})
    time.sleep(0.7)
    poll_until(lambda: len(one.assignment()) == 4 and bool(one.group_metadata().member_id), one)
    poll_until(late.done, one)
    assert first.done()
    with pytest.raises(UnknownMember, match="joined anew"):
        late.result()
    cluster.link.commit_seconds = 0.0
    one.commit({P0: 3})


def test_who_leaves_may_join_again_at_once(cluster: Cluster) -> None:
    cluster.fill(5)
    one = cluster.consumer("t")
    poll_until(lambda: len(one.assignment()) == 4, one)
    poll_until(lambda: all(one.position(each) == 5 for each in one.assignment()), one)
    cluster.link.commit_seconds = 0.3
    one.unsubscribe()
    one.subscribe(["t"])
    poll_until(lambda: len(one.assignment()) == 4, one)
    assert poll_until(lambda: all(one.position(each) == 5 for each in one.assignment()), one) == []
    one.unsubscribe()
    one.subscribe(["t"])
    one.unsubscribe()
    poll_until(lambda: not one.group_metadata().member_id, one)


def test_a_closed_consumer_does_not_heartbeat_whoever_answers(cluster: Cluster) -> None:
    cluster.fill(5)
    one = cluster.consumer("t")
    poll_until(lambda: len(one.assignment()) == 4, one)
    poll_until(lambda: all(one.position(each) == 5 for each in one.assignment()), one)
    group = core_of(one).group
    assert group is not None
    membership = group.client.membership
    assert membership is not None
    cluster.link.answers_lost_until = time.monotonic() + 3.0
    began = time.monotonic()
    one.close(timeout_ms=300)
    assert time.monotonic() - began < 2.5
    assert not membership._tasks._tasks


def test_an_offset_beyond_the_end_is_refused(cluster: Cluster) -> None:
    cluster.fill(10)
    one = cluster.consumer("t", enable_auto_commit=False)
    poll_until(lambda: len(one.assignment()) == 4, one)
    one.commit({P0: 10})
    with pytest.raises(OffsetBeyondEnd, match="offset 11 of t-0, whose log ends at 10"):
        one.commit({P0: 11, P1: 3})
    assert (one.committed(P0), one.committed(P1)) == (10, None)


def test_a_consumer_that_is_dropped_leaves_its_group(cluster: Cluster) -> None:
    settings: Any = {"group_id": "g", "session_timeout_ms": 60_000}
    dropped = [Consumer("t", **settings)]
    poll_until(lambda: len(dropped[0].assignment()) == 4, dropped[0])
    dropped.clear()
    gc.collect()
    two = cluster.consumer("t", session_timeout_ms=60_000)
    poll_until(lambda: len(two.assignment()) == 4, two)


def test_positions_are_committed_now_and_then_and_at_the_end(cluster: Cluster) -> None:
    cluster.fill(10)
    one = cluster.consumer("t", auto_commit_interval_ms=50)
    poll_until(lambda: len(one.assignment()) == 4 and one.committed(P3) == 10, one)
    cluster.fill(10)
    poll_until(lambda: all(one.position(each) == 20 for each in one.assignment()), one)
    one.close()
    reader = cluster.consumer()
    assert set(reader.committed_offsets([P0, P1, P2, P3]).values()) == {OffsetAndMetadata(20, "", 0)}


def test_a_block_that_ends_by_an_error_does_not_commit_what_it_was_at(cluster: Cluster) -> None:
    cluster.fill(3)
    with pytest.raises(ZeroDivisionError), cluster.consumer("t") as one:
        1 // (next(one).offset * 0)
    reader = cluster.consumer()
    assert set(reader.committed_offsets([P0, P1, P2, P3]).values()) == {None}


def test_iterating_hands_over_and_commits_too(cluster: Cluster) -> None:
    """Check it in the midst of a long list of records too, which does not end before."""
    cluster.fill(2000)
    one = cluster.consumer("t", auto_commit_interval_ms=100)
    records = iter(one)
    next(records)
    two = cluster.consumer("t")
    deadline = time.monotonic() + 20.0
    while len(two.assignment()) < 2:
        assert time.monotonic() < deadline
        if next(records).offset % 100 == 0:
            cluster.fill(100)
        two.poll(timeout_ms=0)
    assert len(one.assignment()) == 2


def test_a_pattern_follows_topics_that_come(cluster: Cluster) -> None:
    one = cluster.consumer()
    one.subscribe(pattern="t|logs-.*")
    poll_until(lambda: one.assignment() == {P0, P1, P2, P3}, one)
    cluster.do(lambda: cluster.link.add_topic("logs-1", 1))
    poll_until(lambda: TopicPartition("logs-1", 0) in one.assignment(), one)


def test_members_get_what_is_in_their_rack(cluster: Cluster) -> None:
    cluster.link.racks["t"] = tuple(map(frozenset, ("e", "w", "e", "w")))
    one, two = cluster.consumer("t", client_rack="w"), cluster.consumer("t", client_rack="e")
    poll_until(lambda: one.assignment() == {P1, P3} and two.assignment() == {P0, P2}, one, two)


def test_partitions_that_are_assigned_begin_where_the_group_left_them(cluster: Cluster) -> None:
    cluster.fill(10)
    with cluster.consumer() as one:
        one.commit({P0: 4})
        one.assign([P0, P1])
        assert one.assignment() == {P0, P1}
        assert (one.position(P0), one.position(P1)) == (4, 0)
        with pytest.raises(ConflictingSubscription):
            one.subscribe(["t"])
        assert one.group_metadata().member_id == ""
        poll_until(lambda: one.position(P0) == 10 == one.position(P1), one)
        one.commit()
        assert (one.committed(P0), one.committed(P1)) == (10, 10)
        one.seek(P0, 2)
        assert one.poll(timeout_ms=5000, max_records=1)[P0][0].offset == 2


def test_a_coordinator_that_is_replaced_costs_nobody_anything(cluster: Cluster) -> None:
    listener = Listener()
    cluster.fill(10)
    one = cluster.consumer(auto_commit_interval_ms=50)
    one.subscribe(["t"], listener=listener)
    poll_until(lambda: len(one.assignment()) == 4, one)
    poll_until(lambda: all(one.committed(each) == 10 for each in one.assignment()), one)
    cluster.do(cluster.link.replace_coordinator)
    cluster.fill(10)
    poll_until(lambda: all(one.committed(each) == 20 for each in one.assignment()), one)
    assert [name for name, _ in listener.calls] == ["assigned"]


def test_a_member_that_is_not_wanted_hears_it_with_the_next_poll(cluster: Cluster) -> None:
    """Check that the group goes on after it."""
    two = cluster.consumer("t")
    poll_until(lambda: len(two.assignment()) == 4, two)
    one = cluster.consumer("t", group_remote_assignor="nobody.knows")
    with pytest.raises(UnknownAssignor):
        poll_until(lambda: False, one, two)
    cluster.fill(1)
    poll_until(lambda: all(two.position(each) == 1 for each in two.assignment()), two)
    assert len(two.assignment()) == 4


def test_a_partition_of_another_member_cannot_be_committed(cluster: Cluster) -> None:
    cluster.fill(1)
    one, two = cluster.consumer("t"), cluster.consumer("t")
    poll_until(lambda: len(two.assignment()) == 2 == len(one.assignment()), one, two)
    foreign = min(two.assignment())
    with pytest.raises(PartitionNotOwned) as caught:
        one.commit({foreign: 1})
    me = one.group_metadata()
    assert (caught.value.member, caught.value.epoch) == (me.member_id, me.member_epoch)
    assert (caught.value.partition, caught.value.elapsed_ms >= 0) == (str(foreign), True)


def test_what_a_group_cannot_be_is_refused_at_once(cluster: Cluster) -> None:
    for group in ("x" * 256, "y" * 2**20):
        with pytest.raises(InvalidGroupId):
            cluster.consumer("t", group_id=group)
    with pytest.raises(InvalidConfig, match="group_id"):
        cluster.consumer("t", group_id="")
    one = cluster.consumer()
    with pytest.raises(InvalidSubscription):
        one.subscribe(pattern="(?!a).*")
    alone = cluster.consumer(group_id=None)
    for call in (alone.commit, alone.commit_async, alone.group_metadata, lambda: alone.committed(P0)):
        with pytest.raises(GroupRequired):
            call()
    with pytest.raises(GroupRequired, match="pattern"):
        alone.subscribe(pattern="t.*")
    with pytest.raises(GroupRequired, match="listener"):
        alone.subscribe(["t"], listener=Listener())
    assert issubclass(GroupRequired, RaylogError)


def test_coroutines_are_members_too(cluster: Cluster) -> None:
    cluster.fill(10)
    calls: list[tuple[str, set[TopicPartition]]] = []

    class Awaited:
        async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            await asyncio.sleep(0)
            calls.append(("assigned", partitions))

        def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            calls.append(("revoked", partitions))

    async def main() -> None:
        settings: Any = {"group_id": "g", "auto_offset_reset": "earliest", "auto_commit_interval_ms": 50}
        async with AsyncConsumer(**settings) as one:
            await one.subscribe(["t"], listener=Awaited())
            count = 0
            while count < 40:
                count += sum(map(len, (await one.poll(timeout_ms=1000)).values()))
            assert one.group_metadata().member_id
            await one.commit()
            assert await one.committed(P0) == 10
            assert one.assignment() == {P0, P1, P2, P3}
        assert calls == [("assigned", {P0, P1, P2, P3}), ("revoked", {P0, P1, P2, P3})]

    asyncio.run(asyncio.wait_for(main(), 30.0))


def test_a_coordinator_that_does_not_get_to_answer_costs_no_session(cluster: Cluster) -> None:
    """Stop the log for longer than a session. Each heartbeat counts as it comes, so one has to follow."""
    listener = Listener()
    one = cluster.consumer(session_timeout_ms=1500, heartbeat_interval_ms=500)
    one.subscribe(["t"], listener=listener)
    poll_until(lambda: len(one.assignment()) == 4, one)
    cluster.link.answers_lost_until = time.monotonic() + 2.0
    poll_until(lambda: time.monotonic() > cluster.link.answers_lost_until + 1.0, one)
    assert [name for name, _ in listener.calls] == ["assigned"]
