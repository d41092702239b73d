"""Values as columns: the same as one value at a time by the reference decoder, or an error that names the value."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="the extra `data` is not installed")

from raylog.api.data.each_value import BadValue  # noqa: E402
from raylog.api.data.value_decoders import ArrowIpc, Json, MsgPack  # noqa: E402
from raylog.errors import InvalidConfig  # noqa: E402

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("deep", pa.struct([("x", pa.float64())]))])
rows = st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        "deep": st.none() | st.fixed_dictionaries({"x": st.floats(-1e9, 1e9)}),
        "more": st.integers(),
    },
)
PACK: list[tuple[type[Any], Callable[[Any], bytes]]] = [
    (Json, lambda row: json.dumps(row).encode()),
    (MsgPack, msgpack.packb),
]


def columns(decoder: Any, values: list[bytes | None]) -> list[dict[str, Any]]:
    decoded = decoder.decode(pa.array(values, pa.binary()))
    lists = [column.to_pylist() for column in decoded.columns]
    return [dict(zip(SCHEMA.names, row, strict=True)) for row in zip(*lists, strict=True)]


@pytest.mark.parametrize(("decoder", "pack"), PACK)
@given(st.lists(st.none() | rows, max_size=20))
def test_each_value_is_its_row(decoder: Any, pack: Callable[[Any], bytes], values: list[dict[str, Any] | None]) -> None:
    fit = [each if each is None else {**each, "more": 1} for each in values]  # of any type: it is left out
    expected = [{name: (each or {}).get(name) for name in SCHEMA.names} for each in fit]
    assert columns(decoder(SCHEMA), [None if each is None else pack(each) for each in fit]) == expected


def test_json_of_any_layout() -> None:
    assert columns(Json(SCHEMA), [b' {\n "n" : 1 }\n', b"null", b'{"deep": {"x": 2}}']) == [
        {"n": 1, "s": None, "deep": None},
        {"n": None, "s": None, "deep": None},
        {"n": None, "s": None, "deep": {"x": 2.0}},
    ]


@pytest.mark.parametrize(
    ("values", "bad"),
    [
        ([b"{}", b"5"], 1),
        ([b"{}", b'{"n": "x"}'], 1),
        ([b"{}", b'{"n": 1.5}', b"7"], 1),
        ([b'{"n": 1}{"s":"}', b'{"}'], 0),  # two that would be two objects together
        ([b'{"n":1}}{"v":{"n":2}', b""], 0),
        ([b"{}", b'{"n":1}}\n{"v":{"n":5}'], 1),
        ([b'{"s":"\xff"}'], 0),
        ([b"{}", b""], 1),
        ([b"{}", b"[1]"], 1),
    ],
)
def test_json_that_does_not_fit_is_named(values: list[bytes], bad: int) -> None:
    with pytest.raises(BadValue) as raised:
        Json(SCHEMA).decode(pa.array(values, pa.binary()))
    assert raised.value.row == bad
    assert raised.value.reason


@pytest.mark.parametrize("bad", [b"\xc1", msgpack.packb([1]), msgpack.packb({"n": "x"}), b"", b"\x01\x02"])
def test_msgpack_that_does_not_fit_is_named(bad: bytes) -> None:
    with pytest.raises(BadValue) as raised:
        MsgPack(SCHEMA).decode(pa.array([msgpack.packb({}), bad], pa.binary()))
    assert raised.value.row == 1


def stream(*numbers: int, schema: Any = SCHEMA) -> bytes:
    table = pa.Table.from_pylist([{"n": each, "s": str(each)} for each in numbers], schema=schema)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_an_arrow_stream_is_as_many_rows_as_it_has() -> None:
    wide = pa.schema([("z", pa.int8()), ("s", pa.string()), ("n", pa.int32()), SCHEMA.field("deep")])
    values = [stream(1, 2), None, stream(), stream(3, schema=wide)]
    decoded = ArrowIpc(SCHEMA).decode(pa.array(values, pa.binary()))
    assert decoded.rows is not None
    assert decoded.rows.to_pylist() == [0, 0, 1, 3]
    assert [column.to_pylist() for column in decoded.columns][:2] == [[1, 2, None, 3], ["1", "2", None, "3"]]
    assert all(column.type == field.type for column, field in zip(decoded.columns, SCHEMA, strict=True))


@pytest.mark.parametrize("bad", [b"", b"text", stream(1)[:-40], stream(1, schema=pa.schema([("n", pa.int64())]))])
def test_what_is_no_such_stream_is_named(bad: bytes) -> None:
    with pytest.raises(BadValue) as raised:
        ArrowIpc(SCHEMA).decode(pa.array([stream(7), bad], pa.binary()))
    assert raised.value.row == 1


@pytest.mark.parametrize("schema", [None, "json", pa.schema([]), pa.schema([("a", pa.int8()), ("a", pa.int8())])])
def test_a_schema_has_fields_of_different_names(schema: Any) -> None:
    for kind in (Json, MsgPack, ArrowIpc):
        with pytest.raises(InvalidConfig, match="schema"):
            kind(schema)
