"""The requests of administrators as messages, from a gateway by way of any broker to the controller. Kinds 190, 191.

What is asked is an `AdminRequest` in plain values (`actors/cluster/admin_wire.py`). It may change the cluster, so it is
not for clients (rule 33): a gateway decides what its own clients may ask.
"""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.protocol.messages import Message, message


@message(kind=190)
@dataclass(frozen=True, slots=True)
class Administer(Message):
    """Sent by a gateway, passed on by its broker. Answered with Administered, or an error of the request's own.

    `seen`: the newest metadata version that the gateway has heard of. ControllerNotReady: this controller knows less,
    so there is another one by now.
    """

    call: str  # of the AdminRequest
    arguments: tuple[object, ...]  # its fields
    timeout_ms: int
    seen: int


@message(kind=191)
@dataclass(frozen=True, slots=True)
class Administered(Message):
    """The answer to Administer, and the metadata version as of which it is true."""

    answer: object
    version: int
