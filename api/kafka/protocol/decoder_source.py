"""Writes the function that decodes one message of one version.

It is one straight line of code. Fields of fixed size that follow each other, and the length after them, are read by one
`struct`; strings are decoded from the frame, and records are slices of it.

What must stay true: nothing is allocated on the word of a length or a count. A length is compared with the bytes that
are left, a count with those that its items need at least, and all items of a message together are bounded. What reads
past the frame is refused, and so are bytes behind the message. But a MetadataRequest may have up to three bytes behind
it, as librdkafka writes one that asks for all topics: it has four zero bytes where one says that there are no names.
What follows is three bytes late, and Kafka looks at nothing behind a request.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Form
from struct import calcsize
from struct import error as struct_error
from typing import Any, Final

from raylog.api.kafka.protocol.message_types import defaults_of, type_of
from raylog.api.kafka.protocol.schemas import INTEGERS, Field, Schema, Struct
from raylog.api.kafka.protocol.source_lines import FIXED, SourceLines
from raylog.api.kafka.protocol.wire import Refused, Unpackers, split_tags, uvarint
from raylog.errors import MalformedRequest

MOST_ITEMS: Final = 500_000  # of all arrays of a message; each costs some hundred bytes of memory
MOST_QUESTIONS: Final = 20_000  # where another process is asked about each item
_ASKS_FOR_EACH: Final = frozenset(
    {
        "AlterConfigsRequest",
        "CreatePartitionsRequest",
        "DeleteGroupsRequest",
        "DeleteRecordsRequest",
        "DeleteTopicsRequest",
        "DescribeGroupsRequest",
        "IncrementalAlterConfigsRequest",
        "ListOffsetsRequest",
        "OffsetFetchRequest",
        "OffsetForLeaderEpochRequest",
        "ProduceRequest",
    }
)

_SPARE_BYTES: Final = {"MetadataRequest": 3}


def decoder(schema: Schema, version: int) -> Callable[..., Any]:
    """Return `decode(data, position)`: the message that fills `data` from there to its end. MalformedRequest."""
    return _DecoderSource(schema, version).compiled()


class _DecoderSource:
    def __init__(self, schema: Schema, version: int) -> None:
        self._schema = schema
        self._version = version
        self._is_flexible = version in schema.flexible
        self._spare_bytes = _SPARE_BYTES.get(schema.name, 0)
        self._lines = SourceLines(
            make=tuple.__new__,
            Refused=Refused,
            uvarint=uvarint,
            split_tags=split_tags,
            failures=(Refused, IndexError, struct_error, UnicodeDecodeError),
            malformed=self._malformed,
        )
        self._most_items = MOST_QUESTIONS if schema.name in _ASKS_FOR_EACH else MOST_ITEMS
        self._run: list[tuple[str, str]] = []  # (form, name) of the fields that are not read yet

    def compiled(self) -> Callable[..., Any]:
        lines = self._lines
        with lines.block("def decode(data, pos=0):"), lines.block("try:"):
            lines.add("view = memoryview(data)")
            lines.add("size = len(data)")
            lines.add(f"room = {self._most_items}")
            message = self._struct(self._schema.body)
            self._read_run()
            self._check(f"not 0 <= size - pos <= {self._spare_bytes}", '"it ends before its frame does"')
            lines.add(f"return {message}")
        lines.add("    except failures as error:")
        lines.add("        raise malformed(error) from None")
        return lines.compiled("decode", f"decoder of {self._schema.name} {self._version}")

    def _malformed(self, error: Exception) -> MalformedRequest:
        reason = str(error) if isinstance(error, Refused | UnicodeDecodeError) else "its frame ends before it does"
        return MalformedRequest(self._schema.name, self._version, reason)

    def _struct(self, struct: Struct) -> str:
        """Write what reads a structure. Returns the expression that makes it."""
        version = self._version
        found = {field.name: self._field(field) for field in struct.plain_fields(version)}
        if self._is_flexible:
            found |= self._tagged(struct.tagged_fields(version))
        values = []
        for field, default in zip(struct.fields, defaults_of(struct), strict=True):
            if field.name not in found:
                found[field.name] = self._constant(default)
            values.append(found[field.name])
        return f"make({self._lines.bind('Made', type_of(struct))}, ({', '.join(values)},))"

    def _constant(self, value: object) -> str:
        if value is None or isinstance(value, bool | int) or value in ((), ""):
            return repr(value)
        return self._lines.bind("default", value)

    # --- runs of fields of fixed size ---------------------------------------------------------------------------------

    def _read_later(self, form: str, stem: str) -> str:
        name = self._lines.fresh(stem)
        self._run.append((form, name))
        return name

    def _read_run(self) -> None:
        if [form for form, _ in self._run] == ["B"]:  # a byte, which costs a third without a `struct`
            self._lines.add(f"{self._run.pop()[1]} = data[pos]")
            self._lines.add("pos += 1")
        elif self._run:
            form = Form(">" + "".join(form for form, _ in self._run))
            names = "".join(f"{name}, " for _, name in self._run)
            self._lines.add(f"{names}= {self._lines.bind('unpack', form.unpack_from)}(data, pos)")
            self._lines.add(f"pos += {form.size}")
            self._run.clear()

    def _read_number(self, form: str, stem: str) -> str:
        """Write what reads a length or a count, with the fields before it. In flexible versions it is one too large."""
        number = self._read_later("B" if self._is_flexible else form, stem)
        self._read_run()
        if self._is_flexible:
            with self._lines.block(f"if {number} > 127:"):
                self._lines.add(f"{number}, pos = uvarint(data, pos, {number})")
        return number

    def _check(self, condition: str, reason: str) -> None:
        with self._lines.block(f"if {condition}:"):
            self._lines.add(f"raise Refused({reason})")

    # --- fields -------------------------------------------------------------------------------------------------------

    def _field(self, field: Field) -> str:
        """Write what reads a field. Returns the expression that is its value."""
        is_nullable = self._version in field.nullable
        if field.is_array:
            return self._array(field, is_nullable)
        if field.struct is not None:
            return self._nullable_struct(field.struct, field.name) if is_nullable else self._struct(field.struct)
        return self._value(field.kind, field.name, is_nullable)

    def _value(self, kind: str, stem: str, is_nullable: bool) -> str:
        if kind in FIXED:
            return self._read_later(FIXED[kind][0], stem)
        length = self._read_number("h" if kind == "string" else "i", "length")
        value, end = self._lines.fresh(stem), self._lines.fresh("end")
        self._or_null(value, length, is_nullable, lambda: self._read_bytes(kind, value, length, end))
        return value

    def _or_null(self, value: str, number: str, is_nullable: bool, read: Callable[[], None]) -> None:
        """Write what makes the value None if the number says so, and else reads it."""
        if not is_nullable:
            read()
            return
        with self._lines.block(f"if {number} == {0 if self._is_flexible else -1}:"):
            self._lines.add(f"{value} = None")
        with self._lines.block("else:"):
            read()

    def _read_bytes(self, kind: str, value: str, length: str, end: str) -> None:
        lines = self._lines
        lines.add(f"{end} = pos + {length}{' - 1' if self._is_flexible else ''}")
        self._check(f"not pos <= {end} <= size", f'f"{{size - pos}} bytes are left for a field of {{{end} - pos}}"')
        sliced = f"view[pos:{end}]"
        read = {"string": f'str({sliced}, "utf-8")', "bytes": f"bytes({sliced})", "records": sliced}[kind]
        lines.add(f"{value} = {read}")
        lines.add(f"pos = {end}")

    def _nullable_struct(self, struct: Struct, stem: str) -> str:
        present = self._read_later("b", "present")
        self._read_run()
        value = self._lines.fresh(stem)
        with self._lines.block(f"if {present} < 0:"):
            self._lines.add(f"{value} = None")
        with self._lines.block("else:"):
            made = self._struct(struct)
            self._read_run()
            self._lines.add(f"{value} = {made}")
        return value

    def _array(self, field: Field, is_nullable: bool) -> str:
        count = self._read_number("i", "count")
        items = self._lines.fresh(field.name)
        self._or_null(items, count, is_nullable, lambda: self._read_items(field, items, count))
        return items

    def _read_items(self, field: Field, items: str, count: str) -> None:
        lines = self._lines
        if self._is_flexible:
            lines.add(f"{count} -= 1")
        least = self._least_size(field)
        self._check(
            f"not 0 <= {count} <= (size - pos) // {least}",
            f'f"{{size - pos}} bytes are left for {{{count}}} items of at least {least}"',
        )
        lines.add(f"room -= {count}")
        self._check("room < 0", f'"its arrays have more than {self._most_items} items"')
        if field.kind in INTEGERS:
            form, size = FIXED[field.kind]
            lines.add(f"{items} = list({lines.bind('unpackers', Unpackers(form))}[{count}](data, pos))")
            lines.add(f"pos += {size} * {count}")
            return
        lines.add(f"{items} = []")
        add = lines.fresh("add")
        lines.add(f"{add} = {items}.append")
        with lines.block(f"for _ in range({count}):"):
            made = self._value(field.kind, "item", False) if field.struct is None else self._struct(field.struct)
            self._read_run()
            lines.add(f"{add}({made})")

    def _least_size(self, field: Field) -> int:
        """Return how many bytes an item of this array has at least."""
        if field.struct is None:
            return self._least_value(field.kind, is_array=False)
        return self._least_struct(field.struct)

    def _least_struct(self, struct: Struct) -> int:
        total = 1 if self._is_flexible else 0  # the number of its tagged fields
        for field in struct.plain_fields(self._version):
            if field.struct is None or field.is_array:
                total += self._least_value(field.kind, field.is_array)
            else:
                total += 1 if self._version in field.nullable else self._least_struct(field.struct)
        return total

    def _least_value(self, kind: str, is_array: bool) -> int:
        if kind in FIXED and not is_array:
            return calcsize(f">{FIXED[kind][0]}")
        if self._is_flexible:
            return 1
        return 2 if kind == "string" and not is_array else 4

    # --- tagged fields ------------------------------------------------------------------------------------------------

    def _tagged(self, fields: list[Field]) -> dict[str, str]:
        """Write what reads the tagged fields of a structure. Unknown ones are passed over."""
        lines = self._lines
        count = self._read_later("B", "tags")
        self._read_run()
        names = {field.name: lines.fresh(field.name) for field in fields}
        for field in fields:
            lines.add(f"{names[field.name]} = {self._constant(field.default)}")
        with lines.block(f"if {count}:"):
            found, behind = lines.fresh("found"), lines.fresh("behind")
            lines.add(f"{found}, {behind} = split_tags(data, pos, {count}, size)")
            if fields:
                self._read_tagged(fields, names, found)
            lines.add(f"pos = {behind}")
        return names

    def _read_tagged(self, fields: list[Field], names: dict[str, str], found: str) -> None:
        lines = self._lines
        tag, end = lines.fresh("tag"), lines.fresh("end")
        with lines.block(f"for {tag}, pos, {end} in {found}:"):
            for number, field in enumerate(fields):
                with lines.block(f"{'el' if number else ''}if {tag} == {field.tag}:"):
                    value = self._field(field)
                    self._read_run()
                    lines.add(f"{names[field.name]} = {value}")
            with lines.block("else:"):
                lines.add(f"pos = {end}")
            self._check(f"pos != {end}", f'f"tagged field {{{tag}}} is not as long as it says"')
