"""A broker's copy of the metadata log, asked one request at a time, and killed at every step of its disk."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from random import Random
from typing import Any, cast

import pytest

from raylog.actors.kernel.stream_interface import Request, Response
from raylog.actors.metadata_log.copy import SNAPSHOT, MetadataCopy
from raylog.actors.metadata_log.files import SNAPSHOT_FILE, MetadataFiles
from raylog.actors.metadata_log.rules.tail import MetadataSnapshot, decode_change, encode_change, encode_state
from raylog.actors.protocol.control_messages import (
    AppendMetadata,
    InstallSnapshot,
    MetadataAppended,
    MetadataRead,
    Promise,
    Promised,
    ReadMetadata,
)
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.metadata_quorum_records import Voters
from raylog.actors.protocol.metadata_records import CommittedBatch
from raylog.errors import (
    ControllerFenced,
    DiskFailed,
    DiskFull,
    LogDamaged,
    MessageUnknown,
    MetadataCopyOffline,
    MetadataDiverged,
    MetadataRecordUnknown,
    OffsetOutOfRange,
    OffsetsNotContiguous,
)
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.record_batch import HEADER_BYTES, split_batches, stamp
from tests.simulator.world.faulty_disk import FaultyDisk, SimulatedCrash, crash_points
from tests.unit.actors.metadata_world import DATA, FakeEnvironment, Note, named, run, voter_of

ME = 7
DISK = voter_of(ME)[1]
LOG_DIRECTORY = f"{DATA}/__cluster_metadata-0"


class Subject:
    """A copy, and what it has handed on."""

    def __init__(self, disk: FaultyDisk | None = None) -> None:
        self.env = FakeEnvironment(Random(0), disk)
        self.env.on_crash = self._crashed
        self.disk = self.env.disk
        self.committed: list[CommittedBatch] = []
        self.snapshots: list[MetadataSnapshot] = []
        self._crash: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.copy = cast(MetadataCopy, None)

    async def open(self) -> Subject:
        env, files = self.env.real, MetadataFiles(self.env.real.disk, DATA, "cluster")
        loaded = await self._unless_crashed(
            asyncio.ensure_future(env.off_loop(partial(files.load, env.wall_ms())))
        )
        self.copy = MetadataCopy(env, files, loaded, voter_of(ME), self.committed.append, self.snapshots.append)
        return self

    async def ask(self, message: Message, payload: bytes = b"") -> Response:
        request = Request(message, bytearray(payload), b"", 0, cast(Any, None), 1, 0)
        response: Response = await self._unless_crashed(self.copy.handle(request))
        return response

    async def append(
        self, epoch: int, base: int, previous: int, *batches: bytes, commit: int = 0
    ) -> MetadataAppended:
        answer = await self.ask(AppendMetadata(epoch, base, previous, commit), b"".join(batches))
        assert type(answer.message) is MetadataAppended
        return answer.message

    async def promise(self, epoch: int) -> Promised:
        answer = await self.ask(Promise(epoch, "test"))
        assert type(answer.message) is Promised
        return answer.message

    async def install(self, epoch: int, offset: int, of_epoch: int, *records: Message) -> Message:
        return (await self.ask(InstallSnapshot(epoch, offset, of_epoch), encode_state(records, of_epoch, 0))).message

    async def records(self) -> list[Message]:
        """All that the log holds after its snapshot."""
        start = (await self.promise(0)).start_offset
        data = (await self.ask(ReadMetadata(self.copy.promised_epoch, start, 1 << 20))).payload
        return [record for each in split_batches(data) for record in decode_change(each)]

    async def after_power_cut(self) -> Subject:
        self.env.is_dead = True
        self.disk.crash_machine(Random(1))
        return await Subject(self.disk).open()

    async def _unless_crashed(self, awaited: asyncio.Future[Any]) -> Any:
        await asyncio.wait({awaited, self._crash}, return_when="FIRST_COMPLETED")
        if self._crash.done():
            awaited.cancel()
            raise SimulatedCrash("the process is dead")
        return awaited.result()

    def _crashed(self) -> None:
        self.env.is_dead = True
        self._crash.set_result(None)


def change(base: int, epoch: int, *records: Message | str) -> bytes:
    return encode_change([Note(each) if isinstance(each, str) else each for each in records], base, epoch, 0)


async def voter(disk: FaultyDisk | None = None) -> Subject:
    """Of one batch, which names it."""
    tested = await Subject(disk).open()
    assert (await tested.append(1, 0, -1, change(0, 1, Voters(named(ME))))).accepted
    return tested


# --- promises -----------------------------------------------------------------------------------------------------


def test_each_epoch_is_promised_once() -> None:
    async def main() -> None:
        tested = await Subject().open()
        assert await tested.promise(3) == Promised(DISK, True, 3, -1, 0, 0, ())
        assert await tested.promise(3) == Promised(DISK, False, 3, -1, 0, 0, ())
        assert await tested.promise(2) == Promised(DISK, False, 3, -1, 0, 0, ())
        assert (await tested.promise(4)).granted

    run(main())


def test_a_promise_survives_a_power_cut_also_where_the_log_does_not() -> None:
    async def main() -> None:
        tested = await Subject().open()
        await tested.append(1, 0, -1, change(0, 1, "a"))
        await tested.promise(5)
        tested = await tested.after_power_cut()
        assert await tested.promise(5) == Promised(DISK, False, 5, -1, 0, 0, ())
        assert not tested.disk.exists(LOG_DIRECTORY)

    run(main())


def test_a_promise_tells_what_the_log_holds() -> None:
    async def main() -> None:
        tested = await voter()
        await tested.append(2, 1, 1, change(1, 2, "a", "b"))
        assert await tested.promise(9) == Promised(DISK, True, 9, 2, 0, 3, named(ME))

    run(main())


def test_a_lower_controller_is_refused_whatever_it_asks_and_told_why() -> None:
    async def main() -> None:
        tested = await voter()
        await tested.promise(5)
        for message in (AppendMetadata(4, 1, 1, 1), InstallSnapshot(4, 9, 1), ReadMetadata(4, 0, 100)):
            with pytest.raises(ControllerFenced) as refused:
                await tested.ask(message)
            assert (refused.value.epoch, refused.value.current) == (4, 5)

    run(main())


def test_a_higher_controller_is_obeyed_and_that_is_durable() -> None:
    async def main() -> None:
        tested = await voter()
        assert (await tested.append(6, 1, 1)).accepted
        tested = await tested.after_power_cut()
        with pytest.raises(ControllerFenced):
            await tested.append(5, 1, 1)

    run(main())


# --- appending ----------------------------------------------------------------------------------------------------


def test_what_does_not_join_on_is_refused_with_where_to_try() -> None:
    async def main() -> None:
        tested = await voter()
        await tested.append(3, 1, 1, change(1, 3, "a"), change(2, 3, "b"))
        assert await tested.append(5, 9, 5) == MetadataAppended(DISK, False, 3, 3)
        assert await tested.append(5, 3, 2) == MetadataAppended(DISK, False, 1, 1)
        assert await tested.append(5, 2, 3) == MetadataAppended(DISK, True, 3, 2)
        with pytest.raises(OffsetsNotContiguous):
            await tested.append(5, 3, 3, change(4, 5, "gap"))
        assert tested.copy.end_offset == 3

    run(main())


def test_a_resend_changes_nothing_and_a_late_one_cuts_nothing() -> None:
    async def main() -> None:
        tested = await voter()
        first, second = change(1, 1, "a"), change(2, 1, "b")
        await tested.append(1, 1, 1, first, second, commit=3)
        assert await tested.append(1, 1, 1, first) == MetadataAppended(DISK, True, 1, 2)
        assert await tested.append(1, 1, 1, first, second, change(3, 1, "c")) == MetadataAppended(DISK, True, 1, 4)
        assert await tested.records() == [Voters(named(ME)), Note("a"), Note("b"), Note("c")]

    run(main())


def test_a_tail_that_another_controller_wrote_is_replaced() -> None:
    async def main() -> None:
        tested = await voter()
        await tested.append(1, 1, 1, change(1, 1, "lost"), change(2, 1, "lost too"), commit=1)
        await tested.append(2, 1, 1, change(1, 2, "a"))
        assert await tested.records() == [Voters(named(ME)), Note("a")]
        tested = await tested.after_power_cut()
        assert await tested.records() == [Voters(named(ME)), Note("a")]

    run(main())


def test_only_what_agrees_with_the_controller_is_committed() -> None:
    async def main() -> None:
        tested = await voter()
        await tested.append(1, 1, 1, change(1, 1, "a"), change(2, 1, "perhaps"))
        await tested.append(2, 2, 1, commit=3)
        assert tested.copy.version == 2
        await tested.append(2, 2, 1, change(2, 2, "b"), commit=3)
        assert [batch.records for batch in tested.committed] == [(Voters(named(ME)),), (Note("a"),), (Note("b"),)]
        assert [(batch.version, batch.epoch) for batch in tested.committed] == [(1, 1), (2, 1), (3, 2)]

    run(main())


def test_nobody_gets_a_committed_batch_replaced(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)

    async def main() -> None:
        tested = await voter()
        await tested.append(1, 1, 1, change(1, 1, "a"), commit=2)
        with pytest.raises(MetadataDiverged):
            await tested.append(2, 1, 1, change(1, 2, "b"))
        assert isinstance(tested.copy.offline.result(), MetadataDiverged)
        with pytest.raises(MetadataCopyOffline):
            await tested.promise(9)

    run(main())


def test_a_record_of_a_newer_raylog_is_not_acknowledged() -> None:
    async def main() -> None:
        tested = await voter()
        newer = encode_batch([b"\xfd\x01\x90"], timestamps=0)
        stamp(newer, 1, 1)
        with pytest.raises(MetadataRecordUnknown):
            await tested.append(1, 1, 1, bytes(newer))
        assert (await tested.append(1, 1, 1, change(1, 1, "a"))).accepted

    run(main())


def test_requests_are_carried_out_in_their_order() -> None:
    async def main() -> None:
        tested = await voter()
        tested.env.slowest = 1.0
        asked = [asyncio.ensure_future(tested.append(1, at, 1, change(at, 1, str(at)))) for at in range(1, 6)]
        promised = asyncio.ensure_future(tested.promise(2))
        assert [(await each).end_offset for each in asked] == [2, 3, 4, 5, 6]
        assert (await promised).end_offset == 6

    run(main())


def test_other_requests_are_refused() -> None:
    async def main() -> None:
        tested = await Subject().open()
        with pytest.raises(MessageUnknown):
            await tested.ask(Done())

    run(main())


# --- reading ------------------------------------------------------------------------------------------------------


def test_the_log_and_the_snapshot_can_be_read() -> None:
    async def main() -> None:
        tested = await voter()
        await tested.install(1, 10, 1, Voters(named(ME)), Note("state"))
        await tested.append(1, 10, 1, change(10, 1, "a"), change(11, 1, "b"))
        read = await tested.ask(ReadMetadata(1, SNAPSHOT, 100))
        assert (read.message, read.payload) == (MetadataRead(10, 1), tested.snapshots[0].data)
        read = await tested.ask(ReadMetadata(1, 11, 1))
        assert (read.message, bytes(read.payload)) == (MetadataRead(11, 1), change(11, 1, "b"))
        with pytest.raises(OffsetOutOfRange):
            await tested.ask(ReadMetadata(1, 9, 100))

    run(main())


# --- what it may have forgotten -------------------------------------------------------------------------------------


async def forgetful_voter() -> Subject:
    """A voter that has lost a batch which it had acknowledged: a bit has flipped in it, and the power was cut."""
    tested = await voter()
    await tested.append(1, 1, 1, change(1, 1, "kept"), commit=2)
    size = len(tested.disk.open(f"{LOG_DIRECTORY}/{0:020}.log").read_at(1 << 20, 0))
    await tested.append(1, 2, 1, change(2, 1, "forgotten"), commit=3)
    tested.disk.flip_bit(f"{LOG_DIRECTORY}/{0:020}.log", 8 * (size + HEADER_BYTES))
    tested = await tested.after_power_cut()
    assert tested.copy.end_offset == 2
    return tested


def test_a_voter_that_lost_what_it_acknowledged_says_so_until_a_controller_has_brought_it_up_to_date() -> None:
    async def main() -> None:
        tested = await forgetful_voter()
        assert (await tested.promise(2)).is_unproven
        tested = await tested.after_power_cut()
        assert (await tested.promise(3)).is_unproven
        await tested.append(3, 2, 1, change(2, 1, "forgotten"), commit=2)  # nothing of epoch 3 is committed yet
        assert (await tested.promise(4)).is_unproven
        await tested.append(4, 3, 1, change(3, 4, "first"), commit=4)
        assert not (await tested.promise(5)).is_unproven
        tested = await tested.after_power_cut()
        assert not (await tested.promise(6)).is_unproven

    run(main())


def test_a_voter_that_does_not_hold_all_that_is_committed_stays_unproven() -> None:
    async def main() -> None:
        tested = await forgetful_voter()
        await tested.append(1, 2, 1, commit=3)
        assert (await tested.promise(2)).is_unproven

    run(main())


@pytest.mark.parametrize("seed", range(5))
def test_a_power_cut_alone_leaves_a_voter_as_good_as_it_was(seed: int) -> None:
    async def main() -> None:
        tested = await voter()
        await tested.append(1, 1, 1, change(1, 1, "a"), change(2, 1, "b"), commit=1)
        tested.disk.crash_machine(Random(seed))
        assert not (await (await Subject(tested.disk).open()).promise(2)).is_unproven

    run(main())


# --- on disk and in memory ----------------------------------------------------------------------------------------


def test_an_observer_keeps_its_log_in_memory() -> None:
    async def main() -> None:
        tested = await Subject().open()
        await tested.append(1, 0, -1, change(0, 1, Voters(named(1, 2)), "a"), commit=2)
        assert not tested.copy.is_durable
        assert not tested.disk.exists(LOG_DIRECTORY)
        assert tested.copy.version == 2

    run(main())


def test_whoever_becomes_a_voter_has_the_whole_log_on_disk_before_it_says_so() -> None:
    async def main() -> None:
        tested = await Subject().open()
        await tested.install(1, 5, 1, Voters(named(1)), Note("state"))
        await tested.append(1, 5, 1, change(5, 1, "a"), change(6, 1, "b"))
        await tested.append(1, 7, 1, change(7, 1, Voters(named(1, ME))))
        assert tested.copy.is_durable
        tested = await tested.after_power_cut()
        assert tested.copy.is_durable
        assert tested.snapshots[0].records == (Voters(named(1)), Note("state"))
        assert await tested.records() == [Note("a"), Note("b"), Voters(named(1, ME))]

    run(main())


def test_a_voter_that_was_removed_goes_on_on_disk() -> None:
    async def main() -> None:
        tested = await voter()
        await tested.append(1, 1, 1, change(1, 1, Voters(named(1))), change(2, 1, "a"))
        tested = await tested.after_power_cut()
        assert await tested.records() == [Voters(named(ME)), Voters(named(1)), Note("a")]
        assert tested.copy.voters == named(1)

    run(main())


def test_what_a_killed_process_left_is_synced_before_it_is_relied_upon() -> None:
    """A batch that was written but not synced is there again, and its resend is acknowledged without writing it."""

    async def main() -> None:
        tested = await voter()
        tested.disk.fail_next("sync", ".log", SimulatedCrash("killed before the sync"))
        with pytest.raises(SimulatedCrash):
            await tested.append(1, 1, 1, change(1, 1, "a"))
        tested.disk.crash_process()
        tested = await Subject(tested.disk).open()
        assert tested.copy.end_offset == 2
        await tested.append(1, 1, 1, change(1, 1, "a"))
        for seed in range(10):
            disk = tested.disk.clone()
            disk.crash_machine(Random(seed))
            assert await (await Subject(disk).open()).records() == [Voters(named(ME)), Note("a")]

    run(main())


def test_a_clean_close_keeps_everything_and_a_closed_copy_does_nothing() -> None:
    async def main() -> None:
        tested = await voter()
        await tested.append(1, 1, 1, change(1, 1, "a"), commit=2)
        await tested.copy.close()
        with pytest.raises(MetadataCopyOffline, match="closed"):
            await tested.promise(4)
        again = await Subject(tested.disk).open()
        assert await again.records() == [Voters(named(ME)), Note("a")]
        assert again.copy.version == 0  # what is committed a controller has to tell

    run(main())


# --- snapshots ----------------------------------------------------------------------------------------------------


def test_a_snapshot_of_what_is_here_cuts_the_log_and_commits_it() -> None:
    async def main() -> None:
        tested = await voter()
        await tested.append(1, 1, 1, change(1, 1, "a"), change(2, 1, "b"))
        assert await tested.install(1, 2, 1, Voters(named(ME)), Note("a")) == MetadataAppended(DISK, True, 1, 2)
        assert not tested.snapshots
        assert [batch.version for batch in tested.committed] == [1, 2]
        assert await tested.install(1, 1, 1, Voters(named(ME))) == MetadataAppended(DISK, True, 1, 1)  # an older one
        assert await tested.records() == [Note("b")]
        tested = await tested.after_power_cut()
        assert (tested.copy.version, tested.copy.voters) == (2, named(ME))
        assert await tested.records() == [Note("b")]

    run(main())


@pytest.mark.parametrize("offset", [2, 50])
def test_a_snapshot_replaces_a_log_that_is_behind_or_disagrees(offset: int) -> None:
    async def main() -> None:
        tested = await voter()
        await tested.append(1, 1, 1, change(1, 1, "lost"), change(2, 1, "lost"), commit=1)
        await tested.install(3, offset, 2, Voters(named(ME)), Note("state"))
        assert [snapshot.version for snapshot in tested.snapshots] == [offset]
        assert (await tested.append(3, offset, 2, change(offset, 3, "a"), commit=offset + 1)).accepted
        assert tested.committed[-1].records == (Note("a"),)
        tested = await tested.after_power_cut()
        assert tested.snapshots[0].records == (Voters(named(ME)), Note("state"))
        assert await tested.records() == [Note("a")]

    run(main())


def test_a_snapshot_that_contradicts_what_is_committed_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)

    async def main() -> None:
        tested = await voter()
        await tested.append(1, 1, 1, change(1, 1, "a", "b"), commit=3)
        with pytest.raises(MetadataDiverged):
            await tested.install(2, 3, 2, Voters(named(ME)))

    run(main())


def test_the_disk_does_not_grow_with_history() -> None:
    async def main() -> None:
        tested = await voter()
        sizes = []
        for at in range(1, 11):
            await tested.append(1, at, 1, change(at, 1, "x" * 10_000), commit=at + 1)
            await tested.install(1, at + 1, 1, Voters(named(ME)))
            sizes.append(tested.disk.used_bytes())
        assert sizes[-1] <= sizes[1] + 1000

    run(main())


def test_a_missing_snapshot_is_damage() -> None:
    async def main() -> None:
        tested = await voter()
        await tested.install(1, 9, 1, Voters(named(ME)))
        await tested.copy.close()
        tested.disk.remove(f"{DATA}/{SNAPSHOT_FILE}")
        with pytest.raises(LogDamaged, match="begins at 9"):
            await Subject(tested.disk).open()

    run(main())


# --- disks that fail ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write_at", "sync"])
def test_after_an_io_error_nothing_is_acknowledged_any_more(
    operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)

    async def main() -> None:
        tested = await voter()
        tested.disk.fail_next(operation, ".log")
        with pytest.raises(DiskFailed):
            await tested.append(1, 1, 1, change(1, 1, "a"))
        assert isinstance(tested.copy.offline.result(), DiskFailed)
        for ask in (tested.append(1, 1, 1), tested.promise(9)):
            with pytest.raises(MetadataCopyOffline):
                await ask
        await tested.copy.close()
        tested.disk.crash_process()
        with pytest.raises(DiskFailed, match="since the machine was booted"):
            await Subject(tested.disk).open()
        tested = await tested.after_power_cut()
        assert (await tested.records())[0] == Voters(named(ME))

    run(main())


def test_a_failure_that_cannot_be_written_down_is_no_less_final(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)

    async def main() -> None:
        tested = await voter()
        tested.disk.fail_next("sync", times=2)
        with pytest.raises(DiskFailed):
            await tested.append(1, 1, 1, change(1, 1, "a"))
        assert tested.copy.offline.done()

    run(main())


def test_a_full_disk_refuses_and_goes_on_when_there_is_space() -> None:
    async def main() -> None:
        tested = await voter()
        tested.disk.fail_next("write_at", ".log", DiskFull("full"), partial=20)
        with pytest.raises(DiskFull):
            await tested.append(1, 1, 1, change(1, 1, "a"), change(2, 1, "b"))
        assert tested.copy.end_offset == 1
        assert (await tested.append(1, 1, 1, change(1, 1, "a"))).accepted
        tested.disk.fail_next("write_at", "metadata-promise", DiskFull("full"))
        with pytest.raises(DiskFull):
            await tested.promise(4)
        assert (await tested.promise(4)).granted
        tested = await tested.after_power_cut()
        assert await tested.records() == [Voters(named(ME)), Note("a")]

    run(main())


async def _live(tested: Subject, done: list[str]) -> None:
    """All that a copy does to its disk; `done` is what it has acknowledged."""
    await tested.open()
    await tested.promise(1)
    done.append("promised 1")
    await tested.append(1, 0, -1, change(0, 1, "a"))
    await tested.append(1, 1, 1, change(1, 1, Voters(named(ME))))
    done.append("a")
    await tested.append(1, 2, 1, change(2, 1, "b"), commit=3)
    done.append("b")
    await tested.append(1, 3, 1, change(3, 1, "lost"))
    await tested.append(2, 3, 1, change(3, 2, "c"))
    done.append("c")
    await tested.install(2, 3, 1, Voters(named(ME)), Note("a"), Note("b"))
    done.append("cut")
    await tested.install(3, 20, 3, Voters(named(ME)), Note("a"), Note("b"), Note("c"), Note("d"))
    done.append("d")
    await tested.append(3, 20, 3, change(20, 3, "e"))
    done.append("e")


@pytest.mark.thorough
@pytest.mark.parametrize("power_cut", [False, True])
def test_what_was_acknowledged_survives_a_crash_at_every_step(power_cut: bool) -> None:
    done: list[str] = []

    def scenario(disk: FaultyDisk) -> None:
        done.clear()

        async def main() -> None:
            await _live(Subject(disk), done)

        run(main())

    async def check(disk: FaultyDisk) -> None:
        tested = await Subject(disk).open()
        notes = [*(tested.snapshots[0].records if tested.snapshots else ()), *await tested.records()]
        texts = [note.text for note in notes if type(note) is Note]
        assert [text for text in done if len(text) == 1] == [text for text in texts if text in done]
        assert ("promised 1" in done) <= (tested.copy.promised_epoch >= 1)
        assert ("c" in done) <= (tested.copy.promised_epoch >= 2)
        end = tested.copy.end_offset
        last = await tested.promise(0)
        assert (await tested.append(9, end, last.last_epoch, change(end, 9, "f"))).accepted

    start = FaultyDisk()
    start.make_directory(DATA)
    start.sync_everything()
    for point in crash_points(start, scenario):
        if power_cut:
            point.disk.crash_machine(Random(point.operation))
        run(check(point.disk))
