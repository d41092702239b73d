"""Changes of settings as Kafka's tools make them: set, delete, append to a list, subtract from it.

Each is the same whether it is made once or twice, so it may be asked again when an answer was lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from raylog.config import ConfigValue
from raylog.errors import InvalidConfig, InvalidRequest

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3


@dataclass(frozen=True, slots=True)
class SettingEdit:
    """One change. The operations are numbered as in Kafka; DELETE has no use for a value."""

    name: str
    operation: int
    value: str | None


def changes_of(
    edits: Sequence[SettingEdit], present: Mapping[str, ConfigValue], lists: Collection[str], *, replaces: bool
) -> dict[str, ConfigValue | None]:
    """Return the new values of settings; None: the default.

    `present`: values now, at least those that are not the defaults and those of `lists`. `replaces`: what is not named
    goes back to the default. InvalidRequest: a setting is named twice. InvalidConfig.
    """
    changes: dict[str, ConfigValue | None] = dict.fromkeys(present) if replaces else {}
    named: set[str] = set()
    for edit in edits:
        if edit.name in named:
            raise InvalidRequest(f"Setting {edit.name!r} is changed twice.")
        named.add(edit.name)
        changes[edit.name] = _changed(edit, str(present.get(edit.name, "")), is_list=edit.name in lists)
    return changes


def _changed(edit: SettingEdit, present: str, *, is_list: bool) -> str | None:
    if edit.operation == DELETE:
        return None
    if edit.value is None:
        raise InvalidConfig(edit.name, edit.value, "a value")
    if edit.operation == SET:
        return edit.value
    if edit.operation not in (APPEND, SUBTRACT):
        raise InvalidRequest(f"There is no operation {edit.operation} on settings.")
    if not is_list:
        raise InvalidConfig(edit.name, edit.value, "a value to set: nothing is appended to what is no list")
    items, others = _items(present), _items(edit.value)
    if edit.operation == SUBTRACT:
        return ",".join(each for each in items if each not in others)
    return ",".join([*items, *(each for each in others if each not in items)])


def _items(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
