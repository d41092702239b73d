"""Descriptions as notebooks show them: a heading and a table, in which every cell is text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

_MOST_ROWS: Final = 50


def html_table(heading: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table below its heading, of at most 50 rows; a last line says how many more there are."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:_MOST_ROWS])
    left = len(rows) - _MOST_ROWS
    more = f"<p>and {left} more</p>" if left > 0 else ""
    return f"<p><b>{escape(heading)}</b></p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)
    return f"<td>{escape(text)}</td>"
