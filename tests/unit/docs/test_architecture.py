"""docs/architecture.md names every package of the house."""

from __future__ import annotations

import re
from typing import Final

from tests.unit.docs.pages import ROOT

_FOLDERS: Final = ("actors", "api", "groups", "spark_bridge", "storage")


def test_every_package_has_a_line() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"^\| `(\w+/\w+)/` \|", text, re.MULTILINE))
    there = {f"{folder}/{found.parent.name}" for folder in _FOLDERS for found in (ROOT / folder).glob("*/__init__.py")}
    assert named == there


def test_twelve_files_are_to_be_read_first() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    _, _, section = text.partition("## Read these twelve files first\n")
    assert len(re.findall(r"^\| `[\w/]+\.py` \|", section.partition("\n## ")[0], re.MULTILINE)) == 12


def test_contributing_names_every_folder() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"^\| `([\w/]+)/` \|", text, re.MULTILINE))
    tests = {f"tests/{found.parent.name}" for found in (ROOT / "tests").glob("*/__init__.py")}
    assert named == {"raylog", *_FOLDERS, "bench", "docs", "examples"} | tests
