"""Notes in a folder that others may write in: whatever lies there under a note's name, nobody waits for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from raylog.actors.on_ray.runtime.own_notes import note_path, open_lock, read_note, remove_note, write_note
from raylog.errors import DirectoryNotOurs

_STRANGER = 12345


@pytest.fixture(autouse=True)
def shared_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_text("10.0.0.1:6379")
    path.symlink_to(target)


def a_directory(path: Path) -> None:
    path.mkdir()


def test_a_note_is_read_until_it_is_removed() -> None:
    assert read_note("address") == ""
    write_note("address", "10.0.0.1:6379")
    write_note("address", "10.0.0.2:6379")
    assert read_note("address") == "10.0.0.2:6379"
    assert note_path("address").stat().st_mode & 0o777 == 0o600
    remove_note("address")
    assert read_note("address") == ""


@pytest.mark.timeout(10)
@pytest.mark.parametrize("put", [a_pipe, a_link, a_directory])
def test_what_is_no_note_is_neither_believed_nor_waited_for(put: Callable[[Path], None]) -> None:
    put(note_path("address"))
    assert read_note("address") == ""


def test_a_strangers_note_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: _STRANGER)
    note_path("address").write_text("10.0.0.1:6379")
    assert read_note("address") == ""


@pytest.mark.timeout(10)
@pytest.mark.parametrize("put", [a_pipe, a_link, a_directory])
def test_what_is_no_file_of_this_users_is_not_locked(put: Callable[[Path], None]) -> None:
    put(note_path("lock"))
    with pytest.raises(DirectoryNotOurs, match=r"ray\.lock"):
        open_lock("lock")


def test_a_lock_is_made_where_there_is_none() -> None:
    os.close(open_lock("lock"))
    os.close(open_lock("lock"))
    assert note_path("lock").stat().st_mode & 0o777 == 0o600
