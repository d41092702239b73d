"""Short notes that raylog keeps on a machine for its user: which Ray it has started, and where.

They are not in Ray's own folder, which Ray has to make itself so that others can share it. The folder beside it may be
open to all users, so anything may lie there under a note's name.

What must stay true: only a regular file of this user is read or locked. It is opened without following a link and
without waiting, and checked before it is read; a named pipe would wait for a writer for ever.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from raylog.errors import DirectoryNotOurs

_SAFELY: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

_log = logging.getLogger(__name__)


def ray_folder() -> Path:
    """Return the folder in which Ray on this machine keeps its sessions."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or tempfile.gettempdir()
    return Path(folder) / "ray"


def note_path(purpose: str) -> Path:
    return ray_folder().parent / f"raylog-{os.geteuid()}-ray.{purpose}"


def read_note(purpose: str) -> str:
    """Return the text of a note; empty: this user has none."""
    path = note_path(purpose)
    try:
        fd = os.open(path, os.O_RDONLY | _SAFELY)
    except FileNotFoundError:
        return ""
    except OSError as error:  # a link, or another user's
        _log.warning("%s is no note of this user's, and is not believed: %s", path, error)
        return ""
    if not _is_own_file(fd):
        os.close(fd)
        return ""
    with open(fd) as file:
        return file.read().strip()


def open_lock(purpose: str) -> int:
    """Return a descriptor to lock with. DirectoryNotOurs: what lies there is not this user's."""
    path = note_path(purpose)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | _SAFELY, 0o600)
    except OSError as error:
        raise DirectoryNotOurs(str(path.parent), f"{path.name} cannot be opened ({error.strerror})") from error
    if not _is_own_file(fd):
        os.close(fd)
        raise DirectoryNotOurs(str(path.parent), f"{path.name} is another user's, or no file")
    return fd


def write_note(purpose: str, text: str) -> None:
    file = note_path(purpose)
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as opened:
        opened.write(text)
    temporary.replace(file)


def remove_note(purpose: str) -> None:
    note_path(purpose).unlink(missing_ok=True)


def _is_own_file(fd: int) -> bool:
    found = os.fstat(fd)
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
