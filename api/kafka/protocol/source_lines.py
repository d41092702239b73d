"""Lines of a function that is being written, with names that are used once and the objects that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

# Kinds of fixed size, as `struct` calls them, with their bytes.
FIXED: Final = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "bool": ("?", 1),
    "uuid": ("16s", 16),
}


class SourceLines:
    """The lines, and what their names stand for."""

    def __init__(self, **names: Any) -> None:
        self.names = names
        self._lines: list[str] = []
        self._indent = 0
        self._numbers = count()

    def add(self, line: str) -> None:
        self._lines.append("    " * self._indent + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent what is added within."""
        self.add(head)
        self._indent += 1
        yield
        self._indent -= 1

    def fresh(self, stem: str) -> str:
        """Return a name that is used nowhere else."""
        return f"{stem}_{next(self._numbers)}"

    def bind(self, stem: str, value: object) -> str:
        """Return a name under which the function finds this object."""
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def compiled(self, function: str, title: str) -> Callable[..., Any]:
        """Compile them, and return the function of this name."""
        exec(compile("\n".join(self._lines), f"<{title}>", "exec"), self.names)
        found: Callable[..., Any] = self.names[function]
        return found
