"""Commands in the pages for people: what they name is there, and `raylog` takes what stands behind it."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click
import pytest

from raylog.api.cli.program import program
from tests.unit.docs.pages import PAGES, ROOT, blocks, name_of, spans, text_of

_WITH_COMMANDS: Final = [*PAGES, ROOT / "cluster.yaml"]
_PLACEHOLDERS: Final = {"OLD": "1"}
_OF_OTHERS: Final = {"--head", "--address", "--resources", "--labels", "--metrics-export-port", "--port", "--lf"}


def calls(page: Path) -> Iterator[str]:
    for line in "\n".join(blocks(page, "sh")).splitlines():
        yield from re.findall(r"(?:^|\| )(raylog [^#|]*)", line)
    yield from (span.partition("|")[0] for span in spans(page) if re.match(r"raylog [a-z]", span))
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
    except click.MissingParameter:  # the text is about the command
        return ""
    except click.BadOptionUsage as error:  # … or about an option of it
        return "" if "requires an argument" in error.message else error.format_message()
    except click.UsageError as error:
        return error.format_message()
    except click.exceptions.Exit:  # --help
        pass
    return ""


@pytest.mark.parametrize("page", _WITH_COMMANDS, ids=name_of)
def test_every_call_of_raylog_is_one_that_it_takes(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "")  # which --ray-address would set for good
    wrong = {call: problem_with(call) for call in calls(page)}
    assert {call: problem for call, problem in wrong.items() if problem} == {}


def _options(command: click.Command) -> Iterator[str]:
    for each in command.params:
        yield from (*each.opts, *each.secondary_opts)
    if isinstance(command, click.Group):
        context = click.Context(command, info_name="raylog", **program.context_settings)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _options(inner)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_option_that_is_named_by_itself_is_there(page: Path) -> None:
    there = {*_options(program), "--help", "-h", *_options_of_bench()}
    named = {found[0] for span in spans(page) if (found := re.match(r"--[a-z][a-z-]+", span))}
    assert sorted(named - there - _OF_OTHERS) == []


def _bench() -> ast.Module:
    return ast.parse((ROOT / "bench" / "__main__.py").read_text())  # which imports all that is measured, and Ray


def _options_of_bench() -> set[str]:
    texts = [node.value for node in ast.walk(_bench()) if isinstance(node, ast.Constant)]
    return {text for text in texts if isinstance(text, str) and text.startswith("--")}


def _groups_of_bench() -> set[str]:
    (table,) = (
        node.value
        for node in ast.walk(_bench())
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "GROUPS"
    )
    assert isinstance(table, ast.Dict)
    return {key.value for key in table.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_benchmark_that_is_named_is_there(page: Path) -> None:
    there = _groups_of_bench() | _options_of_bench() | {"FILE"}
    named = [word for words in re.findall(r"python -m bench((?: [a-z-]+)*)", text_of(page)) for word in words.split()]
    assert sorted(set(named) - there) == []


@pytest.mark.parametrize("page", _WITH_COMMANDS, ids=name_of)
def test_every_target_of_make_and_every_module_is_there(page: Path) -> None:
    text = text_of(page)
    there = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", text, re.MULTILINE)) - there == set()
    modules = set(re.findall(r"python -m ((?:raylog|bench|examples|tests)[\w.]*)", text))
    assert [each for each in sorted(modules) if find_spec(each) is None] == []


def test_code_in_the_readme_fits_into_80_columns() -> None:
    readme = ROOT / "README.md"
    lines = "".join(blocks(readme, "python") + blocks(readme, "sh")).splitlines()
    assert lines
    assert [line for line in lines if len(line) > 80] == []
