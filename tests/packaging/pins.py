"""Reads constraints.txt."""

from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def pinned_versions(constraints: Path) -> dict[str, str]:
    """Canonical name -> exact version, for the Python that runs this."""
    lines = [line.split("#")[0].strip() for line in constraints.read_text().splitlines()]
    pins: dict[str, str] = {}
    for requirement in map(Requirement, filter(None, lines)):
        if requirement.marker is None or requirement.marker.evaluate():
            name = canonicalize_name(requirement.name)
            assert name not in pins, f"{name} is pinned twice"
            (specifier,) = requirement.specifier
            assert specifier.operator == "==", f"{requirement} is no exact version"
            pins[name] = specifier.version
    return pins
