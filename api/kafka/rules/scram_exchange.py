"""The server's part of SCRAM (RFC 5802, RFC 7677): a client proves that it knows a password, without showing it.

    client   n,,n=USER,r=NONCE                        the user, and what makes this exchange unlike all others
    server   r=NONCE + its own,s=SALT,i=ROUNDS        what the client hashes its password with
    client   c=…,r=both nonces,p=PROOF                the client key, hidden under a signature by the stored key
    server   v=SIGNATURE                              the server knows the password's hash too

What must stay true:
- A user who is not there and a wrong password look alike: an unknown user gets a salt too, always the same one, and no
  proof fits. A refusal does not say which it was.
- Of a proof nothing is compared byte by byte in a time that would tell how many were right.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from binascii import Error as NotBase64
from collections.abc import Callable
from typing import Final

from raylog.actors.protocol.security_records import ScramCredential
from raylog.actors.security.scram_credentials import MECHANISMS
from raylog.errors import SaslRefused

# Of the first message: the header, which wants no channel binding; perhaps a user to act for; the user; the nonce.
_FIRST: Final = re.compile(r"([ny],(?:a=([^,]*))?,)(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+))")
_FINAL: Final = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)),p=([A-Za-z0-9+/=]+)")
_ESCAPED: Final = re.compile("=(2C|3D)?")
NOT_PROVED: Final = "the user is unknown, or the password is wrong"


class ScramExchange:
    """One exchange. `credential_of` returns what to check a user by, known or not; `nonce`: nobody can guess it."""

    def __init__(self, mechanism: str, credential_of: Callable[[str], ScramCredential], nonce: str) -> None:
        self.user = ""  # who the client says it is
        self._hash = MECHANISMS[mechanism].hash_name
        self._credential_of = credential_of
        self._nonce = nonce
        self._header = ""
        self._so_far = ""
        self._credential: ScramCredential | None = None

    @property
    def credential(self) -> ScramCredential:
        """The keys that the client is checked by, once its first message was taken."""
        assert self._credential is not None
        return self._credential

    def first(self, message: bytes) -> bytes:
        """Return the answer to the client's first message. SaslRefused."""
        found = _FIRST.fullmatch(_text(message))
        if found is None:
            raise SaslRefused("its first message is none of SCRAM, or wants what is not there")
        self._header, acts_for, bare, user, nonce = found.groups()
        self.user = _unescaped(user)
        if acts_for and _unescaped(acts_for) != self.user:
            raise SaslRefused("nobody acts for another user")
        held = self._credential = self._credential_of(self.user)
        self._nonce = nonce + self._nonce
        answer = f"r={self._nonce},s={base64.b64encode(held.salt).decode()},i={held.iterations}"
        self._so_far = f"{bare},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        """Return the answer to the client's last message, who has proved then that it is `user`. SaslRefused."""
        found = _FINAL.fullmatch(_text(message))
        if found is None or self._credential is None:
            raise SaslRefused("its last message is none of SCRAM")
        bare, header, nonce, proof = found.groups()
        if _decoded(header) != self._header.encode() or not hmac.compare_digest(nonce, self._nonce):
            raise SaslRefused("its last message belongs to another exchange")
        told = f"{self._so_far},{bare}".encode()
        signature = hmac.digest(self._credential.stored_key, told, self._hash)
        given = _decoded(proof)
        if len(given) != len(signature):
            raise SaslRefused(NOT_PROVED)
        client_key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), self._credential.stored_key):
            raise SaslRefused(NOT_PROVED)
        return b"v=" + base64.b64encode(hmac.digest(self._credential.server_key, told, self._hash))


def plain_message(message: bytes) -> tuple[str, str]:
    """Return user and password of a message of PLAIN (RFC 4616). SaslRefused."""
    parts = _text(message).split("\0")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise SaslRefused("its message is none of PLAIN")
    acts_for, user, password = parts
    if acts_for not in ("", user):
        raise SaslRefused("nobody acts for another user")
    return user, password


def check_password(credential: ScramCredential, password: str) -> None:
    """Check a password that was told, by hashing it, which is slow. SaslRefused."""
    name = MECHANISMS[credential.mechanism].hash_name
    salted = hashlib.pbkdf2_hmac(name, password.encode(), credential.salt, credential.iterations)
    stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    if not hmac.compare_digest(stored_key, credential.stored_key):
        raise SaslRefused(NOT_PROVED)


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslRefused("its message is no UTF-8") from None


def _unescaped(name: str) -> str:
    def sign(found: re.Match[str]) -> str:
        if found[1] is None:
            raise SaslRefused("a name has an equals sign that is not written as =3D")
        return "," if found[1] == "2C" else "="

    return _ESCAPED.sub(sign, name)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except NotBase64:
        raise SaslRefused("its last message is none of SCRAM") from None
