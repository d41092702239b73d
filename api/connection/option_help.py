"""Options as `help` and notebooks show them, made of the definitions: a signature, and a list with what each is.

    @lists_options(ProducerSettings, ProducerOptions)
    class Producer: …
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from inspect import Parameter
from typing import Any, Final, TypeVar

from raylog.api.connection.client_options import ClientOptions, Option
from raylog.config import readable

_Client = TypeVar("_Client")
_HAS_NO_DEFAULT: Final = ("handler",)


def lists_options(
    settings: type[Any], *kinds: type[ClientOptions], without: tuple[str, ...] = ()
) -> Callable[[type[_Client]], type[_Client]]:
    """Give a client's class, whose keywords are `settings`, the signature and the list of all options of `kinds`."""
    options = [each for kind in kinds for each in kind.describe() if each.name not in without]
    types = {name: _written(hint) for kind in reversed(settings.__mro__) for name, hint in _hints(kind).items()}

    def tell(client: type[_Client]) -> type[_Client]:
        init: Any = vars(client)["__init__"]
        topics = [each for each in inspect.signature(init).parameters.values() if each.name in ("self", "topics")]
        init.__signature__ = inspect.Signature([*topics, *(_parameter(each, types[each.name]) for each in options)])
        listed = "\n".join(f"{each.name}: {types[each.name]}{_default(each)}\n    {each.doc}" for each in options)
        client.__doc__ = f"{inspect.cleandoc(client.__doc__ or '')}\n\nOptions:\n\n{listed}\n"
        return client

    return tell


def in_units(name: str, value: float) -> str:
    """Return the value in a larger unit, for people, where it is so much of one: ` (32MiB)`."""
    written = readable(name, value)
    return "" if written == str(value) else f" ({written})"


def _hints(kind: type[Any]) -> dict[str, Any]:
    found: dict[str, Any] = vars(kind).get("__annotations__", {})
    return found


def _written(hint: Any) -> str:
    """A type as it stands in the code."""
    return hint.__forward_arg__ if isinstance(hint, typing.ForwardRef) else str(hint)


def _parameter(option: Option, hint: str) -> Parameter:
    default = Parameter.empty if option.name in _HAS_NO_DEFAULT else option.default
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _default(option: Option) -> str:
    if option.name in _HAS_NO_DEFAULT:
        return ""
    value = option.default
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f" = {value!r}" + (in_units(option.name, typing.cast(float, value)) if is_number else "")
