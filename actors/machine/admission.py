"""The handshake by which two processes prove that they hold a secret of the cluster, before all else (rule 30).

    the side that connects (Dialer)                the side that accepts (Acceptor)
    ── Hello: role, endpoint, its nonce ─────────►  the endpoint must be one of its own
    ◄───────────────── Challenge: role, its nonce ──
    ── Proof: HMAC(secret, DIALER, transcript) ──►  compared with each key it has; else the stream ends without a word
    ◄── Proof: HMAC(secret, ACCEPTOR, transcript) ─
    compared; else the stream ends

    state     next message    then
    NEW       (Dialer) –      Hello is sent, WAITING
              (Acceptor) Hello  Challenge is sent, WAITING
    WAITING   (Dialer) Challenge  Proof is sent, PROVING
              (Acceptor) Proof    Proof is sent, ADMITTED
    PROVING   (Dialer) Proof      ADMITTED

HMAC is SHA-256; the transcript is the key's standing, version, both roles, the endpoint and both nonces, each with its
length before it. The dialler has one key, the acceptor all valid keys. The key that both have proved to hold decides
what the stream may be used for (rule 33).

What must stay true:
- A proof is good for one connection: it contains a fresh nonce of 32 bytes from each side. A replay fails.
- A proof is good in one direction: its first field says which side made it. A reflection fails, and so does a peer that
  repeats our nonce as its own.
- A proof is good for one endpoint: relaying a handshake to another process than the dialler meant fails there. (Only
  TLS helps against an attacker who stays on the wire.)
- A stranger sees a random number and nothing that depends on a secret. Every message out of turn, and every wrong
  field, ends the handshake in the same way.
- A role is printable text, so that a stranger's role is one word in a log and cannot forge a line of it.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Collection
from enum import Enum
from typing import Final, Protocol

from raylog.actors.protocol.cluster_secrets import Key
from raylog.actors.protocol.messages import FRAME_VERSION, Challenge, DoorFull, Hello, Message, Proof
from raylog.errors import InvalidConfig, PeerNotAdmitted, PeerUnreachable

NONCE_BYTES: Final = 32
MIN_SECRET_BYTES: Final = 16
MAX_ROLE_BYTES: Final = 64
MAX_ENDPOINT_BYTES: Final = 256

_PURPOSE: Final = b"raylog stream admission"
_DIALER: Final = b"dialer"
_ACCEPTOR: Final = b"acceptor"
_LENGTH: Final = struct.Struct(">I")


class _State(Enum):
    NEW = 0
    WAITING = 1
    PROVING = 2
    ADMITTED = 3
    REFUSED = 4


class Admission(Protocol):
    """One side of the handshake. It ends admitted, or in PeerNotAdmitted, which it raises from then on.

    PeerUnreachable: it was turned away before its proof was checked, and may try again.
    """

    @property
    def is_admitted(self) -> bool:
        """Return whether the peer has proved that it holds a key."""

    @property
    def peer_role(self) -> str:
        """Return the role that the peer claims; it is proved only once the peer is admitted."""

    @property
    def key(self) -> Key | None:
        """Return the key that both sides have proved to hold; None before."""

    def opening(self) -> Message | None:
        """Return the first message of this side; None: it waits for the other side's."""

    def step(self, message: Message) -> Message | None:
        """Take the peer's next message, and return what to answer."""


def _digest(key: Key, side: bytes, hello: Hello, challenge: Challenge) -> bytes:
    parts = (
        _PURPOSE,
        key.standing.value,
        side,
        bytes((FRAME_VERSION,)),
        hello.role.encode(),
        challenge.role.encode(),
        hello.endpoint.encode(),
        hello.nonce,
        challenge.nonce,
    )
    return hmac.new(key.secret, b"".join(_LENGTH.pack(len(part)) + part for part in parts), hashlib.sha256).digest()


def check_secret(secret: bytes) -> bytes:
    """Return the secret, if it is long enough: an empty key would admit any peer."""
    if len(secret) < MIN_SECRET_BYTES:
        raise InvalidConfig("secret", f"{len(secret)} bytes", f"at least {MIN_SECRET_BYTES} random bytes")
    return secret


def check_role(role: str) -> str:
    if not _is_role(role):
        raise InvalidConfig("role", role, f"1 to {MAX_ROLE_BYTES} bytes of printable text")
    return role


def _is_role(role: str) -> bool:
    return role.isprintable() and 0 < len(role.encode()) <= MAX_ROLE_BYTES


class _Side:
    """The common part of both sides: their keys, and that one wrong step ends the handshake for good."""

    def __init__(self, keys: Collection[Key], role: str, nonce: bytes, peer: str) -> None:
        if len(nonce) != NONCE_BYTES:
            raise InvalidConfig("nonce", f"{len(nonce)} bytes", f"{NONCE_BYTES} random bytes")
        for each in keys:
            check_secret(each.secret)
        self.key: Key | None = None  # once the peer has proved to hold it
        self._keys = keys
        self._role = check_role(role)
        self._nonce = nonce
        self._peer = peer
        self._state = _State.NEW
        self._hello: Hello | None = None
        self._challenge: Challenge | None = None
        self.peer_role = ""

    @property
    def is_admitted(self) -> bool:
        return self._state is _State.ADMITTED

    def _proof_of(self, key: Key, side: bytes) -> bytes:
        assert self._hello is not None
        assert self._challenge is not None
        return _digest(key, side, self._hello, self._challenge)

    def _check_proof(self, message: Message, side: bytes) -> Key:
        """Return the key that the peer has proved to hold."""
        if isinstance(message, Proof):
            for key in self._keys:
                if hmac.compare_digest(message.digest, self._proof_of(key, side)):
                    self.key = key
                    self._state = _State.ADMITTED
                    return key
        raise self._refusal("it did not prove that it holds this cluster's secret")

    def _check_introduction(self, role: str, nonce: bytes) -> None:
        if len(nonce) != NONCE_BYTES or hmac.compare_digest(nonce, self._nonce):
            raise self._refusal("its nonce is none")
        if not _is_role(role):
            raise self._refusal("it has no proper role")

    def _refusal(self, reason: str) -> PeerNotAdmitted:
        self._state = _State.REFUSED
        return PeerNotAdmitted(self._peer, reason)


class Dialer(_Side):
    """The side that connects. `endpoint` is the one that it means to reach."""

    def __init__(self, key: Key, role: str, endpoint: str, nonce: bytes) -> None:
        super().__init__((key,), role, nonce, endpoint)
        self._dialled_with = key
        if len(endpoint.encode()) > MAX_ENDPOINT_BYTES:
            raise InvalidConfig("endpoint", endpoint, f"at most {MAX_ENDPOINT_BYTES} bytes")
        self._endpoint = endpoint

    def opening(self) -> Message:
        self._hello = Hello(self._role, self._endpoint, self._nonce)
        self._state = _State.WAITING
        return self._hello

    def step(self, message: Message) -> Message | None:
        if self._state in (_State.WAITING, _State.PROVING) and isinstance(message, DoorFull):
            self._state = _State.REFUSED
            raise PeerUnreachable(self._peer, "too many peers that have not proved themselves wait there")
        if self._state is _State.WAITING and isinstance(message, Challenge):
            self._check_introduction(message.role, message.nonce)
            self._challenge = message
            self.peer_role = message.role
            self._state = _State.PROVING
            return Proof(self._proof_of(self._dialled_with, _DIALER))
        if self._state is _State.PROVING:
            self._check_proof(message, _ACCEPTOR)
            return None
        raise self._refusal("its messages are out of turn")


class Acceptor(_Side):
    """The side that accepts. `endpoints` are all endpoints under which others may dial it."""

    def __init__(
        self, keys: Collection[Key], role: str, endpoints: Collection[str], nonce: bytes, peer: str
    ) -> None:
        super().__init__(keys, role, nonce, peer)
        self._endpoints = endpoints

    def opening(self) -> None:
        return None

    def step(self, message: Message) -> Message | None:
        if self._state is _State.NEW and isinstance(message, Hello):
            self._check_introduction(message.role, message.nonce)
            if message.endpoint not in self._endpoints:
                raise self._refusal("it meant another endpoint")
            self._hello = message
            self.peer_role = message.role
            self._challenge = Challenge(self._role, self._nonce)
            self._state = _State.WAITING
            return self._challenge
        if self._state is _State.WAITING:
            return Proof(self._proof_of(self._check_proof(message, _DIALER), _ACCEPTOR))
        raise self._refusal("its messages are out of turn")
