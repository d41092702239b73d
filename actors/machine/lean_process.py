"""Keeping large libraries out of a process that does not use them.

Where pyarrow is installed, Ray imports it in every worker as soon as an argument arrives, in case that is a table. This
costs each replica about 0.1 s at its start and several MiB. Ray works without pyarrow too, so in the process of a
replica it counts as not installed.

A handle of such an actor carries its class, and so the mark: a driver that asks Ray for one by its name unpickles it
too. Drivers keep their libraries; only workers of Ray go without.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Final, TypeVar

_LARGE: Final = ("numpy", "pandas", "pyarrow")
_WORKER: Final = "default_worker.py"  # the program of Ray's workers
_C = TypeVar("_C", bound=type)


def forbid_large_libraries() -> None:
    """Make large libraries count as not installed in this process of Ray's, unless they are imported already."""
    if PurePath(sys.argv[0]).name != _WORKER:
        return
    for name in _LARGE:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # what it means is documented


class _Lean:
    """A mark that forbids large libraries in the process that unpickles it."""

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return forbid_large_libraries, ()


def lean(actor: _C) -> _C:
    """Return the class in a form whose processes forbid large libraries before its arguments arrive.

    The returned class has no name in any module. So Ray sends it by value, and the mark with it.
    """
    return type(actor)(actor.__name__, (actor,), {"__module__": actor.__module__, "_lean": _Lean()})
