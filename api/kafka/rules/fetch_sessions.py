"""Fetch sessions (KIP-227): a client names the partitions it reads once, and then only what has changed.

A fetch carries the session's id and epoch:

    id     epoch   what it is
    any      -1    a whole fetch without a session; the one of this id, if any, ends
    any       0    a whole fetch that asks for a session; the one of this id, if any, ends
    known    next  changes to what the session has, which becomes the fetch

What must stay true:
- A session's epoch counts its fetches, so a fetch that comes twice, or after one that was lost, is refused. The client
  then sends a whole fetch.
- An answer leaves a partition out only if the client knows all that it would say. An error is said each time.
- Sessions are a courtesy. Where there is no room for one the answer says session 0, and the client sends whole fetches.
  So both their number and that of their partitions are bounded, and one that is used goes only for its age.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from raylog.api.kafka.protocol.error_codes import ErrorCode

Partition: TypeAlias = Hashable  # (topic's name or id, partition)

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
_LAST_EPOCH: Final = 2**31 - 1
_NOTHING_TOLD: Final = -1
DEFAULT_SESSIONS: Final = 1_000
DEFAULT_PARTITIONS: Final = 100_000
DEFAULT_KEPT_S: Final = 120.0


def next_epoch(epoch: int) -> int:
    """Return the epoch of a session's fetch after the one of this epoch. It never comes back to 0."""
    return 1 if epoch >= _LAST_EPOCH else epoch + 1


class FetchAsked(NamedTuple):
    """Sessions and partitions as a fetch names them. `uses_ids`: its topics are named by their ids."""

    session_id: int
    epoch: int
    partitions: Mapping[Partition, Any]
    forgotten: Iterable[Partition] = ()
    uses_ids: bool = True


class PartitionState(NamedTuple):
    """All that an answer says of a partition besides its records."""

    high_watermark: int
    log_start_offset: int
    has_records: bool = False
    has_error: bool = False
    has_diverged: bool = False


@dataclass
class _Asked:
    """A partition of a session: the part of the fetch that is about it, and what the client was told last."""

    asked: Any
    high_watermark: int = _NOTHING_TOLD
    log_start_offset: int = _NOTHING_TOLD


@dataclass
class FetchSession:
    """The partitions that a client reads, in the order in which they are served."""

    id: int
    uses_ids: bool
    used_at: float
    epoch: int = INITIAL_EPOCH
    _partitions: dict[Partition, _Asked] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def partitions(self) -> list[tuple[Partition, Any]]:
        """Each partition with what was asked of it."""
        return [(partition, each.asked) for partition, each in self._partitions.items()]

    def update(self, asked: FetchAsked) -> None:
        """Take over what a fetch changes. A partition that is new, or asked for anew, goes to the end."""
        for partition in asked.forgotten:
            self._partitions.pop(partition, None)
        for partition, wanted in asked.partitions.items():
            known = self._partitions.get(partition)
            if known is None:
                self._partitions[partition] = _Asked(wanted)
            else:
                known.asked = wanted

    def must_tell(self, partition: Partition, state: PartitionState, *, is_whole: bool = False) -> bool:
        """Whether an answer has to name this partition. If it has records, it is the last to be served from now on.

        To be asked once for each partition of an answer that is sent.
        """
        known = self._partitions[partition]
        news = (
            is_whole
            or state.has_records
            or state.has_error
            or state.has_diverged
            or state.high_watermark != known.high_watermark
            or state.log_start_offset != known.log_start_offset
        )
        # After an error all of it is told again.
        known.high_watermark = _NOTHING_TOLD if state.has_error else state.high_watermark
        known.log_start_offset = state.log_start_offset
        if state.has_records:
            self._partitions[partition] = self._partitions.pop(partition)
        return news


class Fetch(NamedTuple):
    """A fetch with its session: None for none. With an error nothing is read."""

    session: FetchSession | None
    partitions: list[tuple[Partition, Any]]
    is_whole: bool = True
    error: ErrorCode = ErrorCode.NONE

    @property
    def session_id(self) -> int:
        """The session that the answer names."""
        return NO_SESSION if self.session is None else self.session.id


class FetchSessions:
    """The sessions of a gateway. `new_id` gives a number that nobody can guess, other than 0."""

    def __init__(
        self,
        new_id: Callable[[], int],
        *,
        most_sessions: int = DEFAULT_SESSIONS,
        most_partitions: int = DEFAULT_PARTITIONS,
        kept_s: float = DEFAULT_KEPT_S,
    ) -> None:
        self._new_id = new_id
        self._most_sessions = most_sessions
        self._most_partitions = most_partitions
        self._kept_s = kept_s
        self._sessions: dict[int, FetchSession] = {}  # the one used longest ago first
        self._count = 0  # of their partitions

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(self, asked: FetchAsked, now: float) -> Fetch:
        """Return what this fetch reads, and in which session."""
        if asked.epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._end(asked.session_id)
            return self._whole(asked, now)
        session = self._sessions.get(asked.session_id)
        if session is None:
            return Fetch(None, [], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_ids != asked.uses_ids:
            return Fetch(None, [], error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != asked.epoch:
            return Fetch(None, [], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        return self._next(session, asked, now)

    def _whole(self, asked: FetchAsked, now: float) -> Fetch:
        partitions = list(asked.partitions.items())
        if asked.epoch == FINAL_EPOCH or not partitions or not self._make_room(len(partitions), now):
            return Fetch(None, partitions)
        session = FetchSession(self._free_id(), asked.uses_ids, now, next_epoch(INITIAL_EPOCH))
        session.update(asked)
        self._sessions[session.id] = session
        self._count += len(session)
        return Fetch(session, partitions)

    def _next(self, session: FetchSession, asked: FetchAsked, now: float) -> Fetch:
        before = len(session)
        session.update(asked)
        self._count += len(session) - before
        session.epoch = next_epoch(session.epoch)
        session.used_at = now
        self._sessions[session.id] = self._sessions.pop(session.id)
        found = Fetch(session, session.partitions, is_whole=False)
        if len(session) == 0:
            self._end(session.id)  # an empty one is over
            return found._replace(session=None)
        if self._count > self._most_partitions:
            self._end(session.id)  # this answer is still within it; the next fetch hears that it is unknown
        return found

    def _make_room(self, partitions: int, now: float) -> bool:
        """Whether there is room for a session of so many partitions, once old ones have gone."""
        while self._is_full(partitions) and self._sessions:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.used_at < self._kept_s:
                break
            self._end(oldest.id)
        return not self._is_full(partitions)

    def _is_full(self, partitions: int) -> bool:
        return len(self._sessions) >= self._most_sessions or self._count + partitions > self._most_partitions

    def _free_id(self) -> int:
        while (found := self._new_id()) in self._sessions or found == NO_SESSION:
            pass
        return found

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._count -= len(session)

    def broken_invariants(self) -> list[str]:
        """Return what does not hold of it, in words."""
        found = []
        count = sum(map(len, self._sessions.values()))
        if count != self._count:
            found.append(f"{self._count} partitions are counted where sessions have {count}")
        if len(self._sessions) > self._most_sessions or count > self._most_partitions:
            found.append(f"{len(self._sessions)} sessions with {count} partitions are too many")
        if any(session.epoch == INITIAL_EPOCH or len(session) == 0 for session in self._sessions.values()):
            found.append("a session has no partitions, or was never begun")
        return found
