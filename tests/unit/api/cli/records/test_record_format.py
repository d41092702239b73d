"""Patterns of records, written and read."""

from __future__ import annotations

import pytest

from raylog.api.cli.records.record_format import Parsed, Reader, record_document, writer
from raylog.api.connection.records import ConsumerRecord

RECORD = ConsumerRecord("clicks", 2, 7, 1_700_000_000_123, 0, b"user", b"value", [("a", b"1"), ("b", None)], 4)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%v", b"value\n"),
        ("%t %p %o %k %v", b"clicks 2 7 user value\n"),
        (r"%k\t%s\0", b"user\tvalue\0"),
        (r"%K:%V:%S%%\x41\\\n", b"4:5:5%A\\\n"),
        ("%T %d", b"1700000000123 2023-11-14T22:13:20.123Z\n"),
        ("<%h>", b"<a=1,b=>\n"),
        ("é%v", "évalue\n".encode()),
    ],
)
def test_patterns_are_written(pattern: str, text: bytes) -> None:
    assert writer(pattern)(RECORD) == text


def test_a_missing_key_is_empty_and_has_the_length_minus_one() -> None:
    assert writer("%k|%v|%K|%V")(RECORD._replace(key=None, value=None)) == b"||-1|-1\n"


@pytest.mark.parametrize("pattern", ["%x", "%", "\\", r"\q", r"\x4"])
def test_wrong_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"pattern|escape"):
        writer(pattern)


@pytest.mark.parametrize(
    ("pattern", "end", "text", "parsed"),
    [
        (r"%v\n", b"\n", b"some text", Parsed(value=b"some text")),
        ("%k:%v", b"\n", b"a:b:c", Parsed(value=b"b:c", key=b"a")),
        (r"%p,%T,%k\t%v;\n", b";\n", b"3,17,a\tb", Parsed(b"b", b"a", 3, 17)),
        (r"%h %v\0", b"\0", b"x=1,y=2 v", Parsed(b"v", headers=[("x", b"1"), ("y", b"2")])),
    ],
)
def test_patterns_are_read(pattern: str, end: bytes, text: bytes, parsed: Parsed) -> None:
    reader = Reader(pattern)
    assert reader.end == end
    assert reader.read(text) == parsed


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("%k%v", "nothing stands between"),
        ("%k %k", "twice"),
        ("%o %v", "%o cannot be read in"),
        (r"\n%v", "not what stands between records"),
    ],
)
def test_patterns_that_cannot_be_read_are_refused(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Reader(pattern)


@pytest.mark.parametrize(
    ("pattern", "text"), [("%k:%v", b"no colon"), ("%p %v", b"x y"), ("%h %v", b"x y"), ("a%v", b"b")]
)
def test_records_that_are_not_as_the_pattern_says_are_refused(pattern: str, text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Reader(pattern).read(text)


def test_json_says_what_is_no_text() -> None:
    document = record_document(RECORD._replace(key=None, value=b"\xff", headers=[]))
    assert document == {
        "topic": "clicks",
        "partition": 2,
        "offset": 7,
        "timestamp": 1_700_000_000_123,
        "key": None,
        "value": "/w==",
        "value_encoding": "base64",
        "headers": [],
    }
