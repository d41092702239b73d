"""Commands in the pages for people: what they name is there, and `raylog` takes what stands behind it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click
import pytest

from raylog.api.cli.program import program

_ROOT: Final = Path(__file__).parents[3]
_PAGES: Final = [
    *(_ROOT / name for name in ("README.md", "CONTRIBUTING.md", "cluster.yaml")), *sorted((_ROOT / "docs").glob("*.md"))
]  # fmt: skip
_BEFORE_HELP: Final = "<!-- from here on"  # docs/command_line.md goes on with what click prints
_PLACEHOLDERS: Final = {"OLD": "1"}


def text_of(page: Path) -> str:
    return page.read_text().partition(_BEFORE_HELP)[0]


def blocks(page: Path, language: str = r"\w*") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), re.DOTALL | re.MULTILINE)


def calls(page: Path) -> Iterator[str]:
    for line in "\n".join(blocks(page, "sh")).splitlines():
        yield from re.findall(r"(?:^|\| )(raylog [^#|]*)", line)
    yield from re.findall(r"`(raylog [a-z][^`\n|]*)", text_of(page))
    yield from re.findall(r"'(raylog [a-z][^'\n]*)'", text_of(page)) if page.suffix == ".yaml" else []


def problem_with(call: str) -> str:
    """What `raylog` has against it; nothing is run."""
    words = [_PLACEHOLDERS.get(word, word) for word in shlex.split(call.rstrip("\\"))[1:]]  # of \| in a table
    command: click.Command = program
    # Commands keep the help option of the first context that they meet, and each context has that of its parent.
    context = click.Context(program, info_name="raylog", **program.context_settings)
    while isinstance(command, click.Group):
        if not words or words[0] == "…" or words[0].startswith("-"):
            return ""  # a group of commands is meant; or an option of the root
        inner = command.get_command(context, words[0])
        if inner is None:
            return f"there is no {words[0]!r}"
        command, name, words = inner, words[0], words[1:]
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name, parent=context)
    try:
        command.make_context(name, words, parent=context)
    except click.MissingParameter:  # the text is about the command, or an option of it
        return ""
    except click.UsageError as error:
        return error.format_message()
    except click.exceptions.Exit:  # --help
        pass
    return ""


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_every_call_of_raylog_is_one_that_it_takes(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "")  # which --ray-address would set for good
    wrong = {call: problem_with(call) for call in calls(page)}
    assert {call: problem for call, problem in wrong.items() if problem} == {}


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_every_target_of_make_and_every_module_is_there(page: Path) -> None:
    text = text_of(page)
    there = set(re.findall(r"^([a-z-]+):", (_ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", text, re.MULTILINE)) - there == set()
    modules = set(re.findall(r"python -m ((?:raylog|bench|examples|tests)[\w.]*)", text))
    assert [each for each in sorted(modules) if find_spec(each) is None] == []


def test_code_in_the_readme_fits_into_80_columns() -> None:
    lines = "".join(blocks(_ROOT / "README.md")).splitlines()
    assert lines
    assert [line for line in lines if len(line) > 80] == []
