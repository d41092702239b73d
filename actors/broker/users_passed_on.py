"""A broker's part in telling its gateway of all users, in portions, and of each change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from raylog.actors.protocol.gateway_messages import UserKeys, UsersChanged
from raylog.actors.protocol.security_records import ScramCredential
from raylog.actors.security.security_state import SecurityState

_PORTION: Final = 500  # some 100 KiB


class UsersPassedOn:
    """Users as one gateway has been told of them."""

    def __init__(self) -> None:
        self._state: SecurityState | None = None
        self._edition = 0
        self._told: dict[tuple[str, str], ScramCredential] = {}

    def news(self, state: SecurityState) -> Iterator[UsersChanged]:
        """Yield what the gateway has to be told, of which it knows after this."""
        if self._state is state and self._edition == state.edition:
            return
        is_first = self._state is None
        self._state, self._edition = state, state.edition
        now = {(user, mechanism): each for user, held in state.users.items() for mechanism, each in held.items()}
        keys = [_keys_of(each) for name, each in now.items() if self._told.get(name) != each]
        removed = tuple(name for name in self._told if name not in now)
        self._told = now
        for start in range(0, max(1, len(keys)), _PORTION):
            is_whole = start + _PORTION >= len(keys)
            yield UsersChanged(
                tuple(keys[start : start + _PORTION]), removed if start == 0 else (), is_first and start == 0, is_whole
            )


def _keys_of(credential: ScramCredential) -> UserKeys:
    return UserKeys(
        credential.user,
        credential.mechanism,
        credential.salt,
        credential.iterations,
        credential.stored_key,
        credential.server_key,
    )
