"""The place of a file that is made later, say with the first batch: empty, and nothing can be written to it."""

from __future__ import annotations

from raylog.errors import DiskFailed
from raylog.storage.format.record_batch import Bytes


class FileToCome:
    """A `DiskFile` of a segment that has no file yet."""

    def __init__(self, path: str) -> None:
        self.path = path

    def write_at(self, data: Bytes, position: int) -> None:
        """Refuse: whoever appends has to wait for the file."""
        raise DiskFailed(f"Writing {len(data)} bytes at {position} of {self.path}: it is not made yet.")

    def read_at(self, _length: int, _position: int) -> bytes:
        return b""

    def drop_cached(self, _length: int, _position: int) -> None:
        """Do nothing: it holds nothing."""

    def size(self) -> int:
        return 0

    def inode(self) -> int:
        return 0

    def links(self) -> int:
        return 0

    def truncate(self, _length: int) -> None:
        """Do nothing: it is empty."""

    def sync(self) -> None:
        """Do nothing: it holds nothing."""

    def close(self) -> None:
        """Do nothing: nothing is open."""
