"""The patterns of `raylog consume -f` and `raylog produce -f`: verbs with text between them, as rpk and kcat have them.

    %t topic      %k key       %K its length, -1 for none      %T timestamp in milliseconds        %% a percent sign
    %p partition  %v value     %V its length, -1 for none      %d timestamp as date and time, UTC
    %o offset     %s = %v      %S = %V                         %h headers: name=value,name=value

and in the text \\n \\t \\r \\0 \\\\ \\xHH. A pattern without \\n, \\r and \\0 has a line's end behind it.

Reading uses the same patterns, with %k, %v, %p, %T and %h: a verb takes what stands before the text behind it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any, Final, NamedTuple, TypeAlias

from raylog.api.connection.records import ConsumerRecord

Part: TypeAlias = "bytes | Verb"
_READABLE: Final = frozenset("kvpTh")
_ALIASES: Final = {"s": "v", "S": "V"}
_ENDS: Final = ("\\n", "\\r", "\\0", "\n")
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


class Verb(NamedTuple):
    letter: str


class Parsed(NamedTuple):
    """The parts of one record that were read; None: the pattern does not name it, or it was empty and may be left out.
    """

    value: bytes | None = None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: list[tuple[str, bytes]] | None = None


class ParsedColumns(NamedTuple):
    """The same of many records, side by side; None: the pattern does not name it."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes] | None = None
    partitions: Sequence[int] | None = None
    timestamps: Sequence[int] | None = None
    headers: Sequence[list[tuple[str, bytes]]] | None = None

    def part(self, places: Sequence[int]) -> ParsedColumns:
        """The records at these places."""
        columns: list[Any] = [None if column is None else [column[place] for place in places] for column in self]
        return ParsedColumns._make(columns)

    def rows(self) -> Iterator[Parsed]:
        none = [None] * len(self.values)
        columns: list[Any] = [none if column is None else column for column in self]
        return map(Parsed._make, zip(*columns, strict=True))


def _date(timestamp: int) -> bytes:
    seconds, milliseconds = divmod(timestamp, 1000)
    moment = datetime.fromtimestamp(seconds, tz=timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds:03}Z".encode()


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in headers or ())


_WRITERS: Final[dict[str, Callable[[ConsumerRecord], bytes]]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
    "V": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
    "T": lambda record: b"%d" % record.timestamp,
    "d": lambda record: _date(record.timestamp),
    "h": lambda record: _headers(record.headers),
}


def writer(pattern: str) -> Callable[[ConsumerRecord], bytes]:
    """Return a function that makes bytes of a record. ValueError: what is wrong with the pattern."""
    parts = _with_end(pattern)
    if parts == [Verb("v"), b"\n"]:
        return lambda record: (record.value or b"") + b"\n"
    makers = [_constant(part) if isinstance(part, bytes) else _WRITERS[part.letter] for part in parts]
    return lambda record: b"".join([make(record) for make in makers])


def _constant(text: bytes) -> Callable[[ConsumerRecord], bytes]:
    return lambda _: text


class Reader:
    """Takes records apart. `end` is what stands behind each of them in the input."""

    def __init__(self, pattern: str) -> None:
        """Raise ValueError where something is wrong with the pattern."""
        parts = _with_end(pattern)
        last = parts.pop()
        if not isinstance(last, bytes):
            raise ValueError(f"the pattern {pattern!r} says not what stands between records: end it with \\n")
        self.end = last
        self._parts = parts
        self._pattern = pattern
        self._check()

    def _check(self) -> None:
        verbs = [part.letter for part in self._parts if isinstance(part, Verb)]
        for letter in verbs:
            if letter not in _READABLE:
                raise ValueError(f"%{letter} cannot be read in: a pattern for producing has %k %v %p %T %h")
            if verbs.count(letter) > 1:
                raise ValueError(f"%{letter} stands twice in the pattern {self._pattern!r}")
        for one, other in zip(self._parts, self._parts[1:], strict=False):
            if isinstance(one, Verb) and isinstance(other, Verb):
                raise ValueError(f"nothing stands between %{one.letter} and %{other.letter}: where does one end?")

    def columns(self, texts: list[bytes]) -> tuple[ParsedColumns, str]:
        """Many records, up to the first that is not as the pattern says; and what is wrong with that one, if any is."""
        simple = self._simple_columns(texts)
        if simple is not None:
            return simple, ""
        found: list[Parsed] = []
        problem = ""
        for text in texts:
            try:
                found.append(self.read(text))
            except ValueError as error:
                problem = str(error)
                break
        if not found:
            return ParsedColumns([]), problem
        columns = [None if column[0] is None else column for column in zip(*found, strict=True)]
        values, keys, partitions, timestamps, headers = columns
        return ParsedColumns(values or [None] * len(found), keys, partitions, timestamps, headers), problem

    def _simple_columns(self, texts: list[bytes]) -> ParsedColumns | None:
        """Return the columns of `%v`, or of key and value with text between them. None: the pattern is neither, or a
        record has no such text.
        """
        if self._parts == [Verb("v")]:
            return ParsedColumns(texts)
        if len(self._parts) != 3 or not isinstance(self._parts[1], bytes):
            return None
        letters = [part.letter for part in self._parts if isinstance(part, Verb)]
        if sorted(letters) != ["k", "v"] or not texts:
            return None
        between = self._parts[1]
        first, found, second = zip(*[text.partition(between) for text in texts], strict=True)
        if not all(found):
            return None
        return ParsedColumns(second, first) if letters == ["k", "v"] else ParsedColumns(first, second)

    def read(self, text: bytes) -> Parsed:
        """One record, without its end. ValueError: it is not as the pattern says."""
        found: dict[str, bytes] = {}
        rest = text
        for place, part in enumerate(self._parts):
            if isinstance(part, Verb):
                following = self._parts[place + 1] if place + 1 < len(self._parts) else None
                cut = rest.find(following) if isinstance(following, bytes) else len(rest)
                if cut < 0:
                    raise ValueError(f"it has no {following!r} behind %{part.letter}")
                found[part.letter], rest = rest[:cut], rest[cut:]
            elif rest.startswith(part):
                rest = rest[len(part) :]
            else:
                raise ValueError(f"{part!r} does not stand where the pattern has it")
        if rest:
            raise ValueError(f"{rest[:20]!r} stands behind what the pattern says")
        return _parsed(found)


def _parsed(found: dict[str, bytes]) -> Parsed:
    headers = found.get("h")
    return Parsed(
        value=found.get("v"),
        key=found.get("k"),
        partition=_whole(found["p"], "%p") if "p" in found else None,
        timestamp_ms=_whole(found["T"], "%T") if "T" in found else None,
        headers=None if headers is None else _read_headers(headers),
    )


def _whole(text: bytes, verb: str) -> int:
    if not text.isdigit():
        raise ValueError(f"{verb} is a number, and not {text[:20]!r}")
    return int(text)


def _read_headers(text: bytes) -> list[tuple[str, bytes]]:
    headers = []
    for pair in text.split(b",") if text else ():
        name, sign, value = pair.partition(b"=")
        if not sign:
            raise ValueError(f"%h is name=value,name=value, and not {pair[:20]!r}")
        headers.append((name.decode(), value))
    return headers


# --- patterns -----------------------------------------------------------------------------------------------------


def _with_end(pattern: str) -> list[Part]:
    parts = _parse(pattern)
    if any(end in pattern for end in _ENDS):
        return parts
    if parts and isinstance(parts[-1], bytes):
        return [*parts[:-1], parts[-1] + b"\n"]
    return [*parts, b"\n"]


def _parse(pattern: str) -> list[Part]:
    """Text and verbs by turns."""
    parts: list[Part] = []
    text, place = b"", 0
    while place < len(pattern):
        sign = pattern[place]
        if sign == "\\":
            match = _ESCAPE.match(pattern, place)
            if match is None:
                raise ValueError(f"the pattern {pattern!r} ends within an escape")
            text += _unescaped(match[1])
            place = match.end()
            continue
        place += 1
        if sign != "%":
            text += sign.encode()
            continue
        letter = pattern[place : place + 1]
        place += 1
        if letter == "%":
            text += b"%"
            continue
        letter = _ALIASES.get(letter, letter)
        if letter not in _WRITERS:
            raise ValueError(f"%{letter} is nothing in the pattern {pattern!r}: there are %{' %'.join(_WRITERS)} %%")
        parts += [text, Verb(letter)] if text else [Verb(letter)]
        text = b""
    return [*parts, text] if text else parts


def _unescaped(code: str) -> bytes:
    if code[0] == "x" and len(code) == 3:
        return bytes([int(code[1:], 16)])
    if code not in _ESCAPED:
        raise ValueError(f"\\{code} is no escape: there are \\n \\t \\r \\0 \\\\ \\xHH")
    return _ESCAPED[code]


# --- JSON ---------------------------------------------------------------------------------------------------------


def record_document(record: ConsumerRecord) -> dict[str, Any]:
    """Return a record as a document for programs. What is no UTF-8 is in base64, and `…_encoding` says so."""
    document: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    _put(document, "key", record.key)
    _put(document, "value", record.value)
    document["headers"] = [_header(name, value) for name, value in record.headers or ()]
    return document


def _header(name: str, value: bytes | None) -> dict[str, Any]:
    document: dict[str, Any] = {"key": name}
    _put(document, "value", value)
    return document


def _put(document: dict[str, Any], name: str, value: bytes | None) -> None:
    if value is None:
        document[name] = None
        return
    try:
        document[name] = value.decode()
    except UnicodeDecodeError:
        document[name] = b64encode(value).decode()
        document[f"{name}_encoding"] = "base64"
