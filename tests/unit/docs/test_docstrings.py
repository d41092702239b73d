"""Docstrings and comments in plain words: a docstring begins with a verb or a noun phrase, a sentence with its subject.

What begins with a pronoun, a preposition or a conjunction ("Of one partition.", "What a poll raises.") is neither, and
its first word shows that. Errors are left out of this rule: their docstrings are sentences about what happened.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from tests.house import House, Module
from tests.unit.docs.plain_words import HEADLESS, PICTURES, sentences

# Folders that are held to this: all of the source, and what people read beside it.
HELD: Final = (
    "actors/",
    "api/",
    "bench/",
    "examples/",
    "groups/",
    "raylog/",
    "spark_bridge/",
    "storage/",
    "tests/cluster/",
    "tests/metrics/",
    "tests/packaging/",
    "tests/simulated/",
    "tests/simulator/",
    "tests/soak/",
    "tests/spark/",
    "tests/streams/",
)

_PRONOUNS: Final = (
    "It Its This These Those That They Who Whoever Whose Which What Whatever When Whenever Where Wherever While Why "
    "How Somebody Nobody Everybody Something"
)
_PREPOSITIONS: Final = (
    "Of For From To In On By As At With Without Before After Until Under Over About Within Beside Below Since Between "
    "Behind Through Into Towards Like Than Upon"
)
_OTHERS: Final = "And Or So Also But If Unless There Then Again Too Up Out Back Else"
_NO_BEGINNING: Final = frozenset(f"{_PRONOUNS} {_PREPOSITIONS} {_OTHERS}".split())
_ERRORS: Final = "raylog/errors/"

_Documented: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    return [each for each in House.look().modules if str(each.path).startswith(HELD)]


def _docstrings(module: Module) -> Iterator[tuple[str, str]]:
    """(name, docstring) of the module, and of each class and function in it."""
    for node in ast.walk(module.tree):
        if isinstance(node, _Documented) and (text := ast.get_docstring(node)):
            yield getattr(node, "name", "module"), text


def _comments(module: Module) -> Iterator[str]:
    """Comments; those in lines below each other are one."""
    found: list[str] = []
    row, column = -1, -1
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            words = token.string.lstrip("# ")
            if found and token.start == (row + 1, column):
                found[-1] += f" {words}"
            else:
                found.append(words)
            row, column = token.start
    yield from found


def _sentences(module: Module) -> Iterator[str]:
    for _, text in _docstrings(module):
        yield from sentences(text)
    for comment in _comments(module):
        yield from sentences(comment)


def _badly_begun(module: Module) -> list[str]:
    if str(module.path).startswith(_ERRORS):
        return []
    return [
        f"{module.path}, {name}: {text.splitlines()[0]}"
        for name, text in _docstrings(module)
        if (first := re.match(r"\W*(\w+)", text)) and first[1] in _NO_BEGINNING
    ]


def _headless(module: Module) -> list[str]:
    return [f"{module.path}: {each}" for each in _sentences(module) if HEADLESS.match(each)]


def test_a_docstring_begins_with_a_verb_or_a_noun_phrase(modules: list[Module]) -> None:
    assert [each for module in modules for each in _badly_begun(module)] == []


def test_sentences_of_docstrings_and_comments_begin_with_their_subject(modules: list[Module]) -> None:
    assert [each for module in modules for each in _headless(module)] == []


def test_parts_have_their_own_names(modules: list[Module]) -> None:
    wrong = [f"{each.path}: {word}" for each in modules for word in PICTURES.findall(each.text)]
    assert wrong == []


def test_what_is_held_is_there(modules: list[Module]) -> None:
    for folder in HELD:
        assert any(str(each.path).startswith(folder) for each in modules), folder


def test_bad_beginnings_and_headless_sentences_are_found() -> None:
    lines = (
        '"""Of one module."""',
        "def end():",
        '    """End. Who waits hears of it."""',
        "    # It goes",
        "    # on. As where it ends.",
    )
    text = "".join(f"{line}\n" for line in lines)
    module = Module(Path("api/example.py"), text)
    assert _badly_begun(module) == ["api/example.py, module: Of one module."]
    assert _headless(module) == ["api/example.py: Who waits hears of it.", "api/example.py: As where it ends."]
