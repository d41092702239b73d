"""What the pages for people point to is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.unit.docs.pages import PAGES, ROOT, anchors, links, name_of, spans

_FOLDERS: Final = "actors|api|bench|docs|examples|groups|raylog|spark_bridge|storage|tests"
_FILE: Final = re.compile(rf"(?:\.\./)?((?:{_FOLDERS})(?:/[\w.-]+)+\.(?:py|md|json|svg)|(?:{_FOLDERS})/(?:[\w-]+/)*)")
_WIDTH: Final = 120


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    wrong = []
    for file, anchor in links(page):
        target = (page.parent / file) if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(f"{file}#{anchor}")
    assert wrong == []


def test_every_page_is_found_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        waiting += [(page.parent / file).resolve() for file, _ in links(page) if file.endswith(".md")]
    assert set(PAGES) - reached == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_that_is_named_is_there(page: Path) -> None:
    named = {found[1] for span in spans(page) if (found := _FILE.fullmatch(span))}
    assert sorted(each for each in named if not (ROOT / each).exists()) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_fit_into_120_columns(page: Path) -> None:
    assert [line for line in page.read_text().splitlines() if len(line) > _WIDTH] == []
