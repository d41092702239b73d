"""The directory of the unix sockets of a cluster's processes on this machine.

A socket's path has room for 107 bytes, so it cannot be below the data directory. The directory is named after the user,
the cluster's id and the host, and only its owner can enter it (`private_directory`). A listener's name gives the same
path in every process of a cluster. So replicas find the next process of their broker where they found the last one. A
process that is not to be found by name, such as the controller, has a run of its own in its socket's name.

What must stay true:
- A socket of another host is never dialled. Two hosts may share a file system, and then the socket would answer even
  where the network between them is cut.
- The name under which a cluster runs is part of the path: a start under a second name takes no socket from the first.
- A socket that a process listens at is never removed or replaced. A socket gets its name once it is listened at, so one
  that refuses connections under its name is dead.
- Every process holds a shared lock of its cluster's directory for as long as it lives. A directory is removed, by
  another cluster of the same user, under the exclusive lock only: when no process has it any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import socket
import stat
import tempfile
import time
from pathlib import Path
from typing import Final

from raylog.errors import DirectoryNotOurs, SocketInUse

_MAX_BASE_BYTES: Final = 40  # leaves room for the directory's and the socket's own names
_MAX_NAME: Final = 28  # with the tag of the cluster's name: 37; with base and directory: 107, the most there is
_BACKLOG: Final = 100
_PLAIN: Final = re.compile(r"[a-zA-Z0-9_-]+")
_UNNAMED: Final = "."  # how the files of sockets begin that are not listened at yet
_UNNAMED_SECONDS: Final = 60.0  # an older socket without its name was left behind by a process that died
_AS_IT_IS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SWEPT_SECONDS: Final = 0.01  # what another process needs to sweep a directory
_MOST_LOOKS: Final = 50

_held: dict[str, int] = {}  # by path: a descriptor with a shared lock, which is this process's until it ends


def private_directory(path: str) -> str:
    """Make the directory for unix sockets, or check that only its owner can enter an existing one."""
    with contextlib.suppress(FileExistsError):  # what is there is looked at below; it may be gone again, too
        os.makedirs(path, mode=0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise DirectoryNotOurs(path, "others may enter it, and sockets need a directory of mode 0700")
    return path


def socket_directory(cluster_id: str, host: str) -> str:
    """Return the directory, and make it if it is missing. `host`: the address of the Ray node. DirectoryNotOurs."""
    user = os.geteuid()
    tag = hashlib.blake2s(f"{cluster_id} {host}".encode(), digest_size=5).hexdigest()
    path = f"{_base_directory(user)}/raylog-{user}-{tag}"
    _hold(path)
    return path


def socket_path(directory: str, name: str, cluster: str = "") -> str:
    """Return the path of a listener's socket, in the cluster that runs under that name."""
    if len(name) > _MAX_NAME or not _PLAIN.fullmatch(name):
        name = hashlib.blake2s(name.encode(), digest_size=10).hexdigest()
    return f"{directory}/{name}-{hashlib.blake2s(cluster.encode(), digest_size=4).hexdigest()}"


def listening_socket(path: str) -> socket.socket:
    """Return a socket that listens under this path. SocketInUse: another process listens there, and keeps it."""
    made = socket.socket(socket.AF_UNIX)
    unnamed = f"{os.path.dirname(path)}/{_UNNAMED}{secrets.token_hex(8)}"
    try:
        made.bind(unnamed)
        made.listen(_BACKLOG)
        made.setblocking(False)
        _name(unnamed, path)
    except BaseException:
        made.close()
        raise
    finally:
        Path(unnamed).unlink(missing_ok=True)
    return made


def _name(unnamed: str, path: str) -> None:
    try:
        os.link(unnamed, path)
    except FileExistsError:
        if not is_dead(path):
            raise SocketInUse(path) from None
        os.rename(unnamed, path)


def is_dead(path: str) -> bool:
    """Return whether no process listens at this socket any more."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # one that is stopped, and whose backlog is full, would hold us for ever
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        except BlockingIOError:
            return False
    return False


def is_of_this_host(path: str, directory: str) -> bool:
    """Return whether a socket's path belongs to the host of this directory. The folder around it may differ."""
    return Path(path).parent.name == Path(directory).name


def remove_dead_sockets(directory: str) -> None:
    """Remove sockets that killed processes have left behind: those that no process listens at."""
    for path in Path(directory).iterdir():
        if path.is_socket() and is_dead(str(path)) and not _may_be_named_yet(path):
            path.unlink(missing_ok=True)


# --- the directories of clusters that run no more -----------------------------------------------------------------


def sweep_beside(directory: str) -> None:
    """Remove directories of other clusters of this user that no process holds any more."""
    mine = Path(directory)
    name = re.compile(rf"raylog-{os.geteuid()}-[0-9a-f]{{10}}")
    for each in mine.parent.iterdir():
        if each != mine and name.fullmatch(each.name):
            with contextlib.suppress(OSError):  # it is in use, or going, or more lies in it than sockets
                _sweep(str(each))


def _sweep(path: str) -> None:
    fd = os.open(path, _AS_IT_IS)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_still(path, fd) and os.fstat(fd).st_uid == os.geteuid():
            remove_dead_sockets(path)
            os.rmdir(path)
    finally:
        os.close(fd)


def _hold(path: str) -> None:
    """Make the directory if it is missing, and keep it from being swept while this process lives.

    Without the lock where it cannot be had: a file system may have none, or a process that sweeps be stopped.
    """
    if path in _held and _is_still(path, _held[path]):
        return
    for _ in range(_MOST_LOOKS):
        try:
            fd = os.open(private_directory(path), _AS_IT_IS)
        except FileNotFoundError:  # swept just now
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if _is_still(path, fd):
                _held[path] = os.dup(fd)
                return
        except BlockingIOError:
            time.sleep(_SWEPT_SECONDS)
        except OSError:
            return
        finally:
            os.close(fd)


def _is_still(path: str, fd: int) -> bool:
    """Return whether this is still the directory of that path: it may have been removed and made anew."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _may_be_named_yet(path: Path) -> bool:
    if not path.name.startswith(_UNNAMED):
        return False
    try:
        return time.time() - path.stat().st_mtime < _UNNAMED_SECONDS
    except FileNotFoundError:  # it has its name now
        return True


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
