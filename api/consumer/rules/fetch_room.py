"""The room that fetched bytes have in a consumer, and whose turn it is to fetch.

    wants ──► free? ──► queue ──► grant ──► settled        held: fetched, and not taken yet
                └─ it holds enough, or is paused: blocked until that is over

While each partition can have room for a whole fetch, all share it evenly, and nobody waits for anybody else. With more
partitions than that the consumer is *crowded*, and they take turns: a few have room for a whole fetch each, in the
order in which they wanted it. So a thousand partitions are read in as few and as large pieces as four are. A share of a
thousandth would bring one small batch a request, and an empty partition would keep its share for nothing.

What must stay true:
- Crowded, what is granted and what is held is within the room together, but for one batch of each grant that may be
  larger (rule 31). One at a time may always fetch.
- Crowded, whoever holds something waits until that has been taken, behind those that hold nothing.
- A grant ends once: with `settled`, or when its partition leaves. A late `settled` of an older grant changes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

_K = TypeVar("_K", bound=Hashable)


class Grant:
    """The leave to fetch once. Each is one of its own."""

    __slots__ = ("may_wait", "most")

    def __init__(self, most: int, *, may_wait: bool) -> None:
        self.most = most  # bytes
        self.may_wait = may_wait  # at the leader, for records to come; else others wait meanwhile


class Granted(NamedTuple, Generic[_K]):
    key: _K
    grant: Grant


class _Place:
    """The room that one partition has, and what it waits for."""

    __slots__ = ("grant", "held", "is_paused", "is_waiting")

    def __init__(self) -> None:
        self.held = 0  # bytes
        self.grant: Grant | None = None
        self.is_waiting = False
        self.is_paused = False


class FetchRoom(Generic[_K]):
    """The room of one consumer: so many bytes in all, and so many at most for one fetch.

    `takes_turns`: whether partitions take turns where there are many. Else they share, however many they are.
    """

    def __init__(self, size: int, most_of_one: int, *, takes_turns: bool = True) -> None:
        self._size = max(1, size)
        self._most_of_one = most_of_one
        self._takes_turns = takes_turns
        self._places: dict[_K, _Place] = {}
        self._queue: dict[_K, None] = {}  # who waits, and would fetch if there is room; the next is first
        self._used = 0  # bytes that are held, or granted to somebody who takes turns

    @property
    def is_crowded(self) -> bool:
        """Whether partitions take turns."""
        return self._takes_turns and len(self._places) * self._most_of_one > self._size

    @property
    def used(self) -> int:
        return self._used

    def join(self, key: _K, *, is_paused: bool = False) -> None:
        """Begin with a partition that is not here."""
        place = self._places[key] = _Place()
        place.is_paused = is_paused

    def leave(self, key: _K) -> None:
        """Forget all that this partition has."""
        place = self._places.pop(key, None)
        if place is None:
            return
        self._queue.pop(key, None)
        self._used -= place.held
        self._end_grant(place)
        if not self.is_crowded:
            for other in self._places:  # shares are larger now
                self._consider(other)

    def wants(self, key: _K) -> None:
        self._places[key].is_waiting = True
        self._consider(key)

    def grants(self) -> list[Granted[_K]]:
        """Return who may fetch now, of those that want to."""
        found: list[Granted[_K]] = []
        is_crowded, most = self.is_crowded, self._most()
        while self._queue and not (is_crowded and self._used and self._used + most > self._size):
            key = next(iter(self._queue))
            del self._queue[key]
            place = self._places[key]
            place.is_waiting = False
            place.grant = Grant(most, may_wait=not is_crowded)
            if is_crowded:
                self._used += most
            found.append(Granted(key, place.grant))
        return found

    def settled(self, key: _K, grant: Grant) -> None:
        """Take a grant back; what it has brought is held by now."""
        place = self._places.get(key)
        if place is not None and place.grant is grant:
            self._end_grant(place)

    def arrived(self, key: _K, size: int) -> None:
        self._places[key].held += size
        self._used += size

    def taken(self, key: _K, size: int) -> None:
        self._places[key].held -= size
        self._used -= size
        self._consider(key)

    def pause(self, key: _K) -> None:
        self._places[key].is_paused = True
        self._queue.pop(key, None)

    def resume(self, key: _K) -> None:
        self._places[key].is_paused = False
        self._consider(key)

    def _consider(self, key: _K) -> None:
        place = self._places[key]
        if place.is_waiting and not place.is_paused and self._is_free(place):
            self._queue.setdefault(key)

    def _is_free(self, place: _Place) -> bool:
        if not place.held:
            return True
        return not self.is_crowded and place.held + self._most() <= self._share()

    def _end_grant(self, place: _Place) -> None:
        if place.grant is not None and not place.grant.may_wait:
            self._used -= place.grant.most
        place.grant = None

    def _most(self) -> int:
        """Return the bytes of one fetch."""
        return min(self._most_of_one, self._size if self.is_crowded else self._share())

    def _share(self) -> int:
        return max(1, self._size // max(1, len(self._places)))
