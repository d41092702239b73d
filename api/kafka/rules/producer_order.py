"""The order of an idempotent producer's batches, where a leader cannot see that one is missing (rule 18).

A leader refuses a gap in the sequence numbers of a producer that it knows. One that does not know the producer takes
its first batch at any sequence (KIP-360): a later batch would pass ahead of an earlier one that failed on its way, or
under the leader before. So the connection that the batches come over keeps their order until the leader knows them.

    arrived ──► SEND ───────────────────────► ended: TAKEN, REPEATED or GIVEN_UP
       ├──────► WAIT for the first under this leader ──► SEND or REFUSE
       └──────► REFUSE: an earlier batch has to come again first

What must stay true, for each producer and partition:
- Under each leadership one batch is sent alone, until that leadership has taken one.
- After a batch that the client has to repeat, the batches behind it are refused until they come in order: that one, the
  one that follows it, and so on up to the last that was refused. A higher epoch of the producer begins anew. So does a
  batch that was itself refused behind the one that failed, and comes again: its client knows of the failure, and has
  sent the missing one over another connection, or given it up.
- Nothing is sent under a leadership while a batch is open under another one.
- What is kept is bounded. What is forgotten of a producer costs its next batch one that is sent alone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from raylog.storage.format.record_batch import BatchHeader

MOST_KEPT: Final = 2_048  # producers times partitions of a connection
_MOST_REFUSED: Final = 64  # Kafka's producers have five in flight
_LOOKED_AT: Final = 8  # of them, for one to forget
_SEQUENCES: Final = 2**31  # they wrap around

Partition: TypeAlias = tuple[str | bytes, int]  # the topic as the client names it
Leadership: TypeAlias = tuple[bytes, int]  # topic id and leader epoch


class Verdict(Enum):
    """The answer to a batch: send it, let it wait, or refuse it."""

    SEND = auto()
    WAIT = auto()
    REFUSE = auto()


class Ending(Enum):
    """The end of a batch that was sent."""

    TAKEN = auto()
    REPEATED = auto()  # the client sends it again, with the same sequence
    GIVEN_UP = auto()  # it was refused for good


class Numbered(NamedTuple):
    """A batch of an idempotent producer: which one, and its sequences up to but not including `end`."""

    producer_id: int
    epoch: int
    first: int
    end: int


@dataclass(eq=False, slots=True)
class Turn:
    """A batch in its place among those of its producer for its partition."""

    sequences: _Sequences
    batch: Numbered
    leadership: Leadership
    verdict: Verdict
    number: int  # of the batches that have arrived for it


@dataclass(eq=False, slots=True)
class _Sequences:
    """The batches of one producer for one partition, as far as they are known."""

    epoch: int
    leadership: Leadership | None = None  # that the last batch was sent under
    is_known: bool = False  # that leadership has taken a batch
    open: int = 0  # batches that were sent under it, and have not ended
    released: Turn | None = None  # it may be sent now, and has not been
    waiting: deque[Turn] = field(default_factory=deque)
    expected: int | None = None  # the sequence that has to come next; None: any
    refused_to: int = 0  # the end of the last batch that has to come again; only with `expected`
    arrived: int = 0
    failed: int = 0  # the number of the arrival that set `expected`
    refused: set[int] = field(default_factory=set)  # first sequences of batches that arrived behind that, and failed

    def may_come(self, batch: Numbered) -> bool:
        """Return whether no earlier batch has to come before this one, and note that this one has."""
        if self.expected is None or _is_after(self.expected, batch.first):
            return True
        if batch.first != self.expected and batch.first not in self.refused:
            return False
        self.expected = batch.end if _is_after(self.refused_to, batch.end) else None
        return True

    def has_to_come_again(self, batch: Numbered, number: int) -> None:
        """`number`: of its arrival."""
        if self.expected is None or not _is_after(batch.first, self.expected):
            self.refused_to = batch.end if self.expected is None else self.refused_to
            self.expected, self.failed, self.refused = batch.first, number, set()
        elif number > self.failed and len(self.refused) < _MOST_REFUSED:
            self.refused.add(batch.first)
        if _is_after(batch.end, self.refused_to):
            self.refused_to = batch.end


def numbered(header: BatchHeader) -> Numbered | None:
    """Return the numbers of a batch. None: its producer is not idempotent."""
    if header.producer_id < 0 or header.base_sequence < 0:
        return None
    end = (header.base_sequence + header.last_offset_delta + 1) % _SEQUENCES
    return Numbered(header.producer_id, header.producer_epoch, header.base_sequence, end)


class ProducerOrder:
    """The batches of one connection."""

    def __init__(self, most_kept: int = MOST_KEPT) -> None:
        self._most_kept = most_kept
        self._kept: dict[tuple[Partition, int], _Sequences] = {}  # by partition and producer id; used last at the end

    def __len__(self) -> int:
        return len(self._kept)

    def arrived(self, partition: Partition, batch: Numbered, leadership: Leadership) -> Turn:
        """Take a batch. One that is to be sent at once is sent before another arrives."""
        sequences = self._sequences(partition, batch)
        sequences.arrived += 1
        turn = Turn(sequences, batch, leadership, Verdict.SEND, sequences.arrived)
        is_open_elsewhere = sequences.open > 0 and sequences.leadership != leadership
        if is_open_elsewhere or not sequences.may_come(batch):
            _refuse(turn)
        elif sequences.waiting or sequences.released is not None:
            turn.verdict = Verdict.WAIT
            sequences.waiting.append(turn)
        else:
            if sequences.leadership != leadership:
                sequences.leadership, sequences.is_known = leadership, False
            if sequences.open and not sequences.is_known:
                turn.verdict = Verdict.WAIT
                sequences.waiting.append(turn)
            else:
                sequences.open += 1
        return turn

    def not_sent(self, partition: Partition, batch: Numbered) -> None:
        """Note that a batch has arrived that could not be sent, and has to come again."""
        sequences = self._sequences(partition, batch)
        sequences.arrived += 1
        sequences.may_come(batch)
        sequences.has_to_come_again(batch, sequences.arrived)

    def begun(self, turn: Turn) -> Turn | None:
        """Note that a batch is being sent in this moment. Return the next that may be."""
        sequences = turn.sequences
        if sequences.released is not turn:
            return None
        sequences.released = None
        return _release(sequences)

    def ended(self, turn: Turn, ending: Ending) -> list[Turn]:
        """Note what became of a batch that was sent. Return those that wait no more, and have a verdict."""
        sequences = turn.sequences
        sequences.open -= 1
        if ending is Ending.REPEATED:
            sequences.has_to_come_again(turn.batch, turn.number)
            return _refuse_waiting(sequences)
        if ending is Ending.TAKEN:
            sequences.is_known = True
        following = _release(sequences)
        return [] if following is None else [following]

    def _sequences(self, partition: Partition, batch: Numbered) -> _Sequences:
        key = partition, batch.producer_id
        known = self._kept.pop(key, None)
        if known is None or batch.epoch > known.epoch:
            self._kept[key] = fresh = _Sequences(batch.epoch)
            self._forget_some()
            return fresh
        self._kept[key] = known
        # The leader refuses an older epoch. It says nothing about the batches of the newer one.
        return known if batch.epoch == known.epoch else _Sequences(batch.epoch)

    def _forget_some(self) -> None:
        for key in list(self._kept)[:_LOOKED_AT] if len(self._kept) > self._most_kept else ():
            sequences = self._kept[key]
            if not sequences.open and sequences.released is None and len(self._kept) > self._most_kept:
                del self._kept[key]

    def broken_invariants(self) -> list[str]:
        """Return what does not hold of it, in words."""
        found = []
        for (partition, producer_id), each in self._kept.items():
            name = f"producer {producer_id} of {partition}"
            if each.open > 1 and not each.is_known:
                found.append(f"{each.open} batches of {name} are open under a leader that does not know it")
            if each.waiting and not each.open and each.released is None:
                found.append(f"{len(each.waiting)} batches of {name} wait for nothing")
        return found


def _refuse(turn: Turn) -> None:
    turn.verdict = Verdict.REFUSE
    turn.sequences.has_to_come_again(turn.batch, turn.number)


def _refuse_waiting(sequences: _Sequences) -> list[Turn]:
    waiting, sequences.waiting = list(sequences.waiting), deque()
    if sequences.released is not None:
        waiting.insert(0, sequences.released)
        sequences.released = None
        sequences.open -= 1
    for turn in waiting:
        _refuse(turn)
    return waiting


def _release(sequences: _Sequences) -> Turn | None:
    """Let the first that waits go on, if it may be sent now."""
    if not sequences.waiting or sequences.released is not None or (sequences.open and not sequences.is_known):
        return None
    sequences.released = turn = sequences.waiting.popleft()
    turn.verdict = Verdict.SEND
    sequences.open += 1
    return turn


def _is_after(one: int, other: int) -> bool:
    """Return whether a sequence comes after another, around the wrap too."""
    return 0 < (one - other) % _SEQUENCES < _SEQUENCES // 2
