"""Options of producers and consumers: names, defaults and checks, each in one place.

    @dataclass(frozen=True)
    class ConsumerOptions(ClientOptions):
        fetch_max_wait_ms: int = option(500, whole_number(0, INT32_MAX), "How long a fetch waits for fetch_min_bytes.")

    options = ConsumerOptions.parse(given)      # UnknownConfig ("did you mean"), InvalidConfig

Values are checked once, when a client is made, and frozen from there on. A check returns the value to keep, so it
may tidy it up. It is strict about types: options are written in Python, so the text "500" is no number. A time or a
size may be text with its unit: "5ms", "64MiB".
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from raylog.api.connection.kafka_hints import hint_for, name_here, plain
from raylog.config import units_taken, with_unit
from raylog.errors import InvalidConfig, UnknownConfig

Check: TypeAlias = Callable[[str, object], Any]
_Options = TypeVar("_Options", bound="ClientOptions")

@dataclass(frozen=True)
class Option:
    """The values that one option accepts."""

    name: str
    default: object
    doc: str
    check: Check


def option(default: Any, check: Check, doc: str) -> Any:
    """The field of one option. Its default is checked like any other value, when a client is made."""
    return dataclasses.field(default=default, metadata={"check": check, "doc": doc})


@dataclass(frozen=True)
class ClientOptions:
    """Base of the options of one kind of client."""

    @classmethod
    def parse(cls: type[_Options], given: Mapping[str, object]) -> _Options:
        """Check what was given and fill in the defaults."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        for name in given:
            if name not in known:
                raise _unknown(name, known)
        values = {name: field.metadata["check"](name, given.get(name, field.default)) for name, field in known.items()}
        options = cls(**values)
        options.check_together()
        return options

    @classmethod
    def describe(cls) -> tuple[Option, ...]:
        """All options, for the reference."""
        fields = dataclasses.fields(cls)
        return tuple(Option(each.name, each.default, each.metadata["doc"], each.metadata["check"]) for each in fields)

    def check_together(self) -> None:
        """Raise InvalidConfig where values that are fine alone do not go together."""


def _unknown(name: str, known: Mapping[str, object]) -> UnknownConfig:
    hint = hint_for(name)
    if hint:
        return UnknownConfig(name, None, hint)
    named = name_here(name)
    if named in known:
        return UnknownConfig(name, named)
    close = difflib.get_close_matches(plain(name), known, n=1)
    return UnknownConfig(name, close[0] if close else None)


# --- checks -------------------------------------------------------------------------------------------------------


def whole_number(low: int, high: int) -> Check:
    def check(name: str, value: object) -> int:
        found = _counted(name, value)
        if not isinstance(found, int) or not low <= found <= high:
            raise InvalidConfig(name, value, f"a whole number from {low} to {high}{units_taken(name)}")
        return found

    return check


def number(low: float, high: float) -> Check:
    def check(name: str, value: object) -> float:
        found = _counted(name, value)
        if found is None or not low <= found <= high:
            raise InvalidConfig(name, value, f"a number from {low:g} to {high:g}{units_taken(name)}")
        return found

    return check


def _counted(name: str, value: object) -> int | float | None:
    """A number, also one that is written with its unit. None: it is none."""
    if isinstance(value, str):
        return with_unit(name, value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidConfig(name, value, "True or False")
    return value


def one_of(*choices: object) -> Check:
    def check(name: str, value: object) -> object:
        for choice in choices:
            if value == choice and type(value) is type(choice):  # True is not 1
                return value
        raise InvalidConfig(name, value, "one of " + ", ".join(map(repr, choices)))

    return check


def text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidConfig(name, value, "text that is not empty")
    return value


def text_or_empty(name: str, value: object) -> str:
    return value if value == "" and isinstance(value, str) else text(name, value)


def or_none(check: Check) -> Check:
    """None, or what `check` accepts."""

    def check_unless_none(name: str, value: object) -> Any:
        return None if value is None else check(name, value)

    return check_unless_none


def a_callable(*, or_with: str = "", what: str = "a callable") -> Check:
    """A function, or an object with the method `or_with`: the function, or the bound method, is kept."""

    def check(name: str, value: object) -> Callable[..., Any]:
        method: object = getattr(value, or_with, None) if or_with and not isinstance(value, type) else None
        if callable(method):
            return method
        if callable(value):
            return value
        raise InvalidConfig(name, value, f"{what}, or an object with the method {or_with}" if or_with else what)

    return check


def several(of: Check, what: str) -> Check:
    """A list or tuple, each item of which `of` accepts."""

    def check(name: str, value: object) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise InvalidConfig(name, value, f"a list of {what}")
        return tuple(of(name, item) for item in value)

    return check
