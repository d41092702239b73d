"""From errors to the one line that a person reads."""

from __future__ import annotations

import contextlib
import io
import logging

import pytest

from raylog.api.cli.failures import failure_of
from raylog.api.cli.session.session import Session, quieten_ray
from raylog.api.cli.terminal.exit_codes import FAILED
from raylog.errors import ClusterNotReady, DirectoryLocked


@pytest.mark.parametrize("length", [10, 300, 350, 380, 1000])
def test_advice_is_never_cut(length: int) -> None:
    error = ClusterNotReady("default", 57_000, "broker 0\n" + "x" * length)
    line, code = failure_of(error, Session())
    assert code == FAILED
    assert line.endswith(error.advice)
    assert "\n" not in line
    assert len(line) <= 400
    assert ("…" in line) == (len(str(error)) > 400)


def test_an_error_without_much_to_say_is_whole() -> None:
    error = DirectoryLocked("/data/broker-0", "process 7 of the cluster 'default'")
    assert failure_of(error, Session())[0] == str(error)


def test_log_lines_go_to_what_stderr_is_at_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    quieten_ray()
    for word in ("first", "second"):
        with contextlib.redirect_stderr(io.StringIO()) as told:
            logging.getLogger("raylog.anything").warning("the %s line", word)
        assert told.getvalue() == f"raylog: the {word} line\n"
