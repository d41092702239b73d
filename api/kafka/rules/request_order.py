"""The order of a connection: which request begins, which answer goes out, and when the connection is not read.

Kafka's clients send several requests without waiting, and take the answers in their order. So a request begins when the
one before it has been answered. Only those that append records (Produce) may be under way together: they are ordered by
the partition that they append to, and waiting for each would make the replication's latency the client's.

    arrived ──► waiting ──► under way ──► answered ──► taken, once all before it have been

What must stay true:
- Answers are taken in the order in which their requests arrived. A request without an answer (acks=0) keeps its place.
- Bytes of a request count from its arrival to the moment at which its answer is taken. The answer counts in its place.
- A connection without requests holds nothing here: there may be ten thousand. So each turn knows the next one, and
  those that have not begun are the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from raylog.storage.format.record_batch import Bytes

DEFAULT_MOST_BYTES: Final = 16 * 1024 * 1024
_COST_OF_A_REQUEST: Final = 512  # what is kept of it beside its bytes

Request = TypeVar("Request")


@dataclass(eq=False, slots=True)
class Turn(Generic[Request]):
    """A request in its place among those of its connection."""

    request: Request
    may_overlap: bool
    bytes_held: int
    answer: Sequence[Bytes] | None = None
    is_answered: bool = False
    following: Turn[Request] | None = None  # the next that arrived


class RequestOrder(Generic[Request]):
    """The requests of one connection that have not been answered."""

    __slots__ = ("_first", "_last", "_may_overlap", "_under_way", "_waiting", "bytes_held", "most_bytes")

    def __init__(self, most_bytes: int = DEFAULT_MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._first: Turn[Request] | None = None  # of those that are not taken
        self._waiting: Turn[Request] | None = None  # the first of those that have not begun
        self._last: Turn[Request] | None = None
        self._under_way = 0
        self._may_overlap = False  # of those that are under way
        self.bytes_held = 0

    def __len__(self) -> int:
        return sum(1 for _ in self._turns())

    def _turns(self) -> Iterator[Turn[Request]]:
        turn = self._first
        while turn is not None:
            yield turn
            turn = turn.following

    @property
    def is_serving(self) -> bool:
        """Whether a request is under way."""
        return self._under_way > 0

    @property
    def is_full(self) -> bool:
        """Whether the connection is not to be read before some answers have gone out."""
        return self.bytes_held > self.most_bytes

    def arrived(self, request: Request, size: int, *, may_overlap: bool = False) -> None:
        """Take a request of so many bytes. `may_overlap`: beside others that may too."""
        turn = Turn(request, may_overlap, size + _COST_OF_A_REQUEST)
        if self._last is None:
            self._first = turn
        else:
            self._last.following = turn
        self._last = turn
        if self._waiting is None:
            self._waiting = turn
        self.bytes_held += turn.bytes_held

    def begin(self, has_room: Callable[[Turn[Request]], bool] = lambda _: True) -> list[Turn[Request]]:
        """Return the requests that begin now, each of them once.

        `has_room`: whether there is room for the answer of the one whose turn it is.
        """
        begun = []
        turn = self._waiting
        while turn is not None and (not self._under_way or (turn.may_overlap and self._may_overlap)) and has_room(turn):
            self._under_way += 1
            self._may_overlap = turn.may_overlap
            begun.append(turn)
            turn = self._waiting = turn.following
        return begun

    def answered(self, turn: Turn[Request], answer: Sequence[Bytes] | None) -> None:
        """Note the answer to a request that is under way; None if there is to be none."""
        self._under_way -= 1
        turn.answer, turn.is_answered = answer, True
        size = 0 if answer is None else sum(map(len, answer))
        self.bytes_held += size + _COST_OF_A_REQUEST - turn.bytes_held
        turn.bytes_held = size + _COST_OF_A_REQUEST

    def take_answers(self) -> list[Bytes]:
        """Return the parts of all answers that may go out now, to be written one after the other."""
        parts: list[Bytes] = []
        turn = self._first
        while turn is not None and turn.is_answered:
            self.bytes_held -= turn.bytes_held
            parts += turn.answer or ()
            turn = self._first = turn.following
        if turn is None:
            self._last = None
        return parts

    def broken_invariants(self) -> list[str]:
        """Return what does not hold of it, in words."""
        found = []
        held = sum(turn.bytes_held for turn in self._turns())
        if held != self.bytes_held:
            found.append(f"{self.bytes_held} bytes are counted where requests hold {held}")
        begun = [turn for turn in self._turns() if not turn.is_answered][: self._under_way]
        if len(begun) > 1 and not all(turn.may_overlap for turn in begun):
            found.append("a request is under way beside another one that does not let it")
        return found
