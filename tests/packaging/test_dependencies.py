"""A dependency is pinned in constraints.txt, installed as pinned, and explained in docs/dependencies.md."""

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.pins import pinned_versions

REPOSITORY = Path(__file__).parents[2]
CONSTRAINTS = REPOSITORY / "constraints.txt"
EXTRAS = ["", "arrow", "data", "kafka", "spark", "bench", "test"]


def required(distribution: str, extras: list[str]) -> Iterator[Requirement]:
    for requirement in map(Requirement, metadata.requires(distribution) or []):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
            yield requirement


def declared() -> set[str]:
    """Return what pyproject.toml names for this Python, base and extras."""
    names: set[str] = {canonicalize_name(each.name) for each in required("raylog", EXTRAS)}
    return names - {"raylog"}


def installed_closure() -> dict[str, str]:
    """Return what is installed because raylog, or one of its extras, needs it."""
    found: dict[str, str] = {}
    waiting = list(declared())
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # of an extra that this environment was made without
        waiting += [canonicalize_name(each.name) for each in required(name, [""])]
    return found


def test_every_declared_dependency_is_pinned() -> None:
    assert declared() - pinned_versions(CONSTRAINTS).keys() == set()


def test_everything_installed_for_raylog_has_the_pinned_version() -> None:
    installed, pinned = installed_closure(), pinned_versions(CONSTRAINTS)
    assert "ray" in installed
    assert {name: pinned.get(name) for name in installed} == installed


def test_every_declared_dependency_has_its_reason() -> None:
    page = (REPOSITORY / "docs" / "dependencies.md").read_text()
    explained = re.findall(r"^- `([^`]+)`", page, flags=re.MULTILINE)
    assert explained == list(dict.fromkeys(explained)), "explained twice"
    build_backend = {"setuptools"}  # explained once, needed by the build on every Python and by Spark on 3.12
    assert set(explained) | build_backend == declared() | build_backend
