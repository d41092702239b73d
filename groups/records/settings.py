"""Settings of a coordinator, and the bounds of what a member may say: checked once, where it enters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.actors.protocol.names import refused_character
from raylog.config import MIB
from raylog.errors import InvalidGroupId, InvalidMembership, InvalidRequest, RaylogError
from raylog.groups.assignors.calling import check_assignor
from raylog.groups.records.classic_messages import JoinClassic
from raylog.groups.records.messages import GroupHeartbeat, Profile
from raylog.groups.records.topic_patterns import check_pattern

MAX_NAME_BYTES: Final = 255
_MAX_TOPICS_BYTES: Final = 256 * 1024  # of all names together: they are one record
_MAX_PROTOCOLS: Final = 100  # of one member of a classic group
_SHOWN: Final = 40


@dataclass(frozen=True)
class GroupSettings:
    heartbeat_interval_ms: int = 3_000  # what members are told, and the longest a heartbeat waits for news
    min_session_timeout_ms: int = 1_000
    max_session_timeout_ms: int = 1_800_000
    max_members: int = 2_000  # of one group
    max_promised_ids: int = 5_000  # given out for groups that have no members, and not used yet
    # What members of a classic group say of themselves: 2,000 of them 4 KiB each, as of 50 topics in two protocols.
    max_classic_bytes: int = 8 * MIB
    max_classic_record_bytes: int = 7 * MIB  # the part of it that counts, and the assignments: the topic takes 8 MiB
    max_all_classic_bytes: int = 64 * MIB  # of all groups of a coordinator (rule 34)
    min_classic_bytes: int = MIB  # that each group may have, however much the others have
    initial_rebalance_delay_ms: int = 500  # in which the first members of a classic group are waited for
    max_metadata_bytes: int = 4_096  # the text beside an offset
    offsets_retention_ms: int = 7 * 24 * 3_600_000  # after the group's last member, or the commit
    producer_retention_ms: int = 24 * 3_600_000  # how long a transaction's end is remembered
    expiry_check_ms: int = 600_000
    missing_topic_ms: int = 60_000  # offsets of a topic that is gone for so long are deleted
    rebalance_delay_ms: int = 10  # members that come or go within it cost one assignment
    assignor_retry_ms: int = 30_000  # after one that failed, and the longest that a group which changes waits for it
    assignor_seconds: float = 5.0  # that one has for a call
    assignors: frozenset[str] = frozenset()  # foreign ones that members may ask for (`group.assignors`)
    commit_timeout_ms: int = 30_000  # how long a request waits to be replicated
    confirm_ms: int = 3_000  # how often an idle coordinator makes sure that it was not replaced
    max_unconfirmed_ms: int = 10_000  # after so long without that it answers nobody
    load_timeout_ms: int = 300_000
    max_batch_bytes: int = 512 * 1024


def check_group_id(group: str) -> None:
    """Raise InvalidGroupId."""
    size = _size(group)
    refused = refused_character(group)
    if refused or not 0 < size <= MAX_NAME_BYTES:
        raise InvalidGroupId(size, group[:_SHOWN], ascii(refused) if refused else "")


def check_heartbeat(request: GroupHeartbeat, settings: GroupSettings) -> None:
    """Check what can be told of a heartbeat without looking at its group. InvalidGroupId, InvalidMembership, and
    others.
    """
    check_group_id(request.group)
    if not 0 < _size(request.member) <= MAX_NAME_BYTES:
        raise _invalid(request, f"a member id has 1 to {MAX_NAME_BYTES} bytes")
    if request.profile is not None:
        _check_profile(request, Profile(*request.profile), settings)
    elif request.epoch == 0:
        raise _invalid(request, "whoever joins says who it is and what it subscribes to")


def check_join(request: JoinClassic, settings: GroupSettings) -> None:
    """Check what can be told of a join without looking at its group. InvalidGroupId, InvalidRequest; InvalidMembership
    where the session time-out is not one that is allowed.
    """
    check_group_id(request.group)
    texts = (request.member, request.new_member, request.instance, request.client_id, request.host)
    names = (request.protocol_type, *(name for name, _ in request.protocols))
    if not (request.member or request.new_member) or any(_size(each) > MAX_NAME_BYTES for each in (*texts, *names)):
        raise InvalidRequest(f"A member of a classic group has names of at most {MAX_NAME_BYTES} bytes, and an id.")
    if len(request.protocols) > _MAX_PROTOCOLS:
        raise InvalidRequest(f"A member of a classic group has at most {_MAX_PROTOCOLS} protocols.")
    if request.rebalance_timeout_ms < 1:
        raise InvalidRequest(f"A rebalance time-out of {request.rebalance_timeout_ms} ms.")
    shortest, longest = settings.min_session_timeout_ms, settings.max_session_timeout_ms
    if not shortest <= request.session_timeout_ms <= longest:
        reason = f"session_timeout_ms is {request.session_timeout_ms}, not {shortest} to {longest}"
        raise InvalidMembership(request.group, request.member[:_SHOWN], reason)


def _check_profile(request: GroupHeartbeat, profile: Profile, settings: GroupSettings) -> None:
    for what in ("instance_id", "rack", "client_id", "host"):
        if _size(getattr(profile, what)) > MAX_NAME_BYTES:
            raise _invalid(request, f"its {what} has more than {MAX_NAME_BYTES} bytes")
    shortest, longest = settings.min_session_timeout_ms, settings.max_session_timeout_ms
    if not shortest <= profile.session_timeout_ms <= longest:
        raise _invalid(request, f"session_timeout_ms is {profile.session_timeout_ms}, not {shortest} to {longest}")
    if profile.rebalance_timeout_ms < 1:
        raise _invalid(request, f"a rebalance timeout of {profile.rebalance_timeout_ms} ms")
    sizes = [_size(each) for each in profile.topics]
    if sum(sizes) > _MAX_TOPICS_BYTES or not all(0 < size <= MAX_NAME_BYTES for size in sizes):
        raise _invalid(request, f"over {_MAX_TOPICS_BYTES} bytes of topics, or a name that no topic can have")
    if profile.assignor:
        check_assignor(profile.assignor, settings.assignors)
    check_pattern(request.group, profile.pattern)


def _invalid(request: GroupHeartbeat, reason: str) -> RaylogError:
    return InvalidMembership(request.group[:MAX_NAME_BYTES], request.member[:_SHOWN], reason)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
