"""Formats by which the dump tells what the records of raylog's own topics say.

A module that writes records into an internal topic adds its reading of them here, under the topic's name:

    RECORD_FORMATS["__consumer_offsets"] = describe_offset_commit

It takes a record's key and value and returns one line of text. It never sees transaction markers, and it may refuse
a record it cannot read with a `ValueError` or a `RaylogError`: the dump then says so and shows the bytes.

The registry has a room of its own, apart from the command, so that adding to it costs a broker's process nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from raylog.errors import RaylogError

RecordFormat: TypeAlias = Callable[[bytes | None, bytes | None], str]

RECORD_FORMATS: Final[dict[str, RecordFormat]] = {}

# `ValueError` is also what text and JSON that cannot be decoded end in.
_UNDECODABLE: Final = (RaylogError, ValueError, LookupError, TypeError, struct.error)


def describe_record(topic: str | None, key: bytes | None, value: bytes | None) -> str | None:
    """Return what the record says; None where its topic has no format."""
    record_format = RECORD_FORMATS.get(topic) if topic is not None else None
    if record_format is None:
        return None
    try:
        return record_format(key, value)
    except _UNDECODABLE as error:
        return f"cannot be decoded ({type(error).__name__}: {error})"
