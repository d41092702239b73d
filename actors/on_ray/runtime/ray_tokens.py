"""Ray's tokens: on for every Ray that raylog starts. A Ray without tokens that is joined causes a warning.

Without tokens, anyone who reaches Ray's ports may run any program on it, and read what raylog keeps. Ray turns tokens
on by itself only in some versions, and only for some ways to start it. So raylog sets `RAY_AUTH_MODE` each time. A
value that the user has set counts.

Ray reads the variable when it is imported. So a change has to reach Ray's own settings too.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ray._private.authentication.authentication_token_setup import ensure_token_if_auth_enabled
from ray._raylet import AuthenticationTokenLoader, Config, GcsClient  # type: ignore[attr-defined]  # without types
from ray.exceptions import AuthenticationError, RayError

from raylog.actors.on_ray.runtime.ray_lines import strangers_left_out

AUTH_MODE: Final = "RAY_AUTH_MODE"
_ON: Final = "token"
_OFF: Final = "disabled"

_log = logging.getLogger(__name__)
_told: set[str] = set()
_takes_strangers: list[bool] = []  # the Rays that were joined; the last is the one that this process is in


def turn_tokens_on() -> None:
    """Turn tokens on for a Ray that this process is about to start. A token is made for this user if there is none.

    Nothing where `RAY_AUTH_MODE` says what the user wants.
    """
    _takes_strangers.clear()
    if AUTH_MODE not in os.environ:
        _set_mode(_ON)
        ensure_token_if_auth_enabled(create_token_if_missing=True)


def show_token_if_there_is_one() -> None:
    """Use this user's token from now on. Ray would do the same, and warn."""
    if AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True):
        _set_mode(_ON)


def asks_for_token(address: str) -> bool:
    """Return whether the control store there refuses this process, which has no valid token."""
    try:
        with strangers_left_out():
            GcsClient(address=address)
    except AuthenticationError:
        return True
    except RayError:
        return False  # something else is wrong, and `ray.init` will say what
    return False


def takes_strangers(address: str) -> bool:
    """Return whether the Ray there lets strangers in. It has to be found out before this process joins it."""
    with _without_token():
        _takes_strangers.append(not asks_for_token(address))
    return _takes_strangers[-1]


def tell_if_tokens_are_off(address: str) -> None:
    """Warn once in this process that the Ray that it has joined has no tokens.

    A program that has joined it by itself has shown a token if its mode says so.
    """
    is_open = _takes_strangers[-1] if _takes_strangers else os.environ.get(AUTH_MODE, "").lower() != _ON
    if is_open and address not in _told:
        _told.add(address)
        _log.warning(
            "THE RAY AT %s ASKS NOBODY FOR A TOKEN. Anyone who reaches its ports may run programs on it, and read and "
            "change all that raylog keeps. Start Ray with RAY_AUTH_MODE=token on every node, or close its ports to "
            "everyone who must not do that.", address,
        )  # fmt: skip


@contextmanager
def _without_token() -> Iterator[None]:
    """Try to connect as a stranger would."""
    before = os.environ.get(AUTH_MODE)
    _set_mode(_OFF)
    try:
        yield
    finally:
        _set_mode(before)


def _set_mode(mode: str | None) -> None:
    if mode is None:
        del os.environ[AUTH_MODE]
    else:
        os.environ[AUTH_MODE] = mode
    Config.initialize("")
