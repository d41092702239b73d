"""Commands on a terminal of 80 columns, a real one of the kernel: nothing is wider, and what matters stands whole."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from typing import Final

import pytest

_TOPIC: Final = "clicks-of-the-web-shop-in-europe-by-session-and-page"
_GROUP: Final = "billing-of-the-web-shop"
_MEMBER: Final = "0123456789abcdef" * 2
_PROGRAM: Final = f"""
import sys
from raylog.api.cli.program import program
from raylog.api.connection.records import TopicPartition
from tests.unit.api.cli.fake_cluster import FakeCluster, FakeSession

cluster = FakeCluster()
cluster.fill({_TOPIC!r}, 12, 40)
cluster.committed[{_GROUP!r}] = {{TopicPartition({_TOPIC!r}, 0): 1}}
cluster.owners[TopicPartition({_TOPIC!r}, 0)] = {_MEMBER!r}
program.main(sys.argv[1:], "raylog", obj=FakeSession(cluster))
"""


def on_terminal(*arguments: str) -> list[str]:
    """What a person sees of a command, without colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    told = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    ran = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**told, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 4096):
            seen += part
    except OSError:  # it has ended, and nobody holds the other side any more
        pass
    finally:
        os.close(ours)
    assert ran.wait(20) == 0, seen.decode()
    return re.sub(r"\x1b\[[0-9;]*m", "", seen.decode()).replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        ("topic list", [_TOPIC]),
        (f"topic describe {_TOPIC}", [_TOPIC]),
        (f"topic create another-{_TOPIC}", [f"another-{_TOPIC}"]),
        (f"group describe {_GROUP}", [_TOPIC, _MEMBER, _GROUP]),
        (f"group seek {_GROUP} --to start", [_TOPIC]),
        ("status", ["under-replicated"]),
        ("cluster describe", ["10.0.0.1", "/data/broker-2"]),
        ("txn list --hanging", ["2023-11-14T22:13:20Z"]),
        ("top --once --interval 0.2", [_GROUP]),
        ("--help", ["completion"]),
        ("bench --help", ["--kafka"]),
    ],
)
def test_a_command_fits_into_80_columns(arguments: str, whole: list[str]) -> None:
    lines = on_terminal(*arguments.split())
    assert max(map(len, lines)) <= 80, lines
    assert [each for each in whole if not _is_there(each, lines)] == [], lines


def _is_there(text: str, lines: list[str]) -> bool:
    """In one line, or folded: its parts stand one below the other, and each begins where the first does."""
    for number, line in enumerate(lines):
        for start in (each.start() for each in re.finditer(rf"(?<!\S){re.escape(text[0])}", line)):
            rest, below = text, number
            while rest and below < len(lines):
                part = lines[below][start:].split(" ")[0]
                if not part or not rest.startswith(part):
                    break
                rest, below = rest[len(part) :], below + 1
            if not rest:
                return True
    return False
