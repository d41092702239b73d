"""Meaning of an append's error for its batch.

    verdict       the batch                                     errors
    AGAIN         is not in the log: send it again              whatever is retriable and leaves no doubt
    DOUBT         may be in the log (rules 27, 30): send it     outcome_unknown
                  again under its sequence
    OUT_OF_ORDER  is not in the log, or lies far back in it     OutOfOrderSequence
    TOO_LARGE     is not in the log, and its halves may be      BatchTooLarge
    FINAL         is not in the log, and sending it again is    all others
                  of no use

What must stay true: whatever may leave a batch in the log is DOUBT, also where the error is of a kind that nobody
expects here. A wrong AGAIN costs a record in the wrong place, a wrong DOUBT costs nothing.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from raylog.errors import (
    AdminError,
    BatchError,
    BatchTooLarge,
    DiskError,
    InvalidRequest,
    LogOffline,
    OutOfOrderSequence,
    PeerNotAdmitted,
    ProducerError,
    RaylogError,
    RemoteFailed,
    ReplicaCrashed,
    StaleLeaderEpoch,
)

# Not retriable by themselves, but another leader, or the same one in a moment, may take the batch.
_PASSING: Final = (LogOffline, PeerNotAdmitted, StaleLeaderEpoch)
_LAST_WORDS: Final = (BatchError, ProducerError, AdminError, InvalidRequest)


class Verdict(Enum):
    AGAIN = auto()
    DOUBT = auto()
    OUT_OF_ORDER = auto()
    TOO_LARGE = auto()
    FINAL = auto()


def judge(error: RaylogError) -> Verdict:
    if isinstance(error, RemoteFailed):
        return judge(error.error) if isinstance(error.error, RaylogError) else Verdict.DOUBT
    if getattr(error, "outcome_unknown", False) or isinstance(error, ReplicaCrashed | DiskError):
        return Verdict.DOUBT  # a disk that failed may have written all the same
    if isinstance(error, OutOfOrderSequence):
        return Verdict.OUT_OF_ORDER
    if isinstance(error, BatchTooLarge):
        return Verdict.TOO_LARGE
    if error.retriable or isinstance(error, _PASSING):
        return Verdict.AGAIN
    return Verdict.FINAL if isinstance(error, _LAST_WORDS) else Verdict.DOUBT
