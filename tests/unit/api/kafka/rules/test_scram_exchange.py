"""The server's part of SCRAM against the example of RFC 7677, and against a client that is written here."""

from __future__ import annotations

import base64
import hashlib
import hmac
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.protocol.security_names import SCRAM_MECHANISMS
from raylog.actors.protocol.security_records import ScramCredential
from raylog.actors.security.scram_credentials import LEAST_ITERATIONS, MECHANISMS, new_credential
from raylog.api.kafka.rules.scram_exchange import ScramExchange, check_password, plain_message
from raylog.errors import SaslRefused
from tests.unit.actors.security.examples import credential

_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
_THEIRS = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p="
_PROOF = b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="

users = st.text(st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def example() -> ScramExchange:
    held = new_credential("user", "SCRAM-SHA-256", "pencil", _SALT, 4096)
    return ScramExchange("SCRAM-SHA-256", lambda _: held, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")


def test_the_example_of_rfc_7677() -> None:
    server = example()
    assert server.first(_FIRST) == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert server.final(_THEIRS + _PROOF) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


class Client:
    """The other side, by RFC 5802."""

    def __init__(self, mechanism: str, user: str, password: str, header: str = "n,,") -> None:
        self._hash = MECHANISMS[mechanism].hash_name
        self._password = password
        self._header = header
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r=theirs"
        self.first = f"{header}{self._bare}".encode()
        self._signature = b""

    def final(self, challenge: bytes) -> bytes:
        told = dict(each.split("=", 1) for each in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._password.encode(), base64.b64decode(told["s"]), int(told["i"])
        )
        bare = f"c={base64.b64encode(self._header.encode()).decode()},r={told['r']}"
        said = f"{self._bare},{challenge.decode()},{bare}".encode()
        key = hmac.digest(salted, b"Client Key", self._hash)
        signature = hmac.digest(hashlib.new(self._hash, key).digest(), said, self._hash)
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), said, self._hash)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()

    def check(self, answer: bytes) -> None:
        assert base64.b64decode(answer.removeprefix(b"v=")) == self._signature


def admitted(client: Client, held: ScramCredential) -> str:
    """Return the user that the server takes the client for. SaslRefused."""
    server = ScramExchange(held.mechanism, lambda _: held, "ours")
    client.check(server.final(client.final(server.first(client.first))))
    return server.user


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
@given(user=users, password=users, header=st.sampled_from(["n,,", "y,,"]))
def test_who_knows_the_password_is_admitted_and_the_server_proves_itself(
    mechanism: str, user: str, password: str, header: str
) -> None:
    held = credential(user, mechanism, password)
    assert admitted(Client(mechanism, user, password, header), held) == user
    with pytest.raises(SaslRefused, match="password is wrong"):
        admitted(Client(mechanism, user, password + "x", header), held)


@given(st.integers(0, len(_THEIRS + _PROOF) - 3), st.integers(1, 255))  # the last letters have bits that say nothing
def test_no_other_bytes_are_a_proof(place: int, flip: int) -> None:
    server = example()
    server.first(_FIRST)
    message = bytearray(_THEIRS + _PROOF)
    message[place] ^= flip
    with pytest.raises(SaslRefused):
        server.final(bytes(message))


@given(st.binary(max_size=60))
def test_whatever_comes_is_answered_or_refused(message: bytes) -> None:
    with suppress(SaslRefused):
        example().first(message)
    with pytest.raises(SaslRefused):
        example().final(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"p=tls-unique,,n=user,r=x",  # no binding of channels
        b"n,,n=user,r=",
        b"n,,n=,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=user,r=x,tokenauth=true",
        b"n,,m=needed,n=user,r=x",
        b"n,a=other,n=user,r=x",
        b"n,,n=us\xffer,r=x",
    ],
)
def test_some_first_messages_are_refused(message: bytes) -> None:
    with pytest.raises(SaslRefused):
        example().first(message)


def test_a_user_may_name_himself_as_the_one_he_acts_for() -> None:
    server = example()
    server.first(b"n,a=us=2Cer,n=us=2Cer,r=x")
    assert server.user == "us,er"


@pytest.mark.parametrize(
    "message",
    [
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO,p=" + _PROOF,  # the client's nonce alone
        b"c=eSws," + _THEIRS.partition(b",")[2] + _PROOF,  # another header
        _THEIRS + b"AAAA",
        _THEIRS + b"A",
        _THEIRS,
    ],
)
def test_some_last_messages_are_refused(message: bytes) -> None:
    server = example()
    server.first(_FIRST)
    with pytest.raises(SaslRefused):
        server.final(message)


# --- PLAIN ------------------------------------------------------------------------------------------------------------


@given(users, users)
def test_a_message_of_plain_has_user_and_password(user: str, password: str) -> None:
    for acts_for in ("", user):
        assert plain_message(f"{acts_for}\0{user}\0{password}".encode()) == (user, password)


@pytest.mark.parametrize("message", [b"", b"\0\0", b"\0ann\0", b"\0\0secret", b"bob\0ann\0secret", b"\0ann\0a\0b"])
def test_what_is_no_message_of_plain_is_refused(message: bytes) -> None:
    with pytest.raises(SaslRefused):
        plain_message(message)


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_a_password_is_checked_by_the_keys_of_either_mechanism(mechanism: str) -> None:
    held = new_credential("ann", mechanism, "secret", _SALT, LEAST_ITERATIONS)
    check_password(held, "secret")
    with pytest.raises(SaslRefused):
        check_password(held, "Secret")
