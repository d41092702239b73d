"""Calls of `write_stream` to the sources of a query that `read_stream` made, over the checkpoint that both are given.

A streaming DataFrame says nothing of where it comes from once it has been transformed; the checkpoint's location is
what its two ends have in common.
"""

from __future__ import annotations

import weakref
from typing import Protocol


class StreamSource(Protocol):
    """One source, held by whoever made it: it is forgotten with its maker."""

    def plan_to_end(self) -> None:
        """Plan all that is there now, before a query starts that ends with it (`availableNow`)."""

    def batch_committed(self, batch_id: int) -> None:
        """The sink has committed this batch. It may say so again, also in a later life of the query."""


_sources: dict[str, weakref.WeakSet[StreamSource]] = {}


def add_source(checkpoint: str, source: StreamSource) -> None:
    _sources.setdefault(_key(checkpoint), weakref.WeakSet()).add(source)


def sources_of(checkpoint: str) -> list[StreamSource]:
    return list(_sources.get(_key(checkpoint), ()))


def _key(checkpoint: str) -> str:
    return checkpoint.removeprefix("file://").rstrip("/")
