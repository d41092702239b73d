"""Records of `__consumer_offsets` as lines of text: for the dump of a segment.

    python -m raylog.groups.dump PATH      the dump, with these records decoded
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from raylog.actors.protocol.coordinator_records import CLAIM_KEY
from raylog.actors.protocol.messages import Message
from raylog.groups.records.classic_messages import ClassicKey, ClassicValue
from raylog.groups.records.messages import Profile
from raylog.groups.records.records import (
    OFFSETS_TOPIC,
    Claim,
    ClaimKey,
    CurrentKey,
    CurrentValue,
    GroupKey,
    GroupValue,
    MemberKey,
    MemberValue,
    OffsetKey,
    OffsetValue,
    OwnedPartition,
    StagedKey,
    StagedValue,
    TargetKey,
    TargetValue,
    TransactionEnd,
    TransactionKey,
    decode,
)
from raylog.groups.rules.membership import member_text
from raylog.storage.dump.formats import RECORD_FORMATS

_ID_BYTES_SHOWN: Final = 4


def describe_group_record(key: bytes | None, value: bytes | None) -> str:
    """Raises FrameInvalid, MessageUnknown where it is none."""
    if key == CLAIM_KEY:  # of the log below, whatever kind of coordinator writes there
        return f"claimed under producer epoch {(value or b'?').decode()}"
    key_message, value_message = decode(key, value)
    subject = _SUBJECTS[type(key_message)](key_message)
    if value_message is None:
        return f"{subject}: no more"
    return f"{subject}: {_VALUES[type(value_message)](value_message)}"


_SUBJECTS: Final[dict[type[Message], Callable[[Any], str]]] = {
    ClaimKey: lambda _key: "coordinator",
    GroupKey: lambda key: f"group {key.group}",
    MemberKey: lambda key: f"group {key.group}, member {key.member}",
    TargetKey: lambda key: f"group {key.group}, target of {key.member}",
    CurrentKey: lambda key: f"group {key.group}, assignment of {key.member}",
    OffsetKey: lambda key: f"group {key.group}, offset of {_partition(key.topic_id, key.partition)}",
    StagedKey: lambda key: (
        f"group {key.group}, offset of {_partition(key.topic_id, key.partition)} staged by producer {key.producer_id}"
    ),
    TransactionKey: lambda key: f"transactions of producer {key.producer_id}",
    ClassicKey: lambda key: f"classic group {key.group}",
}


def _partition(topic_id: bytes, partition: int) -> str:
    return f"{topic_id[-_ID_BYTES_SHOWN:].hex()}-{partition}"


def _group(value: GroupValue) -> str:
    state = "with members" if value.empty_since_ms < 0 else f"empty since {value.empty_since_ms}"
    topics = ", ".join(f"{topic_id[-_ID_BYTES_SHOWN:].hex()} ({count})" for topic_id, count in value.topics)
    made = f"targets of epoch {value.target_epoch}"
    if value.assignor:
        made += f" by {value.assignor} of topics {topics or 'none'} at metadata version {value.metadata_version}"
    return f"epoch {value.epoch} because {value.reason or 'nothing'}; {made}; {state}"


def _member(value: MemberValue) -> str:
    profile = Profile(*value.profile)
    wants = " ".join(filter(None, (", ".join(profile.topics), profile.pattern and f"/{profile.pattern}/")))
    times = f"session {profile.session_timeout_ms} ms, rebalance {profile.rebalance_timeout_ms} ms"
    who = member_text("", profile).strip() or "(nothing told)"
    return f"{who} wants {wants or 'nothing'} by {profile.assignor or 'any assignor'}; {times}"


def _target(value: TargetValue) -> str:
    shown = [_partition(topic_id, number) for topic_id, numbers in value.partitions for number in numbers]
    return ", ".join(shown) or "nothing"


def _owned(partitions: tuple[OwnedPartition, ...]) -> str:
    return ", ".join(f"{_partition(of, number)} since {epoch}" for of, number, epoch in partitions) or "nothing"


def _current(value: CurrentValue) -> str:
    gives_up = f"; gives up {_owned(value.revoking)}" if value.revoking else ""
    return f"epoch {value.epoch} (before {value.previous_epoch}), owns {_owned(value.assigned)}{gives_up}"


def _offset(value: OffsetValue) -> str:
    text = f", text {value.metadata!r}" if value.metadata else ""
    epoch = f", leader epoch {value.leader_epoch}" if value.leader_epoch >= 0 else ""
    return f"{value.offset} of topic {value.topic or '(unknown)'}{epoch}{text}, at {value.committed_at_ms}"


def _staged(value: StagedValue) -> str:
    text = f", text {value.metadata!r}" if value.metadata else ""
    return f"{value.offset} of topic {value.topic or '(unknown)'}, producer epoch {value.producer_epoch}{text}"


def _classic(value: ClassicValue) -> str:
    state = "with members" if value.empty_since_ms < 0 else f"empty since {value.empty_since_ms}"
    members = ", ".join(f"{each[0]} ({len(each[-1])} bytes)" for each in value.members)
    return f"generation {value.generation} by {value.protocol or 'nothing'}; {state}; assigned: {members or 'nothing'}"


_VALUES: Final[dict[type[Message], Callable[[Any], str]]] = {
    Claim: lambda value: f"epoch {value.coordinator_epoch}",
    GroupValue: _group,
    MemberValue: _member,
    TargetValue: _target,
    CurrentValue: _current,
    OffsetValue: _offset,
    StagedValue: _staged,
    ClassicValue: _classic,
    TransactionEnd: lambda value: (
        f"epoch {value.producer_epoch} has ended, by coordinator epoch {value.coordinator_epoch}"
    ),
}

RECORD_FORMATS[OFFSETS_TOPIC] = describe_group_record
