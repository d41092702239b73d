"""Messages between a broker, its gateway for Kafka clients and the controller. Kinds 180 to 184, 204, 205.

The gateway dials its broker and tells the address at which it serves. The broker has that written into the metadata
log, and tells its gateway of all gateways; and of all users, if the gateway asks its clients who they are. The record,
kind 184, is in `metadata_records.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from raylog.actors.protocol.messages import Message, message


@message(kind=180)
@dataclass(frozen=True, slots=True)
class GatewayHello(Message):
    """Sent by a gateway to its broker. Answered with Done; an earlier process is killed."""

    pid: int
    address: str  # HOST:PORT, as clients are told it


@message(kind=181)
@dataclass(frozen=True, slots=True)
class StopGateway(Message):
    """Sent by the broker, one-way: end."""


class NamedGateway(NamedTuple):
    """A gateway that serves, by its broker."""

    broker_id: int
    address: str  # HOST:PORT
    rack: str


@message(kind=182)
@dataclass(frozen=True, slots=True)
class GatewaysServe(Message):
    """Sent by the broker to its gateway, one-way, whenever it changes: these and no others serve."""

    gateways: tuple[NamedGateway, ...]


@message(kind=183)
@dataclass(frozen=True, slots=True)
class ReportGateway(Message):
    """Sent by a broker to the controller: where its gateway serves. Done once that is in the metadata log."""

    broker_id: int
    address: str  # empty: it has none


@message(kind=204)
@dataclass(frozen=True, slots=True)
class FollowUsers(Message):
    """Sent by a gateway to its broker, behind its hello: tell all users, and each change. Answered with Done."""


class UserKeys(NamedTuple):
    """The fields of a `ScramCredential`. Nothing prints them."""

    user: str
    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"UserKeys({self.user!r}, {self.mechanism!r}, ...)"


@message(kind=205)
@dataclass(frozen=True, slots=True)
class UsersChanged(Message):
    """Sent by the broker to its gateway, one-way: credentials that are new or other ones, and those that are gone.

    `is_first`: what was told before this message does not count. `is_whole`: the gateway knows all users now.
    """

    keys: tuple[UserKeys, ...]
    removed: tuple[tuple[str, str], ...]  # user and mechanism
    is_first: bool
    is_whole: bool
