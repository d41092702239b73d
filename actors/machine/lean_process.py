"""Keeping large libraries out of a process that does not use them.

Where pyarrow is installed, Ray imports it in every worker as soon as an argument arrives, in case one should be a
table. That costs each replica about 0.1 s at its start and several MiB. It goes without where there is none; so in the
process of a replica there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, TypeVar

_LARGE: Final = ("numpy", "pandas", "pyarrow")
_C = TypeVar("_C", bound=type)


def forbid_large_libraries() -> None:
    """From now on they count as not installed in this process, as far as they have not been imported already."""
    for name in _LARGE:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # what it means is documented


class _Lean:
    """Wherever this is unpickled, large libraries are forbidden from then on."""

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return forbid_large_libraries, ()


def lean(actor: _C) -> _C:
    """The class, but a process that Ray makes for it forbids them before its arguments arrive.

    The class that is returned has no name in any module; so Ray sends it by value, and the mark with it.
    """
    return type(actor)(actor.__name__, (actor,), {"__module__": actor.__module__, "_lean": _Lean()})
