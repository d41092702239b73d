"""Pages in plain words: short sentences, and none that begins without its subject."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.unit.docs.pages import PAGES, name_of, prose

_LONGEST: Final = 36  # words
_HEADLESS: Final = re.compile(r"(?:Of which|Where that|As where|So it is|Who (?!talks|may|does))\b")
_PICTURES: Final = re.compile(r"\b(?:desk|parcel|handout|turnover)s?\b", re.IGNORECASE)  # for parts of raylog


def _sentences(page: Path) -> Iterator[str]:
    lines = (line for line in prose(page).splitlines() if not line.lstrip().startswith(("|", "#")))
    text = re.sub(r"`[^`]*`", "X", re.sub(r"\]\([^)]*\)", "]", "\n".join(lines)))
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", text):
        yield from re.split(r"(?<=[.!?:;])\s+", " ".join(paragraph.split()))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_sentences_are_short_and_begin_with_what_they_are_about(page: Path) -> None:
    wrong = [each for each in _sentences(page) if len(each.split()) > _LONGEST or _HEADLESS.match(each.lstrip("*- "))]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_parts_have_their_own_names(page: Path) -> None:
    assert _PICTURES.findall(prose(page)) == []
