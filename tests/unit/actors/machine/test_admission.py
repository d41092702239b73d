"""Admission: holders of the secret find each other; nobody else gets a byte that depends on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.machine.admission import MAX_ENDPOINT_BYTES, MAX_ROLE_BYTES, Acceptor, Dialer
from raylog.actors.protocol.cluster_secrets import Key, Standing
from raylog.actors.protocol.messages import (
    HEADER_BYTES,
    MAX_ADMISSION_FRAME_BYTES,
    Challenge,
    Done,
    DoorFull,
    Hello,
    Message,
    Ping,
    Proof,
    pack,
)
from raylog.errors import InvalidConfig, PeerNotAdmitted, PeerUnreachable

_SECRET = b"s" * 32
_OURS = Key(Standing.INTERNAL, _SECRET)
_HERE = "unix:/run/a.sock"


def dialer(key: Key = _OURS, endpoint: str = _HERE, nonce: bytes = b"d" * 32) -> Dialer:
    return Dialer(key, "client", endpoint, nonce)


def acceptor(*keys: Key, nonce: bytes = b"a" * 32) -> Acceptor:
    return Acceptor(keys or (_OURS,), "broker 1", {_HERE, "tcp:h:1"}, nonce, "a stranger")


def shake(one: Dialer, other: Acceptor) -> list[Message]:
    """Carry the messages over until nobody has anything to say."""
    said: list[Message] = [one.opening()]
    while True:
        answer = other.step(said[-1])
        if answer is None:
            return said
        said.append(answer)
        reply = one.step(answer)
        if reply is None:
            return said
        said.append(reply)


def proof(message: Message | None) -> Proof:
    assert isinstance(message, Proof)
    return message


@pytest.mark.parametrize("endpoint", [_HERE, "tcp:h:1"])
def test_both_are_admitted_and_know_each_other(endpoint: str) -> None:
    one, other = dialer(endpoint=endpoint), acceptor()
    shake(one, other)
    assert one.is_admitted
    assert other.is_admitted
    assert one.peer_role == "broker 1"
    assert other.peer_role == "client"


def test_a_dialer_without_the_secret_gets_nothing_that_depends_on_it() -> None:
    stranger, other = dialer(key=Key(Standing.INTERNAL, b"x" * 32)), acceptor()
    challenge = other.step(stranger.opening())
    assert challenge == Challenge("broker 1", b"a" * 32)
    with pytest.raises(PeerNotAdmitted):
        other.step(proof(stranger.step(challenge)))
    assert not other.is_admitted


def test_an_acceptor_without_the_secret_is_found_out() -> None:
    one, fake = dialer(), acceptor(Key(Standing.INTERNAL, b"x" * 32))
    challenge = fake.step(one.opening())
    assert challenge is not None
    one.step(challenge)
    with pytest.raises(PeerNotAdmitted):
        one.step(Proof(bytes(32)))
    assert not one.is_admitted


def test_a_replayed_handshake_fails_at_another_nonce() -> None:
    said = shake(dialer(), acceptor())
    other = acceptor(nonce=b"b" * 32)
    other.step(said[0])
    with pytest.raises(PeerNotAdmitted):
        other.step(said[2])


def test_a_dialers_own_proof_sent_back_does_not_admit() -> None:
    one = dialer()
    one.opening()
    mine = proof(one.step(Challenge("broker 1", b"a" * 32)))
    with pytest.raises(PeerNotAdmitted):
        one.step(mine)


def test_a_nonce_sent_back_is_refused_on_both_sides() -> None:
    one = dialer()
    hello = one.opening()
    assert isinstance(hello, Hello)
    with pytest.raises(PeerNotAdmitted):
        one.step(Challenge("broker 1", hello.nonce))
    with pytest.raises(PeerNotAdmitted):
        acceptor().step(replace(hello, nonce=b"a" * 32))


def test_a_relay_to_another_endpoint_fails() -> None:
    with pytest.raises(PeerNotAdmitted, match="another endpoint"):
        acceptor().step(dialer(endpoint="unix:/run/attacker.sock").opening())
    # Nor can the relay put the right name in: the dialer signs the name that it meant.
    one, other = dialer(endpoint="unix:/run/attacker.sock"), acceptor()
    hello = one.opening()
    assert isinstance(hello, Hello)
    challenge = other.step(replace(hello, endpoint=_HERE))
    assert challenge is not None
    with pytest.raises(PeerNotAdmitted):
        other.step(proof(one.step(challenge)))


def test_roles_cannot_be_changed_on_the_way() -> None:
    one, other = dialer(), acceptor()
    hello = one.opening()
    assert isinstance(hello, Hello)
    challenge = other.step(replace(hello, role="broker 2"))
    assert challenge is not None
    with pytest.raises(PeerNotAdmitted):
        other.step(proof(one.step(challenge)))


_messages = st.sampled_from(
    (Hello("client", _HERE, b"d" * 32), Challenge("x", b"c" * 32), Proof(bytes(32)), Proof(b""), Ping(), Done())
) | st.builds(Hello, st.text(), st.text(), st.binary(max_size=40))


@given(st.lists(_messages, max_size=4), st.booleans())
def test_no_order_of_messages_admits_a_stranger(said: list[Message], starts: bool) -> None:
    side: Dialer | Acceptor = dialer() if starts else acceptor()
    side.opening()
    for each in said:
        try:
            side.step(each)
        except PeerNotAdmitted:
            break
    assert not side.is_admitted


def test_one_wrong_step_is_the_last() -> None:
    other = acceptor()
    with pytest.raises(PeerNotAdmitted):
        other.step(Ping())
    with pytest.raises(PeerNotAdmitted):
        other.step(dialer().opening())


def test_what_cannot_work_is_refused_where_it_is_made() -> None:
    good = {"key": _OURS, "role": "r", "endpoint": _HERE, "nonce": b"d" * 32}
    short = Key(Standing.CLIENT, b"short")
    bad = (("key", short), ("nonce", b"n"), ("role", ""), ("role", "r" * 65), ("endpoint", "x" * 300))
    for name, value in bad:
        arguments: dict[str, Any] = {**good, name: value}
        with pytest.raises(InvalidConfig):
            Dialer(**arguments)


def test_the_longest_handshake_fits_into_the_frames_of_a_stranger() -> None:
    longest = Hello("r" * MAX_ROLE_BYTES, "e" * MAX_ENDPOINT_BYTES, b"n" * 32)
    assert HEADER_BYTES + len(pack(longest)[2]) <= MAX_ADMISSION_FRAME_BYTES


# --- which secret (rule 33) -------------------------------------------------------------------------------------------

_CLIENTS = Key(Standing.CLIENT, b"c" * 32)
_FORMER = Key(Standing.CLIENT, b"f" * 32)


@pytest.mark.parametrize("key", [_OURS, _CLIENTS, _FORMER])
def test_both_know_which_of_the_valid_secrets_was_proved(key: Key) -> None:
    one, other = dialer(key), acceptor(_OURS, _CLIENTS, _FORMER)
    assert one.key is None
    assert other.key is None
    shake(one, other)
    assert one.key == other.key == key


def test_a_client_that_takes_its_secret_for_the_internal_one_is_nobody() -> None:
    """The same bytes under another standing prove nothing: the standing is part of what is signed."""
    one, other = dialer(Key(Standing.INTERNAL, _CLIENTS.secret)), acceptor(_OURS, _CLIENTS)
    with pytest.raises(PeerNotAdmitted):
        shake(one, other)


def test_who_holds_the_clients_secret_alone_cannot_pose_as_a_broker() -> None:
    one, fake = dialer(_OURS), acceptor(_CLIENTS)
    with pytest.raises(PeerNotAdmitted):
        shake(one, fake)


@pytest.mark.parametrize("role", ["broker 1\nCRITICAL all is lost", "a\x1b[2J", "\ud800", "", "r" * 65])
def test_a_role_is_one_printable_word_of_bounded_length(role: str) -> None:
    with pytest.raises(PeerNotAdmitted, match="no proper role"):
        acceptor().step(Hello(role, _HERE, b"d" * 32))


@pytest.mark.parametrize("has_challenge", [True, False])
def test_who_is_turned_away_may_come_again(has_challenge: bool) -> None:
    one, other = dialer(), acceptor()
    challenge = other.step(one.opening())
    if has_challenge:
        assert challenge is not None
        one.step(challenge)
    with pytest.raises(PeerUnreachable) as turned_away:
        one.step(DoorFull())
    assert turned_away.value.retriable
    with pytest.raises(PeerNotAdmitted):
        one.step(Ping())
