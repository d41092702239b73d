"""The requests of administrators and their answers, as plain values that go over a stream, and back.

    AdminRequest ──plain_request──► call, arguments ──stream──► request_of ──► AdminRequest
    answer       ──plain_answer───► scalars and tuples ──────► answer_of ───► answer

What a value becomes follows from the type that its class declares. A dataclass or a named tuple is a tuple of its
fields, a mapping a tuple of pairs, an error its name and arguments. What arrives is built by the same types, so no
other can come of it.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar, Union

from raylog.actors.cluster import admin_requests, security_requests
from raylog.actors.cluster.admin_requests import AdminRequest
from raylog.actors.protocol.messages import Failure
from raylog.actors.protocol.remote_errors import failure_of, remote_failed
from raylog.errors import FrameInvalid, RaylogError

_SCALARS: Final = (int, float, bool, str, bytes, type(None))
_T = TypeVar("_T")

REQUESTS: Final[dict[str, type[AdminRequest[Any]]]] = {
    each.call: each
    for each in (*vars(admin_requests).values(), *vars(security_requests).values())
    if isinstance(each, type) and issubclass(each, AdminRequest) and each is not AdminRequest
}


def plain_request(request: AdminRequest[Any]) -> tuple[object, ...]:
    """Return the fields of a request, for `request_of`."""
    fields = _plain(request, type(request))
    assert isinstance(fields, tuple)
    return fields


def request_of(call: str, arguments: Sequence[object]) -> AdminRequest[Any]:
    """Return the request of this call. FrameInvalid: there is none, or not with these arguments."""
    kind = REQUESTS.get(call)
    if kind is None:
        raise FrameInvalid(f"The controller has no call {call[:50]!r}.")
    request: AdminRequest[Any] = _built(arguments, kind)
    return request


def plain_answer(request: AdminRequest[Any], answer: object) -> object:
    """Return the answer to a request, for `answer_of`."""
    return _plain(answer, answer_type(type(request)))


def answer_of(request: AdminRequest[_T], answer: object) -> _T:
    """Return the answer to a request. FrameInvalid: this can be none."""
    built: _T = _built(answer, answer_type(type(request)))
    return built


def answer_type(kind: Any) -> Any:
    """Return the type of the answer that a kind of request declares."""
    (base,) = kind.__orig_bases__
    (answer,) = typing.get_args(base)
    return answer


# --- to plain values ----------------------------------------------------------------------------------------------


def _plain(value: Any, kind: Any) -> object:
    if isinstance(value, _SCALARS):
        return value
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if _is_union(origin):
        return _plain(value, next(each for each in arguments if not _is_scalar(each)))
    if _is_class(kind, RaylogError):
        failure = failure_of(value)
        return failure.name, failure.text, failure.arguments
    if _has_fields(kind):
        declared: Any = kind
        return tuple(_plain(getattr(value, name), of) for name, of in _fields(declared).items())
    if _is_class(origin, Mapping):
        return tuple((_plain(each, arguments[0]), _plain(of, arguments[1])) for each, of in value.items())
    return tuple(_plain(each, of) for each, of in zip(value, _items(arguments, len(value)), strict=True))


# --- and back -----------------------------------------------------------------------------------------------------


def _built(value: Any, kind: Any) -> Any:
    """Return what these plain values are of this kind. FrameInvalid: they are none."""
    if kind is object or type(value) is (type(None) if kind is None else kind):
        return value
    if kind is None or _is_scalar(kind):
        raise _not(value, kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if _is_union(origin):
        if type(value) in arguments:
            return value
        others = [each for each in arguments if not _is_scalar(each)]
        if not others:
            raise _not(value, kind)
        return _built(value, others[0])
    if type(value) is not tuple:
        raise _not(value, kind)
    return _built_of_items(value, kind, origin, arguments)


def _built_of_items(value: tuple[Any, ...], kind: Any, origin: Any, arguments: tuple[Any, ...]) -> Any:
    if _is_class(kind, RaylogError):
        name, text, of = _built(value, tuple[str, str, tuple[object, ...]])
        failed = remote_failed("the controller", Failure(name, text, of))
        return failed.error or failed
    if _has_fields(kind):
        make: Any = kind
        fields = _fields(make)
        if len(value) != len(fields):
            raise _not(value, kind)
        return make(*(_built(each, of) for each, of in zip(value, fields.values(), strict=True)))
    if _is_class(origin, Mapping):
        pair: Any = types.GenericAlias(tuple, arguments)
        return dict(_built(each, pair) for each in value)
    items = _items(arguments, len(value))
    if len(items) != len(value):
        raise _not(value, kind)
    return tuple(_built(each, of) for each, of in zip(value, items, strict=True))


def _not(value: object, kind: Any) -> FrameInvalid:
    name = getattr(kind, "__name__", str(kind))
    return FrameInvalid(f"A {type(value).__name__} came where a request of administrators has a {name}.")


# --- what classes declare -----------------------------------------------------------------------------------------


@cache
def _fields(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    names = kind._fields if _is_class(kind, tuple) else [each.name for each in dataclasses.fields(kind)]
    return {name: hints[name] for name in names}


def _has_fields(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or (_is_class(kind, tuple) and hasattr(kind, "_fields"))


def _items(arguments: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """Return the types of so many items of a sequence or a tuple."""
    if len(arguments) == 1 or arguments[-1] is Ellipsis:
        return (arguments[0],) * count
    return arguments


def _is_scalar(kind: Any) -> bool:
    return kind in _SCALARS


def _is_union(origin: Any) -> bool:
    return origin in (Union, types.UnionType)


def _is_class(kind: Any, base: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, base)
