"""The families of one transaction coordinator: requests in, records and answers out; `rules/family.py` decides.

What must stay true:
- What is decided is applied at once, to families and members alike, and appended before anything else is decided.
- A driver's word that it lives is not written down: a new coordinator takes all drivers for living at first. So a
  takeover costs no transaction its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from raylog.actors.coordinators.claimed_log import CoordinatorLog
from raylog.actors.kernel.stream_interface import Answer, Response
from raylog.actors.protocol.coordinator_records import Entry, stored
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.names import MAX_FAMILY_BYTES, check_transactional_id
from raylog.actors.protocol.transaction_family_messages import (
    EndFamily,
    FamilyEnded,
    FamilyInitialised,
    FamilyJoined,
    FamilyRecord,
    InitFamily,
    JoinFamily,
    KeepFamily,
)
from raylog.actors.protocol.transaction_messages import TransactionRecord
from raylog.actors.transactions.rules.family import (
    FamilyChange,
    check_driver,
    end_family,
    init_family,
    is_family_expired,
    join_family,
    member_id,
    next_member,
    split_member,
)
from raylog.actors.transactions.rules.transaction import FAMILY_PREFIX, read_entry, transaction_entry
from raylog.errors import FamilyTooLarge

_MOST_BYTES: Final = 900_000  # of one decision: what a batch of `__transaction_state` takes, with room to spare
_NOBODY: Final = -1


class Ledger(Protocol):
    """The coordinator's transactional ids, which members are too."""

    def known(self, name: str) -> TransactionRecord | None: ...

    def apply(self, record: TransactionRecord) -> None: ...

    def follow_up(self, record: TransactionRecord) -> None: ...

    async def until_ended(self, name: str) -> TransactionRecord: ...

    async def take_fresh_id(self) -> int: ...

    def now_ms(self) -> int: ...


class TransactionFamilies:
    """`handlers`: by the type of a request."""

    def __init__(self, ledger: Ledger, log: CoordinatorLog) -> None:
        self._ledger = ledger
        self._log = log
        self._known: dict[str, FamilyRecord] = {}
        self._numbers: dict[str, set[int]] = {}  # of the members of each
        self._heard: dict[str, int] = {}  # when the driver of each was heard last
        self._began_ms = ledger.now_ms()
        self.handlers: dict[type[Message], Callable[[Any], Awaitable[Answer]]] = {
            InitFamily: self._init,
            JoinFamily: self._join,
            EndFamily: self._end,
            KeepFamily: self._keep,
        }

    def heard_ms(self, transactional_id: str) -> int:
        """The time of the last request of the driver of this transaction; 0: it has none."""
        member = split_member(transactional_id)
        return 0 if member is None else self._heard.get(member[0], self._began_ms)

    # --- what is restored, and forgotten --------------------------------------------------------------------------

    def restore(self, key: bytes, value: bytes | None) -> None:
        """FrameInvalid, MessageUnknown as of `read_entry`."""
        name, record = read_entry(FamilyRecord, FAMILY_PREFIX, key, value)
        if record is None:
            self._known.pop(name, None)
        else:
            self._known[name] = record

    def has_member(self, transactional_id: str) -> None:
        """A transactional id is known; if it is a member's, it is one that may be used again."""
        member = split_member(transactional_id)
        if member is not None:
            self._numbers.setdefault(member[0], set()).add(member[1])

    def lost_member(self, transactional_id: str) -> None:
        """Take note that a member was forgotten."""
        member = split_member(transactional_id)
        if member is not None:
            self._numbers.get(member[0], set()).discard(member[1])

    def is_left_behind(self, transactional_id: str) -> bool:
        """A member of a family that was forgotten."""
        member = split_member(transactional_id)
        return member is not None and member[0] not in self._known

    def expire(self) -> list[Entry]:
        """Forget those that are over their time; what has to be appended. Their members are left behind."""
        now_ms = self._ledger.now_ms()
        over = [name for name, each in self._known.items() if is_family_expired(each, self._members(name), now_ms)]
        for name in over:
            del self._known[name]
            self._heard.pop(name, None)
        return [(_key(name), None) for name in over]

    # --- requests -------------------------------------------------------------------------------------------------

    async def _init(self, asked: InitFamily) -> Answer:
        check_transactional_id(asked.family, MAX_FAMILY_BYTES)
        members = self._members(asked.family)
        known = self._known.get(asked.family)
        change = init_family(known, members, asked, self._ledger.now_ms())
        mine = change.record or known
        assert mine is not None
        await self._change(asked.family, change)
        await self._until_ended(asked.family)
        now = check_driver(self._known.get(asked.family), asked.family, mine.epoch)
        return Response(FamilyInitialised(now.epoch, now.last_batch))

    async def _join(self, asked: JoinFamily) -> Answer:
        check_driver(self._known.get(asked.family), asked.family, asked.epoch)
        fresh = _NOBODY
        if next_member(self._members(asked.family))[1]:
            fresh = await self._ledger.take_fresh_id()
        family = check_driver(self._known.get(asked.family), asked.family, asked.epoch)
        record = join_family(family, self._members(asked.family), self._ledger.now_ms(), fresh)
        self._heard.setdefault(asked.family, self._ledger.now_ms())
        self._apply(record)
        await self._log.append([transaction_entry(record)])
        self._ledger.follow_up(record)
        return Response(FamilyJoined(record.transactional_id, record.producer_id, record.epoch))

    async def _end(self, asked: EndFamily) -> Answer:
        members = self._members(asked.family)
        change = end_family(self._known.get(asked.family), members, asked, self._ledger.now_ms())
        await self._change(asked.family, change)
        await self._until_ended(asked.family)
        now = check_driver(self._known.get(asked.family), asked.family, asked.epoch)
        return Response(FamilyEnded(now.last_batch))

    async def _keep(self, asked: KeepFamily) -> Answer:
        check_driver(self._known.get(asked.family), asked.family, asked.epoch)
        self._heard[asked.family] = self._ledger.now_ms()
        await self._log.settled()
        return None

    # --- changing -------------------------------------------------------------------------------------------------

    async def _change(self, name: str, change: FamilyChange) -> None:
        """Appended in one step: first what belongs together, then the rest. FamilyTooLarge: nothing was done."""
        decision = [transaction_entry(each) for each in change.commits]
        if change.record is not None:
            decision.insert(0, _family_entry(change.record))
        size = sum(len(key) + len(value or b"") for key, value in decision)
        if size > _MOST_BYTES:
            raise FamilyTooLarge(name, size, _MOST_BYTES)
        if change.record is not None:
            self._known[name] = change.record
            self._heard[name] = self._ledger.now_ms()
        appended = [self._log.append(decision)] if decision else []
        for record in (*change.commits, *change.aborts):
            self._apply(record)
        appended += [self._log.append([transaction_entry(each)]) for each in change.aborts]
        await _all_of(appended)
        await self._log.settled()  # where nothing changed: what the answer rests on
        for record in (*change.commits, *change.aborts):
            self._ledger.follow_up(record)

    def _apply(self, record: TransactionRecord) -> None:
        self.has_member(record.transactional_id)
        self._ledger.apply(record)

    async def _until_ended(self, name: str) -> None:
        """All members whose end is decided have their markers everywhere."""
        ending = [self._ledger.until_ended(member_id(name, each)) for each in sorted(self._members(name))]
        await asyncio.gather(*ending)

    def _members(self, name: str) -> dict[int, TransactionRecord]:
        found = ((number, self._ledger.known(member_id(name, number))) for number in self._numbers.get(name, ()))
        return {number: record for number, record in found if record is not None}


async def _all_of(appended: Sequence[asyncio.Future[None]]) -> None:
    for each in appended:
        await each


def _key(name: str) -> bytes:
    return FAMILY_PREFIX + name.encode()


def _family_entry(record: FamilyRecord) -> Entry:
    return _key(record.family), stored(record)
