"""The file in each broker's directory that keeps the secrets of its cluster.

    <broker's directory>/cluster-secret    readable by its owner only
        raylog secrets 2
        version 3
        until 1800000000000             when the former ones end, by the wall clock in ms
        internal <hex> [<hex>]          the newest first, then what is still valid
        client <hex> [<hex>]

The file of raylog 1 held one secret in hexadecimal, which every client knew. It counts as no secret, and the next start
draws both.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from raylog.actors.protocol.cluster_secrets import SECRET_BYTES, ClusterSecrets
from raylog.errors import LogDamaged
from raylog.storage.disk.disk import disk_error

SECRET_FILE: Final = "cluster-secret"
_HEADING: Final = "raylog secrets 2"


def read_secrets(directory: str) -> ClusterSecrets | None:
    """Return the secrets in a data directory; None: there are none yet, or only the one of raylog 1."""
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
        return len(bytes.fromhex(text)) == SECRET_BYTES
    except ValueError:
        return False


def _parsed(text: str) -> ClusterSecrets:
    heading, *lines = text.splitlines()
    words = {name: rest for name, *rest in map(str.split, lines)}
    if heading != _HEADING:
        raise ValueError(heading)
    internal, client = (tuple(map(bytes.fromhex, words[name])) for name in ("internal", "client"))
    if not internal or not client or any(len(each) != SECRET_BYTES for each in internal + client):
        raise ValueError("secrets")
    return ClusterSecrets(int(words["version"][0]), internal, client, int(words["until"][0]))


def keep_secrets(directory: str, held: ClusterSecrets) -> None:
    """Write the secrets to a data directory, readable only by its owner from the first byte on (rule 15)."""
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
