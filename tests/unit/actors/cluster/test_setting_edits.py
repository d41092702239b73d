"""Changes of settings as Kafka's tools make them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.cluster.setting_edits import APPEND, DELETE, SET, SUBTRACT, SettingEdit, changes_of
from raylog.errors import InvalidConfig, InvalidRequest

_LISTS = {"policy"}
_ITEMS = st.lists(st.sampled_from("abcd"), max_size=4).map(",".join)


def changed(present: str, operation: int, value: str | None) -> str | None:
    found = changes_of([SettingEdit("policy", operation, value)], {"policy": present}, _LISTS, replaces=False)
    assert found.keys() == {"policy"}
    text = found["policy"]
    assert text is None or isinstance(text, str)
    return text


def test_lists_grow_and_shrink_by_what_is_not_there_and_what_is() -> None:
    assert changed("a,b", APPEND, "b, c") == "a,b,c"
    assert changed("a,b", SUBTRACT, "b,z") == "a"
    assert changed("", APPEND, "a") == "a"
    assert changed("a", SUBTRACT, "a") == ""
    assert changed("a", SET, "z") == "z"
    assert changed("a", DELETE, "ignored") is None


@given(present=_ITEMS, operation=st.sampled_from([SET, APPEND, SUBTRACT]), value=_ITEMS)
def test_a_change_that_is_made_twice_is_made_once(present: str, operation: int, value: str) -> None:
    once = changed(present, operation, value)
    assert changed(once or "", operation, value) == once


def test_what_a_replacement_does_not_name_goes_back() -> None:
    edits = [SettingEdit("a", SET, "1"), SettingEdit("b", DELETE, None)]
    assert changes_of(edits, {"b": 2, "policy": "x"}, _LISTS, replaces=True) == {"a": "1", "b": None, "policy": None}
    assert changes_of([], {"b": 2}, _LISTS, replaces=False) == {}


@pytest.mark.parametrize(
    ("edits", "refusal"),
    [
        ([SettingEdit("a", SET, None)], InvalidConfig),
        ([SettingEdit("policy", APPEND, None)], InvalidConfig),
        ([SettingEdit("a", APPEND, "1")], InvalidConfig),
        ([SettingEdit("a", 4, "1")], InvalidRequest),
        ([SettingEdit("a", SET, "1"), SettingEdit("a", DELETE, None)], InvalidRequest),
    ],
)
def test_what_makes_no_sense_is_refused(edits: list[SettingEdit], refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        changes_of(edits, {"a": "1"}, _LISTS, replaces=False)
