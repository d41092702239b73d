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


@dataclass(frozen=True)
class Measured(ClientOptions):
    linger_ms: float = option(0, number(0, 10_000), "a time, perhaps not whole")
    max_block_ms: int = option(60_000, whole_number(0, 10**9), "a time")
    buffer_memory: int = option(1024, whole_number(0, 2**40), "a size")
    batch_size: int = option(1024, whole_number(0, 2**40), "a size")
    fetch_max_bytes: int = option(1024, whole_number(0, 2**40), "a size")
    workers: int = option(16, whole_number(1, 100), "a count")


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("linger_ms", "5ms", 5),
        ("linger_ms", "0.5ms", 0.5),
        ("linger_ms", "1.5s", 1500),
        ("max_block_ms", "1h", 3_600_000),
        ("max_block_ms", "1.001s", 1001),
        ("buffer_memory", "64MiB", 2**26),
        ("batch_size", "64 KiB", 2**16),
        ("fetch_max_bytes", "1.5KiB", 1536),
    ],
)
def test_times_and_sizes_may_have_their_unit(name: str, written: str, meant: float) -> None:
    value = getattr(Measured.parse({name: written}), name)
    assert (value, type(value)) == (meant, type(meant))


@pytest.mark.parametrize(
    ("name", "written", "expected"),
    [
        ("max_block_ms", "0.5ms", "or a time such as 30s, 1h or 7d"),
        ("max_block_ms", "5MiB", "or a time such as 30s, 1h or 7d"),
        ("max_block_ms", "500", "or a time such as 30s, 1h or 7d"),
        ("linger_ms", "1h", "a number from 0 to 10000, or a time such as 30s, 1h or 7d"),
        ("buffer_memory", "64MB", "or a size such as 64KiB or 512MiB"),
        ("buffer_memory", "1h", "or a size such as 64KiB or 512MiB"),
        ("workers", "4KiB", "a whole number from 1 to 100"),
    ],
)
def test_what_has_no_unit_or_another_is_refused_with_those_that_fit(name: str, written: str, expected: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        Measured.parse({name: written})
    assert raised.value.expected.endswith(expected)


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
