"""The decisions of the metadata log's quorum (rule 17): which epoch, which log, what is committed, who votes.

It is Raft's log with the election turned round: a new controller has no log of its own, so it takes the newest one
that it finds. What must stay true:
- A log is adopted only where a majority of the voters *it* names has promised the new epoch and is not ahead of it.
  What was committed is at a majority of the voters of its time, and sets change by one member, so such a log has it.
- A batch of an earlier epoch is committed by a later one of the controller's own epoch, never by being counted. (At a
  majority alone it can still be replaced, by a log with a higher last epoch that knows nothing of it.)
- A voter that joins counts from the batch that names it: batches that it acknowledged before were not on its disk.
- A voter that may have forgotten what it synced is behind no log. Only where every voter has promised, and too few are
  left that forget nothing, the newest log of all is taken: there is nobody else to ask.
- A voter is a broker on one disk. A broker that comes back on a blank one has forgotten what it promised and synced, so
  it counts for nothing until it has been named anew; and its older self leaves before it joins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from raylog.actors.protocol.metadata_quorum_records import Voter
from raylog.actors.protocol.replication_messages import EpochEnd
from raylog.config import MIB

_FIRST_EPOCH: Final = 1
_MIN_SNAPSHOT_BYTES: Final = 1 * MIB


class PromisedLog(NamedTuple):
    """A broker's word about its log when it promised an epoch; the log has stood still since."""

    broker_id: int
    directory_id: str
    last_epoch: int
    start_offset: int
    end_offset: int
    voters: tuple[Voter, ...]
    mark: int = 0  # of its directory: `directory_marks.py`
    is_unproven: bool = False  # its log may be shorter than what it has synced and acknowledged: `files.py`

    @property
    def voter(self) -> Voter:
        """The voter that this is, if it is one."""
        return self.broker_id, self.directory_id

    @property
    def age(self) -> tuple[int, int]:
        """The age of the log: of two logs the newer one has the larger."""
        return self.last_epoch, self.end_offset

    @property
    def is_blank(self) -> bool:
        return not self.end_offset and not self.voters


# --- taking over ----------------------------------------------------------------------------------------------------


def next_controller_epoch(seen: Iterable[int]) -> int:
    """The next epoch: higher than any promised so far, as far as is known."""
    return max((_FIRST_EPOCH - 1, *seen)) + 1


def is_majority(members: Collection[Voter], voters: Collection[Voter]) -> bool:
    """Whether these include more than half of the voters. Of no voters nobody is."""
    return 2 * len(set(members) & set(voters)) > len(set(voters))


def choose_log(promised: Collection[PromisedLog]) -> PromisedLog | None:
    """The newest log that may be adopted; None while too few have promised.

    A newer one whose own voters are not there does not stand in the way: to commit more than they know would have
    needed a majority of them.
    """
    for log in sorted(promised, key=_age_then_id, reverse=True):
        behind = [other.voter for other in promised if other.age <= log.age and not other.is_unproven]
        if is_majority(behind, log.voters):
            return log
    return None


def choose_in_doubt(promised: Collection[PromisedLog]) -> PromisedLog | None:
    """The newest log, if all of its voters have promised and none is ahead of it.

    Something committed may be missing in it where voters are unproven. It is for when everybody had time to answer.
    """
    newest = max(promised, key=_age_then_id, default=None)
    is_complete = newest is not None and set(newest.voters) <= {log.voter for log in promised}
    return newest if newest is not None and newest.voters and is_complete else None


def _age_then_id(log: PromisedLog) -> tuple[int, int, int]:
    return (*log.age, -log.broker_id)


def may_form(promised: Collection[PromisedLog], voters: Collection[int]) -> bool:
    """Whether a first log may be written: every named voter has promised, and nobody holds anything."""
    return set(voters) <= {log.broker_id for log in promised} and all(log.is_blank for log in promised)


# --- committing -----------------------------------------------------------------------------------------------------


class CommitRule:
    """Decides how far one controller's log is committed. The first batch of its epoch begins at `own_offset`."""

    def __init__(self, voters: Collection[Voter], committed: int, own_offset: int) -> None:
        self.committed = committed
        self._own_offset = own_offset
        self._voters = frozenset(voters)
        self._counts_from = dict.fromkeys(voters, 0)
        self._synced: dict[Voter, int] = {}

    @property
    def voters(self) -> tuple[Voter, ...]:
        return tuple(sorted(self._voters))

    def change_voters(self, voters: Collection[Voter], end_offset: int) -> None:
        """Change the voters, in force from the append on. `end_offset` is the end of the batch that names them."""
        self._counts_from = {voter: self._counts_from.get(voter, end_offset) for voter in voters}
        self._voters = frozenset(voters)

    def synced(self, member: Voter, end_offset: int) -> bool:
        """Take note that a broker holds everything below `end_offset`. Whether that committed something."""
        self._synced[member] = max(end_offset, self._synced.get(member, 0))
        return self._advance()

    def forget(self, broker_id: int) -> None:
        """Take no word of this broker for granted: since it gave it, it may have lost what it had synced."""
        self._synced = {member: end for member, end in self._synced.items() if member[0] != broker_id}

    def _advance(self) -> bool:
        ends = sorted((self._counted(voter) for voter in self._voters), reverse=True)
        at_majority = ends[len(ends) // 2] if ends else 0
        if at_majority <= max(self.committed, self._own_offset):
            return False
        self.committed = at_majority
        return True

    def _counted(self, voter: Voter) -> int:
        end_offset = self._synced.get(voter, 0)
        return end_offset if end_offset >= self._counts_from[voter] else 0


# --- changing the voters --------------------------------------------------------------------------------------------


def next_voters(
    current: Collection[Voter], wanted: Collection[Voter], ready: Collection[Voter]
) -> tuple[Voter, ...] | None:
    """The set one member nearer to the wanted one; None while no step would leave a majority that is ready.

    `ready` are the brokers that hold all that is committed. Voters that are lost go first, others when their successors
    are in; but no broker is in the set twice.
    """
    before, after = set(current), set(wanted)
    present = {broker_id for broker_id, _ in before}
    joining = sorted(after - before)
    lost = sorted(before - after - set(ready))
    leaving = [] if joining else sorted(before - after)
    joining = [each for each in joining if each[0] not in present]
    steps = [before | {joiner} for joiner in joining if joiner in ready] + [before - {each} for each in lost + leaving]
    return next((tuple(sorted(step)) for step in steps if is_majority(ready, step)), None)


# --- agreeing with a broker's log -----------------------------------------------------------------------------------


def common_end(own: EpochEnd, other: EpochEnd) -> int | None:
    """The offset where to try next to join on to another log; None: only a snapshot helps.

    `other` is the end of an epoch there, `own` the largest epoch up to that in the log here, and its end. Where both
    are of one epoch the logs do agree up to the lower end, for one controller wrote it; otherwise the epoch is lower
    each time (rule 10).
    """
    return min(own[1], other[1]) if own[0] <= other[0] else None


# --- snapshots ------------------------------------------------------------------------------------------------------


def is_snapshot_due(log_bytes: int, snapshot_bytes: int) -> bool:
    """Whether the log since the last snapshot has outgrown it; so writing snapshots costs no more than the log does."""
    return log_bytes >= max(_MIN_SNAPSHOT_BYTES, snapshot_bytes)

