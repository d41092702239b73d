"""How a sentence may not begin, and pictures that are no names of parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

HEADLESS: Final = re.compile(r"(?:Of which|Where that|As where|So it is|Who (?!talks|may|does))\b")
PICTURES: Final = re.compile(r"\b(?:crew|desk|handout|parcel|turnover)s?\b", re.IGNORECASE)  # for parts of raylog


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text whose paragraphs and items stand apart, with code replaced."""
    text = re.sub(r"`[^`]*`", "X", text)
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", text):
        yield from re.split(r"(?<=[.!?:;])\s+", " ".join(paragraph.split()))
