"""Public names of a package that are looked up on first use, so that importing the package imports nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    namespace: dict[str, Any], homes: Mapping[str, str], hint: Callable[[str], str] = lambda _: ""
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for the package with these globals.

    `homes`: the module of each name; a module of the package that has this name itself is meant as a whole. `hint`:
    what an error adds about a name that is not there. A type checker must not see `__getattr__`: it would take any name
    for one that is there.
    """
    package = namespace["__name__"]

    def look_up(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint(name)}")
        module = import_module(home)
        found: object = module if home == f"{package}.{name}" else getattr(module, name)
        namespace[name] = found
        return found

    return look_up, lambda: sorted(namespace["__all__"])
