"""Who a client has proved to be holds for as long as what it was checked by."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.protocol.gateway_messages import UserKeys, UsersChanged
from raylog.actors.protocol.security_records import ScramCredential
from raylog.actors.security.scram_credentials import LEAST_ITERATIONS, SALT_BYTES, new_credential
from raylog.api.kafka import sasl_session
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.known_users import KnownUsers
from raylog.api.kafka.sasl_session import Sasl, SaslSession
from tests.unit.api.kafka.rules.test_scram_exchange import Client

_METADATA = 3
_NAME = ("ann", "SCRAM-SHA-256")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl_session, "_REFUSAL_SECONDS", 0.0)


def runs(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


def created(salt: bytes, password: str = "secret") -> ScramCredential:
    return new_credential(*_NAME, password, salt * SALT_BYTES, LEAST_ITERATIONS)


class Stage:
    """A gateway that knows one user. What it does beside its loop is done when a test says so."""

    def __init__(self) -> None:
        self.sasl = Sasl(KnownUsers(lambda: b"unknown"), self._off_loop, lambda: 7)
        self.waiting: list[tuple[asyncio.Future[None], Callable[[], None]]] = []
        self.tell(created(b"1"))

    def _off_loop(self, work: Callable[[], None]) -> Awaitable[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((done, work))
        return done

    def tell(self, credential: ScramCredential | None) -> None:
        """Tell what the user has from now on; None: he is deleted."""
        keys = () if credential is None else (_keys_of(credential),)
        self.sasl.apply(UsersChanged(keys, () if keys else (_NAME,), False, True))

    def hash_next(self) -> None:
        done, work = self.waiting.pop(0)
        work()
        done.set_result(None)

    async def begun(self, mechanism: str) -> SaslSession:
        session = SaslSession(self.sasl)
        await session.handshake(message_type("SaslHandshakeRequest")(mechanism=mechanism))
        return session

    async def by_scram(self, *meanwhile: ScramCredential | None) -> tuple[SaslSession, int]:
        """Return the session, and how its last message was answered. `meanwhile`: what is told before that."""
        session, client = await self.begun(_NAME[1]), Client(_NAME[1], "ann", "secret")
        challenge = await session.authenticate(_message(client.first))
        for change in meanwhile:
            self.tell(change)
        answer = await session.authenticate(_message(client.final(challenge.auth_bytes)))
        return session, answer.error_code

    async def by_plain(self) -> asyncio.Task[Any]:
        session = await self.begun("PLAIN")
        asking = asyncio.ensure_future(session.authenticate(_message(b"\0ann\0secret")))
        await settle()
        return asking


def _keys_of(held: ScramCredential) -> UserKeys:
    return UserKeys(*_NAME, held.salt, held.iterations, held.stored_key, held.server_key)


def _message(auth_bytes: bytes) -> Any:
    return message_type("SaslAuthenticateRequest")(auth_bytes=auth_bytes)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@runs
async def test_one_that_is_admitted_is_served_until_its_user_has_other_keys() -> None:
    for change in (created(b"2"), created(b"2", "another"), None):
        stage = Stage()
        session, code = await stage.by_scram()
        assert (code, session.user, session.may_ask(_METADATA)) == (ErrorCode.NONE, "ann", True)
        stage.tell(created(b"1"))  # the same once more
        assert session.may_ask(_METADATA)
        stage.tell(change)
        assert not session.may_ask(_METADATA)


@runs
async def test_a_user_who_was_deleted_and_created_again_is_not_admitted_by_the_former_proof() -> None:
    stage = Stage()
    session, _ = await stage.by_scram()
    stage.tell(None)
    stage.tell(created(b"2"))
    assert not session.may_ask(_METADATA)


@runs
async def test_keys_that_change_during_a_proof_end_it() -> None:
    for change in (created(b"2"), None):
        stage = Stage()
        session, code = await stage.by_scram(change)
        assert (code, session.user) == (ErrorCode.SASL_AUTHENTICATION_FAILED, None)
        assert not session.may_ask(_METADATA)
        stage = Stage()
        asking = await stage.by_plain()
        stage.tell(change)
        stage.hash_next()
        assert (await asking).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@runs
async def test_clients_that_hang_up_do_not_have_more_passwords_hashed_at_once() -> None:
    stage = Stage()
    for _ in range(6):
        (await stage.by_plain()).cancel()
        await settle()
    assert len(stage.waiting) == 2
    asking = await stage.by_plain()
    assert len(stage.waiting) == 2
    stage.hash_next()
    await settle()
    stage.hash_next()
    await settle()
    stage.hash_next()
    assert (await asking).error_code == ErrorCode.NONE
