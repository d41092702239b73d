"""Committed offsets: who may commit (rule 24), what is refused, staging by transactions (rule 22), expiry, deletion."""

from __future__ import annotations

import pytest

from raylog.actors.protocol.messages import Done
from raylog.actors.protocol.transaction_messages import ResolveStaged
from raylog.errors import (
    CoordinatorFenced,
    FencedMember,
    GroupNotEmpty,
    InvalidGroupId,
    PartitionNotOwned,
    RaylogError,
    StaleTransaction,
    UnknownGroup,
    UnknownMember,
    UnstableOffset,
)
from raylog.groups.records.messages import (
    AlterOffsets,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    FetchOffsets,
    GroupsListed,
    ListGroups,
    ListStaged,
    OffsetsCommitted,
    OffsetsFetched,
    Refusal,
    StagedListed,
    StageOffsets,
)
from raylog.groups.records.records import TransactionEnd
from raylog.groups.records.refusals import error_of
from tests.unit.groups.small_group import Client, Machine, committed, settle, topic_id

_DAY_MS = 24 * 3_600_000


def one_member(**topics: int) -> tuple[Machine, Client]:
    machine = Machine()
    for name, count in (topics or {"t": 2}).items():
        machine.topics.put(name, count)
    client = Client(machine, "a", *(topics or "t")).join()
    settle(machine, client)
    return machine, client


def names(refused: tuple[Refusal, ...]) -> list[str]:
    return [each[2] for each in refused]


def alter(machine: Machine, *entries: tuple[str, int, int], group: str = "g", text: str = "") -> tuple[Refusal, ...]:
    offsets = tuple((topic_id(topic), number, offset, -1, text) for topic, number, offset in entries)
    answer = machine.ask(AlterOffsets(group, offsets))
    assert isinstance(answer, OffsetsCommitted)
    return answer.refused


# --- rule 24 ------------------------------------------------------------------------------------------------------


def test_an_owner_commits_and_everybody_reads_it() -> None:
    machine, client = one_member()
    assert not client.commit(("t", 0, 5), ("t", 1, 7), text="half way")
    assert committed(machine) == {"t0": 5, "t1": 7}
    answer = machine.ask(FetchOffsets("g", "a", client.epoch, ((topic_id("t"), (0,)),)))
    assert answer == OffsetsFetched(((topic_id("t"), 0, 5, -1, "half way"),), ())


def test_there_is_no_offset_where_none_was_committed() -> None:
    machine, _ = one_member()
    for group in ("g", "never-heard-of"):
        answer = machine.ask(FetchOffsets(group, "", -1, ((topic_id("t"), (1,)),)))
        assert answer == OffsetsFetched(((topic_id("t"), 1, -1, -1, ""),), ())


def test_commits_count_from_the_epoch_of_the_grant_to_the_present_one() -> None:
    """A commit that was on its way when the member's epoch rose is good; one from before the grant is not."""
    machine, client = one_member(t=2)
    granted = client.epoch
    other = Client(machine, "b", "t").join()
    settle(machine, client, other)
    assert client.epoch > granted
    assert not client.commit(("t", 0, 5), epoch=granted)
    assert not client.commit(("t", 0, 6))
    with pytest.raises(FencedMember):
        client.commit(("t", 0, 7), epoch=client.epoch + 1)
    with pytest.raises(FencedMember):
        client.commit(("t", 0, 7), epoch=-1)
    assert names(other.commit(("t", 1, 3), epoch=granted)) == ["PartitionNotOwned"]
    assert committed(machine) == {"t0": 6}


def test_a_partition_that_is_to_be_given_up_is_committed_until_it_is() -> None:
    machine, client = one_member(t=2)
    other = Client(machine, "b", "t").join()
    machine.assign()
    client.beat()
    assert client.partitions == ["t0"]
    assert not client.commit(("t", 1, 9))
    client.beat()
    other.beat()
    refused = client.commit(("t", 1, 10), ("t", 0, 4))
    assert names(refused) == ["PartitionNotOwned"]
    error = error_of(refused[0])
    assert isinstance(error, PartitionNotOwned)
    assert "'a' of group 'g' commits t-1 at epoch" in str(error)
    assert "heartbeat was 0 ms ago" in str(error)
    assert committed(machine) == {"t0": 4, "t1": 9}


def test_strangers_commit_only_while_nobody_is_a_member() -> None:
    machine, client = one_member()
    stranger = Client(machine, "", "t")
    with pytest.raises(GroupNotEmpty):
        stranger.commit(("t", 0, 5), epoch=-1)
    with pytest.raises(UnknownMember, match="has not joined"):
        Client(machine, "somebody", "t").commit(("t", 0, 5), epoch=3)
    client.leave()
    assert not stranger.commit(("t", 0, 5), epoch=-1)
    assert not Client(machine, "", group="simple").commit(("t", 1, 6), epoch=-1)
    assert committed(machine, "simple") == {"t1": 6}


def test_a_member_that_is_behind_reads_no_offsets() -> None:
    machine, client = one_member()
    with pytest.raises(FencedMember):
        machine.ask(FetchOffsets("g", "a", client.epoch + 1, None))
    with pytest.raises(UnknownMember):
        machine.ask(FetchOffsets("g", "b", 1, None))


# --- bad input ----------------------------------------------------------------------------------------------------


def test_each_partition_is_refused_for_itself() -> None:
    machine, client = one_member(t=2)
    machine.topics.ends[topic_id("t"), 0] = 10
    offsets = (
        (topic_id("t"), 0, 11, -1, ""),
        (topic_id("t"), 1, 4, -1, "x" * 4_097),
        (topic_id("gone"), 0, 1, -1, ""),
        (topic_id("t"), 2, 1, -1, ""),
    )
    answer = machine.ask(CommitOffsets("g", "a", client.epoch, offsets))
    assert isinstance(answer, OffsetsCommitted)
    refused = ["OffsetBeyondEnd", "OffsetMetadataTooLarge", "PartitionNotOwned", "PartitionNotOwned"]
    assert names(answer.refused) == refused
    assert "ends at 10" in answer.refused[0][3]
    assert not client.commit(("t", 0, 10))
    client.leave()
    bad = alter(machine, ("gone", 0, 1), ("t", 2, 1), ("t", 0, -1), ("t", 0, 11))
    assert names(bad) == ["UnknownTopic", "UnknownPartition", "InvalidOffset", "OffsetBeyondEnd"]
    assert committed(machine) == {"t0": 10}


def test_a_megabyte_of_metadata_is_refused_in_few_words() -> None:
    machine = Machine(t=1)
    refused = alter(machine, ("t", 0, 1), text="x" * 1_000_000)
    assert names(refused) == ["OffsetMetadataTooLarge"]
    assert "has 1000000 bytes; the limit is 4096" in refused[0][3]
    assert len(str(refused)) < 500


@pytest.mark.parametrize("group", ["", "x" * 256, "a\x1fb", "tab\t", "\x7f", "\x85", "\ud800"])
def test_group_ids_that_cannot_be(group: str) -> None:
    for request in (CommitOffsets(group, "", -1, ()), AlterOffsets(group, ()), FetchOffsets(group, "", -1, None)):
        with pytest.raises(InvalidGroupId):
            Machine(t=1).ask(request)


def test_text_that_is_no_unicode_is_counted_and_not_choked_on() -> None:
    machine = Machine(t=1)
    with pytest.raises(InvalidGroupId):
        machine.ask(FetchOffsets("\ud800" * 100, "", -1, None))


# --- transactions (rules 20, 22) ----------------------------------------------------------------------------------


def stage(
    machine: Machine, offset: int, *, epoch: int = 0, producer: int = 7, group: str = "g", sequence: int = 1
) -> tuple[Refusal, ...]:
    entry = (topic_id("t"), 0, offset, -1, "tx")
    answer = machine.ask(StageOffsets(group, "", -1, producer, epoch, sequence, (entry,)))
    assert isinstance(answer, OffsetsCommitted)
    return answer.refused


def end(machine: Machine, *, commit: bool, epoch: int = 0, producer: int = 7, coordinator: int = 1) -> None:
    assert machine.ask(ResolveStaged(producer, epoch, coordinator, commit)) == Done()


def fetch(machine: Machine, group: str = "g") -> OffsetsFetched:
    answer = machine.ask(FetchOffsets(group, "", -1, None))
    assert isinstance(answer, OffsetsFetched)
    return answer


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_decides_what_it_has_staged(commit: bool) -> None:
    machine = Machine(t=1)
    assert not alter(machine, ("t", 0, 3))
    assert not stage(machine, 8)
    for each in (machine, machine.successor()):
        answer = fetch(each)
        assert answer.offsets == ()
        assert isinstance(error_of(answer.refused[0]), UnstableOffset)
    after = machine.successor()
    end(after, commit=commit)
    assert committed(after) == {"t0": 8 if commit else 3}
    before = len(after.written)
    end(after, commit=commit)  # the marker is sent until it is answered
    assert len(after.written) == before
    assert committed(after.successor()) == {"t0": 8 if commit else 3}
    assert not after.shard.state.staged_in


def test_a_transaction_ends_in_all_groups_at_once() -> None:
    machine = Machine(t=1)
    stage(machine, 8)
    stage(machine, 9, group="h")
    stage(machine, 5, producer=8)
    end(machine, commit=True)
    assert committed(machine, "h") == {"t0": 9}
    assert names(fetch(machine).refused) == ["UnstableOffset"]  # the other producer's is open
    end(machine, commit=False, producer=8)
    assert committed(machine) == {"t0": 8}


def test_what_is_staged_is_told_by_transaction() -> None:
    machine = Machine(t=1)
    assert machine.ask(ListStaged()) == StagedListed(())
    stage(machine, 8, group="h")
    stage(machine, 8, sequence=2)
    stage(machine, 5, producer=8, epoch=2)
    end(machine, commit=True, producer=8, epoch=2, coordinator=3)
    stage(machine, 6, producer=8, epoch=3)
    now = machine.at.wall_ms
    told = StagedListed(((7, 0, -1, now, ("g", "h")), (8, 3, 3, now, ("g",))))
    for each in (machine, machine.successor()):
        assert each.ask(ListStaged()) == told


def test_what_is_late_joins_no_other_transaction() -> None:
    machine = Machine(t=1)
    stage(machine, 8, epoch=4)
    end(machine, commit=True, epoch=4)
    for epoch in (3, 4):
        with pytest.raises(StaleTransaction, match=f"Epoch {epoch} of producer 7 is over: 4 is known"):
            stage(machine.successor(), 9, epoch=epoch)
    stage(machine, 11, epoch=5)
    end(machine, commit=False, epoch=4)  # a marker that comes again
    assert names(fetch(machine).refused) == ["UnstableOffset"]
    with pytest.raises(StaleTransaction):
        end(machine, commit=False, epoch=3)
    end(machine, commit=True, epoch=5, coordinator=2)
    with pytest.raises(CoordinatorFenced):
        end(machine, commit=False, epoch=6, coordinator=1)
    assert committed(machine) == {"t0": 11}
    assert machine.shard.state.ended == {7: TransactionEnd(5, 2, machine.at.wall_ms)}


def test_an_earlier_request_that_comes_late_does_not_undo_a_later_one() -> None:
    machine = Machine(t=1)
    stage(machine, 8, sequence=1)
    stage(machine, 20, sequence=2)
    stage(machine, 20, sequence=2)
    with pytest.raises(StaleTransaction, match="Request 1 of producer 7 is over: 2 is known"):
        stage(machine, 8, sequence=1)
    stage(machine, 9, sequence=1, producer=8)
    end(machine, commit=False, producer=8)
    end(machine, commit=True)
    assert committed(machine) == {"t0": 20}
    stage(machine, 30, epoch=1, sequence=1)
    with pytest.raises(StaleTransaction, match="Epoch 0"):
        stage(machine, 31, epoch=0, sequence=3)
    end(machine, commit=True, epoch=1)
    assert committed(machine) == {"t0": 30}


def test_members_stage_what_they_may_commit() -> None:
    machine, client = one_member(t=1)
    with pytest.raises(GroupNotEmpty):
        stage(machine, 4)
    entry = ((topic_id("t"), 0, 4, -1, ""),)
    assert machine.ask(StageOffsets("g", "a", client.epoch, 7, 0, 1, entry)) == OffsetsCommitted(())
    with pytest.raises(FencedMember):
        machine.ask(StageOffsets("g", "a", client.epoch + 1, 7, 0, 2, entry))


# --- expiry -------------------------------------------------------------------------------------------------------


def expire(machine: Machine, days: float) -> None:
    machine.now_ms += int(days * _DAY_MS)
    machine.shard.expire(machine.at)
    machine.keep()


def test_offsets_go_when_their_group_was_empty_for_the_retention() -> None:
    machine, client = one_member(t=2)
    client.commit(("t", 0, 5))
    expire(machine, 30)
    assert committed(machine) == {"t0": 5}  # it has a member
    client.leave()
    expire(machine, 6.9)
    assert committed(machine) == {"t0": 5}
    expire(machine, 0.2)
    assert committed(machine) == {}
    assert machine.shard.state.groups == {}
    assert machine.successor().shard.state.groups == {}


def test_offsets_of_no_members_go_by_their_own_age() -> None:
    machine = Machine(t=2)
    alter(machine, ("t", 0, 5))
    expire(machine, 4)
    alter(machine, ("t", 1, 6))
    expire(machine, 4)
    assert committed(machine) == {"t1": 6}


def test_expiry_leaves_staged_offsets_alone() -> None:
    machine = Machine(t=1)
    alter(machine, ("t", 0, 5))
    stage(machine, 8)
    expire(machine, 100)
    assert names(fetch(machine).refused) == ["UnstableOffset"]
    end(machine, commit=False)
    assert committed(machine) == {"t0": 5}
    expire(machine, 100)
    assert committed(machine) == {}
    assert not machine.shard.state.ended


def test_offsets_of_a_deleted_topic_go_after_a_while() -> None:
    machine = Machine(t=1, u=1)
    alter(machine, ("t", 0, 5), ("u", 0, 6))
    machine.topics.drop("t")
    expire(machine, 0)
    assert len(committed(machine)) == 2  # who has heard less of the topics takes nothing away
    machine.topics.put("t", 1)
    expire(machine, 0.1)
    machine.topics.drop("t")
    expire(machine, 0.1)
    assert len(committed(machine)) == 2
    expire(machine, 0.1)
    assert committed(machine) == {"u0": 6}


# --- administration -----------------------------------------------------------------------------------------------


def test_an_inactive_group_is_reset_and_an_active_one_is_not() -> None:
    machine, client = one_member(t=1)
    client.commit(("t", 0, 5))
    with pytest.raises(GroupNotEmpty, match="altering its offsets needs a group without members"):
        alter(machine, ("t", 0, 0))
    client.leave()
    assert not alter(machine, ("t", 0, 0))
    assert committed(machine) == {"t0": 0}


def test_deleting_a_group() -> None:
    machine, client = one_member(t=1)
    client.commit(("t", 0, 5))
    with pytest.raises(GroupNotEmpty):
        machine.ask(DeleteGroup("g"))
    client.leave()
    stage(machine, 3)
    with pytest.raises(UnstableOffset):
        machine.ask(DeleteGroup("g"))
    end(machine, commit=False)
    machine.ask(DeleteGroup("g"))
    assert machine.ask(ListGroups()) == GroupsListed(())
    for each in (machine, machine.successor()):
        with pytest.raises(UnknownGroup):
            each.ask(DeleteGroup("g"))


def test_deleting_offsets_of_topics_that_nobody_reads() -> None:
    machine, client = one_member(t=1)
    machine.topics.put("old", 2)
    client.commit(("t", 0, 5))
    other = Client(machine, "b", "old").join()
    settle(machine, client, other)
    other.commit(("old", 0, 3), ("old", 1, 4))
    other.leave()
    answer = machine.ask(DeleteOffsets("g", ((topic_id("old"), (0,)), (topic_id("t"), (0,)))))
    assert isinstance(answer, OffsetsCommitted)
    assert names(answer.refused) == ["GroupNotEmpty"]
    assert committed(machine) == {"old1": 4, "t0": 5}
    with pytest.raises(UnknownGroup):
        machine.ask(DeleteOffsets("nobody", ()))


def test_groups_are_listed_with_their_state() -> None:
    machine, _ = one_member(t=1)
    alter(machine, ("t", 0, 5), group="simple")
    assert machine.ask(ListGroups()) == GroupsListed((("g", "Stable", 1), ("simple", "Empty", 0)))


def test_an_error_this_version_does_not_know_keeps_its_text() -> None:
    error = error_of((b"t", 0, "FromTheFuture", "It will have been.", ()))
    assert isinstance(error, RaylogError)
    assert str(error) == "It will have been."
