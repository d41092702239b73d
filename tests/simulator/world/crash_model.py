"""The remains of a power cut: the bytes of files (`FileImage`) and the names in directories (`NameTree`).

Each keeps the present state and the changes to it that were not synced. Syncing forgets those changes and
copies nothing; only a crash has to look at bytes. What stays true:

Bytes of one file
- What was synced and not overwritten since is there after any crash.
- Un-synced changes of a file are, as the seed has it, all lost, all kept, or torn. Torn means: each
  512-byte sector holds any of its versions since the last sync, whatever its neighbours hold; the length is
  the one after any prefix of the changes (so a truncation may not have happened although a later write
  reached the disk), or one within a growing write.
- Where the length survived and the sector did not, zeros are read: never the bytes of another file, and
  never bytes that a surviving truncation had cut off.
- After a failed sync (`fail_sync`) the pages count as clean. They are still read from the cache, a later
  sync does not write them, and a power cut loses them; a later write to the same sector writes that sector
  as it then is.

Names
- Creating, renaming and removing are each atomic: a rename over a file leaves the old or the new one, never
  neither.
- A change of names is sure once every directory it touched has been synced (a rename touches two). A
  directory's own name belongs to its parent.
- `ordered` (a journalling file system): a prefix of the un-synced changes survives, and what is sure makes
  all before it sure. Otherwise (worst case) each change survives or not on its own, except that it needs
  the earlier ones of the same name or the same file.
- Names and bytes do not wait for each other: a synced name may point to an empty file.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple, TypeAlias

from raylog.storage.format.record_batch import Bytes

SECTOR_BYTES: Final = 512
ROOT: Final = 1

# Of 1: below the first all is lost, from there to the second all is kept, the rest is torn.
_ALL_LOST: Final = 0.2
_ALL_KEPT: Final = 0.4


class _Fate(enum.Enum):
    OPEN = "the next sync or crash decides"
    SYNCED = "on the disk, but an earlier change is lost, so it cannot be forgotten yet"
    LOST = "a sync of it failed"


class _Change(NamedTuple):
    """One un-synced write or truncation, with what it takes to undo it."""

    start: int
    end: int  # start, where nothing was written (a truncation)
    undone: bytes  # what stood at `start` before
    old_length: int
    new_length: int
    fate: _Fate = _Fate.OPEN


_Sectors: TypeAlias = dict[int, tuple[int, bytes]]


class FileImage:
    """The bytes of one file."""

    __slots__ = ("_changes", "_content", "_shared", "_snapshot", "allocated")

    def __init__(self) -> None:
        self._content = bytearray()
        self._shared = False  # with a clone: copy before the first change
        self._snapshot: bytes | None = b""
        self._changes: list[_Change] = []
        self.allocated = 0  # bytes of disk taken: up to the highest byte written, as a sparse file takes them

    def clone(self) -> FileImage:
        other = FileImage()
        other._content = self._content
        other._shared = self._shared = True
        other._snapshot = self._snapshot
        other._changes = self._changes.copy()
        other.allocated = self.allocated
        return other

    # --- the page cache ---

    def __len__(self) -> int:
        return len(self._content)

    def read(self, length: int, position: int) -> bytes:
        with memoryview(self._content) as view:
            return bytes(view[position : position + length])

    def snapshot(self) -> bytes:
        if self._snapshot is None:
            self._snapshot = bytes(self._content)
        return self._snapshot

    def write(self, data: Bytes, position: int) -> None:
        if not data:
            return
        content = self._writable()
        old_length, end = len(content), position + len(data)
        undone = b""
        if position < old_length:
            inside = min(end, old_length) - position
            undone = self._overwrite(data, position, inside)
            data = memoryview(data)[inside:]
        else:
            content += bytes(position - old_length)
        content += data
        self.allocated = max(self.allocated, end)
        self._changes.append(_Change(position, end, undone, old_length, len(content)))

    def _overwrite(self, data: Bytes, position: int, length: int) -> bytes:
        with memoryview(self._content) as view:
            undone = bytes(view[position : position + length])
            view[position : position + length] = memoryview(data)[:length]
        return undone

    def truncate(self, length: int) -> None:
        content = self._writable()
        old_length = len(content)
        start = min(length, old_length)
        undone = bytes(content[length:])
        _set_length(content, length)
        self.allocated = min(self.allocated, length)
        self._changes.append(_Change(start, start, undone, old_length, length))

    def flip_bit(self, bit: int) -> None:
        """Rot: in the cache and on the disk alike, and no change that anyone could sync."""
        self._writable()[bit // 8] ^= 1 << bit % 8

    def _writable(self) -> bytearray:
        self._snapshot = None
        if self._shared:
            self._content = bytearray(self._content)
            self._shared = False
        return self._content

    # --- the disk ---

    def sync(self) -> None:
        if self._has_lost():
            self._decide(_Fate.SYNCED)
        else:
            self._changes.clear()

    def fail_sync(self) -> None:
        self._decide(_Fate.LOST)

    def _has_lost(self) -> bool:
        return any(change.fate is _Fate.LOST for change in self._changes)

    def _decide(self, fate: _Fate) -> None:
        self._changes = [
            change._replace(fate=fate) if change.fate is _Fate.OPEN else change for change in self._changes
        ]

    def crash(self, rng: Random) -> None:
        """Become what a power cut leaves."""
        if self._changes:
            self._survive(rng, rng.random())
            self._changes = []
            self.allocated = len(self._content)

    def _survive(self, rng: Random, outcome: float) -> None:
        lengths = [self._changes[0].old_length, *(change.new_length for change in self._changes)]
        synced = (state for state, change in enumerate(self._changes, 1) if change.fate is _Fate.SYNCED)
        sure = max(synced, default=0)
        if outcome < _ALL_LOST:
            chance, state, length = 0.0, sure, lengths[sure]
        elif outcome < _ALL_KEPT:
            if not self._has_lost():
                return
            chance, state, length = 1.0, len(self._changes), lengths[-1]
        else:
            chance = rng.choice((0.0, 1.0, rng.random(), rng.random(), rng.random()))
            state = rng.randint(sure, len(self._changes))
            length = self._torn_length(rng, lengths[state], state)
        sectors = self._undo_all(rng, chance)
        self._rebuild(sectors, _cuts(lengths, state), length)

    def _torn_length(self, rng: Random, length: int, state: int) -> int:
        """The length after so many changes, or a part of what the next one, a growing write, adds to it."""
        if state < len(self._changes):
            following = self._changes[state]
            if following.end > length and rng.random() < 0.5:
                return rng.randint(length, following.end)
        return length

    def _undo_all(self, rng: Random, chance: float) -> _Sectors:
        """Go back to the last sync; on the way pick versions of sectors: sector -> (its state, its bytes)."""
        content = self._writable()
        sectors: _Sectors = {}
        for state in range(len(self._changes), 0, -1):
            change = self._changes[state - 1]
            if change.fate is not _Fate.LOST:
                self._pick_sectors(sectors, state, rng, 1.0 if change.fate is _Fate.SYNCED else chance)
            _set_length(content, min(change.old_length, len(content)))
            content[change.start : change.start + len(change.undone)] = change.undone
        return sectors

    def _pick_sectors(self, sectors: _Sectors, state: int, rng: Random, chance: float) -> None:
        change = self._changes[state - 1]
        if chance == 0.0 or change.start == change.end:
            return
        for sector in range(change.start // SECTOR_BYTES, (change.end - 1) // SECTOR_BYTES + 1):
            if sector not in sectors and (chance == 1.0 or rng.random() < chance):
                sectors[sector] = state, self.read(SECTOR_BYTES, sector * SECTOR_BYTES)

    def _rebuild(self, sectors: _Sectors, cuts: list[int], length: int) -> None:
        content = self._writable()
        _set_length(content, min(cuts[0], len(content)))
        _set_length(content, length)
        for sector, (state, data) in sectors.items():
            start = sector * SECTOR_BYTES
            kept = max(0, cuts[state] - start) if state < len(cuts) else SECTOR_BYTES
            room = max(0, min(SECTOR_BYTES, length - start))
            content[start : start + room] = data[:kept].ljust(SECTOR_BYTES, b"\0")[:room]


def _set_length(content: bytearray, length: int) -> None:
    if length <= len(content):
        del content[length:]
    else:
        content += bytes(length - len(content))


def _cuts(lengths: list[int], state: int) -> list[int]:
    """Per state up to the surviving one: where later truncations that survived cut its bytes."""
    cuts = [lengths[state]] * (state + 1)
    for earlier in range(state - 1, -1, -1):
        cuts[earlier] = min(cuts[earlier + 1], lengths[earlier + 1])
    return cuts


# --- names --------------------------------------------------------------------------------------------------

Place: TypeAlias = tuple[int, str]  # (number of the directory, name in it)
_Entries: TypeAlias = dict[int, dict[str, int]]


class _NameChange(NamedTuple):
    """`number` gets the name `target`, or loses the name `source`, or both at once."""

    number: int
    source: Place | None
    target: Place | None
    unsynced: frozenset[int]  # directories it touched and that were not synced since

    def touched(self) -> set[int | Place | None]:
        return {self.number, self.source, self.target} - {None}


class NameTree:
    """Directories, and which numbers (of files or directories) their names stand for."""

    def __init__(self, *, ordered: bool = True) -> None:
        self.ordered = ordered
        self._now: _Entries = {ROOT: {}}
        self._sure: _Entries = {ROOT: {}}
        self._directories = {ROOT}
        self._changes: list[_NameChange] = []

    def clone(self) -> NameTree:
        other = NameTree(ordered=self.ordered)
        other._now = _copied(self._now)
        other._sure = _copied(self._sure)
        other._directories = self._directories.copy()
        other._changes = self._changes.copy()
        return other

    def is_directory(self, number: int) -> bool:
        return number in self._directories

    def children(self, directory: int) -> dict[str, int]:
        return self._now[directory]

    def visible(self) -> set[int]:
        """Every number that has a name now."""
        return {number for entries in self._now.values() for number in entries.values()}

    def remembered(self) -> set[int]:
        """Every number that has a name now or may have one again after a power cut."""
        sure = {number for entries in self._sure.values() for number in entries.values()}
        return self.visible() | sure | {change.number for change in self._changes}

    def files(self, directory: int = ROOT, prefix: str = "/") -> Iterator[tuple[str, int]]:
        for name, number in sorted(self._now[directory].items()):
            if number in self._directories:
                yield from self.files(number, f"{prefix}{name}/")
            else:
                yield prefix + name, number

    def add(self, target: Place, number: int) -> None:
        self._change(number, None, target)

    def add_directory(self, target: Place, number: int) -> None:
        self._directories.add(number)
        self._now[number] = {}
        self._change(number, None, target)

    def remove(self, source: Place) -> None:
        self._change(self._now[source[0]][source[1]], source, None)

    def rename(self, source: Place, target: Place) -> None:
        self._change(self._now[source[0]][source[1]], source, target)

    def _change(self, number: int, source: Place | None, target: Place | None) -> None:
        directories = frozenset(place[0] for place in (source, target) if place is not None)
        change = _NameChange(number, source, target, directories)
        _apply(self._now, change)
        self._changes.append(change)

    def sync(self, directory: int) -> None:
        changes = [change._replace(unsynced=change.unsynced - {directory}) for change in self._changes]
        survives = self._with_needed(changes, [not change.unsynced for change in changes])
        for change, sure in zip(changes, survives, strict=True):
            if sure:
                _apply(self._sure, change)
        self._changes = [change for change, sure in zip(changes, survives, strict=True) if not sure]

    def sync_everything(self) -> None:
        self._sure = _copied(self._now)
        self._changes.clear()

    def crash(self, rng: Random) -> None:
        """Become what a power cut leaves."""
        changes, count = self._changes, len(self._changes)
        if self.ordered:
            survives = [True] * rng.randint(0, count)
        else:
            chance = rng.random()
            survives = self._with_needed(changes, [rng.random() < chance for _ in changes])
        for change, survived in zip(changes, survives, strict=False):
            if survived:
                _apply(self._sure, change)
        self._now = self._reachable()
        self._sure = _copied(self._now)
        self._changes = []

    def _with_needed(self, changes: list[_NameChange], wanted: list[bool]) -> list[bool]:
        """`wanted`, and the earlier changes without which the wanted ones could not have happened."""
        if self.ordered:
            last = max((i for i, want in enumerate(wanted) if want), default=-1)
            return [i <= last for i in range(len(wanted))]
        needed: set[int | Place | None] = set()
        result = wanted.copy()
        for i in range(len(changes) - 1, -1, -1):
            touched = changes[i].touched()
            if result[i] or needed & touched:
                result[i] = True
                needed |= touched
        return result

    def _reachable(self) -> _Entries:
        """The sure tree without what hangs on a directory that itself has lost its name."""
        found: _Entries = {}
        todo = [ROOT]
        while todo:
            directory = todo.pop()
            found[directory] = self._sure.get(directory, {})
            todo.extend(number for number in found[directory].values() if number in self._directories)
        return found


def _apply(entries: _Entries, change: _NameChange) -> None:
    if change.source is not None:
        entries.setdefault(change.source[0], {}).pop(change.source[1], None)
    if change.target is not None:
        entries.setdefault(change.target[0], {})[change.target[1]] = change.number


def _copied(entries: _Entries) -> _Entries:
    return {directory: names.copy() for directory, names in entries.items()}
