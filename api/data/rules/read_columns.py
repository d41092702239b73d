"""Columns of a Dataset that is read. Decides; touches nothing.

    without a schema   key, value, topic, partition, offset, timestamp, timestampType; headers where asked for
    with one           its fields take the place of `value`, and go before a column of the same name
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from raylog.errors import InvalidConfig

OF_RECORDS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS: Final = "headers"


@dataclass(frozen=True)
class ReadColumns:
    """`names`: of the rows, in order. `fields`: those that values are decoded to."""

    names: tuple[str, ...]
    fields: frozenset[str]

    @classmethod
    def choose(cls, wanted: object, fields: Sequence[str] | None) -> ReadColumns:
        """`wanted` None: all but headers. `fields` None: values stay bytes. InvalidConfig."""
        decoded = frozenset(fields or ())
        known = [each for each in (*OF_RECORDS, HEADERS) if each not in decoded]
        if fields is not None and "value" in known:
            known.remove("value")
        known += fields or ()
        if wanted is None:
            return cls(tuple(each for each in known if each != HEADERS or each in decoded), decoded)
        return cls(_checked(wanted, known), decoded)

    def keep(self, names: Iterable[str]) -> ReadColumns:
        """Return the same with these only, in the order of before."""
        kept = set(names)
        return replace(self, names=tuple(each for each in self.names if each in kept))

    @property
    def of_records(self) -> tuple[str, ...]:
        """The columns that come from records as they are."""
        return tuple(each for each in self.names if each not in self.fields)

    @property
    def is_decoded(self) -> bool:
        return any(each in self.fields for each in self.names)


def _checked(wanted: object, known: Sequence[str]) -> tuple[str, ...]:
    takes = "a list of names among " + ", ".join(known)
    if isinstance(wanted, str) or not isinstance(wanted, Sequence) or not wanted:
        raise InvalidConfig("columns", wanted, takes)
    for each in wanted:
        if each not in known or list(wanted).count(each) > 1:
            raise InvalidConfig("columns", each, takes + ", each once")
    return tuple(wanted)
