"""Users as a broker tells them to its gateway, from one to the other."""

from __future__ import annotations

import pytest

from raylog.actors.broker import users_passed_on
from raylog.actors.broker.users_passed_on import UsersPassedOn
from raylog.actors.protocol.gateway_messages import UsersChanged
from raylog.actors.protocol.messages import Message, pack, unpack
from raylog.actors.protocol.security_records import ScramCredentialRemoved
from raylog.actors.security.security_state import SecurityState
from raylog.api.kafka.rules.known_users import KnownUsers
from tests.unit.actors.security.examples import credential

_ANN, _ANN_512, _BOB = credential("ann"), credential("ann", "SCRAM-SHA-512"), credential("bob")


def state_of(*held: Message) -> SecurityState:
    state = SecurityState()
    for each in held:
        state.apply(each)
    return state


def passed(news: UsersPassedOn, state: SecurityState, users: KnownUsers) -> list[UsersChanged]:
    told = list(news.news(state))
    for each in told:
        arrived = unpack(*pack(each))
        assert isinstance(arrived, UsersChanged)
        users.apply(arrived)
    return told


def test_what_changes_is_told_and_nothing_else() -> None:
    users, news = KnownUsers(lambda: b"secret"), UsersPassedOn()
    state = state_of(_ANN, _ANN_512)
    assert [(len(each.keys), each.is_first, each.is_whole) for each in passed(news, state, users)] == [(2, True, True)]
    assert users.credential_of("ann", "SCRAM-SHA-512") == _ANN_512
    assert passed(news, state, users) == []
    state.apply(_BOB)
    state.apply(ScramCredentialRemoved("ann", "SCRAM-SHA-256"))
    (change,) = passed(news, state, users)
    assert ([each.user for each in change.keys], change.removed) == (["bob"], (("ann", "SCRAM-SHA-256"),))
    assert users.credential_of("bob", "SCRAM-SHA-256") == _BOB
    assert users.any_credential_of("ann") == _ANN_512
    assert users.credential_of("ann", "SCRAM-SHA-256") != _ANN
    # The same from a snapshot is another state, in which nobody has changed.
    (again,) = passed(news, state_of(*state.to_records()), users)
    assert (again.keys, again.removed, again.is_first) == ((), (), False)
    assert "salt" not in repr(change)
    assert repr(_BOB.stored_key) not in repr(change)


def test_no_users_are_told_too() -> None:
    (only,) = UsersPassedOn().news(SecurityState())
    assert only == UsersChanged((), (), True, True)


def test_users_that_are_told_anew_hold_once_all_have_been(monkeypatch: pytest.MonkeyPatch) -> None:
    users = KnownUsers(lambda: b"secret")
    passed(UsersPassedOn(), state_of(_ANN), users)
    monkeypatch.setattr(users_passed_on, "_PORTION", 1)
    first, last = UsersPassedOn().news(state_of(_BOB, _ANN_512))
    users.apply(first)
    assert users.any_credential_of("ann") == _ANN
    users.apply(last)
    assert users.credential_of("bob", "SCRAM-SHA-256") == _BOB
    assert users.any_credential_of("ann") == _ANN_512


def test_an_unknown_user_has_a_salt_that_stays_and_is_his_own() -> None:
    users = KnownUsers(lambda: b"secret")
    made_up = users.credential_of("eve", "SCRAM-SHA-256")
    assert made_up == users.credential_of("eve", "SCRAM-SHA-256") == users.any_credential_of("eve")
    assert made_up.salt != users.credential_of("mallory", "SCRAM-SHA-256").salt
    assert made_up.salt != KnownUsers(lambda: b"other").credential_of("eve", "SCRAM-SHA-256").salt
    assert len(users.credential_of("eve", "SCRAM-SHA-512").stored_key) == 64
