"""The data directories of one node's brokers, as found on its disk before any broker runs.

    <data dir>/broker-0/   one broker's directory each (`storage.directory`), numbered from 0 on this node; the
    <data dir>/broker-1/   number is only a name, which broker it is stands in its broker.json

What must stay true:
- Nothing that is written here stays, and no existing directory is left out silently.
- Two directories are never taken for the same broker's: a copy would vote and serve with outdated data.
- A running cluster is not started under a second name: two controllers would make its brokers.
- A formation is continued only where no data were ever kept. Data belong to a cluster that was formed.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raylog.actors.machine.secret_files import SECRET_FILE, read_secrets
from raylog.actors.metadata_log.files import PROMISE_FILE
from raylog.actors.on_ray.directory_holder import Holder, holder_of
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.errors import (
    BrokersLeftOut,
    ClusterRunsAlready,
    DirectoryCopied,
    DirectoryLocked,
    DirectoryNotMade,
    DirectoryNotOurs,
    DiskReadOnly,
    InvalidConfig,
    WrongCluster,
)
from raylog.storage.directory.data_directory import IDENTITY_FILE, DataDirectory
from raylog.storage.directory.partition_directory import LOCK_FILE
from raylog.storage.disk.checkpoints import TEMPORARY_SUFFIX

MAX_BROKERS_PER_NODE: Final = 100
ENDING_SECONDS: Final = 3.0  # that a process may take to let go of its directory
_LOOK_SECONDS: Final = 0.05
_OF_BLANK_BROKERS: Final = frozenset({IDENTITY_FILE, LOCK_FILE, SECRET_FILE, PROMISE_FILE})
_NAME: Final = re.compile(r"broker-(\d+)")


@dataclass(frozen=True)
class FoundDirectory:
    """A broker's directory. Where it is blank or missing, `cluster_id` is empty and `broker_id` −1."""

    path: str
    cluster_id: str = ""
    broker_id: int = -1
    first_voters: tuple[int, ...] = ()  # with whom it was to form the cluster
    holds_data: bool = False
    holder: Holder | None = None  # the process that has it open

    @property
    def is_blank(self) -> bool:
        return not self.cluster_id


def find_directories(data_dir: str, brokers: int | None) -> tuple[FoundDirectory, ...]:
    """Return the directories of `brokers` brokers below `data_dir`; None: of as many as exist, and at least one.

    BrokersLeftOut where there are more, DirectoryNotOurs, DirectoryCopied, LogDamaged.
    """
    if brokers is not None and not 1 <= brokers <= MAX_BROKERS_PER_NODE:
        raise InvalidConfig("brokers", brokers, f"a number from 1 to {MAX_BROKERS_PER_NODE}")
    there = _numbers_in(data_dir)
    if brokers is not None and len(there) > brokers:
        raise BrokersLeftOut(data_dir, len(there), brokers)
    wanted = max(brokers or 1, len(there))
    unused = (number for number in range(MAX_BROKERS_PER_NODE) if number not in there)
    numbers = sorted(there) + [next(unused) for _ in range(wanted - len(there))]
    found = tuple(_look_at(f"{data_dir}/broker-{number}") for number in sorted(numbers))
    check_no_copies((each.path, each) for each in found)
    return found


def check_no_copies(found: Iterable[tuple[str, FoundDirectory]]) -> None:
    """Check pairs of (where, directory). DirectoryCopied: two are the same broker's."""
    owners: dict[tuple[str, int], str] = {}
    for where, each in found:
        other = owners.setdefault((each.cluster_id, each.broker_id), where)
        if other != where and not each.is_blank:
            raise DirectoryCopied(each.broker_id, where, other)


def check_runs_as(name: str, found: Iterable[tuple[str, FoundDirectory]]) -> None:
    """Check pairs of (where, directory). ClusterRunsAlready: a process has one for a cluster of another name.

    A process of the same name, or one that has not said its name yet, may be ending: its lock tells in the end.
    """
    for where, each in found:
        if each.holder is not None and each.holder.cluster not in ("", name):
            raise ClusterRunsAlready(name, each.holder.cluster, f"{where} (process {each.holder.pid})")


def check_writable(data_dir: str, found: Iterable[FoundDirectory]) -> None:
    """Check that brokers can run on this node, in these directories below `data_dir`.

    DirectoryNotMade, DiskReadOnly where they could keep nothing there.
    """
    _check_place(Path(data_dir).absolute())
    for each in found:
        if os.path.isdir(each.path):
            _check_access(each.path)


def _check_place(path: Path) -> None:
    """Return whether that directory exists, or can be made, and directories can be made in it."""
    try:
        place = path
        while not place.exists() and place != place.parent:
            place = place.parent
        if place.is_dir():
            _check_access(str(place))
        if place != path:
            os.rmdir(tempfile.mkdtemp(prefix=".raylog-", dir=place))
    except OSError as error:
        raise DirectoryNotMade(str(path), error.strerror or str(error)) from error


def _check_access(path: str) -> None:
    if not os.access(path, os.W_OK | os.X_OK):
        raise DiskReadOnly(f"Brokers may not write in {path}.")


def check_free(found: Iterable[FoundDirectory], patience: float = ENDING_SECONDS) -> None:
    """Raise DirectoryLocked where a process has one of them, for longer than an ending process would."""
    deadline = time.monotonic() + patience
    for each in found:
        while (holder := holder_of(each.path)) is not None:
            if time.monotonic() >= deadline:
                raise DirectoryLocked(each.path, str(holder))
            time.sleep(_LOOK_SECONDS)


def cluster_of(directories: tuple[FoundDirectory, ...]) -> str | None:
    """Return the cluster that they belong to; None: all are blank. WrongCluster: they are of several."""
    owners = {found.cluster_id: found.path for found in directories if not found.is_blank}
    if len(owners) > 1:
        first, second, *_ = owners
        raise WrongCluster(owners[second], f"cluster {second}", f"cluster {first}, as {owners[first]}")
    return next(iter(owners), None)


def interrupted_formation(directories: tuple[FoundDirectory, ...]) -> tuple[int, ...]:
    """Return the first voters of a formation that was interrupted before its log began; empty: there is none."""
    claimed = [found for found in directories if not found.is_blank]
    plans = {found.first_voters for found in claimed}
    if len(plans) != 1 or any(found.holds_data for found in claimed):
        return ()
    return plans.pop()


def secrets_in(directories: tuple[FoundDirectory, ...]) -> ClusterSecrets | None:
    """Return the newest secrets in any of them; None: there are none."""
    found = filter(None, (read_secrets(each.path) for each in directories if not each.is_blank))
    return max(found, key=lambda each: each.version, default=None)


def _numbers_in(data_dir: str) -> set[int]:
    folder = Path(data_dir)
    if (folder / IDENTITY_FILE).exists():
        raise DirectoryNotOurs(data_dir, "it is the directory of a single broker; give the one it is in")
    if not folder.exists():
        return set()
    if not folder.is_dir():
        raise DirectoryNotOurs(data_dir, "it is a file")
    matches = [_NAME.fullmatch(entry.name) for entry in folder.iterdir()]
    return {int(match[1]) for match in matches if match}


def _look_at(path: str) -> FoundDirectory:
    identity = DataDirectory.read_identity(path)
    if identity is None:
        return FoundDirectory(path)
    broker, claim = identity.broker, identity.claim
    return FoundDirectory(
        path, broker.cluster_id, broker.broker_id, claim.first_voters, _holds_data(path), holder_of(path)
    )


def _holds_data(path: str) -> bool:
    """Return whether it holds more than a broker leaves there that has not taken part in anything yet."""
    names = (entry.name for entry in Path(path).iterdir())
    return any(name not in _OF_BLANK_BROKERS and not name.endswith(TEMPORARY_SUFFIX) for name in names)
