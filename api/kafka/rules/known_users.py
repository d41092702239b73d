"""The credentials of all users, as a gateway's broker tells them."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from raylog.actors.protocol.gateway_messages import UsersChanged
from raylog.actors.protocol.security_names import SCRAM_MECHANISMS
from raylog.actors.protocol.security_records import ScramCredential
from raylog.actors.security.scram_credentials import DEFAULT_ITERATIONS, MECHANISMS, SALT_BYTES


class KnownUsers:
    """`secret` returns what only processes of the cluster hold: unknown users have salts of it, for ever the same."""

    def __init__(self, secret: Callable[[], bytes]) -> None:
        self._secret = secret
        self._held: dict[tuple[str, str], ScramCredential] = {}
        self._coming: dict[tuple[str, str], ScramCredential] | None = None  # all users anew, not yet whole

    def apply(self, told: UsersChanged) -> None:
        """Take over what has changed. Users that are told anew hold once all have been."""
        if told.is_first:
            self._coming = {}
        held = self._held if self._coming is None else self._coming
        for each in told.keys:
            held[each.user, each.mechanism] = ScramCredential(*each)
        for name in told.removed:
            held.pop(name, None)
        if told.is_whole and self._coming is not None:
            self._held, self._coming = self._coming, None

    def holds(self, credential: ScramCredential) -> bool:
        """Return whether this is what its user is checked by now. One that is created again has another salt."""
        return self._held.get((credential.user, credential.mechanism)) == credential

    def credential_of(self, user: str, mechanism: str) -> ScramCredential:
        """Return what a user's proof is checked by. Of an unknown one it is made up, so that no proof fits."""
        return self._held.get((user, mechanism)) or self._made_up(user, mechanism)

    def any_credential_of(self, user: str) -> ScramCredential:
        """Return what a user's password is checked by, which of the mechanisms it may be for."""
        for mechanism in SCRAM_MECHANISMS:
            held = self._held.get((user, mechanism))
            if held is not None:
                return held
        return self._made_up(user, SCRAM_MECHANISMS[0])

    def _made_up(self, user: str, mechanism: str) -> ScramCredential:
        drawn = hmac.digest(self._secret(), f"{mechanism} {user}".encode(), "sha512")
        key = drawn[-MECHANISMS[mechanism].size :]  # the hash of nothing that anybody knows
        return ScramCredential(user, mechanism, drawn[:SALT_BYTES], DEFAULT_ITERATIONS, key, key)
