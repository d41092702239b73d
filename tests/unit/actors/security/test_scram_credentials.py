"""Credentials made of passwords, against the example of RFC 7677 and Python's own PBKDF2."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from raylog.actors.security.scram_credentials import MECHANISMS, new_credential
from raylog.errors import InvalidUser
from tests.unit.actors.security.examples import credential


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    made = new_credential("user", "SCRAM-SHA-256", "pencil", salt, 4096)
    nonces = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    told = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonces},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonces}".encode()
    signature = hmac.digest(made.server_key, told, "sha256")
    assert base64.b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_signature = hmac.digest(made.stored_key, told, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, client_signature, strict=True))
    assert MECHANISMS[made.mechanism].hash_name == "sha256"
    assert hashlib.sha256(client_key).digest() == made.stored_key


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_keys_have_the_size_of_their_hash_and_tell_nothing_of_the_password(mechanism: str) -> None:
    made = credential("ann", mechanism, "secret-1")
    assert len(made.stored_key) == len(made.server_key) == MECHANISMS[mechanism].size
    assert made != credential("ann", mechanism, "secret-2")
    assert repr(made) == f"ScramCredential(user='ann', mechanism='{mechanism}', iterations=4096)"


@pytest.mark.parametrize("password", ["", "p" * 1025])
def test_what_is_no_password_is_refused_without_being_told(password: str) -> None:
    with pytest.raises(InvalidUser) as refused:
        credential("ann", password=password)
    assert "ppp" not in str(refused.value)
