"""Pages in plain words: short sentences, and none that begins without its subject."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.unit.docs.pages import PAGES, name_of, prose
from tests.unit.docs.plain_words import HEADLESS, PICTURES, sentences

_LONGEST: Final = 36  # words


def _sentences(page: Path) -> Iterator[str]:
    lines = (line for line in prose(page).splitlines() if not line.lstrip().startswith(("|", "#")))
    yield from sentences(re.sub(r"\]\([^)]*\)", "]", "\n".join(lines)))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_sentences_are_short_and_begin_with_what_they_are_about(page: Path) -> None:
    wrong = [each for each in _sentences(page) if len(each.split()) > _LONGEST or HEADLESS.match(each.lstrip("*- "))]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_parts_have_their_own_names(page: Path) -> None:
    assert PICTURES.findall(prose(page)) == []
