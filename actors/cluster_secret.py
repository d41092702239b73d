"""The secret of a cluster, which whoever opens a stream has to prove to hold (`admission.py`).

Drawn once, when the cluster is formed. It lies beside `broker.json` in each data directory, in a file that only its
owner can read, so that a start from the disks finds the same one; over the network it goes through Ray alone. Nothing
prints it: the `repr` of a secret, and so every log line and traceback that shows one, is empty of it.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from raylog.errors import LogDamaged
from raylog.storage.disk import disk_error

SECRET_FILE: Final = "cluster-secret"
_SECRET_BYTES: Final = 32


class ClusterSecret:
    """The bytes, kept from view."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        self.value = value

    @classmethod
    def draw(cls) -> ClusterSecret:
        return cls(secrets.token_bytes(_SECRET_BYTES))

    def __repr__(self) -> str:
        return "ClusterSecret(...)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSecret) and secrets.compare_digest(self.value, other.value)

    __hash__ = None  # type: ignore[assignment]  # nothing needs one, and it would show some of the bits


def read_secret(directory: str) -> ClusterSecret | None:
    """The secret that lies in a data directory; None where there is none (yet)."""
    path = Path(directory) / SECRET_FILE
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_error(error, f"Reading {path}") from error
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if len(value) != _SECRET_BYTES:
        raise LogDamaged(str(path), 0, "it is not a secret; without the file the next start draws a new one")
    return ClusterSecret(value)


def keep_secret(directory: str, secret: ClusterSecret) -> None:
    """Let it lie in a data directory, readable by its owner only from the first byte on (rule 15)."""
    path = Path(directory) / SECRET_FILE
    temporary = path.with_name(SECRET_FILE + ".tmp")
    try:
        temporary.unlink(missing_ok=True)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w") as file:
            file.write(secret.value.hex())
            file.flush()
            os.fsync(fd)
        temporary.replace(path)
        _sync_directory(directory)
    except OSError as error:
        raise disk_error(error, f"Writing {path}") from error


def _sync_directory(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
