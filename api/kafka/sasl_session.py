"""Authentication of one client by SASL, before anything else is served to it.

    asked nothing ──SaslHandshake──► has a mechanism ──SaslAuthenticate──► … ──► proved
          ▲                               │ refused
          └───────────────────────────────┴──► failed: its connection ends with the next request

What must stay true:
- Nothing but ApiVersions, SaslHandshake and SaslAuthenticate is served before `user` is set.
- A user who is deleted, created again or given another password is served no further request, also where that happens
  during the proof. So each request looks whether the credential of the proof still holds.
- A password that a client tells (PLAIN) is hashed beside the loop, a few at once, and kept nowhere. The hashing goes on
  when the client hangs up, and so does its place among the few.
- A refusal comes late, so that guessing is slow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from raylog.actors.kernel.rare_log import RareLog
from raylog.actors.protocol.gateway_messages import UsersChanged
from raylog.actors.protocol.security_names import SCRAM_MECHANISMS
from raylog.actors.protocol.security_records import ScramCredential
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.known_users import KnownUsers
from raylog.api.kafka.rules.scram_exchange import NOT_PROVED, ScramExchange, check_password, plain_message
from raylog.errors import SaslRefused

HANDSHAKE_KEY: Final = 17
AUTHENTICATE_KEY: Final = 36
PLAIN: Final = "PLAIN"
MECHANISMS: Final = (*SCRAM_MECHANISMS, PLAIN)
_REFUSAL_SECONDS: Final = 0.1
_KNOWN_SECONDS: Final = 10.0  # in which a new gateway hears of all users
_AT_ONCE: Final = 2  # passwords that are hashed
_MOST_SHOWN: Final = 100  # characters of a name
_NONCE_DRAWS: Final = 5  # of 31 bits each
_of_clients: Final = RareLog(logging.getLogger(__name__))


class Sasl:
    """The part that all clients of a gateway share. `off_loop` does slow work; `draw` gives what nobody can guess."""

    def __init__(
        self, users: KnownUsers, off_loop: Callable[[Callable[[], None]], Awaitable[None]], draw: Callable[[], int]
    ) -> None:
        self.users = users
        self.known = asyncio.Event()  # all users were told once
        self._off_loop = off_loop
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._draw = draw

    def apply(self, told: UsersChanged) -> None:
        """Take over what the broker tells of users."""
        self.users.apply(told)
        if told.is_whole:
            self.known.set()

    async def check(self, credential: ScramCredential, password: str) -> None:
        """Check a password, in its turn. If this is cancelled, the hashing goes on to its end. SaslRefused."""
        await self._turns.acquire()
        checking = asyncio.ensure_future(self._off_loop(lambda: check_password(credential, password)))
        checking.add_done_callback(lambda _: self._turns.release())
        await asyncio.shield(checking)

    def nonce(self) -> str:
        """Return a text that nobody can guess."""
        return "".join(f"{self._draw():08x}" for _ in range(_NONCE_DRAWS))


class SaslSession:
    """One connection."""

    def __init__(self, sasl: Sasl) -> None:
        self._sasl = sasl
        self._proved: ScramCredential | None = None  # what its proof was checked by
        self._mechanism = ""
        self._claimed = ""  # who it says it is
        self._exchange: ScramExchange | None = None
        self._has_failed = False

    @property
    def user(self) -> str | None:
        """The user that the client has proved to be; None: it has not."""
        return None if self._proved is None else self._proved.user

    def may_ask(self, api_key: int) -> bool:
        """Return whether a request is served now, which is none of ApiVersions."""
        if self._has_failed:
            return False
        if self._proved is not None:
            return self._sasl.users.holds(self._proved)
        return api_key in (HANDSHAKE_KEY, AUTHENTICATE_KEY)

    async def handshake(self, request: Any) -> Any:
        """Take the mechanism that the client has chosen."""
        code = ErrorCode.NONE
        if self._mechanism:
            code = self._fail(ErrorCode.ILLEGAL_SASL_STATE)
        elif request.mechanism not in MECHANISMS:
            code = self._fail(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        else:
            self._mechanism = request.mechanism
        return message_type("SaslHandshakeResponse")(error_code=code, mechanisms=list(MECHANISMS))

    async def authenticate(self, request: Any) -> Any:
        """Take the next message of the exchange."""
        answer = message_type("SaslAuthenticateResponse")
        if not self._mechanism or self._proved is not None:
            code = self._fail(ErrorCode.ILLEGAL_SASL_STATE)
            return answer(error_code=code, error_message="SaslHandshake comes first, and once.", auth_bytes=b"")
        try:
            await self._until_known()
            told = await self._next(bytes(request.auth_bytes))
        except SaslRefused as refused:
            _of_clients.warning("A Kafka client, by its own word user %r, is not admitted: %s", self._claimed, refused)
            code = self._fail(ErrorCode.SASL_AUTHENTICATION_FAILED)
            await asyncio.sleep(_REFUSAL_SECONDS)
            return answer(error_code=code, error_message=f"Authentication failed: {refused.reason}.", auth_bytes=b"")
        return answer(error_code=ErrorCode.NONE, error_message=None, auth_bytes=told, session_lifetime_ms=0)

    async def _next(self, message: bytes) -> bytes:
        if self._mechanism == PLAIN:
            self._admit(await self._plain(message))
            return b""
        if self._exchange is None:
            self._exchange = ScramExchange(
                self._mechanism,
                lambda user: self._sasl.users.credential_of(user, self._mechanism),
                self._sasl.nonce(),
            )
            challenge = self._exchange.first(message)
            self._claimed = self._exchange.user[:_MOST_SHOWN]
            return challenge
        told = self._exchange.final(message)
        self._admit(self._exchange.credential)
        return told

    def _admit(self, credential: ScramCredential) -> None:
        if not self._sasl.users.holds(credential):  # it has changed since it was looked up
            raise SaslRefused(NOT_PROVED)
        self._proved = credential

    async def _plain(self, message: bytes) -> ScramCredential:
        user, password = plain_message(message)
        self._claimed = user[:_MOST_SHOWN]
        credential = self._sasl.users.any_credential_of(user)
        await self._sasl.check(credential, password)
        return credential

    async def _until_known(self) -> None:
        try:
            await asyncio.wait_for(self._sasl.known.wait(), _KNOWN_SECONDS)
        except asyncio.TimeoutError:
            raise SaslRefused("this gateway does not know the users yet; try again") from None

    def _fail(self, code: ErrorCode) -> ErrorCode:
        self._has_failed = True
        return code
