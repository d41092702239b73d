"""The machinery behind the options of producers and consumers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from raylog.api.connection.client_options import (
    ClientOptions,
    a_callable,
    boolean,
    number,
    one_of,
    option,
    or_none,
    several,
    text,
    whole_number,
)
from raylog.errors import InvalidConfig, UnknownConfig


@dataclass(frozen=True)
class Options(ClientOptions):
    fetch_min_bytes: int = option(1, whole_number(0, 100), "a number")
    acks: int | str = option("all", one_of(0, 1, "all"), "one of some")
    is_fast: bool = option(True, boolean, "a flag")
    pause: float = option(0.5, number(0, 10), "a fraction")
    cluster: str | None = option(None, or_none(text), "text or nothing")
    serializer: Callable[..., object] | None = option(None, or_none(a_callable(or_with="serialize")), "a function")
    interceptors: tuple[Callable[..., object], ...] = option((), several(a_callable(), "functions"), "functions")

    def check_together(self) -> None:
        if self.fetch_min_bytes > 50 and self.is_fast:
            raise InvalidConfig("fetch_min_bytes", self.fetch_min_bytes, "at most 50 where is_fast is set")


class Upper:
    def serialize(self, topic: str, value: str) -> bytes:
        return value.upper().encode()


def test_defaults_are_filled_in() -> None:
    assert Options.parse({}) == Options()
    assert Options.parse({"acks": 1}).acks == 1


@pytest.mark.parametrize(
    ("written", "meant"),
    [("fetch_min_byte", "fetch_min_bytes"), ("fetch.min.bytes", "fetch_min_bytes"), ("ACKS", "acks"),
     ("zzz", None)],
)  # fmt: skip
def test_an_unknown_option_names_the_one_that_was_meant(written: str, meant: str | None) -> None:
    with pytest.raises(UnknownConfig) as raised:
        Options.parse({written: 1})
    assert raised.value.suggestion == meant


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fetch_min_bytes", -1),
        ("fetch_min_bytes", 101),
        ("fetch_min_bytes", "5"),
        ("fetch_min_bytes", True),
        ("fetch_min_bytes", 1.5),
        ("fetch_min_bytes", None),
        ("acks", True),
        ("acks", "none"),
        ("is_fast", 1),
        ("is_fast", "true"),
        ("pause", 11),
        ("pause", float("nan")),
        ("pause", True),
        ("cluster", ""),
        ("cluster", 5),
        ("serializer", 5),
        ("interceptors", "abc"),
        ("interceptors", [5]),
    ],
)
def test_a_value_it_cannot_have_is_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidConfig) as raised:
        Options.parse({name: value})
    assert raised.value.name == name


def test_options_are_checked_together() -> None:
    assert Options.parse({"fetch_min_bytes": 60, "is_fast": False}).fetch_min_bytes == 60
    with pytest.raises(InvalidConfig, match="is_fast"):
        Options.parse({"fetch_min_bytes": 60})


def test_functions_and_objects_with_the_method_are_taken() -> None:
    taken = Options.parse({"serializer": Upper(), "interceptors": [len]})
    assert taken.serializer is not None
    assert taken.serializer("t", "abc") == b"ABC"
    assert taken.interceptors == (len,)
    assert Options.parse({"serializer": str}).serializer is str


def test_all_options_are_described() -> None:
    described = {each.name: each for each in Options.describe()}
    assert described["acks"].default == "all"
    assert described["pause"].doc == "a fraction"
    for each in described.values():
        each.check(each.name, each.default)
