"""The choice of new connections that have to make room for others, before they have proved themselves. Pure.

What must stay true: there are never so many of them that files or memory run out, and connections that only wait keep
no honest peer out. So the oldest one makes room: an honest peer proves itself within milliseconds, long before as many
others have come. One address has a part of the room only. Peers of a unix socket count as no address: only processes of
the same user can connect there.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

MAX_WAITING: Final = 256
MAX_WAITING_OF_ADDRESS: Final = 128

_C = TypeVar("_C")


class Door(Generic[_C]):
    """The connections of one server that have not proved themselves yet."""

    def __init__(self) -> None:
        self._waiting: dict[_C, str] = {}  # in the order in which they came; the address, once it is known

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, connection: _C) -> bool:
        return connection in self._waiting

    def waiting(self) -> list[_C]:
        return list(self._waiting)

    def came(self, connection: _C) -> _C | None:
        """Note a new connection. Return the one that has to make room for it; None: there is room."""
        self._waiting[connection] = ""
        return next(iter(self._waiting)) if len(self._waiting) > MAX_WAITING else None

    def has_address(self, connection: _C, address: str) -> _C | None:
        """Note its address, which may be empty. Return the one of the same address that has to make room for it."""
        if connection not in self._waiting or not address:
            return None
        self._waiting[connection] = address
        if len(self._waiting) <= MAX_WAITING_OF_ADDRESS:
            return None
        same = [each for each, where in self._waiting.items() if where == address]
        return same[0] if len(same) > MAX_WAITING_OF_ADDRESS else None

    def left(self, connection: _C) -> None:
        """Note that a connection has proved itself, or has ended."""
        self._waiting.pop(connection, None)
