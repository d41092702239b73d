"""Pictures in Mermaid are of kinds that code hosts draw, and keep clear of what breaks them.

What they look like shows a preview of a code host: nothing here can draw them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.unit.docs.pages import PAGES, blocks, name_of

_KINDS: Final = ("flowchart LR", "flowchart TB", "sequenceDiagram", "stateDiagram-v2")
_WITH_PICTURES: Final = [page for page in PAGES if blocks(page, "mermaid")]
_MESSAGE: Final = re.compile(r"    (\w+)(?:->>|-->>|-x)(\w+): [^;#]+")
_OTHER: Final = re.compile(r"    (?:autonumber|participant (\w+) as [^;#]+|Note over \w+: [^;#]+)")


def test_there_are_some() -> None:
    assert {"docs/architecture.md", "docs/transactions.md"} <= {name_of(page) for page in _WITH_PICTURES}


@pytest.mark.parametrize("page", _WITH_PICTURES, ids=name_of)
def test_pictures_are_of_known_kinds(page: Path) -> None:
    assert {block.splitlines()[0] for block in blocks(page, "mermaid")} <= set(_KINDS)


@pytest.mark.parametrize("page", _WITH_PICTURES, ids=name_of)
def test_who_speaks_in_a_sequence_takes_part(page: Path) -> None:
    """A semicolon ends a line of Mermaid, and a hash begins an entity."""
    for block in blocks(page, "mermaid"):
        first, *lines = block.rstrip("\n").splitlines()
        if first == "sequenceDiagram":
            wrong = [line for line in lines if not _MESSAGE.fullmatch(line) and not _OTHER.fullmatch(line)]
            assert wrong == []
            speakers = {name for line in lines if (said := _MESSAGE.fullmatch(line)) for name in said.groups()}
            named = {found[1] for line in lines if (found := _OTHER.fullmatch(line)) and found[1]}
            assert speakers == named
