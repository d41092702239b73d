"""Columns of a Dataset that is read."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.api.data.rules.read_columns import OF_RECORDS, ReadColumns
from raylog.errors import InvalidConfig


def test_all_of_records_but_headers() -> None:
    chosen = ReadColumns.choose(None, None)
    assert chosen.names == chosen.of_records == OF_RECORDS
    assert not chosen.is_decoded
    assert ReadColumns.choose(["headers", "key"], None).names == ("headers", "key")


def test_fields_take_the_place_of_the_value_and_go_before_columns_of_their_name() -> None:
    chosen = ReadColumns.choose(None, ["user", "timestamp"])
    assert chosen.names == ("key", "topic", "partition", "offset", "timestampType", "user", "timestamp")
    assert chosen.of_records == ("key", "topic", "partition", "offset", "timestampType")
    assert ReadColumns.choose(["value"], ["value"]).of_records == ()
    assert ReadColumns.choose(None, ["headers"]).names[-1] == "headers"


def test_what_is_projected_keeps_its_order() -> None:
    chosen = ReadColumns.choose(None, ["user"])
    assert chosen.keep(["user", "key"]).names == ("key", "user")
    assert chosen.keep(["user"]).is_decoded
    assert not chosen.keep(["key"]).is_decoded
    assert chosen.keep([]).names == ()


@pytest.mark.parametrize(
    ("wanted", "fields"),
    [("key", None), ([], None), (["kex"], None), (["key", "key"], None), (["value"], ["user"]), (["user"], None)],
)
def test_others_are_refused(wanted: Any, fields: list[str] | None) -> None:
    with pytest.raises(InvalidConfig, match="columns"):
        ReadColumns.choose(wanted, fields)
