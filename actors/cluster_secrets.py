"""The secrets of a cluster, which whoever opens a stream has to prove to hold (`admission.py`), and their files.

    internal    brokers, replicas, housekeepers, coordinators, the controller
    client      producers, consumers, Spark's workers; and all of the former, to admit them

Both are drawn when the cluster is formed, and again when somebody asks for it (`secret_rotation.py`): from then on the
new ones are dialled with, and for a while both are taken. A set has a version, and of two sets the one with the higher
version counts, wherever they meet: in a process, on disk, in what a new process is told.

    <broker's directory>/cluster-secret    readable by its owner only
        raylog secrets 2
        version 3
        until 1800000000000             when the former ones end, by the wall clock in ms
        internal <hex> [<hex>]          the newest first, then what is still valid
        client <hex> [<hex>]

The file of raylog 1 held one secret in hexadecimal, which every client knew: it is read as no secret at all, and the
next start draws both. Over the network secrets go through Ray, and over streams that have proved to be internal.
Nothing prints them: the `repr` of a set, and so every log line and traceback that shows one, is empty of them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raylog.actors.admission import Key, Standing
from raylog.errors import LogDamaged
from raylog.storage.disk import disk_error

SECRET_FILE: Final = "cluster-secret"
_HEADING: Final = "raylog secrets 2"
_SECRET_BYTES: Final = 32


@dataclass(frozen=True, repr=False)
class ClusterSecrets:
    """A set. The newest of each kind stands first; a client's set has no internal ones."""

    version: int
    internal: tuple[bytes, ...]
    client: tuple[bytes, ...]
    previous_until_ms: int = 0

    @classmethod
    def draw(cls) -> ClusterSecrets:
        return cls(1, (_draw(),), (_draw(),))

    def __repr__(self) -> str:
        return f"ClusterSecrets(version={self.version}, ...)"

    @property
    def keys(self) -> tuple[Key, ...]:
        """All that are valid."""
        return (
            *(Key(Standing.INTERNAL, each) for each in self.internal),
            *(Key(Standing.CLIENT, each) for each in self.client),
        )

    @property
    def own_keys(self) -> tuple[Key, ...]:
        """What its holder dials with, the newest first."""
        if self.internal:
            return tuple(Key(Standing.INTERNAL, each) for each in self.internal)
        return tuple(Key(Standing.CLIENT, each) for each in self.client)

    @property
    def has_previous(self) -> bool:
        return len(self.internal) > 1 or len(self.client) > 1

    def rotated(self, until_ms: int) -> ClusterSecrets:
        """New ones, and until then the newest of these beside them."""
        return ClusterSecrets(
            self.version + 1, (_draw(), *self.internal[:1]), (_draw(), *self.client[:1]), until_ms
        )

    def without_previous(self) -> ClusterSecrets:
        return ClusterSecrets(self.version + 1, self.internal[:1], self.client[:1])

    def for_clients(self) -> ClusterSecrets:
        """What a client may hold."""
        return ClusterSecrets(self.version, (), self.client, self.previous_until_ms)


def _draw() -> bytes:
    return secrets.token_bytes(_SECRET_BYTES)


class KeyRing:
    """What a process holds just now. `on_change` is called when that becomes another set."""

    def __init__(self, held: ClusterSecrets, on_change: Callable[[], None] = lambda: None) -> None:
        self._held = held
        self._on_change = on_change

    @property
    def secrets(self) -> ClusterSecrets:
        return self._held

    def keys(self) -> tuple[Key, ...]:
        return self._held.keys

    def adopt(self, found: ClusterSecrets) -> bool:
        """Take over a later set. Whether it is one."""
        if found.version <= self._held.version:
            return False
        self._held = found
        self._on_change()
        return True


def read_secrets(directory: str) -> ClusterSecrets | None:
    """Those that lie in a data directory; None where there are none (yet), or the one of raylog 1."""
    path = Path(directory) / SECRET_FILE
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_error(error, f"Reading {path}") from error
    except ValueError:
        text = ""
    if _is_of_version_1(text):
        return None
    try:
        return _parsed(text)
    except (ValueError, KeyError):
        what = "it holds no secrets; without the file the next start draws new ones"
        raise LogDamaged(str(path), 0, what) from None


def _is_of_version_1(text: str) -> bool:
    try:
        return len(bytes.fromhex(text)) == _SECRET_BYTES
    except ValueError:
        return False


def _parsed(text: str) -> ClusterSecrets:
    heading, *lines = text.splitlines()
    words = {name: rest for name, *rest in map(str.split, lines)}
    if heading != _HEADING:
        raise ValueError(heading)
    internal, client = (tuple(map(bytes.fromhex, words[name])) for name in ("internal", "client"))
    if not internal or not client or any(len(each) != _SECRET_BYTES for each in internal + client):
        raise ValueError("secrets")
    return ClusterSecrets(int(words["version"][0]), internal, client, int(words["until"][0]))


def keep_secrets(directory: str, held: ClusterSecrets) -> None:
    """Let them lie in a data directory, readable by its owner only from the first byte on (rule 15)."""
    path = Path(directory) / SECRET_FILE
    temporary = path.with_name(SECRET_FILE + ".tmp")
    try:
        temporary.unlink(missing_ok=True)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w") as file:
            file.write(_text(held))
            file.flush()
            os.fsync(fd)
        temporary.replace(path)
        _sync_directory(directory)
    except OSError as error:
        raise disk_error(error, f"Writing {path}") from error


def _text(held: ClusterSecrets) -> str:
    internal, client = (" ".join(each.hex() for each in kind) for kind in (held.internal, held.client))
    return (
        f"{_HEADING}\nversion {held.version}\nuntil {held.previous_until_ms}\ninternal {internal}\nclient {client}\n"
    )


def _sync_directory(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
