"""Functions that make keys and values of bytes.

A deserializer is a function of the bytes, or an object with `deserialize(topic, headers, data)`. It is never given
None: a record without a value (a tombstone) has the value None whatever the deserializer, and so has a missing key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from raylog.errors import InvalidConfig


class DeserializingObject(Protocol):
    """kafka-python's kind of deserializer."""

    def deserialize(self, topic: str, headers: Any, data: bytes, /) -> Any: ...


@dataclass(frozen=True)
class Deserializer:
    """Either kind, ready to be run over a column."""

    function: Callable[..., Any]
    takes_context: bool  # topic and headers before the bytes

    def over(
        self,
        topic: str,
        headers: Sequence[Any],
        column: Sequence[bytes | None],
        walked: Iterator[bytes | None] | None = None,
    ) -> Iterator[Any]:
        """One by one; what the function raises is raised when that item is asked for.

        `walked`: an iterator of the column, which shows how far the function has come.
        """
        walked = iter(column) if walked is None else walked
        function = self.function
        if self.takes_context:
            contexts = zip(headers, walked, strict=True)
            return (None if data is None else function(topic, around, data) for around, data in contexts)
        if None in column:
            return (None if data is None else function(data) for data in walked)
        return map(function, walked)


def deserializer(name: str, value: object) -> Deserializer:
    """The check of an option that is one (`client_options.py`)."""
    method: object = None if isinstance(value, type) else getattr(value, "deserialize", None)
    if callable(method):
        return Deserializer(method, takes_context=True)
    if callable(value):
        return Deserializer(value, takes_context=False)
    raise InvalidConfig(name, value, "a function of bytes, or an object with deserialize(topic, headers, data)")
