"""docs/rules.md has every rule that a comment cites, and names only what is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.simulator.mutation_seeds import SEEDS
from tests.simulator.mutations.coordinator_mutations import COORDINATOR_MUTATIONS
from tests.simulator.mutations.group_mutations import GROUP_MUTATIONS
from tests.simulator.mutations.mutations import MUTATIONS

_ROOT: Final = Path(__file__).parents[3]
_CODE: Final = ("actors", "api", "bench", "examples", "groups", "raylog", "spark_bridge", "storage", "tests")
_CITATION: Final = re.compile(r"\brules?[ \n]+(?:# +)?(\d+a?(?:(?:, | and | to |–)\d+a?)*)")
_PLACE: Final = re.compile(r"`([a-z_]+/[\w/]+\.py)`(?:\s+\(((?:`\w+`(?:,\s+)?)+)\))?")
_MUTATION_LISTS: Final = re.compile(r"^- Mutations: (.*?)(?:masked: (.*?))?(?=^- |^$)", re.MULTILINE | re.DOTALL)


def _sections() -> dict[str, str]:
    _, *parts = re.split(r"^### Rule (\d+a?)\n", (_ROOT / "docs" / "rules.md").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


_SECTIONS: Final = _sections()


def _cited() -> Iterator[tuple[str, str]]:
    for folder in _CODE:
        for file in sorted((_ROOT / folder).rglob("*.py")):
            for cited in _CITATION.findall(file.read_text()):
                for number in re.findall(r"\d+a?", cited):
                    yield number, str(file.relative_to(_ROOT))


def test_every_rule_that_a_comment_cites_is_there() -> None:
    cited = list(_cited())
    assert len(cited) > 200
    assert [(number, file) for number, file in cited if number not in _SECTIONS] == []


def test_they_are_numbered_without_a_gap() -> None:
    assert [number for number in _SECTIONS if number != "20a"] == [str(number) for number in range(1, 37)]


@pytest.mark.parametrize("number", _SECTIONS)
def test_the_code_and_the_tests_that_a_rule_names_are_there(number: str) -> None:
    places = _PLACE.findall(_SECTIONS[number])
    missing = [path for path, _ in places if not (_ROOT / path).is_file()]
    missing += [
        f"{path}: {name}"
        for path, names in places
        if (_ROOT / path).is_file()
        for name in re.findall(r"\w+", names)
        if not re.search(rf"\b{name}\b", (_ROOT / path).read_text())
    ]
    assert missing == []
    assert places or "none yet" in _SECTIONS[number]


def _listed(number: str) -> tuple[list[str], list[str]]:
    """Returns the mutations that the page lists for a rule: those that are caught, and those that are masked."""
    found = _MUTATION_LISTS.search(_SECTIONS[number])
    caught, masked = found.groups("") if found else ("", "")
    return sorted(re.findall(r"`(\w+)`", caught)), sorted(re.findall(r"`(\w+)`", masked))


@pytest.mark.parametrize("number", _SECTIONS)
def test_all_mutations_of_a_rule_are_listed(number: str) -> None:
    own = [mutation for mutation in MUTATIONS.values() if str(mutation.rule) == number]
    of_groups = [name for name in GROUP_MUTATIONS | COORDINATOR_MUTATIONS if name.startswith(f"rule_{number}_")]
    caught = sorted([mutation.name for mutation in own if not mutation.masked] + of_groups)
    assert _listed(number) == (caught, sorted(mutation.name for mutation in own if mutation.masked))


def test_mutations_that_no_seed_catches_are_an_open_point() -> None:
    open_points = (_ROOT / "docs" / "open_points.md").read_text()
    open_ones = {each.name for each in MUTATIONS.values() if not each.masked and each.name not in SEEDS}
    named = set(re.findall(r"`(\w+)`", open_points)) & set(MUTATIONS)
    assert named == open_ones
