"""Records out of blocks of bytes, and columns out of records."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click import ClickException

from raylog.api.cli.records.record_format import Parsed, Reader
from raylog.api.cli.records.record_input import _texts, records, wholes


class Blocks(io.BytesIO):
    """What comes through a pipe: some bytes at a time."""

    def __init__(self, data: bytes, random: Random) -> None:
        super().__init__(data)
        self._random = random

    def read1(self, size: int | None = -1, /) -> bytes:
        return self.read(min(size or 1, self._random.choice([1, 2, 5, 30])))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("end", [b"\n", b"\0", b";\n", b"abab"])
def test_records_are_cut_wherever_blocks_end(seed: int, end: bytes) -> None:
    random = Random(seed)
    texts = [bytes(random.choices(b"xyz;ab", k=random.randrange(9))).replace(end, b"") for _ in range(40)]
    data = end.join(texts) + end
    found = [text for some in _texts(Blocks(data, random), end) for text in some]
    *pieces, rest = data.split(end)
    assert found == [*pieces, rest][: len(pieces) + bool(rest)]


@pytest.mark.parametrize(
    ("end", "data", "left"),
    [
        (b"\n", b"a\nb", [b"a", b"b"]),
        (b"\n", b"a\n\n", [b"a", b""]),
        (b";", b"a;b\n", [b"a", b"b\n"]),
        (b";", b"a;\n", [b"a"]),
        (b"\n", b"", []),
    ],
)
def test_what_stands_behind_the_last_end(end: bytes, data: bytes, left: list[bytes]) -> None:
    assert [text for some in _texts(io.BytesIO(data), end) for text in some] == left


def test_each_line_comes_when_it_is_there() -> None:
    """A read takes what there is, and does not wait for a whole block."""

    class Terminal(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            return self.readline()

    pieces = _texts(Terminal(b"one\ntwo\n"), b"\n")
    assert next(pieces) == [b"one"]
    assert next(pieces) == [b"two"]


def rows(reader: Reader, texts: Sequence[bytes]) -> list[Parsed]:
    columns, problem = reader.columns(list(texts))
    assert problem == ""
    return list(columns.rows())


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("%v", [b"a", b"", b"b:c"]),
        ("%k:%v", [b"a:1", b":", b"b:c:d"]),
        ("%v\\t%k", [b"a\tb", b"\t", b"a\tb\tc"]),
        ("%k\\t%p\\t%T\\t%v", [b"a\t1\t5\tx", b"b\t0\t6\t"]),
        ("%h|%v", [b"a=b,c=d|x", b"|y"]),
        ("%k", [b"a", b"b"]),
        ("<%v>", [b"<a>", b"<>"]),
    ],
)
def test_columns_hold_what_single_records_do(pattern: str, texts: list[bytes]) -> None:
    reader = Reader(pattern)
    assert rows(reader, texts) == [reader.read(text) for text in texts]


@pytest.mark.parametrize(("pattern", "bad"), [("%k:%v", b"none"), ("%p %v", b"x y"), ("%h|%v", b"a|b")])
def test_records_before_one_that_is_wrong_come_out(tmp_path: Path, pattern: str, bad: bytes) -> None:
    good = {"%k:%v": b"a:1", "%p %v": b"0 y", "%h|%v": b"a=b|c"}[pattern]
    file = tmp_path / "file"
    file.write_bytes(b"\n".join([good, good, bad, good]) + b"\n")
    reading = records([str(file)], Reader(pattern))
    assert len(next(reading).values) == 2
    with pytest.raises(ClickException, match="record 3: "):
        next(reading)
    file.write_bytes(bad)
    with pytest.raises(ClickException, match="record 1: "):
        next(records([str(file)], Reader(pattern)))


def test_a_whole_file_is_one_value(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo\n")
    found: list[Any] = [columns.values for columns in wholes([str(tmp_path / "a")])]
    assert found == [[b"one\ntwo\n"]]
