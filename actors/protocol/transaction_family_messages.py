"""What the coordinator of a transaction family is asked, and what it keeps. Kinds 132 to 139.

`rules/family.py` says what a family is. Its epoch is that of whoever drives it, and goes up with each driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.protocol.messages import Message, message


@message(kind=132, for_clients=True)
@dataclass(frozen=True, slots=True)
class InitFamily(Message):
    """From a driver: this family is mine now. The same `holder` again is answered as the first time.

    `timeout_ms`: for how long its members stay open without a word from the driver. `keep_ms`: for how long its last
    batch is remembered once nobody uses it; −1: for ever.
    """

    family: str
    holder: bytes
    timeout_ms: int
    keep_ms: int


@message(kind=133)
@dataclass(frozen=True, slots=True)
class FamilyInitialised(Message):
    """What the driver before has left open is aborted. `last_batch`: the newest that was committed; −1: none."""

    epoch: int
    last_batch: int


@message(kind=134, for_clients=True)
@dataclass(frozen=True, slots=True)
class JoinFamily(Message):
    """From whoever writes a part of a batch. Asked twice, it is two members, of which one stays without a use."""

    family: str
    epoch: int


@message(kind=135)
@dataclass(frozen=True, slots=True)
class FamilyJoined(Message):
    """A transaction that is open, and nobody else's."""

    transactional_id: str
    producer_id: int
    epoch: int


@message(kind=136, for_clients=True)
@dataclass(frozen=True, slots=True)
class EndFamily(Message):
    """From the driver: commit `batch` with exactly these members, and abort the rest. `batch` −1: abort all.

    `winners`: (number, producer id, epoch). Answered once every partition has its markers.
    """

    family: str
    epoch: int
    batch: int
    winners: tuple[tuple[int, int, int], ...]


@message(kind=137)
@dataclass(frozen=True, slots=True)
class FamilyEnded(Message):
    """`last_batch`: as of now. If that is older than the batch that was to be committed, a winner had been aborted."""

    last_batch: int


@message(kind=138, for_clients=True)
@dataclass(frozen=True, slots=True)
class KeepFamily(Message):
    """From the driver, now and then: it lives, so its members' time is not over."""

    family: str
    epoch: int


# --- what is kept -------------------------------------------------------------------------------------------------


@message(kind=139)
@dataclass(frozen=True, slots=True)
class FamilyRecord(Message):
    """All that is known of a family beside its members, which are transactional ids of their own."""

    family: str
    epoch: int
    holder: bytes
    timeout_ms: int
    keep_ms: int
    last_batch: int
    changed_ms: int
