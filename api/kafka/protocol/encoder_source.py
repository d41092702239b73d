"""Writes the function that encodes one message of one version.

It is one straight line of code, as the decoder is. A message becomes a list of parts: long records stay the buffers
that they were, and everything between them is joined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from raylog.api.kafka.protocol.schemas import INTEGERS, Field, Schema, Struct
from raylog.api.kafka.protocol.source_lines import FIXED, SourceLines
from raylog.api.kafka.protocol.wire import (
    COPIED_BELOW,
    ONE_BYTE_VARINTS,
    Packers,
    add_records,
    packed_tags,
    packed_uvarint,
    packer,
    records_size,
)

_FOR_ALL: Final[dict[str, Any]] = {
    "BYTES": ONE_BYTE_VARINTS,
    "uvarint": packed_uvarint,
    "packed_tags": packed_tags,
    "join": b"".join,
}


def encoder(schema: Schema, version: int) -> Callable[[Any], list[Any]]:
    """Return `encode(message)`: the parts of the message, to be written one after the other."""
    return _EncoderSource(schema, version).compiled()


class _EncoderSource:
    def __init__(self, schema: Schema, version: int) -> None:
        self._schema = schema
        self._version = version
        self._is_flexible = version in schema.flexible
        self._lines = SourceLines(add_records=add_records, records_size=records_size, **_FOR_ALL)
        self._run: list[tuple[str, str]] = []  # (form, expression) of the fields that are not packed yet

    def compiled(self) -> Callable[[Any], list[Any]]:
        lines = self._lines
        with lines.block("def encode(message):"):
            lines.add("parts = []")
            lines.add("pending = []")
            lines.add("add = pending.append")
            self._struct(self._schema.body, "message")
            self._pack_run()
            lines.add("parts.append(join(pending))")
            lines.add("return parts")
        return lines.compiled("encode", f"encoder of {self._schema.name} {self._version}")

    def _struct(self, struct: Struct, expression: str) -> None:
        names = self._names(struct)
        self._lines.add(f"{self._pattern(names)} = {expression}")
        self._fields(struct, names)

    def _names(self, struct: Struct) -> list[str]:
        """A name for each field; `_` for one that this version lacks."""
        version = self._version
        return [self._lines.fresh(field.name) if version in field.versions else "_" for field in struct.fields]

    @staticmethod
    def _pattern(names: list[str]) -> str:
        return f"({''.join(f'{name}, ' for name in names)})"

    def _fields(self, struct: Struct, names: list[str]) -> None:
        found = dict(zip([field.name for field in struct.fields], names, strict=True))
        for field in struct.plain_fields(self._version):
            self._field(field, found[field.name])
        if self._is_flexible:
            self._tagged([(field, found[field.name]) for field in struct.tagged_fields(self._version)])

    # --- runs of fields of fixed size ---------------------------------------------------------------------------------

    def _packed(self, run: list[tuple[str, str]]) -> str:
        if run == [("B", "0")]:
            return r'b"\0"'
        pack = self._lines.bind("pack", packer("".join(form for form, _ in run)))
        return f"{pack}({', '.join(expression for _, expression in run)})"

    def _pack_run(self) -> None:
        if self._run:
            self._lines.add(f"add({self._packed(self._run)})")
            self._run.clear()

    def _pack_number(self, form: str, number: str) -> None:
        """Write what packs a length or a count, with the fields before it; None, where a null is to be said, is -1."""
        if not self._is_flexible:
            self._run.append((form, number))
            self._pack_run()
            return
        before, self._run = self._run, []
        short = self._packed([*before, ("B", number)]) if before else f"BYTES[{number}]"
        long = f"{self._packed(before)} + uvarint({number})" if before else f"uvarint({number})"
        self._lines.add(f"add({short} if {number} < 128 else {long})")

    def _sized(self, name: str) -> str:
        """Return what stands for a length or a count: in flexible versions one more, because 0 is null."""
        return f"{name} + 1" if self._is_flexible else name

    # --- fields -------------------------------------------------------------------------------------------------------

    def _field(self, field: Field, name: str) -> None:
        is_nullable = self._version in field.nullable
        if field.is_array:
            self._array(field, name, is_nullable)
        elif field.struct is None:
            self._value(field.kind, name, is_nullable)
        elif not is_nullable:
            self._struct(field.struct, name)
        else:
            self._pack_run()
            with self._lines.block(f"if {name} is None:"):
                self._lines.add(r'add(b"\xff")')
            with self._lines.block("else:"):
                self._run.append(("b", "1"))
                self._struct(field.struct, name)
                self._pack_run()

    def _value(self, kind: str, name: str, is_nullable: bool) -> None:
        if kind in FIXED:
            self._run.append((FIXED[kind][0], name))
            return
        content, length = self._lines.fresh("content"), self._lines.fresh("length")
        if is_nullable:
            with self._lines.block(f"if {name} is None:"):
                self._lines.add(f'{content} = b""')
                self._lines.add(f"{length} = {0 if self._is_flexible else -1}")
            with self._lines.block("else:"):
                self._measure(kind, name, content, length)
        else:
            self._measure(kind, name, content, length)
        self._pack_number("h" if kind == "string" else "i", length)
        if kind == "records":
            self._put_records(content, length)
        else:
            self._lines.add(f"add({content})")

    def _put_records(self, content: str, length: str) -> None:
        with self._lines.block(f"if {length} < {COPIED_BELOW} or {content}.__class__ is list:"):
            self._lines.add(f"add_records(parts, pending, {content})")
        with self._lines.block("else:"):
            self._lines.add(f"parts += (join(pending), {content})")
            self._lines.add("pending.clear()")

    def _measure(self, kind: str, name: str, content: str, length: str) -> None:
        size = f"len({content})"
        if kind == "records":
            size = f"(records_size({content}) if {content}.__class__ is list else {size})"
        self._lines.add(f"{content} = {name}{'.encode()' if kind == 'string' else ''}")
        self._lines.add(f"{length} = {self._sized(size)}")

    def _array(self, field: Field, name: str, is_nullable: bool) -> None:
        lines = self._lines
        count = lines.fresh("count")
        if is_nullable:
            with lines.block(f"if {name} is None:"):
                lines.add(f"{count} = {0 if self._is_flexible else -1}")
                lines.add(f"{name} = ()")
            with lines.block("else:"):
                lines.add(f"{count} = {self._sized(f'len({name})')}")
        else:
            lines.add(f"{count} = {self._sized(f'len({name})')}")
        self._pack_number("i", count)
        if field.kind in INTEGERS:
            packers = lines.bind("packers", Packers(FIXED[field.kind][0]))
            lines.add(f"add({packers}[len({name})](*{name}))")
            return
        names = self._names(field.struct) if field.struct else []
        item = lines.fresh("item")
        with lines.block(f"for {self._pattern(names) if names else item} in {name}:"):
            if field.struct:
                self._fields(field.struct, names)
            else:
                self._value(field.kind, item, False)
            self._pack_run()

    # --- tagged fields ------------------------------------------------------------------------------------------------

    def _tagged(self, fields: list[tuple[Field, str]]) -> None:
        """Write what packs those tagged fields that are not their defaults."""
        if not fields:
            self._run.append(("B", "0"))
            return
        self._pack_run()
        found = self._lines.fresh("found")
        self._lines.add(f"{found} = None")
        for field, name in fields:
            encode = self._lines.bind("encode", self._tag_encoder(field))
            with self._lines.block(f"if {self._is_given(field, name)}:"):
                self._lines.add(f"{found} = {found} or []")
                self._lines.add(f"{found}.append(({field.tag}, {encode}({name})))")
        self._lines.add(rf'add(packed_tags({found}) if {found} else b"\0")')

    def _is_given(self, field: Field, name: str) -> str:
        if field.default is None:
            return f"{name} is not None"
        return f"len({name})" if field.is_array else f"{name} != {self._lines.bind('default', field.default)}"

    def _tag_encoder(self, field: Field) -> Callable[[Any], bytes]:
        """Return what encodes the content of one tagged field."""
        outer_lines, outer_run = self._lines, self._run
        self._lines, self._run = SourceLines(**_FOR_ALL), []
        with self._lines.block("def encode(value):"):
            self._lines.add("pending = []")
            self._lines.add("add = pending.append")
            self._field(field, "value")
            self._pack_run()
            self._lines.add("return join(pending)")
        compiled = self._lines.compiled("encode", f"encoder of {self._schema.name}.{field.name} {self._version}")
        self._lines, self._run = outer_lines, outer_run
        return compiled
