"""Columns of a DataFrame that make records, as in Spark's Kafka sink. Decides; touches nothing.

    value      string or binary     has to be there; null: a tombstone
    key        string or binary
    topic      string               has to be there, unless the option `topic` is given, which goes first
    partition  int                  null: by the key
    headers    array<struct<key:string,value:binary>>

Other columns, as those that reading a topic gives, are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raylog.errors import FrameNotWritable

_TEXT: Final = ("string", "binary")
_TYPES: Final = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def columns_of_records(columns: Sequence[tuple[str, str]], topic: str | None) -> list[str]:
    """Return what is to be selected of a frame with these (name, type). FrameNotWritable."""
    found = [(name, kind) for name, kind in columns if name in _TYPES]
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise FrameNotWritable(f"it has {names.count(name)} columns {name!r}")
    if "value" not in names:
        raise FrameNotWritable(f"it has no column 'value', but {', '.join(repr(name) for name, _ in columns)}")
    if topic is None and "topic" not in names:
        raise FrameNotWritable("there is neither an option nor a column 'topic'")
    for name, kind in found:
        if kind not in _TYPES[name]:
            raise FrameNotWritable(f"the column {name!r} is of type {kind}, and not {' or '.join(_TYPES[name])}")
    return [name for name in names if name != "topic" or topic is None]
