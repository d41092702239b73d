"""docs/glossary.md: one list, by the alphabet, in short entries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_TEXT: Final = (Path(__file__).parents[3] / "docs" / "glossary.md").read_text()
_ENTRIES: Final = dict(re.findall(r"^### (.+)\n\n((?:.+\n)+)", _TEXT, re.MULTILINE))


def test_it_is_in_the_order_of_the_alphabet() -> None:
    terms = list(_ENTRIES)
    assert terms == sorted(terms, key=str.lower)
    assert len(terms) == _TEXT.count("\n### ") > 60


def test_an_entry_is_three_sentences_at_most() -> None:
    sentences = {term: len(re.findall(r"[.;](?=\s|$)", text)) for term, text in _ENTRIES.items()}
    assert [term for term, count in sentences.items() if count > 4] == []
