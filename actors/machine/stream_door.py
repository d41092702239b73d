"""Who waits at the door of a server: connections that have not proved themselves yet. A decision; it touches nothing.

What must stay true: so many of them that files or memory run out are never there, and nobody is locked out by others
who only wait. So the one that came first makes room: an honest peer proves itself within milliseconds, and whoever is
still there after all the others have come has had its time. One address has a part of the room only. Peers of a unix
socket are all at one address, and have all of it: nobody but the owner's processes gets that far.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

MAX_WAITING: Final = 256
MAX_WAITING_OF_ADDRESS: Final = 128

_C = TypeVar("_C")


class Door(Generic[_C]):
    """Of one server."""

    def __init__(self) -> None:
        self._waiting: dict[_C, str] = {}  # in the order in which they came; the address, once it is known

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, connection: _C) -> bool:
        return connection in self._waiting

    def waiting(self) -> list[_C]:
        return list(self._waiting)

    def came(self, connection: _C) -> _C | None:
        """Who has to make room for it."""
        self._waiting[connection] = ""
        return next(iter(self._waiting)) if len(self._waiting) > MAX_WAITING else None

    def has_address(self, connection: _C, address: str) -> _C | None:
        """Who has to make room for it, of those at the same address. An empty one is no address."""
        if connection not in self._waiting or not address:
            return None
        self._waiting[connection] = address
        if len(self._waiting) <= MAX_WAITING_OF_ADDRESS:
            return None
        same = [each for each, where in self._waiting.items() if where == address]
        return same[0] if len(same) > MAX_WAITING_OF_ADDRESS else None

    def left(self, connection: _C) -> None:
        """It has proved itself, or is gone."""
        self._waiting.pop(connection, None)
