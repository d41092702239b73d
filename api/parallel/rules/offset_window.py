"""Done records of one partition, and the offset up to which all of them are.

    done  done  open  done  open   (next)
                ▲                    ▲
             position            last taken + 1          length: what lies between the two, here 3

What must stay true: `position` is the offset of a record that is not done, or the one behind the last that was taken.
A consumer that begins there meets all that is not done. (Offsets rise, and have gaps.)
"""

from __future__ import annotations

from collections import deque
from typing import Final

NOTHING_TAKEN: Final = -1


class OffsetWindow:
    """The window of one partition, from the first record that is taken on."""

    def __init__(self) -> None:
        self._taken: deque[int] = deque()  # from the oldest that is not done on
        self._done: set[int] = set()  # of these
        self.last_taken = NOTHING_TAKEN

    def __len__(self) -> int:
        return len(self._taken)

    @property
    def position(self) -> int:
        return self._taken[0] if self._taken else self.last_taken + 1

    @property
    def open_count(self) -> int:
        """The number of records that are taken and not done."""
        return len(self._taken) - len(self._done)

    def take(self, offset: int) -> None:
        assert offset > self.last_taken, (offset, self.last_taken)
        self._taken.append(offset)
        self.last_taken = offset

    def finish(self, offset: int) -> None:
        """Each once."""
        assert offset not in self._done
        assert self._taken, offset
        assert self._taken[0] <= offset <= self.last_taken, (offset, self._taken[0])
        self._done.add(offset)
        while self._taken and self._taken[0] in self._done:
            self._done.remove(self._taken.popleft())
