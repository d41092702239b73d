"""Where the unix sockets of a cluster's processes on this machine are.

A socket's path has room for 107 bytes, so it cannot be below the data directory. The directory is named after the user,
the cluster and the host, and only its owner can enter it (`streams.private_directory`). A listener's name gives the
same path in every process: so replicas find the next process of their broker where they found the one before.

What must stay true: a socket of another host is never dialled, though two hosts may share a file system, and a network
between them that is cut would not keep it from answering.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import tempfile
from pathlib import Path
from typing import Final

from raylog.actors.streams import private_directory

_MAX_BASE_BYTES: Final = 40  # leaves room for the directory's and the socket's own names
_MAX_NAME: Final = 40
_PLAIN: Final = re.compile(r"[a-zA-Z0-9_-]+")


def socket_directory(cluster_id: str, host: str) -> str:
    """The directory, made if it was missing; `host` is the address of the Ray node. DirectoryNotOurs."""
    user = os.geteuid()
    tag = hashlib.blake2s(f"{cluster_id} {host}".encode(), digest_size=5).hexdigest()
    return private_directory(f"{_base_directory(user)}/raylog-{user}-{tag}")


def socket_path(directory: str, name: str) -> str:
    """The path of the socket of the listener of this name."""
    if len(name) > _MAX_NAME or not _PLAIN.fullmatch(name):
        name = hashlib.blake2s(name.encode(), digest_size=10).hexdigest()
    return f"{directory}/{name}"


def is_of_this_host(path: str, directory: str) -> bool:
    """Whether a socket's path is one of the host of this directory. (The folder around it follows the environment.)"""
    return Path(path).parent.name == Path(directory).name


def remove_dead_sockets(directory: str) -> None:
    """Remove what killed processes have left behind: sockets at which nobody listens any more."""
    for path in Path(directory).iterdir():
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)  # one that is stopped, and whose backlog is full, would hold us for ever
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except (FileNotFoundError, BlockingIOError):
                pass  # its owner has just removed it, or is there and busy


def _base_directory(user: int) -> str:
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir()):
        if base and len(base.encode()) <= _MAX_BASE_BYTES and _is_usable(base, user):
            return base.rstrip("/")
    return "/tmp"


def _is_usable(base: str, user: int) -> bool:
    try:
        found = os.stat(base)
    except OSError:
        return False
    return os.access(base, os.W_OK | os.X_OK) and (found.st_uid == user or bool(found.st_mode & 0o1000))
