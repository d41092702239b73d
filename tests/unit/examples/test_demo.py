"""How the demo ends when something goes wrong in it: with one line."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import NoReturn

import pytest

from examples.demo import __main__ as demo
from examples.demo.failures import DemoFailed
from raylog.errors import RayUnreachable


class OfJava(Exception):
    """Its text is asked of a Java that is no more."""

    def __str__(self) -> NoReturn:
        raise ConnectionError("Java is gone")


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (DemoFailed("3 records are lost."), "3 records are lost."),
        (RayUnreachable("there", "nobody answers"), str(RayUnreachable("there", "nobody answers"))),
        (ValueError("An error in o55.\n: a.b.SparkException\n\tat a.b"), "ValueError: An error in o55. : a.b.SparkExc"),
        (OfJava(), "OfJava"),
    ],
)
def test_whatever_fails_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], failure: Exception, told: str
) -> None:
    def run() -> NoReturn:
        raise failure

    story = SimpleNamespace(Story=lambda *_: SimpleNamespace(run=run))
    monkeypatch.setitem(sys.modules, "examples.demo.story", story)
    monkeypatch.setattr(demo, "_quiet_ray", nullcontext)
    monkeypatch.setenv("RAY_TMPDIR", "")  # back to what it was afterwards, and the other one
    monkeypatch.setenv("TMPDIR", "")
    monkeypatch.setenv("PYTHONWARNINGS", "")
    assert demo.main() == 1
    errors = capfd.readouterr().err
    assert errors.startswith(f"The demo failed: {told}")
    assert errors.count("\n") == 1
