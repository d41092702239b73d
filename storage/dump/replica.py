"""One run of the dump, over files, replicas' directories, or a broker's data directory.

It tells what it finds as it finds it, goes on behind whatever is damaged, and takes a living replica as it comes: files
that were listed a moment ago may be gone, and the last batch may be only half written.
"""

from __future__ import annotations

import os.path
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass

from raylog.errors import DiskError
from raylog.storage.directory.data_directory import IDENTITY_FILE
from raylog.storage.directory.partition_directory import CHECKPOINT_FILE, PARTITION_FILE, QUARANTINE_FILE
from raylog.storage.dump.checks import MADE_AGAIN, IndexCheck, check_marks, index_check
from raylog.storage.dump.events import (
    BatchSeen,
    Event,
    FileBegun,
    FileListed,
    Note,
    Problem,
    ReplicaSeen,
    Total,
    Unreadable,
)
from raylog.storage.dump.files import CHECKPOINTS, Replica, SegmentFile, replicas_in, segment_file, what_holds
from raylog.storage.dump.log import DumpOptions, LogDump, Walked
from raylog.storage.dump.sidecars import (
    believed_index,
    checkpoint_events,
    index_events,
    other_file_events,
    snapshot_events,
)
from raylog.storage.segment.producer_state import SNAPSHOT_SUFFIX
from raylog.storage.segment.segment import INDEX_SUFFIXES, LOG_SUFFIX

_NOT_OURS = "it is no file of a replica, going by its name; those are called like 00000000000000000000.log"
_MISSING = {
    PARTITION_FILE: "The file is missing, so it cannot be told whose replica this is.",
    CHECKPOINT_FILE: "The file is missing, so the log cannot be opened.",
}


@dataclass
class Counts:
    """The counts of a run so far."""

    files: int = 0
    batches: int = 0
    records: int = 0
    problems: int = 0
    unreadable: int = 0

    def add(self, event: Event) -> None:
        if isinstance(event, FileBegun):
            self.files += 1
        elif isinstance(event, BatchSeen):
            self.batches += 1
            self.records += event.records
        elif isinstance(event, Problem):
            self.problems += 1
        elif isinstance(event, Unreadable):
            self.unreadable += 1


class Dump:
    """One run. `counts` is right at any moment, also when the reader stops listening half way."""

    def __init__(self, options: DumpOptions) -> None:
        self._options = options
        self._log = LogDump(options)
        self.counts = Counts()

    def events(self, paths: Iterable[str]) -> Iterator[Event]:
        """All that is to be said; with `verify` only what is wrong, and the total."""
        for path in paths:
            for event in self._path(path.rstrip("/") or path):
                self.counts.add(event)
                if not self._options.verify or isinstance(event, (Problem, Unreadable)):
                    yield event
        counts = self.counts
        yield Total("", counts.files, counts.batches, counts.records, counts.problems, counts.unreadable)

    def _path(self, path: str) -> Iterator[Event]:
        try:
            if os.path.isdir(path):
                yield from self._directory(path)
            else:
                directory, name = os.path.split(path)
                yield from self._named_file(Replica(directory or "."), name, path)
        except FileNotFoundError:
            yield Unreadable(path, "there is no such file or directory")
        except DiskError as error:
            yield Unreadable(path, error.describe())

    # --- one file ---

    def _named_file(self, replica: Replica, name: str, path: str) -> Iterator[Event]:
        if name not in replica.names:
            raise FileNotFoundError
        if what_holds(name) is None:
            yield Unreadable(path, _NOT_OURS)
            return
        file = segment_file(name)
        if file is not None and file.kind in INDEX_SUFFIXES and self._options.verify:
            yield from self._compared_alone(replica, file)
        else:
            yield from self._file(replica, name)

    def _compared_alone(self, replica: Replica, file: SegmentFile) -> Iterator[Event]:
        """An index held against its log file, of which nothing else is told."""
        index_path, log = replica.path(file.name), file.beside(LOG_SUFFIX)
        checks = yield from self._checks(replica, [file])
        if checks and replica.size(log.name) is not None:
            yield from (event for event in self._log.events(replica, log, checks) if event.path == index_path)

    def _file(self, replica: Replica, name: str) -> Iterator[Event]:
        file = segment_file(name)
        if name in CHECKPOINTS:
            yield from checkpoint_events(replica, name)
        elif file is None:
            yield from other_file_events(replica, name)
        elif file.kind == LOG_SUFFIX:
            yield from self._log.events(replica, file)
        elif file.kind == SNAPSHOT_SUFFIX:
            yield from snapshot_events(replica, file)
        else:
            yield from index_events(replica, file)

    # --- a directory ---

    def _directory(self, path: str) -> Iterator[Event]:
        replica = Replica(path)
        if IDENTITY_FILE in replica.names:
            yield from checkpoint_events(replica, IDENTITY_FILE)
            for directory in replicas_in(path):
                yield from self._path(directory)
        elif replica.segments or PARTITION_FILE in replica.names:
            yield from self._replica(replica)
        else:
            yield Unreadable(path, "it is no replica's directory: there is no log file in it")

    def _replica(self, replica: Replica) -> Iterator[Event]:
        yield _identity(replica)
        if self._options.wants_all:
            yield from _listing(replica)
            yield from self._checkpoints(replica)
        end = yield from self._segments(replica)
        if self._options.wants_all:
            yield from self._rest(replica)
            if end is not None:
                yield from (_unless_changing(replica, problem) for problem in check_marks(replica, end))

    def _checkpoints(self, replica: Replica) -> Iterator[Event]:
        others = [name for name in replica.names if name not in CHECKPOINTS and segment_file(name) is None]
        for name in (*CHECKPOINTS, *filter(what_holds, others)):
            if name in replica.names:
                yield from self._if_still_there(replica, name, self._file(replica, name))
            elif name in _MISSING:
                yield Problem(replica.path(name), _MISSING[name])

    def _segments(self, replica: Replica) -> Generator[Event, None, int | None]:
        """The segments in use, in their order; returns where the last of them ends."""
        walked: Walked | None = None
        for at, file in enumerate(replica.segments):
            following = replica.segments[at + 1].base_offset if at + 1 < len(replica.segments) else None
            if following is not None and following <= self._options.from_offset:
                continue
            if self._log.is_done:
                return None
            try:
                walked = yield from self._segment(replica, file)
            except (FileNotFoundError, DiskError) as error:
                walked = None
                yield _not_there(replica, file.name, error)
            if following is not None and walked is not None and walked.next_offset != following:
                reason = f"It ends at offset {walked.next_offset}, but the next segment begins at {following}."
                yield _unless_changing(replica, Problem(replica.path(file.name), reason), walked)
        return None if walked is None else walked.next_offset

    def _segment(self, replica: Replica, file: SegmentFile) -> Generator[Event, None, Walked | None]:
        indexes = [file.beside(kind) for kind in INDEX_SUFFIXES]
        checks: list[IndexCheck] = []
        if self._options.verify:
            checks = yield from self._checks(replica, [index for index in indexes if index.name in replica.names])
        walked = yield from self._log.events(replica, file, checks)
        if self._options.wants_all:
            for index in indexes:
                yield from self._index(replica, index, walked)
            yield from self._snapshot(replica, file.beside(SNAPSHOT_SUFFIX).name)
        return walked

    def _index(self, replica: Replica, index: SegmentFile, walked: Walked | None) -> Iterator[Event]:
        if replica.size(index.name) is not None:
            if not self._options.verify:  # then it has been compared with the batches already
                yield from self._if_still_there(replica, index.name, index_events(replica, index))
        elif not replica.is_growing(index.base_offset):
            missing = Problem(replica.path(index.name), "The file is missing.", remedy=MADE_AGAIN)
            yield _unless_changing(replica, missing, walked)

    def _snapshot(self, replica: Replica, name: str) -> Iterator[Event]:
        if name in replica.names:
            yield from self._if_still_there(replica, name, self._file(replica, name))

    def _checks(self, replica: Replica, files: Iterable[SegmentFile]) -> Generator[Event, None, list[IndexCheck]]:
        checks: list[IndexCheck] = []
        for file in files:
            yield FileBegun(replica.path(file.name), replica.size(file.name) or 0, file.holds, file.base_offset)
            try:
                index = yield from believed_index(replica, file)
            except (FileNotFoundError, DiskError) as error:
                yield _not_there(replica, file.name, error)
                continue
            if index is not None and index.fits:
                checks.append(index_check(replica.path(file.name), file.kind, index.rows))
        return checks

    def _rest(self, replica: Replica) -> Iterator[Event]:
        """Files that belong to no segment in use: the snapshot of the last close, and what is on its way in.

        What is on its way out, no opening will look into; the listing names it, and it can be dumped by its own name.
        """
        in_use = {file.base_offset for file in replica.segments}
        for name in replica.names:
            file = segment_file(name)
            if file is None or file.is_left_over or (not file.suffix and file.base_offset in in_use):
                continue
            yield from self._if_still_there(replica, name, self._file(replica, name))

    def _if_still_there(self, replica: Replica, name: str, events: Iterator[Event]) -> Iterator[Event]:
        try:
            yield from events
        except (FileNotFoundError, DiskError) as error:
            yield _not_there(replica, name, error)


def _unless_changing(replica: Replica, problem: Problem, walked: Walked | None = None) -> Event:
    """A problem that a compaction or deletion in a living replica would only feign is none while there is one."""
    replaced = walked is not None and replica.inode(walked.path) != walked.inode
    if not replaced and not replica.is_being_changed():
        return problem
    return Note(problem.path, f"Segments are being compacted or deleted, so this need not be so: {problem.reason}")


def _not_there(replica: Replica, name: str, error: FileNotFoundError | DiskError) -> Event:
    if isinstance(error, DiskError):
        return Unreadable(replica.path(name), error.describe())
    return Note(replica.path(name), "It is gone since the directory was listed.")


def _identity(replica: Replica) -> ReplicaSeen:
    remembered = replica.remembered  # before anything else is looked at
    identity, marks = remembered.get(PARTITION_FILE, {}), remembered.get(CHECKPOINT_FILE, {})
    return ReplicaSeen(
        replica.directory,
        topic=replica.topic,
        partition=identity.get("partition"),
        segments=len(replica.segments),
        log_bytes=sum(replica.size(file.name) or 0 for file in replica.segments),
        log_start_offset=marks.get("log_start_offset"),
        high_watermark=marks.get("high_watermark"),
        recovery_point=marks.get("recovery_point"),
        closed_cleanly=replica.was_closed_cleanly,
        quarantined=QUARANTINE_FILE in replica.names,
    )


def _listing(replica: Replica) -> Iterator[FileListed]:
    for name in replica.names:
        path = replica.path(name)
        try:
            status = replica.disk.status(path)
        except FileNotFoundError:
            continue
        holds = what_holds(name) or "not raylog's"
        yield FileListed(path, status.st_size, int(status.st_mtime * 1000), holds)
