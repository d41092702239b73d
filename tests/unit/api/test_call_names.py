"""Errors name what a person has asked for, not the method that carries it."""

from __future__ import annotations

import pytest

from raylog.api.call_names import as_asked


@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        ("create_topic", {"name": "clicks", "partitions": 3}, "create_topic('clicks')"),
        ("delete_topic", {"topic": "clicks"}, "delete_topic('clicks')"),
        ("drain_broker", {"broker_id": 2, "force": False}, "drain_broker(2)"),
        ("elect_leaders", {"kind": "preferred"}, "elect_leaders"),
    ],
)
def test_a_call_is_named_as_it_was_made(call: str, arguments: dict[str, object], expected: str) -> None:
    assert as_asked(call, arguments) == expected
