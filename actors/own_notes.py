"""Short notes that raylog keeps on a machine for its user: which Ray a program of ours has started, and where.

Ray's own folder is not the place: Ray has to make it itself for others to share it. The folder beside it may be open to
everybody, so a note that is not this user's is not believed, and no link is followed.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def ray_folder() -> Path:
    """Where Ray on this machine keeps its sessions."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or tempfile.gettempdir()
    return Path(folder) / "ray"


def note_path(purpose: str) -> Path:
    return ray_folder().parent / f"raylog-{os.geteuid()}-ray.{purpose}"


def read_note(purpose: str) -> str:
    """Empty: there is none of this user's."""
    try:
        fd = os.open(note_path(purpose), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    with open(fd) as file:
        return file.read().strip() if os.fstat(fd).st_uid == os.geteuid() else ""


def write_note(purpose: str, text: str) -> None:
    file = note_path(purpose)
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as opened:
        opened.write(text)
    temporary.replace(file)


def remove_note(purpose: str) -> None:
    note_path(purpose).unlink(missing_ok=True)
