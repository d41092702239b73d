"""`tests.house` finds what it does not allow: each kind once, in a house made for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import House

_CONTRACTS = """
[[tool.importlinter.contracts]]
type = "layers"
containers = ["raylog"]
layers = ["api", "actors", "errors"]

[[tool.importlinter.contracts]]
type = "layers"
containers = ["raylog.actors"]
layers = ["broker | controller", "kernel : protocol"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("actors", "api", "groups", "storage", "spark_bridge", "raylog", "bench", "examples", "tests", "docs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(_CONTRACTS)
    write(tmp_path, "actors/kernel/background.py", "def now(): ...\n")
    write(tmp_path, "raylog/__init__.py", "from raylog.errors import Lost\n")
    write(tmp_path, "raylog/errors.py", 'class Lost:\n    """It is gone."""\n')
    (tmp_path / "README.md").write_text("x" * 120 + "\n")
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_tidy_house_is_let_pass(folder: Path) -> None:
    assert House.look(folder).check() == []


@pytest.mark.parametrize("name", ["actors/stray.py", "actors/attic/old.py", "storage/log.py"])
def test_each_module_lies_within_a_contract(folder: Path, name: str) -> None:
    write(folder, name, "")
    assert House.look(folder).check() == [f"{name}: lies in no package of an import contract"]


def test_folders_are_not_full(folder: Path) -> None:
    for number in range(30):
        write(folder, f"actors/broker/part_{number}.py", "")
    assert House.look(folder).check() == []
    write(folder, "actors/broker/one_more.py", "")
    assert House.look(folder).check() == ["actors/broker: 31 modules, and 30 are the most"]


def test_modules_are_short(folder: Path) -> None:
    write(folder, "actors/broker/long.py", "pass\n" * 501)
    write(folder, "tests/test_long.py", "pass\n" * 501)
    assert House.look(folder).check() == ["actors/broker/long.py: 501 lines, and 500 are the most"]


def test_lines_of_documentation_are_short(folder: Path) -> None:
    write(folder, "docs/guides/first.md", "fine\n" + "x" * 121 + "\n")
    assert House.look(folder).check() == ["docs/guides/first.md:2: 121 characters, and 120 are the most"]


def test_public_names_have_docstrings(folder: Path) -> None:
    write(
        folder,
        "raylog/errors.py",
        "class Lost(_Base):\n"
        "    def found(self): ...\n"
        "    def told(self): ...\n"
        "    def _own(self): ...\n"
        "class _Base:\n"
        "    def told(self):\n"
        "        '''An overriding method need not say it again.'''\n",
    )
    assert House.look(folder).check() == [
        "raylog.errors: Lost is public and has no docstring",
        "raylog.errors: Lost.found is public and has no docstring",
    ]


def test_the_figures_are_lines_for_people(folder: Path) -> None:
    assert len(list(House.look(folder).figures())) == 6
