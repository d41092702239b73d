"""Columns of a Dataset that make records."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="the extra `data` is not installed")

from raylog.api.data.record_tables import record_table  # noqa: E402
from raylog.api.data.rules.record_columns import RecordColumns  # noqa: E402
from raylog.errors import DatasetNotWritable, InvalidConfig, RowNotWritable  # noqa: E402


def choose(value: Any = "value", key: Any = None, partition: Any = None, headers: Any = None) -> RecordColumns:
    return RecordColumns.choose(value, key, partition, headers)


def records(columns: RecordColumns, **given: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = record_table(columns, pa.table(given)).to_pylist()
    return rows


def test_columns_are_those_that_were_named() -> None:
    heads = pa.array([[{"key": "h", "value": b"1"}], None])
    found = records(
        choose("text", key="id", partition="p", headers="heads"),
        text=["a", None], id=[b"k", None], p=pa.array([3, None], pa.int64()), heads=heads, other=[1, 2],
    )  # fmt: skip
    assert found == [
        {"value": b"a", "key": b"k", "headers": [{"key": "h", "value": b"1"}], "partition": 3},
        {"value": None, "key": None, "headers": None, "partition": None},
    ]


def test_several_columns_and_structs_become_json() -> None:
    when = datetime(2026, 1, 2, tzinfo=timezone.utc)
    found = records(choose(["a", "b"]), a=[1, None], b=["ü", "x"])
    assert [each["value"] for each in found] == ['{"a":1,"b":"ü"}'.encode(), b'{"a":null,"b":"x"}']
    (first, second) = records(choose("s"), s=[{"t": when, "l": [1.5]}, None])
    assert json.loads(first["value"]) == {"t": when.isoformat(), "l": [1.5]}
    assert second["value"] is None


@given(st.lists(st.fixed_dictionaries({"n": st.none() | st.integers(-(2**63), 2**63 - 1), "s": st.text(
    st.characters(exclude_categories=["Cs"])), "f": st.floats(allow_nan=False, allow_infinity=False)})))  # fmt: skip
def test_json_holds_what_the_columns_hold(rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, pa.schema([("n", pa.int64()), ("s", pa.string()), ("f", pa.float64())]))
    written = record_table(choose(["n", "s", "f"]), table)["value"].to_pylist()
    assert [json.loads(each) for each in written] == rows


@pytest.mark.parametrize("value", [float("nan"), b"bytes"])
def test_what_json_cannot_hold_is_told(value: Any) -> None:
    with pytest.raises(RowNotWritable, match="cannot become a JSON object"):
        records(choose(["a"]), a=[value])


def test_a_partition_beyond_numbers_of_partitions_is_told() -> None:
    with pytest.raises(RowNotWritable, match="its partition is none"):
        records(choose(partition="p"), value=["x"], p=[2**40])


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (choose("no"), "value='no' is none of its columns, which are 'value', 'n'"),
        (choose(["n", "no"]), "a field='no'"),
        (choose("n"), "the column 'n' is of type int64, and cannot be the value"),
        (choose(key="n"), "cannot be the key"),
        (choose(partition="value"), "cannot be the partition"),
        (choose(headers="value"), "cannot be the headers"),
    ],
)
def test_columns_that_are_none_of_records_are_refused(columns: RecordColumns, reason: str) -> None:
    with pytest.raises(DatasetNotWritable, match=reason):
        records(columns, value=["x"], n=[1])


@pytest.mark.parametrize(
    "wrong", [{"value": ""}, {"value": []}, {"value": ["a", "a"]}, {"value": None}, {"value": ["a", 3]}, {"key": ""},
              {"partition": 3}, {"headers": ["h"]}],
)  # fmt: skip
def test_names_are_names(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        choose(**wrong)
