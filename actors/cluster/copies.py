"""Every copy there is of a partition: on running and missing brokers, in the sets of the record or not, set aside too.

    state       what it is
    leader      it leads
    live        its replica runs; `in_sync` and `eligible` tell whether it surely holds what was acknowledged
    rebooted    it runs, and may have lost its end
    blank       it runs, came back without its log, and may have fetched some of it since
    restored    it runs, and a person has put it there
    down        its replica does not run; what is known of its log is as old as its last registration
    set aside   it was about to be cut or removed, or was replaced
    damaged     it was set aside for its damage; its end is where that begins, and so far it can be restored

What cannot be known is −1. What a copy misses is the least number of records by which it is shorter than the largest of
all others, by their end offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from raylog.actors.cluster.election.leaderless import why_nobody_leads
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import ClusterState, Liveness, ReplicaKey
from raylog.actors.protocol.control_messages import SetAside
from raylog.storage.directory.doubts import BLANK, PROVEN, REBOOTED, RESTORED
from raylog.storage.directory.set_aside_names import DAMAGED

UNKNOWN: Final = -1
LEADER: Final = "leader"
LIVE: Final = "live"
DOWN: Final = "down"
SET_ASIDE: Final = "set aside"
_BY_DOUBT: Final = {PROVEN: LIVE, REBOOTED: "rebooted", BLANK: "blank", RESTORED: "restored"}


@dataclass(frozen=True, slots=True)
class SetAsideDescription:
    """A log that was set aside (`set_aside_names.py`). `unusable`: why it cannot be restored; else empty."""

    broker: int
    name: str
    topic: str
    partition: int
    at_ms: int
    why: str
    last_epoch: int
    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    unusable: str


@dataclass(frozen=True, slots=True)
class SetAsideListing:
    """The logs that were set aside, of the brokers that have answered."""

    logs: tuple[SetAsideDescription, ...]
    unreachable: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CopyDescription:
    """See the top of `actors/cluster/copies.py`."""

    broker: int
    state: str
    in_sync: bool
    eligible: bool
    last_epoch: int
    log_end_offset: int
    missing: int  # records that the largest other copy has beyond the end of this one
    size_bytes: int
    name: str  # of one that was set aside; else empty
    at_ms: int  # since when it is; else −1
    why: str  # it was set aside, or its broker's replica is no last member any more; else empty
    unusable: str


@dataclass(frozen=True, slots=True)
class PartitionCopies:
    """All copies of a partition, replicas first. `waits`: why it has no leader. `unreachable`: brokers not asked."""

    topic: str
    partition: int
    leader: int
    waits: str
    copies: tuple[CopyDescription, ...]
    unreachable: tuple[int, ...]


def set_aside_on(broker: int, told: SetAside) -> SetAsideDescription:
    return SetAsideDescription(
        broker, told.name, told.topic, told.partition, told.when_ms, told.why,
        told.last_epoch, told.log_start_offset, told.log_end_offset, told.size_bytes, told.unusable,
    )  # fmt: skip


def copies_of(
    state: ClusterState, live: Liveness, partition: PartitionState, aside: SetAsideListing
) -> PartitionCopies:
    """All copies: those of replicas, as far as is known, and those set aside."""
    name = state.name_of(partition)
    found = [_of_replica(state, live, partition, broker) for broker in partition.replicas]
    found += [_of_aside(each) for each in aside.logs]
    waits = why_nobody_leads(partition, name)
    copies = _with_missing(found)
    return PartitionCopies(name, partition.partition, partition.leader, waits, copies, aside.unreachable)


def what_is_lost(copies: PartitionCopies, chosen: CopyDescription) -> str:
    """Say in words what is lost if this copy leads."""
    others = [each for each in copies.copies if each is not chosen and each.log_end_offset > chosen.log_end_offset]
    largest = max(others, key=lambda each: each.log_end_offset, default=None)
    behind = f", and what it has itself behind its damage at offset {chosen.log_end_offset}"
    own = behind if chosen.state == DAMAGED else ""
    unseen = [f"broker {broker}" for broker in copies.unreachable]
    unseen += [f"broker {each.broker}" for each in copies.copies if each.state == DOWN and each is not chosen]
    hidden = f", and what only {' or '.join(dict.fromkeys(unseen))} has" if unseen else ""
    if largest is None:
        return f"what no copy that is known has any more{own}{hidden}"
    place = f"broker {largest.broker}" + (f" ({largest.name})" if largest.name else "")
    return f"{chosen.missing} records from offset {chosen.log_end_offset} on, which {place} has{own}{hidden}"


def _of_replica(state: ClusterState, live: Liveness, partition: PartitionState, broker: int) -> CopyDescription:
    key = ReplicaKey(*partition.id, broker)
    registered = state.replicas.get(key)
    runs = registered is not None and live.replicas.get(key) == registered.incarnation and broker in live.brokers
    last_epoch, end = (UNKNOWN, UNKNOWN) if registered is None else (registered.last_epoch, registered.log_end_offset)
    size = UNKNOWN
    said = None if registered is None else live.marks_of(key, registered.incarnation)
    if said is not None:
        last_epoch, end, size = said.last_epoch, said.log_end_offset, said.size_bytes
    return CopyDescription(
        broker=broker,
        state=_state_of(partition, broker, registered.unproven if runs and registered is not None else None),
        in_sync=broker in partition.isr,
        eligible=broker in partition.elr,
        last_epoch=last_epoch,
        log_end_offset=end,
        missing=UNKNOWN,
        size_bytes=size,
        name="",
        at_ms=UNKNOWN,
        why=dict(partition.lost).get(broker, ""),
        unusable="",
    )


def _state_of(partition: PartitionState, broker: int, doubt: str | None) -> str:
    """`doubt`: None where it does not run."""
    if doubt is None:
        return DOWN
    return LEADER if broker == partition.leader else _BY_DOUBT.get(doubt, doubt)


def _of_aside(each: SetAsideDescription) -> CopyDescription:
    return CopyDescription(
        broker=each.broker,
        state=DAMAGED if each.why == DAMAGED else SET_ASIDE,
        in_sync=False,
        eligible=False,
        last_epoch=each.last_epoch,
        log_end_offset=each.log_end_offset,
        missing=UNKNOWN,
        size_bytes=each.size_bytes,
        name=each.name,
        at_ms=each.at_ms,
        why=each.why,
        unusable=each.unusable,
    )


def _with_missing(found: Iterable[CopyDescription]) -> tuple[CopyDescription, ...]:
    copies = list(found)
    told = []
    for place, each in enumerate(copies):
        others = [other.log_end_offset for at, other in enumerate(copies) if at != place]
        most = max(others, default=UNKNOWN)
        is_known = UNKNOWN not in (each.log_end_offset, most)
        told.append(replace(each, missing=max(0, most - each.log_end_offset) if is_known else UNKNOWN))
    return tuple(told)
