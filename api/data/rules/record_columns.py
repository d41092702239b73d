"""Columns of a Dataset that make records. Decides; touches nothing.

    value      bytes or text; or a struct, or several columns, which become a JSON object; null: a tombstone
    key        bytes or text; None: records have none
    partition  whole numbers; None: by the key
    headers    a list of structs of key and value
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from raylog.errors import DatasetNotWritable, InvalidConfig


@dataclass(frozen=True)
class RecordColumns:
    """The names of the columns, checked. `fields`: columns that together become the value; else empty."""

    value: str
    fields: tuple[str, ...]
    key: str | None
    partition: str | None
    headers: str | None

    @classmethod
    def choose(cls, value: object, key: object, partition: object, headers: object) -> RecordColumns:
        """InvalidConfig."""
        others = [_name(*each) for each in (("key", key), ("partition", partition), ("headers", headers))]
        if isinstance(value, str):
            return cls(_named("value", value), (), *others)
        if not isinstance(value, Sequence) or not value or len(set(value)) < len(value):
            raise InvalidConfig("value", value, "the name of a column, or a list of different names")
        return cls("", tuple(_named("value", each) for each in value), *others)

    @property
    def names(self) -> dict[str, str]:
        """Each column that is read, and what it is for."""
        single = {"value": self.value, "key": self.key, "partition": self.partition, "headers": self.headers}
        found = {name: part for part, name in single.items() if name}
        return {**dict.fromkeys(self.fields, "a field"), **found}

    def check(
        self, there: Sequence[str], is_fit: Mapping[str, Callable[[str], bool]], kind: Callable[[str], str]
    ) -> None:
        """`is_fit`: by part, whether a column of that name may be it; `kind`: its type. DatasetNotWritable."""
        for name, part in self.names.items():
            if name not in there:
                known = ", ".join(map(repr, there))
                raise DatasetNotWritable(f"{part}={name!r} is none of its columns, which are {known}")
            if part in is_fit and not is_fit[part](name):
                raise DatasetNotWritable(f"the column {name!r} is of type {kind(name)}, and cannot be the {part}")


def _name(part: str, given: object) -> str | None:
    return None if given is None else _named(part, given)


def _named(part: str, given: object) -> str:
    if not isinstance(given, str) or not given:
        raise InvalidConfig(part, given, "the name of a column" + ("" if part == "value" else ", or None"))
    return given
