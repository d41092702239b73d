"""Transaction families: many producers, one decision. Decides, and touches nothing.

A job writes each of its batches by many tasks, on many machines, some of them twice. Each task attempt is a member of
the job's family: a transactional id of its own (`family\\x1f3`), and so a transaction of its own, which it leaves open.
The driver says which of them count.

    driver ──InitFamily──► epoch + 1, the last batch that was committed; what the driver before left open is aborted
    task   ──JoinFamily──► an open transaction                (then it writes as any producer does, and never ends it)
    driver ──EndFamily(batch, winners)──► one append: PREPARE_COMMIT of all winners and the batch's number
                                          behind it: PREPARE_ABORT of all other members that are open

What must stay true:
- The winners' outcome and the number of the batch are one append to `__transaction_state`: all is there, or nothing.
- A batch is committed at most once, and only under the newest epoch; if one winner is not open any more, none counts.
- A member's (producer id, epoch) is given out once: each end raises it, as everywhere (rule 20). So a task attempt that
  comes late finds its transaction ended, whoever uses its transactional id by then.
- All members of a family have one coordinator: the hash goes by the family (`names.coordinator_hash`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from raylog.actors.protocol.names import FAMILY_SEPARATOR
from raylog.actors.protocol.transaction_family_messages import EndFamily, FamilyRecord, InitFamily
from raylog.actors.protocol.transaction_messages import MAX_TIMEOUT_MS, TransactionRecord
from raylog.actors.transactions.rules.transaction import LAST_EPOCH, Phase, ended_with_family, opened_for_family
from raylog.errors import FamilyFenced, InvalidTransactionTimeout

NO_BATCH: Final = -1
FOR_EVER: Final = -1
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,9}")

Members = Mapping[int, TransactionRecord]  # by their numbers


class FamilyChange(NamedTuple):
    """`record` None: as it was. `commits`: appended with the record, in one batch; `aborts`: behind it, one by one."""

    record: FamilyRecord | None
    commits: tuple[TransactionRecord, ...]
    aborts: tuple[TransactionRecord, ...]


def member_id(family: str, number: int) -> str:
    return f"{family}{FAMILY_SEPARATOR}{number}"


def split_member(transactional_id: str) -> tuple[str, int] | None:
    """(family, number), or None: it is no member's id, as `member_id` makes them."""
    family, _, number = transactional_id.partition(FAMILY_SEPARATOR)
    return (family, int(number)) if _NUMBER.fullmatch(number) else None


# --- the driver ---------------------------------------------------------------------------------------------------


def init_family(known: FamilyRecord | None, members: Members, request: InitFamily, now_ms: int) -> FamilyChange:
    """InvalidTransactionTimeout."""
    if not 0 < request.timeout_ms <= MAX_TIMEOUT_MS:
        raise InvalidTransactionTimeout(request.timeout_ms, MAX_TIMEOUT_MS)
    if known is not None and known.holder == request.holder:
        return FamilyChange(None, (), ())
    record = FamilyRecord(
        request.family,
        now_ms if known is None else known.epoch + 1,  # so the driver of one that was forgotten does not fit by chance
        request.holder,
        request.timeout_ms,
        request.keep_ms,
        NO_BATCH if known is None else known.last_batch,
        now_ms,
    )
    return FamilyChange(record, (), _aborted(_open(members), now_ms))


def end_family(known: FamilyRecord | None, members: Members, request: EndFamily, now_ms: int) -> FamilyChange:
    """FamilyFenced."""
    family = check_driver(known, request.family, request.epoch)
    still_open = _open(members)
    if request.batch <= family.last_batch:  # none, or one that was committed before
        return FamilyChange(None, (), _aborted(still_open, now_ms))
    winners = [_winner(members, *each) for each in dict.fromkeys(request.winners)]
    if None in winners:
        return FamilyChange(None, (), _aborted(still_open, now_ms))
    commits = tuple(ended_with_family(each, True, now_ms) for each in winners if each is not None)
    numbers = {number for number, _, _ in request.winners}
    losers = {number: each for number, each in still_open.items() if number not in numbers}
    record = replace(family, last_batch=request.batch, changed_ms=now_ms)
    return FamilyChange(record, commits, _aborted(losers, now_ms))


def check_driver(known: FamilyRecord | None, name: str, epoch: int) -> FamilyRecord:
    """FamilyFenced: another driver has it by now, or it was forgotten."""
    if known is None or known.epoch != epoch:
        raise FamilyFenced(name, epoch, NO_BATCH if known is None else known.epoch)
    return known


# --- members ------------------------------------------------------------------------------------------------------


def next_member(members: Members) -> tuple[int, bool]:
    """The number of a member that is free to be used (again), and whether that takes a fresh producer id."""
    free = [number for number, each in members.items() if Phase(each.phase).is_idle]
    if not free:
        return max(members, default=-1) + 1, True
    number = min(free, key=lambda each: (members[each].epoch >= LAST_EPOCH, each))
    return number, members[number].epoch >= LAST_EPOCH


def join_family(family: FamilyRecord, members: Members, now_ms: int, fresh_id: int) -> TransactionRecord:
    """A member whose transaction is open. `fresh_id`: for the one that `next_member` says needs it."""
    number, is_fresh = next_member(members)
    name = member_id(family.family, number)
    known = None if is_fresh else members[number]
    return opened_for_family(known, name, fresh_id, family.timeout_ms, now_ms)


def is_family_expired(family: FamilyRecord, members: Members, now_ms: int) -> bool:
    """Whether it may be forgotten, and its members with it."""
    if family.keep_ms == FOR_EVER or now_ms - family.changed_ms < family.keep_ms:
        return False
    return all(Phase(each.phase).is_idle for each in members.values())


def _open(members: Members) -> dict[int, TransactionRecord]:
    return {number: each for number, each in members.items() if each.phase == Phase.ONGOING}


def _aborted(members: Members, now_ms: int) -> tuple[TransactionRecord, ...]:
    return tuple(ended_with_family(each, False, now_ms) for each in members.values())


def _winner(members: Members, number: int, producer_id: int, epoch: int) -> TransactionRecord | None:
    """The record of a winner. None: its transaction has ended."""
    known = members.get(number)
    if known is None or known.phase != Phase.ONGOING or (known.producer_id, known.epoch) != (producer_id, epoch):
        return None
    return known
