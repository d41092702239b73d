"""One member of a classic group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from raylog.groups.records.classic_messages import ClassicMemberFields, JoinClassic, Protocols
from raylog.groups.rules.membership import Moment

_COST_OF_A_MEMBER: Final = 64  # in a record, beside its texts
_COST_OF_A_PROTOCOL: Final = 32


class ClassicMember:
    """One member: what it said of itself, what it was given, and when it was heard."""

    __slots__ = (
        "assignment", "client_id", "heard_at_ms", "host", "instance", "member_id", "protocols",
        "rebalance_timeout_ms", "session_timeout_ms",
    )  # fmt: skip

    def __init__(self, member_id: str, request: JoinClassic, at: Moment) -> None:
        self.member_id = member_id
        self.instance = request.instance
        self.assignment = b""
        self.take(request, at)

    def take(self, request: JoinClassic, at: Moment) -> None:
        """Note what it says of itself."""
        self.client_id = request.client_id
        self.host = request.host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.protocols: Protocols = request.protocols
        self.heard_at_ms = at.now_ms

    @property
    def session_ends_ms(self) -> int:
        """The moment when its session is over, unless it is heard before."""
        return self.heard_at_ms + self.session_timeout_ms

    def metadata(self, protocol: str) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def fields(self, protocol: str) -> ClassicMemberFields:
        """The member as it is written."""
        return (
            self.member_id, self.instance, self.client_id, self.host, self.session_timeout_ms,
            self.rebalance_timeout_ms, self.metadata(protocol), self.assignment,
        )  # fmt: skip


def size_of(member: ClassicMember, protocol: str | None = None) -> int:
    """Return how many bytes of its group's room it takes; with all protocols, or with that one alone."""
    texts = (member.member_id, member.instance, member.client_id, member.host)
    counted = [each for each in member.protocols if protocol in (None, each[0])]
    said = sum(_COST_OF_A_PROTOCOL + len(name) + len(metadata) for name, metadata in counted)
    return _COST_OF_A_MEMBER + 4 * sum(map(len, texts)) + said


def voted(members: Collection[ClassicMember], support: Mapping[str, int]) -> str:
    """Return the protocol that most members like best, of those that all know. `support`: how many know each."""
    count = len(members)
    votes = Counter(next(name for name, _ in member.protocols if support[name] == count) for member in members)
    return votes.most_common(1)[0][0]
