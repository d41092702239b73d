"""Credentials of users, made of their passwords (RFC 5802, RFC 7677).

    salted password   PBKDF2 of password and salt, so often that guessing is slow
    stored key        H(HMAC(salted password, "Client Key"))     a client proves that it knows what is hashed here
    server key        HMAC(salted password, "Server Key")        the other side proves itself by this

What must stay true: this is done where the password is typed, and the password goes no further. As in Kafka and its
clients, it counts as its bytes in UTF-8, and is not brought into another form first.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final, NamedTuple

from raylog.actors.protocol.security_names import SCRAM_MECHANISMS
from raylog.actors.protocol.security_records import ScramCredential
from raylog.errors import InvalidUser

LEAST_ITERATIONS: Final = 4096  # RFC 7677
MOST_ITERATIONS: Final = 16_384  # as in Kafka: each login of a client costs them
DEFAULT_ITERATIONS: Final = 8192
SALT_BYTES: Final = 16
_MOST_PASSWORD_BYTES: Final = 1024


class Mechanism(NamedTuple):
    """A mechanism of SCRAM: its hash, and how many bytes that has."""

    hash_name: str
    size: int


MECHANISMS: Final[Mapping[str, Mechanism]] = {
    name: Mechanism(hash_name, size)
    for name, (hash_name, size) in zip(SCRAM_MECHANISMS, (("sha256", 32), ("sha512", 64)), strict=True)
}


def new_credential(user: str, mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a user. InvalidUser: this is no password. `salt`: SALT_BYTES freshly drawn bytes."""
    secret = password.encode()
    if not 0 < len(secret) <= _MOST_PASSWORD_BYTES:
        raise InvalidUser(user, f"its password has {len(secret)} bytes, and may have 1 to {_MOST_PASSWORD_BYTES}")
    name = MECHANISMS[mechanism].hash_name
    salted = hashlib.pbkdf2_hmac(name, secret, salt, iterations)
    stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    server_key = hmac.digest(salted, b"Server Key", name)
    return ScramCredential(user, mechanism, salt, iterations, stored_key, server_key)
