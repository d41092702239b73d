"""Reading a copy whole: all of its segments, also the one that grows, and what its replica says to a suspicion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from raylog.actors.broker import copy_check
from raylog.actors.broker.copy_check import check_piece
from raylog.actors.kernel.environment import Environment
from raylog.actors.protocol.copy_check_messages import CheckCopy, CopyChecked
from raylog.errors import LogDamaged, OffsetOutOfRange, OnlyCopyDamaged
from raylog.storage.log.partition_log import PartitionLog
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.unit.actors.metadata_world import run
from tests.unit.storage.small_log import DIRECTORY, append, new_log

TOPIC_ID = b"sixteen bytes id"


class Reader:
    """The controller, and a replica that says the same to every suspicion: an error, or that it is sound there."""

    def __init__(self, disk: FaultyDisk, says: Exception | None = None) -> None:
        self.told: list[int] = []
        self._env = cast(Environment, _Beside(disk))
        self._says = says

    async def read(self, most: int = 200) -> int:
        """Read to the end; returns in how many pieces."""
        place = 0, 0, -1
        for pieces in range(1, most):
            asked = CheckCopy("orders", TOPIC_ID, 0, *place)
            checked: CopyChecked = await check_piece(self._env, DIRECTORY, asked, self._tell)
            if checked.is_through:
                return pieces
            place = checked.base_offset, checked.position, checked.next_offset
        raise AssertionError("it does not end")

    async def _tell(self, topic_id: bytes, partition: int, offset: int) -> None:
        assert (topic_id, partition) == (TOPIC_ID, 0)
        self.told.append(offset)
        if self._says is not None:
            raise self._says


class _Beside:
    def __init__(self, disk: FaultyDisk) -> None:
        self.disk = disk

    async def off_loop(self, work: Callable[[], Any]) -> Any:
        return work()


def filled(count: int = 40) -> tuple[PartitionLog, FaultyDisk]:
    log, disk = new_log({"segment.bytes": 1_000})
    for number in range(count):
        append(log, b"value %d" % number)
    assert len(log.segments) > 2
    return log, disk


def rot(log: PartitionLog, disk: FaultyDisk, offset: int) -> None:
    segment = log.segments.containing(offset)
    place = segment.locate(offset)
    disk.flip_bit(segment.path(".log"), 8 * segment.place_after(place).position - 1)


def test_a_sound_copy_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    log, disk = filled()
    reader = Reader(disk)
    assert run(reader.read()) == len(log.segments)
    monkeypatch.setattr(copy_check, "_PIECE_BYTES", 100)
    assert run(reader.read()) > 2 * len(log.segments)
    assert not reader.told


def test_a_bit_that_has_rotted_anywhere_is_told_and_the_copy_does_not_pass() -> None:
    for offset in range(40):
        log, disk = filled()
        rot(log, disk, offset)
        reader = Reader(disk, OnlyCopyDamaged("orders", 0, offset, offset + 1, "a.log", 0, "rot"))
        with pytest.raises(OnlyCopyDamaged):
            run(reader.read())
        assert reader.told == [offset]


def test_what_is_written_just_now_behind_the_end_is_not_part_of_the_copy() -> None:
    log, disk = filled()
    end = log.log_end_offset
    append(log, b"half of it")
    rot(log, disk, end)
    reader = Reader(disk, OffsetOutOfRange(end, 0, end))
    run(reader.read())
    assert reader.told == [end]


def test_a_segment_that_changed_meanwhile_is_read_from_its_beginning() -> None:
    log, disk = filled()
    rot(log, disk, 12)
    reader = Reader(disk)

    async def mended() -> None:
        base = log.segments.containing(12).base_offset
        asked = CheckCopy("orders", TOPIC_ID, 0, base, 0, -1)
        checked = await check_piece(reader._env, DIRECTORY, asked, reader._tell)
        assert checked == CopyChecked(False, base, 0, -1)

    run(mended())
    assert reader.told == [12]


def test_a_copy_that_is_not_there_does_not_pass() -> None:
    with pytest.raises(LogDamaged, match="no segment"):
        run(Reader(FaultyDisk()).read())


def test_a_log_without_a_segment_passes_where_its_replica_says_that_it_is_empty() -> None:
    _, disk = new_log()
    assert run(Reader(disk, OffsetOutOfRange(0, 0, 0)).read()) == 1


def test_a_log_that_has_lost_its_segment_does_not_pass() -> None:
    log, disk = new_log()
    append(log)
    disk.remove(log.segments.active.path(".log"))
    with pytest.raises(LogDamaged, match="no segment"):
        run(Reader(disk).read())
