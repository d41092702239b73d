"""The order of a connection: which request begins, which answer goes out, and when the connection is not read.

Kafka's clients send several requests without waiting, and take the answers in their order. So a request begins when the
one before it has been answered. Only those that append records (Produce) may be under way together: they are ordered by
the partition that they append to, and waiting for each would make the replication's latency the client's.

    arrived ──► waiting ──► under way ──► answered ──► taken, once all before it have been

What must stay true:
- Answers are taken in the order in which their requests arrived. A request without an answer (acks=0) keeps its place.
- Bytes of a request count from its arrival to the moment at which its answer is taken. The answer counts in its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from raylog.storage.format.record_batch import Bytes

DEFAULT_MOST_BYTES: Final = 16 * 1024 * 1024
_COST_OF_A_REQUEST: Final = 512  # what is kept of it beside its bytes

Request = TypeVar("Request")


@dataclass(eq=False)
class Turn(Generic[Request]):
    """A request in its place among those of its connection."""

    request: Request
    may_overlap: bool
    bytes_held: int
    answer: Sequence[Bytes] | None = None
    is_answered: bool = False


class RequestOrder(Generic[Request]):
    """The requests of one connection that have not been answered."""

    def __init__(self, most_bytes: int = DEFAULT_MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._turns: deque[Turn[Request]] = deque()  # none of them taken
        self._waiting: deque[Turn[Request]] = deque()
        self._under_way: set[Turn[Request]] = set()
        self.bytes_held = 0

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def is_serving(self) -> bool:
        """Whether a request is under way."""
        return bool(self._under_way)

    @property
    def is_full(self) -> bool:
        """Whether the connection is not to be read before some answers have gone out."""
        return self.bytes_held > self._most_bytes

    def arrived(self, request: Request, size: int, *, may_overlap: bool = False) -> None:
        """Take a request of so many bytes. `may_overlap`: beside others that may too."""
        turn = Turn(request, may_overlap, size + _COST_OF_A_REQUEST)
        self._turns.append(turn)
        self._waiting.append(turn)
        self.bytes_held += turn.bytes_held

    def begin(self, has_room: Callable[[Turn[Request]], bool] = lambda _: True) -> list[Turn[Request]]:
        """Return the requests that begin now, each of them once.

        `has_room`: whether there is room for the answer of the one whose turn it is.
        """
        begun = []
        while self._waiting and self._may_begin(self._waiting[0]) and has_room(self._waiting[0]):
            turn = self._waiting.popleft()
            self._under_way.add(turn)
            begun.append(turn)
        return begun

    def _may_begin(self, turn: Turn[Request]) -> bool:
        return not self._under_way or (turn.may_overlap and next(iter(self._under_way)).may_overlap)

    def answered(self, turn: Turn[Request], answer: Sequence[Bytes] | None) -> None:
        """Note the answer to a request that is under way; None if there is to be none."""
        self._under_way.remove(turn)
        turn.answer, turn.is_answered = answer, True
        size = 0 if answer is None else sum(map(len, answer))
        self.bytes_held += size + _COST_OF_A_REQUEST - turn.bytes_held
        turn.bytes_held = size + _COST_OF_A_REQUEST

    def take_answers(self) -> list[Bytes]:
        """Return the parts of all answers that may go out now, to be written one after the other."""
        parts: list[Bytes] = []
        while self._turns and self._turns[0].is_answered:
            turn = self._turns.popleft()
            self.bytes_held -= turn.bytes_held
            parts += turn.answer or ()
        return parts

    def broken_invariants(self) -> list[str]:
        """Return what does not hold of it, in words."""
        found = []
        held = sum(turn.bytes_held for turn in self._turns)
        if held != self.bytes_held:
            found.append(f"{self.bytes_held} bytes are counted where requests hold {held}")
        if len(self._under_way) > 1 and not all(turn.may_overlap for turn in self._under_way):
            found.append("a request is under way beside another one that does not let it")
        return found
