"""Looking at groups and changing them from outside, with a real coordinator behind a make-believe cluster."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from raylog.api.admin.group_administration import GroupAdministration, ResetTo
from raylog.api.admin.rules.group_descriptions import GroupListing
from raylog.api.connection.records import OffsetAndMetadata, TopicPartition
from raylog.errors import (
    CoordinatorLoading,
    GroupNotEmpty,
    GroupNotRead,
    InvalidGroupId,
    OffsetBeyondEnd,
    UnknownGroup,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from tests.streams.test_group_consumer import P0, P1, P2, P3, Cluster, cluster, poll_until
from tests.unit.api.fake_link import TIME

__all__ = ["cluster"]

_T = TypeVar("_T")


def administer(cluster: Cluster, call: Callable[[GroupAdministration], Coroutine[Any, Any, _T]]) -> _T:
    async def ask() -> _T:
        return await call(GroupAdministration(cluster.link.as_link, 5.0))

    return cluster.runtime.run(ask(), 10.0)


def reset(cluster: Cluster, dry_run: bool = False, **to: Any) -> dict[TopicPartition, int]:
    place = ResetTo(**to)
    place.check()
    return administer(cluster, lambda admin: admin.reset("g", place, ["t"], None, dry_run))


def offsets(cluster: Cluster) -> dict[TopicPartition, int]:
    found = administer(cluster, lambda admin: admin.offsets("g"))
    return {partition: each.offset for partition, each in found.items()}


def with_groups(cluster: Cluster) -> None:
    cluster.do(lambda: cluster.link.add_topic("__consumer_offsets", 1))


def test_a_group_is_described_with_its_members_and_how_far_behind_it_is(cluster: Cluster) -> None:
    with_groups(cluster)
    cluster.fill(10)
    one = cluster.consumer("t", enable_auto_commit=False, client_id="one", group_instance_id="first")
    poll_until(lambda: one.assignment() == {P0, P1, P2, P3}, one)
    one.commit({P0: 4, P1: OffsetAndMetadata(10, "a note")})
    assert administer(cluster, lambda admin: admin.list_groups()) == (GroupListing("g", "Stable", 1),)
    told = administer(cluster, lambda admin: admin.describe("g"))
    (member,) = told.members
    assert (member.client_id, member.group_instance_id) == ("one", "first")
    assert member.assignment == member.target == {P0, P1, P2, P3}
    assert member.member_id == one.group_metadata().member_id
    assert [each.lag for each in told.partitions] == [6, 0, 10, 10], "without a commit all that there is"
    assert (told.lag, told.assignor, told.problem) == (26, "range", "")
    assert told.partitions[1].committed == OffsetAndMetadata(10, "a note")
    assert {each.member_id for each in told.partitions} == {member.member_id}


def test_members_are_removed_and_those_that_live_join_anew(cluster: Cluster) -> None:
    with_groups(cluster)
    one = cluster.consumer("t")
    poll_until(lambda: len(one.assignment()) == 4, one)
    before = one.group_metadata().member_id
    with pytest.raises(UnknownMember):
        administer(cluster, lambda admin: admin.remove_members("g", ["nobody"], (), ""))
    administer(cluster, lambda admin: admin.remove_members("g", [before], (), "a test"))
    poll_until(lambda: one.group_metadata().member_id not in ("", before) and len(one.assignment()) == 4, one)


def test_offsets_of_a_group_without_members_are_reset(cluster: Cluster) -> None:
    with_groups(cluster)
    cluster.fill(10)
    assert set(reset(cluster, position="latest", dry_run=True).values()) == {10}
    with pytest.raises(UnknownGroup):
        offsets(cluster)
    assert reset(cluster, position="latest") == offsets(cluster) == dict.fromkeys((P0, P1, P2, P3), 10)
    assert reset(cluster, shift=-3) == offsets(cluster) == dict.fromkeys((P0, P1, P2, P3), 7)
    assert reset(cluster, shift=-30) == offsets(cluster) == dict.fromkeys((P0, P1, P2, P3), 0)
    assert set(reset(cluster, offset=4).values()) == {4}
    assert set(reset(cluster, offset=400).values()) == {10}, "beyond the end"
    assert set(reset(cluster, timestamp_ms=TIME).values()) == {0}
    assert set(reset(cluster, timestamp_ms=TIME + 1).values()) == {10}, "nothing is so late"
    assert set(reset(cluster, position="earliest").values()) == {0}
    only = administer(cluster, lambda admin: admin.reset("g", ResetTo(offset=2), None, [P1], False))
    assert (only, offsets(cluster)[P1], offsets(cluster)[P0]) == ({P1: 2}, 2, 0)
    everything = administer(cluster, lambda admin: admin.reset("g", ResetTo(shift=1), None, None, False))
    assert everything == {P0: 1, P1: 3, P2: 1, P3: 1}


def test_offsets_of_a_group_with_members_stay(cluster: Cluster) -> None:
    with_groups(cluster)
    one = cluster.consumer("t")
    poll_until(lambda: len(one.assignment()) == 4, one)
    with pytest.raises(GroupNotEmpty):
        reset(cluster, position="earliest")
    with pytest.raises(GroupNotEmpty):
        administer(cluster, lambda admin: admin.alter_offsets("g", {P0: OffsetAndMetadata(0)}))
    with pytest.raises(GroupNotEmpty):
        administer(cluster, lambda admin: admin.delete("g"))
    with pytest.raises(GroupNotEmpty):
        administer(cluster, lambda admin: admin.delete_offsets("g", [P0]))


def test_a_dry_run_tells_what_would_be_also_while_there_are_members(cluster: Cluster) -> None:
    with_groups(cluster)
    cluster.fill(10)
    one = cluster.consumer("t", enable_auto_commit=False)
    poll_until(lambda: len(one.assignment()) == 4, one)
    one.commit({P0: 7})
    assert reset(cluster, position="earliest", dry_run=True) == dict.fromkeys((P0, P1, P2, P3), 0)
    assert one.committed(P0) == 7


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_group_that_is_not_there_is_refused_where_no_topic_is_named(cluster: Cluster, dry_run: bool) -> None:
    with_groups(cluster)
    with pytest.raises(UnknownGroup):
        administer(cluster, lambda admin: admin.reset("g", ResetTo("earliest"), None, None, dry_run))
    with pytest.raises(UnknownGroup):
        administer(cluster, lambda admin: admin.describe("g"))


def test_a_question_that_is_not_answered_speaks_of_no_change(cluster: Cluster) -> None:
    with_groups(cluster)

    async def ask() -> None:
        await GroupAdministration(cluster.link.as_link, 0.05).describe("g")

    cluster.do(lambda: setattr(cluster.link, "ask", _unanswered))
    with pytest.raises(GroupNotRead, match=r"Group 'g' was not read within \d+ ms: .* Nothing was changed: ask again"):
        cluster.runtime.run(ask(), 10.0)


async def _unanswered(*_: object, **__: object) -> None:
    raise CoordinatorLoading("g", 5)


def test_offsets_and_groups_are_deleted(cluster: Cluster) -> None:
    with_groups(cluster)
    cluster.fill(10)
    administer(cluster, lambda admin: admin.alter_offsets("g", {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(2)}))
    administer(cluster, lambda admin: admin.delete_offsets("g", [P0]))
    assert offsets(cluster) == {P1: 2}
    administer(cluster, lambda admin: admin.delete("g"))
    with pytest.raises(UnknownGroup):
        administer(cluster, lambda admin: admin.delete("g"))


def test_what_there_is_not_is_refused(cluster: Cluster) -> None:
    assert administer(cluster, lambda admin: admin.list_groups()) == (), "nobody ever had a group"
    with pytest.raises(UnknownGroup):
        administer(cluster, lambda admin: admin.describe("nobody"))
    with pytest.raises(InvalidGroupId):
        administer(cluster, lambda admin: admin.describe(""))
    with_groups(cluster)
    cluster.fill(10)
    with pytest.raises(UnknownTopic):
        administer(cluster, lambda admin: admin.reset("g", ResetTo(offset=1), ["gone"], None, False))
    with pytest.raises(UnknownPartition):
        administer(cluster, lambda admin: admin.alter_offsets("g", {TopicPartition("t", 9): OffsetAndMetadata(1)}))
    with pytest.raises(OffsetBeyondEnd, match="offset 11 of t-1, whose log ends at 10"):
        administer(cluster, lambda a: a.alter_offsets("g", {P0: OffsetAndMetadata(10), P1: OffsetAndMetadata(11)}))
    for wrong in ({}, {"offset": 1, "shift": 2}, {"position": "middle"}, {"offset": -1}):
        with pytest.raises(ValueError, match=r"Say one of|to is|offset is"):
            reset(cluster, **wrong)
