"""`make newcomer`, on a repository whose targets take no time."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests import newcomer

_MAKEFILE = """
demo:
\t@env > {seen}; pwd > {where}; test ! -e not-committed && test ! -t 0
test:
\t@false
more:
\t@touch {more}
"""


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_clone_is_made_gone_through_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    seen, where, more = (tmp_path / name for name in ("seen", "where", "more"))
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "Makefile").write_text(_MAKEFILE.format(seen=seen, where=where, more=more))
    git(checkout, "init", "--quiet")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "all of it")
    (checkout / "not-committed").touch()
    monkeypatch.setenv("RAY_ADDRESS", "here")
    monkeypatch.setenv("https_proxy", "there")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert newcomer.main(["demo", "test", "more"], checkout) != 0
    *_, title, cloned, first, second = capfd.readouterr().out.splitlines()
    assert re.fullmatch(r"--- [0-9a-f]+:", title)
    assert re.fullmatch(r"git clone    \d min \d\d s", cloned)
    assert re.fullmatch(r"make demo    \d min \d\d s", first)
    assert re.fullmatch(r"make test    \d min \d\d s, failed with \d+", second)
    names = {line.partition("=")[0] for line in seen.read_text().splitlines()}
    assert {"PATH", "HOME", "https_proxy"} <= names
    assert "RAY_ADDRESS" not in names
    assert not Path(where.read_text().strip()).exists()
    assert not more.exists()
