"""The figures of the house, and what it does not allow: `python -m tests.house`, part of `make lint`.

    a module that lies in no package of an import contract
    a folder with more than 30 modules
    a module of more than 500 lines
    a line of documentation longer than 120 characters
    a public name without a docstring

Tests may be longer than 500 lines: they are read one at a time. Everything else holds for them too.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ("actors", "api", "groups", "storage", "spark_bridge")
_OTHERS: Final = ("raylog", "bench", "examples", "tests")
_MOST_MODULES: Final = 30
_MOST_LINES: Final = 500
_LONGEST_LINE: Final = 120


@dataclass(frozen=True)
class Module:
    """One file. `path` is relative to the root of the repository."""

    path: Path
    text: str

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def name(self) -> str:
        """Return its dotted name. The folders of the source lie within raylog."""
        parts = (*self.folder.parts, *(() if self.is_package else (self.path.stem,)))
        return ".".join(parts if parts[0] in _OTHERS else ("raylog", *parts))

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


@dataclass(frozen=True)
class House:
    """All modules, by folder, and the contracts on their imports."""

    modules: list[Module]
    contracts: list[dict[str, Any]]
    root: Path = ROOT

    @classmethod
    def look(cls, root: Path = ROOT) -> House:
        """Read it from the disk."""
        modules = [
            Module(path.relative_to(root), path.read_text())
            for top in (*SOURCE, *_OTHERS)
            for path in sorted(_files(root / top))
        ]
        toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")  # import-linter brings the latter
        settings = toml.loads((root / "pyproject.toml").read_text())
        return cls(modules, settings["tool"]["importlinter"]["contracts"], root)

    @property
    def source(self) -> list[Module]:
        return [each for each in self.modules if each.path.parts[0] in SOURCE or each.path.parts[0] == "raylog"]

    def check(self) -> list[str]:
        """Return what is not allowed."""
        return [
            *self._outside_contracts(),
            *self._full_folders(),
            *self._long_modules(),
            *self._long_lines(),
            *self._unexplained_names(),
        ]

    def _outside_contracts(self) -> Iterator[str]:
        layers = [each for each in self.contracts if each["type"] == "layers"]
        places = {
            f"{container}.{name.strip()}"
            for contract in layers
            for container in contract["containers"]
            for layer in contract["layers"]
            for name in layer.replace(":", "|").split("|")
            if container != "raylog" or name not in SOURCE
        }
        for module in self.source:
            parents = module.name.split(".")
            names = {".".join(parents[: number + 1]) for number in range(len(parents))}
            if not module.is_package and not names & places:
                yield f"{module.path}: lies in no package of an import contract"

    def _full_folders(self) -> Iterator[str]:
        counts = Counter(each.folder for each in self.modules if not each.is_package)
        for folder, count in counts.items():
            if count > _MOST_MODULES:
                yield f"{folder}: {count} modules, and {_MOST_MODULES} are the most"

    def _long_modules(self) -> Iterator[str]:
        for module in self.modules:
            if module.path.parts[0] != "tests" and module.lines > _MOST_LINES:
                yield f"{module.path}: {module.lines} lines, and {_MOST_LINES} are the most"

    def _long_lines(self) -> Iterator[str]:
        pages = [*self.root.glob("*.md"), *(self.root / "docs").rglob("*.md")]
        for page in sorted(pages):
            for number, line in enumerate(page.read_text().splitlines(), 1):
                if len(line) > _LONGEST_LINE:
                    where = f"{page.relative_to(self.root)}:{number}"
                    yield f"{where}: {len(line)} characters, and {_LONGEST_LINE} are the most"

    def _unexplained_names(self) -> Iterator[str]:
        homes = {each.name: each for each in self.source}
        for name, home in sorted(_public_names(self.root).items()):
            found = _definition(homes[home], name) if home in homes else None
            if found is not None:
                yield from (f"{home}: {each} is public and has no docstring" for each in self._undocumented(found))

    def _undocumented(self, node: ast.ClassDef | ast.FunctionDef) -> Iterator[str]:
        if not ast.get_docstring(node):
            yield node.name
        if isinstance(node, ast.ClassDef):
            for each in _methods(node):
                if not each.name.startswith("_") and not self._is_explained(node, each.name):
                    yield f"{node.name}.{each.name}"

    def _is_explained(self, owner: ast.ClassDef, name: str) -> bool:
        """Whether this method, or one that it overrides, has a docstring."""
        if any(each.name == name and ast.get_docstring(each) for each in _methods(owner)):
            return True
        bases = (self._classes.get(base.id) for base in owner.bases if isinstance(base, ast.Name))
        return any(base is not None and self._is_explained(base, name) for base in bases)

    @cached_property
    def _classes(self) -> dict[str, ast.ClassDef]:
        return {
            node.name: node for module in self.source for node in module.tree.body if isinstance(node, ast.ClassDef)
        }

    # --- figures --------------------------------------------------------------------------------------------------

    def figures(self) -> Iterator[str]:
        """Lines for people."""
        source = [each for each in self.source if not each.is_package]
        lines = sorted(each.lines for each in source)
        functions = sorted(
            (node.end_lineno or node.lineno) - node.lineno + 1
            for module in source
            for node in ast.walk(module.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )
        folders = Counter(each.folder for each in source)
        importers = Counter(name for module in source for name in _imported(module))
        small = [each for each in source if each.lines <= 60]
        alone = [each for each in source if importers[each.name] == 1]
        named = sum(len(each.get("source_modules", [])) + len(each.get("layers", [])) for each in self.contracts)
        yield f"{len(source)} modules in {len(folders)} folders, {sum(lines):,} lines"
        yield f"modules: median {statistics.median(lines):.0f} lines, longest {lines[-1]}; {len(small)} of at most 60"
        yield f"folders: median {statistics.median(folders.values()):.0f} modules, fullest {max(folders.values())}"
        yield (
            f"functions: {len(functions):,}, median {statistics.median(functions):.0f} lines, "
            f"p90 {functions[len(functions) * 9 // 10]}, longest {functions[-1]}"
        )
        yield f"imported by one module only: {len(alone)} modules; imports between modules: {sum(importers.values()):,}"
        yield f"contracts: {len(self.contracts)}, with {named} names"


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        elif path.suffix == ".py":
            yield path


def _imported(module: Module) -> set[str]:
    """The modules of raylog that it imports, or takes names from."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("raylog."):
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found


def _public_names(root: Path) -> dict[str, str]:
    """Each name that a program gets from `raylog` or `raylog.spark_bridge`, and the module that defines it."""
    names: dict[str, str] = {}
    for package in ("raylog", "spark_bridge"):
        tree = ast.parse((root / package / "__init__.py").read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("raylog."):
                names |= {each.asname or each.name: node.module for each in node.names}
    return names


def _definition(module: Module, name: str) -> ast.ClassDef | ast.FunctionDef | None:
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
    return None


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def main() -> int:
    house = House.look()
    wrong = house.check()
    sys.stdout.writelines(f"{line}\n" for line in house.figures())
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
