"""Packing an error into an answer, and building it again on the other side.

Only classes of `raylog.errors` are built again, by name and from plain arguments. So an answer can choose among these
constructors and nothing else.
"""

from __future__ import annotations

from typing import Final

from raylog import errors
from raylog.actors.protocol.messages import Failure, is_plain, pack
from raylog.errors import RaylogError, RemoteFailed

_KNOWN: Final = {
    name: cls for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, RaylogError)
}
_MAX_TEXT: Final = 2_000
_MAX_FAILURE_BYTES: Final = 16 * 1024


def failure_of(error: BaseException) -> Failure:
    """Return the answer that carries `error`. Long text is cut, and large arguments are left out."""
    name = type(error).__name__
    text = error.describe() if isinstance(error, RaylogError) else repr(error)
    text = text[:_MAX_TEXT].encode(errors="replace").decode()
    if _KNOWN.get(name) is not type(error) or not is_plain(error.args):
        return Failure(name, text, ())
    failure = Failure(name, text, error.args)
    try:
        fits = len(pack(failure)[2]) <= _MAX_FAILURE_BYTES
    except (ValueError, OverflowError):  # lone surrogates, integers over 64 bits
        fits = False
    return failure if fits else Failure(name, text, ())


def remote_failed(peer: str, failure: Failure) -> RemoteFailed:
    """Return the error that the requester gets."""
    return RemoteFailed(peer, failure.name, failure.text, _rebuilt(failure))


def _rebuilt(failure: Failure) -> RaylogError | None:
    cls = _KNOWN.get(failure.name)
    if cls is None:
        return None
    try:
        error = cls(*failure.arguments)
        return error if error.describe() == failure.text else None
    except (TypeError, ValueError, AttributeError, LookupError):  # an older or newer constructor
        return None
