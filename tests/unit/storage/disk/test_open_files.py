"""Files that are closed while nobody uses them, and opened again."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from raylog.errors import DiskFailed
from raylog.storage.disk.local_disk import LocalDisk
from raylog.storage.disk.open_files import OpenFiles, ReopenedFile
from raylog.storage.log.reader import Isolation
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.unit.storage.small_log import append, new_log


class _Kept:
    """Files 0, 1, 2, … that hold their number."""

    def __init__(self, folder: Path, count: int, most_idle: int) -> None:
        self.disk = LocalDisk()
        self.files = OpenFiles(most_idle)
        self.folder = folder
        self.kept = [self._keep(number) for number in range(count)]

    def _keep(self, number: int) -> ReopenedFile:
        path = str(self.folder / str(number))
        file = self.disk.open(path, create=True)
        file.write_at(b"%d" % number, 0)
        return self.files.keep(file, self.disk.open)

    def count_open(self) -> int:
        """Count what the process really has open in the folder."""
        held = (os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd))
        return sum(path.startswith(str(self.folder)) for path in held)


def _is_open(fd: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{fd}")


def test_no_more_stay_open_than_may_and_all_can_be_read(tmp_path: Path) -> None:
    case = _Kept(tmp_path, 10, 3)
    for _ in range(2):
        for number, file in enumerate(case.kept):
            assert file.read_at(10, 0) == b"%d" % number
            assert case.count_open() == len(case.files) == 3


def test_those_used_last_stay_open(tmp_path: Path) -> None:
    case = _Kept(tmp_path, 3, 2)
    case.kept[1].size()
    case.kept[0].size()
    assert [file.is_idle for file in case.kept] == [True, True, False]


def test_a_file_in_use_is_not_closed(tmp_path: Path) -> None:
    case = _Kept(tmp_path, 1, 0)
    with case.kept[0]._lent() as file:
        for _ in range(3):
            case._keep(1)
        assert file.read_at(10, 0) == b"0"
    assert case.count_open() == 0


def test_many_threads_read_what_is_theirs(tmp_path: Path) -> None:
    case = _Kept(tmp_path, 8, 2)
    wrong: list[bytes] = []

    def read(number: int) -> None:
        for turn in range(300):
            at = (number + turn) % 8
            data = case.kept[at].read_at(10, 0)
            if data != b"%d" % at:
                wrong.append(data)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert case.count_open() <= 2


def test_a_closed_file_is_closed_for_good_and_not_before_its_last_user_is_done(tmp_path: Path) -> None:
    case = _Kept(tmp_path, 1, 4)
    with case.kept[0]._lent() as file:
        case.kept[0].close()
        assert file.read_at(10, 0) == b"0"
    assert case.count_open() == 0
    with pytest.raises(DiskFailed):
        case.kept[0].read_at(1, 0)


def test_a_renamed_file_is_found_and_another_of_its_name_is_not_taken_for_it(tmp_path: Path) -> None:
    case = _Kept(tmp_path, 1, 0)
    case.disk.rename(str(tmp_path / "0"), str(tmp_path / "0.deleted"))
    case.kept[0].moved_to(str(tmp_path / "0.deleted"))
    assert case.kept[0].read_at(10, 0) == b"0"
    (tmp_path / "other").write_bytes(b"other")
    case.disk.rename(str(tmp_path / "other"), str(tmp_path / "0.deleted"))
    with pytest.raises(FileNotFoundError):
        case.kept[0].read_at(10, 0)


def test_what_is_written_is_synced_for_nobody_may_do_that_later() -> None:
    disk = FaultyDisk()
    file = OpenFiles(0).keep(disk.open("/file", create=True), disk.open)
    file.write_at(b"data", 0)
    disk.fail_next("sync", "/file")
    with pytest.raises(DiskFailed):
        file.write_at(b"more", 4)
    assert file.read_at(4, 0) == b"data"


def test_a_file_that_is_taken_out_stays_open(tmp_path: Path) -> None:
    case = _Kept(tmp_path, 2, 0)
    file = case.kept[0].taken_out()
    case.kept[1].size()
    assert file.read_at(10, 0) == b"0"
    assert case.count_open() == 1
    file.close()


def test_a_log_keeps_its_growing_segment_open_and_few_others() -> None:
    log, disk = new_log({"segment.bytes": 300})
    for _ in range(20):
        append(log, b"v" * 100)
    assert len(disk._open) > 10  # nothing is synced yet
    log.flush()
    assert len(disk._open) <= 3
    assert log.read(0, 10_000, Isolation.LOG_END).data
    append(log, b"more")
    end = log.log_end_offset
    log.truncate_to(2, 0)
    assert append(log, b"again") is not None
    log.close()
    assert not disk._open
    assert end > 2
