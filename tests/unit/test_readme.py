"""The README's example is what a newcomer runs first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def test_the_example_runs_and_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        exec(compile(example, str(README), "exec"), {})
    assert capsys.readouterr().out == "[b'hello', b'world']\n" * 3
