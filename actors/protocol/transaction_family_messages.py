"""Requests to the coordinator of a transaction family, and the records that it keeps. Kinds 132 to 139.

`rules/family.py` says what a family is. Its epoch is that of its driver, and rises with each new driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.protocol.messages import Message, message


@message(kind=132, for_clients=True)
@dataclass(frozen=True, slots=True)
class InitFamily(Message):
    """Sent by a driver: take over this family. The same `holder` again is answered as the first time.

    `timeout_ms`: for how long its members stay open without a message from the driver. `keep_ms`: for how long its last
    batch is remembered once the family is unused; −1: for ever.
    """

    family: str
    holder: bytes
    timeout_ms: int
    keep_ms: int


@message(kind=133)
@dataclass(frozen=True, slots=True)
class FamilyInitialised(Message):
    """The answer: what an earlier driver left open is aborted. `last_batch`: the newest committed one; −1: none."""

    epoch: int
    last_batch: int


@message(kind=134, for_clients=True)
@dataclass(frozen=True, slots=True)
class JoinFamily(Message):
    """Sent by the writer of a part of a batch. Asked twice, it makes two members, one of which stays unused."""

    family: str
    epoch: int


@message(kind=135)
@dataclass(frozen=True, slots=True)
class FamilyJoined(Message):
    """The answer to JoinFamily: an open transaction of its own."""

    transactional_id: str
    producer_id: int
    epoch: int


@message(kind=136, for_clients=True)
@dataclass(frozen=True, slots=True)
class EndFamily(Message):
    """Sent by the driver: commit `batch` with exactly these members, and abort the rest. `batch` −1: abort all.

    `winners`: (number, producer id, epoch). Answered once every partition has its markers.
    """

    family: str
    epoch: int
    batch: int
    winners: tuple[tuple[int, int, int], ...]


@message(kind=137)
@dataclass(frozen=True, slots=True)
class FamilyEnded(Message):
    """The answer to EndFamily. `last_batch` older than the batch to be committed: a winner had been aborted."""

    last_batch: int


@message(kind=138, for_clients=True)
@dataclass(frozen=True, slots=True)
class KeepFamily(Message):
    """Sent by the driver, now and then: it lives, so its members do not time out."""

    family: str
    epoch: int


# --- what is kept -------------------------------------------------------------------------------------------------


@message(kind=139)
@dataclass(frozen=True, slots=True)
class FamilyRecord(Message):
    """The record of a family, without its members, which are transactional ids of their own."""

    family: str
    epoch: int
    holder: bytes
    timeout_ms: int
    keep_ms: int
    last_batch: int
    changed_ms: int
