"""Times of commands that a person waits for: each is a process of its own, as at a terminal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.measuring import Figure

_RAYLOG: Final = [sys.executable, "-m", "raylog.api.cli"]
_ROUNDS: Final = 3
_LINES: Final = 2_000_000
_LINE: Final = 100  # bytes, with its end
_START_GOAL: Final = 4.0
_CREATE_GOAL: Final = 1.0
_PRODUCE_GOAL: Final = 2.5


def run() -> Iterator[Figure]:
    with _own_folders() as folder:
        starts = []
        for number in range(_ROUNDS):
            starts.append(_seconds("start", f"{folder}/data-{number}"))
            if number < _ROUNDS - 1:
                _seconds("stop", "--ray")
        try:
            yield Figure("raylog start, without a Ray", starts, "s", _START_GOAL, smaller_is_better=True)
            creates = [_seconds("topic", "create", f"topic-{number}") for number in range(_ROUNDS)]
            yield Figure("raylog topic create", creates, "s", _CREATE_GOAL, smaller_is_better=True)
            lists = [_seconds("topic", "list") for _ in range(_ROUNDS)]
            yield Figure("raylog topic list", lists, "s")
            yield from _produce(folder)
        finally:
            _seconds("stop", "--ray")


def _produce(folder: Path) -> Iterator[Figure]:
    lines = folder / "lines"
    with lines.open("wb") as file:
        file.writelines(b"%0*d\n" % (_LINE - 1, number) for number in range(_LINES))
    keyed = folder / "keyed"
    with keyed.open("wb") as file:
        file.writelines(b"key-%05d:%0*d\n" % (number % 50_000, _LINE - 11, number) for number in range(_LINES))
    _seconds("topic", "create", "lines", "-p", "3")
    note = f"{_LINES:,} lines, {_LINES * _LINE / 1e6:.0f} MB"
    plain = [_seconds("produce", "lines", str(lines)) for _ in range(_ROUNDS)]
    yield Figure("raylog produce", plain, "s", _PRODUCE_GOAL, smaller_is_better=True, note=note)
    with_keys = [_seconds("produce", "lines", "-K", ":", str(keyed)) for _ in range(_ROUNDS)]
    yield Figure("raylog produce -K :", with_keys, "s", note=note)


def _seconds(*arguments: str) -> float:
    began = time.perf_counter()
    subprocess.run([*_RAYLOG, *arguments], check=True, capture_output=True)
    return time.perf_counter() - began


@contextmanager
def _own_folders() -> Iterator[Path]:
    folder = tempfile.mkdtemp(prefix="raylog-bench-", dir=os.environ.get("RAYLOG_BENCH_DIR"))
    short = tempfile.mkdtemp(prefix="rb-")  # the paths of Ray's sockets have to be short
    before = {name: os.environ.pop(name, None) for name in ("RAY_ADDRESS", "RAY_TMPDIR")}
    os.environ["RAY_TMPDIR"] = short
    try:
        yield Path(folder)
    finally:
        os.environ.update({name: value for name, value in before.items() if value is not None})
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(short, ignore_errors=True)
