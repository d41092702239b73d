"""The pages for people, and what stands on them: blocks of code, links, headings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BEFORE_HELP: Final = "<!-- from here on"  # docs/command_line.md goes on with what click prints

_FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: Path) -> str:
    return page.read_text().partition(BEFORE_HELP)[0]


def blocks(page: Path, language: str) -> list[str]:
    found = _FENCE.findall(text_of(page))
    wanted = [(len(indent), code.split("\n")) for indent, kind, code in found if kind == language]
    return ["\n".join(line[indent:] for line in lines) for indent, lines in wanted]


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return _FENCE.sub("", text_of(page))


def spans(page: Path) -> list[str]:
    """What stands in `backquotes` within a paragraph."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(page))]


def links(page: Path) -> list[tuple[str, str]]:
    """File, or nothing for the page itself, and anchor of each link that does not leave the repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [(link.partition("#")[0], link.partition("#")[2]) for link in found if "://" not in link]


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may say behind its `#`, as code hosts make it."""
    text = _FENCE.sub("", page.read_text())
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    made: dict[str, int] = {}
    for heading in headings:
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        made[slug] = made.get(slug, -1) + 1
        if made[slug]:
            made[f"{slug}-{made[slug]}"] = 0
    return set(made)
