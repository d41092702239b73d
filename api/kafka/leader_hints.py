"""Hints to clients about who leads (KIP-951): beside the error that a partition's leader is another one, its name.

A client that takes the hint goes to the new leader without asking for metadata first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.named_brokers import GatewayAddress, Gateways

_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class LeaderHints:
    """The hints of one answer. `message` is its name."""

    def __init__(self, gateways: Gateways, message: str) -> None:
        self._gateways = gateways
        self._message = message
        self._named: dict[int, GatewayAddress] = {}

    def hint(self, code: ErrorCode, leader: Callable[[], PartitionLeader | None]) -> Any:
        """Return the hint that belongs to this error. None: the error is about something else, or nobody leads."""
        known = leader() if code in _MOVED else None
        if known is None or known.broker < 0:
            return None
        named = self._gateways.for_leader(known.broker, known.topic_id, known.partition)
        if named is None:
            return None
        self._named[named.broker_id] = named
        return message_type(self._message, "LeaderIdAndEpoch")(named.broker_id, known.epoch)

    def endpoints(self) -> list[Any]:
        """Return where those that were named are found."""
        endpoint = message_type(self._message, "NodeEndpoint")
        return [endpoint(each.broker_id, each.host, each.port, each.rack or None) for each in self._named.values()]
