"""Writers against copies: taking over, fencing, feeding, changing voters, and all of it at once at random."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from raylog.actors.protocol.metadata_quorum_records import ControllerStarted, Voters
from raylog.actors.protocol.metadata_records import DirectoryMarked
from raylog.errors import (
    ControllerFenced,
    ControllerStopped,
    MetadataNotBlank,
    MetadataQuorumUnavailable,
    TooManyBytesInFlight,
    VotersNotChanged,
)
from tests.unit.actors.metadata_world import Cluster, NetworkFaults, Note, named, notes_in, pause, run, until

VOTERS = (0, 1, 2)


# --- beginning ----------------------------------------------------------------------------------------------------


def test_a_cluster_is_formed_with_one_batch_that_every_broker_gets() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        writer = cluster.writer()
        recovered = await writer.form(cluster.links(), [2, 1, 0], [Note("one first")])
        assert recovered.version == writer.version == 3
        assert (writer.epoch, writer.voting_brokers) == (1, VOTERS)
        assert recovered.batches[0].records == (Voters(named(*VOTERS)), ControllerStarted(1), Note("one first"))
        await cluster.all_at(3)
        assert [broker.alive.is_durable for broker in cluster.brokers] == [True, True, True, False]

    run(main())


def test_no_cluster_is_formed_where_there_is_one() -> None:
    async def main() -> None:
        cluster = Cluster()
        _, links = await cluster.formed()
        await cluster.all_at(3)
        with pytest.raises(MetadataNotBlank):
            await cluster.writer("two").form(links, (3,), [Note("two first")])

    run(main())


def test_no_cluster_is_formed_while_a_voter_is_missing() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        with pytest.raises(MetadataQuorumUnavailable, match=r"\(0, 1, 2\).*0, 1, 3"):
            await cluster.writer().form(cluster.links([0, 1, 3]), VOTERS, [Note("one first")], timeout=3.0)
        assert all(broker.alive.end_offset == 0 for broker in cluster.brokers)

    run(main())


def test_a_blank_cluster_is_not_recovered() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        with pytest.raises(MetadataQuorumUnavailable, match="none known"):
            await cluster.writer().recover(cluster.links(), timeout=3.0)

    run(main())


def test_a_formation_that_reached_one_voter_is_gone_on_with() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        links = cluster.links()
        forming = asyncio.ensure_future(cluster.writer().form(links, VOTERS, [Note("one first")]))
        await until(lambda: any(broker.alive.end_offset for broker in cluster.brokers))
        forming.cancel()
        for broker_id in range(4):
            links.cut(broker_id)
        recovered = await cluster.writer("two").recover(cluster.links())
        assert notes_in(recovered.batches[0].records) == (Note("one first"),)

    run(main())


@pytest.mark.parametrize("alive", [(0, 1), (1, 2), (0, 2), (0, 1, 2, 3)])
def test_a_new_controller_finds_all_that_was_committed(alive: tuple[int, ...]) -> None:
    async def main() -> None:
        cluster = Cluster()
        writer, _ = await cluster.formed()
        last = [writer.append([Note(f"one {number}")]) for number in range(20)][-1]
        version = await last
        recovered = await cluster.writer("two").recover(cluster.links(alive))
        notes = [note.text for batch in recovered.batches for note in notes_in(batch.records)]
        assert notes == ["one first", *(f"one {number}" for number in range(20))]
        assert recovered.batches[-1].records == (ControllerStarted(2),)
        assert recovered.version == version + 1

    run(main())


def test_a_minority_is_no_quorum() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.formed()
        with pytest.raises(MetadataQuorumUnavailable):
            await cluster.writer("two").recover(cluster.links([0, 3]), timeout=3.0)

    run(main())


def test_everything_is_there_after_a_power_cut_of_all() -> None:
    async def main() -> None:
        cluster = Cluster()
        writer, _ = await cluster.formed()
        version = await writer.append([Note("one a"), Note("one b")])
        await writer.close()
        for broker in cluster.brokers:
            broker.kill(machine=True)
            await broker.start()
        recovered = await cluster.writer("two").recover(cluster.links())
        assert recovered.version == version + 1
        await cluster.all_at(version + 1)
        assert cluster.brokers[3].notes == (Note("one first"), Note("one a"), Note("one b"))

    run(main())


# --- fencing ------------------------------------------------------------------------------------------------------


def test_the_older_of_two_controllers_is_fenced_and_says_so() -> None:
    async def main() -> None:
        cluster = Cluster()
        writer, _ = await cluster.formed()
        await cluster.writer("two").recover(cluster.links())
        late = writer.append([Note("one late")])
        with pytest.raises(ControllerFenced):
            await late
        assert (await writer.fenced).current == 2
        with pytest.raises(ControllerFenced):
            await writer.append([Note("one later")])
        assert not writer.connected()

    run(main())


def test_an_idle_controller_hears_soon_that_another_has_taken_over() -> None:
    async def main() -> None:
        cluster = Cluster()
        writer, _ = await cluster.formed()
        await cluster.writer("two").recover(cluster.links([1, 2]))
        await asyncio.wait_for(asyncio.shield(writer.fenced), 2.0)

    run(main())


def test_a_controller_knows_how_long_ago_a_majority_obeyed_it() -> None:
    async def main() -> None:
        cluster = Cluster()
        writer, _ = await cluster.formed()
        await pause(0.5)
        before = asyncio.get_running_loop().time()
        writer.ask_whether_obeyed()
        await until(lambda: writer.obeyed_at() >= before, 0.5)
        assert writer.obeyed_at() <= asyncio.get_running_loop().time()
        second = cluster.writer("two")
        await second.recover(cluster.links([1, 2, 3]))
        taken_over = asyncio.get_running_loop().time()
        for _ in range(20):
            writer.ask_whether_obeyed()
            await pause(0.2)
            assert writer.obeyed_at() < taken_over, "broker 0 alone, or one that is no voter, is no majority"
        assert second.obeyed_at() > before

    run(main())


def test_without_a_majority_nothing_is_committed_and_memory_is_bounded() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        writer, links = cluster.writer(max_uncommitted_bytes=2000), cluster.links()
        await writer.form(links, VOTERS, [Note("one first")])
        links.cut(0)
        links.cut(1)
        pending = [writer.append([Note("one x")]) for _ in range(10)]
        with pytest.raises(TooManyBytesInFlight):
            writer.append([Note("one x")] * 200)
        await pause(5.0)
        assert not any(each.done() for each in pending)
        await writer.close()
        with pytest.raises(ControllerStopped):
            await pending[0]

    run(main())


# --- feeding ------------------------------------------------------------------------------------------------------


def test_changes_are_committed_in_order_and_in_groups() -> None:
    async def main() -> None:
        cluster = Cluster()
        writer, _ = await cluster.formed()
        versions = await asyncio.gather(*(writer.append([Note(f"one {number}")] * 2) for number in range(500)))
        assert versions == list(range(5, 1005, 2))
        assert asyncio.get_running_loop().time() < 0.1  # 500 one after the other would take 2 s
        await cluster.all_at(1003)

    run(main())


def test_a_commit_is_told_at_once_also_when_nothing_follows() -> None:
    async def main() -> None:
        cluster = Cluster()
        writer, _ = await cluster.formed()
        version = await writer.append([Note("one a")])
        began = asyncio.get_running_loop().time()
        await cluster.all_at(version)
        assert asyncio.get_running_loop().time() - began < 0.05

    run(main())


def test_a_broker_that_comes_back_is_brought_up_to_date() -> None:
    async def main() -> None:
        cluster = Cluster()
        writer, links = await cluster.formed()
        for broker_id in (2, 3):
            cluster.brokers[broker_id].kill()
        version = await writer.append([Note("one a")])
        for broker_id in (2, 3):
            await cluster.brokers[broker_id].start()
        links.reconnect(writer)
        await cluster.all_at(version)

    run(main())


def test_a_slow_observer_holds_up_nobody() -> None:
    async def main() -> None:
        cluster = Cluster()
        writer, _ = await cluster.formed()
        slow = cluster.brokers[3].stream(cluster.random, NetworkFaults(slowest=3.0))
        writer.connect(3, slow.real)
        began = asyncio.get_running_loop().time()
        for number in range(20):
            await writer.append([Note(f"one {number}")])
        assert asyncio.get_running_loop().time() - began < 1.0
        await cluster.all_at(writer.version)

    run(main())


def test_a_tail_that_was_never_committed_is_cut() -> None:
    async def main() -> None:
        cluster = Cluster()
        writer, links = await cluster.formed()
        for broker_id in (1, 2, 3):
            links.cut(broker_id)
        lost = [writer.append([Note(f"one lost {number}")]) for number in range(3)]
        await until(lambda: cluster.brokers[0].alive.end_offset == 6)
        second = cluster.writer("two")
        await second.recover(cluster.links([1, 2]))
        version = await second.append([Note("two a")])
        again = cluster.links()
        again.reconnect(second)
        await cluster.all_at(version)
        assert cluster.brokers[0].notes == (Note("one first"), Note("two a"))
        for each in lost:
            with pytest.raises(ControllerFenced):
                await each

    run(main())


def test_what_a_minority_holds_is_adopted_where_it_is_found() -> None:
    async def main() -> None:
        cluster = Cluster()
        writer, links = await cluster.formed()
        for broker_id in (1, 2, 3):
            links.cut(broker_id)
        writer.append([Note("one late")])
        await until(lambda: cluster.brokers[0].alive.end_offset == 4)
        recovered = await cluster.writer("two").recover(cluster.links([0, 1]))
        assert notes_in(recovered.batches[1].records) == (Note("one late"),)

    run(main())


# --- snapshots ----------------------------------------------------------------------------------------------------


def test_a_snapshot_cuts_every_log_and_serves_those_who_are_behind() -> None:
    async def main() -> None:
        cluster = Cluster()
        writer, links = await cluster.formed()
        cluster.brokers[2].kill()
        cluster.brokers[3].kill()
        version = await writer.append([Note(f"one {number}") for number in range(100)])
        notes = (Note("one first"), *(Note(f"one {number}") for number in range(100)))
        cluster.truth.reached(version, notes)
        writer.snapshot([Voters(named(9)), *notes], version)
        assert writer.tail.size_bytes == 0
        after = await writer.append([Note("one after")])
        for broker_id in (2, 3):
            await cluster.brokers[broker_id].start()
        links.reconnect(writer)
        await cluster.all_at(after)
        cluster.brokers[0].kill(machine=True)
        await cluster.brokers[0].start()
        assert cluster.brokers[0].version == version
        recovered = await cluster.writer("two").recover(cluster.links())
        assert recovered.state == (Voters(named(*VOTERS)), *notes)
        assert (recovered.state_version, recovered.batches[0].version) == (version, after)

    run(main())


def test_a_snapshot_is_of_what_is_committed_and_of_a_whole_batch() -> None:
    async def main() -> None:
        cluster = Cluster()
        writer, links = await cluster.formed()
        version = await writer.append([Note("one a"), Note("one b")])
        for wrong in (0, version - 1, version + 1):
            with pytest.raises(ValueError, match="No snapshot"):
                writer.snapshot([], wrong)
        for broker_id in VOTERS:
            links.cut(broker_id)
        writer.append([Note("one c")])
        with pytest.raises(ValueError, match="No snapshot"):
            writer.snapshot([], version + 1)
        assert not writer.snapshot_due

    run(main())


# --- voters -------------------------------------------------------------------------------------------------------


def test_voters_are_exchanged_one_by_one_and_a_lost_one_too() -> None:
    async def main() -> None:
        cluster = Cluster(5)
        writer, _ = await cluster.formed()
        cluster.brokers[2].kill()
        await writer.change_voters(named(1, 3, 4))
        assert writer.voting_brokers == (1, 3, 4)
        version = await writer.append([Note("one a")])
        await cluster.all_at(version)
        cluster.brokers[0].kill()
        cluster.brokers[1].kill()
        recovered = await cluster.writer("two").recover(cluster.links())
        assert recovered.version == version + 1
        steps = [batch.records[0] for batch in recovered.batches if type(batch.records[0]) is Voters]
        sets = [set(step.voters) for step in steps]
        assert all(len(one ^ other) == 1 for one, other in pairwise(sets))

    run(main())


def test_voters_change_under_load() -> None:
    async def main() -> None:
        cluster = Cluster(5)
        writer, _ = await cluster.formed((0,))
        done = False

        async def load() -> None:
            number = 0
            while not done:
                number += 1
                await writer.append([Note(f"one {number}")])

        loads = asyncio.ensure_future(load())
        await writer.change_voters(named(2, 3, 4))
        done = True
        await loads
        assert writer.voting_brokers == (2, 3, 4)

    run(main())


def test_a_change_of_voters_is_committed_before_the_next_begins() -> None:
    async def main() -> None:
        cluster = Cluster(5)
        writer, _ = await cluster.formed((0,))
        cluster.faults.slowest = 0.2
        changing = asyncio.ensure_future(writer.change_voters(named(0, 1, 2, 3, 4)))
        ends = [writer.tail.voters_offset]
        while not changing.done():
            if writer.tail.voters_offset != ends[-1]:
                assert writer.version >= ends[-1]
                ends.append(writer.tail.voters_offset)
            await pause(0.001)
        assert len(ends) == 5
        await changing

    run(main())


def test_a_voter_that_cannot_be_reached_is_not_added() -> None:
    async def main() -> None:
        cluster = Cluster(4)
        writer, links = await cluster.formed()
        links.cut(3)
        with pytest.raises(VotersNotChanged, match="3 of these not up to date"):
            await writer.change_voters(named(0, 1, 2, 3), timeout=2.0)
        with pytest.raises(VotersNotChanged, match="somebody"):
            await writer.change_voters(())
        assert await writer.append([Note("one a")])

    run(main())


def test_a_voter_whose_disk_was_replaced_is_no_majority_with_one_that_lagged() -> None:
    """It would make up a majority that knows nothing of what was committed on its lost disk."""

    async def main() -> None:
        cluster = Cluster(3)
        writer, links = await cluster.formed()
        links.cut(2)
        await writer.append([Note("one a")])
        await writer.close()
        for broker_id in (0, 1):
            cluster.brokers[broker_id].kill()
        cluster.brokers[1].replace_disk()
        await cluster.brokers[1].start()
        with pytest.raises(MetadataQuorumUnavailable):
            await cluster.writer("two").recover(cluster.links(), timeout=5.0)
        await cluster.brokers[0].start()
        recovered = await cluster.writer("three").recover(cluster.links(), timeout=5.0)
        assert [note for batch in recovered.batches for note in notes_in(batch.records)][-1] == Note("one a")

    run(main())


def test_a_voter_whose_disk_was_replaced_commits_nothing_before_it_is_named_anew() -> None:
    async def main() -> None:
        cluster = Cluster(3)
        writer, links = await cluster.formed()
        cluster.brokers[1].kill()
        cluster.brokers[1].replace_disk()
        await cluster.brokers[1].start()
        links.reconnect(writer)
        links.cut(2)
        committed = writer.append([Note("one a")])
        await until(lambda: cluster.brokers[1].alive.end_offset == writer.tail.end_offset)
        assert not cluster.brokers[1].alive.is_durable
        await pause(1.0)
        assert not committed.done()
        links.only.add(2)
        links.reconnect(writer)
        await committed
        now = tuple(broker.voter for broker in cluster.brokers)
        before = writer.tail.end_offset
        await writer.change_voters(now)
        steps = [each.records for each in writer.tail.batches_from(before)]
        assert steps == [(Voters(named(0, 2)),), (Voters(now),)]
        assert cluster.brokers[1].alive.is_durable

    run(main())


def test_an_older_copy_of_a_voters_directory_commits_nothing() -> None:
    """Else what it has synced would be gone with it, once the newer directory is put back."""

    async def main() -> None:
        cluster = Cluster(3)
        writer, links = await cluster.formed()
        restored = cluster.brokers[1]
        older = restored.env.disk.clone()
        await writer.append([DirectoryMarked(*restored.voter, await restored.alive.raise_mark())])
        original = restored.put_back(older)
        await restored.start()
        links.cut(2)
        links.reconnect(writer)
        committed = writer.append([Note("one a")])
        await pause(5.0)
        assert not committed.done()
        assert restored.voter not in writer.connected()
        restored.put_back(original)
        await restored.start()
        links.reconnect(writer)
        await committed

    run(main())


def test_a_new_controller_knows_the_marks_of_before() -> None:
    """It feeds an older copy that has answered too late to be asked for its promise."""

    async def main() -> None:
        cluster = Cluster(3)
        first, _ = await cluster.formed()
        restored = cluster.brokers[1]
        older = restored.env.disk.clone()
        await first.append([DirectoryMarked(*restored.voter, await restored.alive.raise_mark())])
        await first.close()
        writer = cluster.writer("two")
        await writer.recover(cluster.links((0, 2)))
        restored.put_back(older)
        await restored.start()
        links = cluster.links((0, 1))
        for broker_id in (0, 2):
            writer.disconnect(broker_id)
        links.reconnect(writer)
        committed = writer.append([Note("two a")])
        await pause(5.0)
        assert not committed.done()
        links.only.add(2)
        links.reconnect(writer)
        await committed

    run(main())


def test_voters_are_not_changed_by_an_append() -> None:
    async def main() -> None:
        writer, _ = await Cluster().formed()
        with pytest.raises(ValueError, match="change_voters"):
            writer.append([Voters(named(1))])

    run(main())
