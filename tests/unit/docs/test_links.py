"""What the pages for people point to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_PAGES = [_ROOT / name for name in ("README.md", "CONTRIBUTING.md")] + sorted((_ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    within = [link for link in links if "://" not in link]
    assert [link for link in within if not (page.parent / link).exists()] == []


def test_every_page_is_found_from_the_readme() -> None:
    reached, waiting = set(), [_ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)#\s]+\.md)[^)]*\)", page.read_text())
        waiting += [(page.parent / link).resolve() for link in links if "://" not in link]
    assert set(_PAGES) <= reached
