"""Values in Avro's and Protobuf's form, by the schemas of a registry."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `data` is not installed")
fastavro = pytest.importorskip("fastavro", reason="the extra `data` is not installed")

from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: E402
from google.protobuf.descriptor_pool import DescriptorPool  # noqa: E402
from google.protobuf.message_factory import GetMessageClass  # noqa: E402
from google.protobuf.timestamp_pb2 import Timestamp  # noqa: E402

from raylog.api.data.avro_values import Avro  # noqa: E402
from raylog.api.data.each_value import BadValue  # noqa: E402
from raylog.api.data.protobuf_values import Protobuf  # noqa: E402
from raylog.api.data.schema_registry import SchemaRegistry, SchemaUnknown  # noqa: E402
from raylog.errors import InvalidConfig  # noqa: E402
from tests.unit.api.data.loopback_registry import (  # noqa: E402
    LoopbackRegistry,
    framed,
    host_of,
    loopback_registry,
)

NOON = datetime(2026, 5, 4, 12, 0, 0, 5000, tzinfo=timezone.utc)


@pytest.fixture
def registry() -> Iterator[LoopbackRegistry]:
    with loopback_registry() as running:
        yield running


def rows(decoder: Any, values: list[bytes | None]) -> list[dict[str, Any]]:
    decoded = decoder.decode(pa.array(values, pa.binary()))
    lists = [column.to_pylist() for column in decoded.columns]
    return [dict(zip(decoder.schema.names, row, strict=True)) for row in zip(*lists, strict=True)]


# --- avro -------------------------------------------------------------------------------------------------------------

PLACE = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}
USER = {
    "type": "record",
    "name": "User",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": ["null", "int"], "default": None},
        {"name": "home", "type": PLACE},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "owed", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {"name": "more", "type": "string"},
    ],
}
WANTED = pa.schema(
    [
        ("name", pa.string()), ("age", pa.int32()), ("home", pa.struct([("city", pa.string())])),
        ("at", pa.timestamp("ms", "UTC")), ("id", pa.string()), ("owed", pa.decimal128(6, 2)),
        ("tags", pa.map_(pa.string(), pa.int64())), ("later", pa.int64()),
    ]
)  # fmt: skip
ANN: dict[str, Any] = {
    "name": "Ann", "age": 30, "home": {"city": "Bonn"}, "at": NOON, "id": "12345678-1234-5678-1234-567812345678",
    "owed": Decimal("12.50"), "tags": {"a": 1}, "more": "left out",
}  # fmt: skip


def avro(schema: Any, record: Any) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, schema, record)
    return content.getvalue()


def test_records_of_avro_become_columns(registry: LoopbackRegistry) -> None:
    registry.add(7, json.dumps(USER))
    registry.add(8, json.dumps({"type": "record", "name": "User", "fields": [{"name": "later", "type": "long"}]}))
    values = [framed(7, avro(USER, ANN)), None, framed(7, avro(USER, {**ANN, "age": None})), b"\0\0\0\0\x08\x06"]
    found = rows(Avro(WANTED, registry.address), values)
    ann = {**{name: ANN[name] for name in WANTED.names if name != "later"}, "tags": [("a", 1)], "later": None}
    nothing = dict.fromkeys(WANTED.names)
    assert found == [ann, nothing, {**ann, "age": None}, {**nothing, "later": 3}]
    rows(Avro(WANTED, registry.address), values)
    assert [path for path, _ in registry.asked] == ["/schemas/ids/7", "/schemas/ids/8"], "schemas are asked for once"


def test_schemas_of_avro_refer_to_others(registry: LoopbackRegistry) -> None:
    order = {"type": "record", "name": "Order", "fields": [{"name": "to", "type": "Place"}]}
    reference = {"name": "Place", "subject": "place/value", "version": 3}
    registry.add(1, json.dumps(order), references=[reference])
    registry.answers["/subjects/place%2Fvalue/versions/3"] = {"schema": json.dumps(PLACE)}
    whole = {**order, "fields": [{"name": "to", "type": PLACE}]}
    wanted = pa.schema([("to", pa.struct([("city", pa.string())]))])
    assert rows(Avro(wanted, registry.address), [framed(1, avro(whole, {"to": {"city": "Ulm"}}))]) == [
        {"to": {"city": "Ulm"}}
    ]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "does not begin with 0"),
        (b"\1\0\0\0\7\0", "does not begin with 0"),
        (framed(9, b""), "schemas/ids/9 cannot be had: HTTP 404"),
        (framed(7, b"\2"), "EOFError|Error"),
        (framed(6, b"\2\2"), "bytes are left behind its end"),
        (framed(6, b"\2"), "of type int, and not a map"),
        (framed(5, b"\2"), "of the kind JSON"),
        (framed(4, b"\2"), "something else than a schema"),
    ],
)
def test_a_value_that_does_not_fit_is_named(registry: LoopbackRegistry, value: bytes, reason: str) -> None:
    registry.add(7, json.dumps(USER))
    registry.add(6, '"int"')
    registry.add(5, "{}", "JSON")
    registry.answers["/schemas/ids/4"] = {"told": "nothing"}
    with pytest.raises(BadValue, match=reason) as failure:
        rows(Avro(WANTED, registry.address), [framed(7, avro(USER, ANN)), value])
    assert failure.value.row == 1


# --- protobuf ---------------------------------------------------------------------------------------------------------


def files() -> tuple[FileDescriptorProto, FileDescriptorProto]:
    """Return `place.proto`, and the file that imports it, with a message inside another as its second one."""
    place = FileDescriptorProto(name="place.proto", package="shop", syntax="proto3")
    place.message_type.add(name="Place").field.add(name="city", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    order = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["place.proto", "google/protobuf/timestamp.proto"])
    order.enum_type.add(name="State").value.add(name="OPEN", number=0)
    order.enum_type[0].value.add(name="PAID", number=1)
    order.message_type.add(name="Other")
    message = order.message_type.add(name="Order")
    for number, (name, kind, of, many) in enumerate(
        [
            ("user", "TYPE_STRING", "", False), ("amount", "TYPE_SINT64", "", False), ("lines", "TYPE_INT32", "", True),
            ("state", "TYPE_ENUM", ".shop.State", False), ("code", "TYPE_ENUM", ".shop.State", False),
            ("to", "TYPE_MESSAGE", ".shop.Place", False), ("at", "TYPE_MESSAGE", ".google.protobuf.Timestamp", False),
            ("counts", "TYPE_MESSAGE", ".shop.Order.CountsEntry", True), ("more", "TYPE_BYTES", "", False),
        ],
        start=1,
    ):  # fmt: skip
        label = "LABEL_REPEATED" if many else "LABEL_OPTIONAL"
        message.field.add(name=name, number=number, type=kind, type_name=of or None, label=label)
    entry = message.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    entry.field.add(name="value", number=2, type="TYPE_INT64", label="LABEL_OPTIONAL")
    inner = message.nested_type.add(name="Inner")
    inner.field.add(name="user", number=4, type="TYPE_STRING", label="LABEL_OPTIONAL")
    return place, order


ORDER = pa.schema(
    [
        ("user", pa.string()), ("amount", pa.int64()), ("lines", pa.list_(pa.int32())), ("state", pa.string()),
        ("code", pa.int32()), ("to", pa.struct([("city", pa.string())])), ("at", pa.timestamp("us", "UTC")),
        ("counts", pa.map_(pa.string(), pa.int64())), ("later", pa.int64()),
    ]
)  # fmt: skip


@pytest.fixture
def shop(registry: LoopbackRegistry) -> Any:
    """Register the schema as number 3, and return the class of its orders."""
    place, order = files()
    text = base64.b64encode(order.SerializeToString()).decode()
    reference = {"name": "place.proto", "subject": "place", "version": 1}
    registry.add(3, text, "PROTOBUF", "?format=serialized", references=[reference])
    told = {"schema": base64.b64encode(place.SerializeToString()).decode(), "schemaType": "PROTOBUF"}
    registry.answers["/subjects/place/versions/1?format=serialized"] = told
    pool = DescriptorPool()
    pool.AddSerializedFile(Timestamp.DESCRIPTOR.file.serialized_pb)
    for each in (place, order):
        pool.AddSerializedFile(each.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_messages_of_protobuf_become_columns(registry: LoopbackRegistry, shop: Any) -> None:
    order = shop(user="Ann", amount=-5, lines=[1, 2], state=1, code=1, counts={"a": 7}, more=b"left out")
    order.to.city = "Ulm"
    order.at.FromDatetime(NOON)
    second = b"\2\2"  # one index: 1
    values = [framed(3, order.SerializeToString(), second), None, framed(3, b"", second)]
    nothing = dict.fromkeys(ORDER.names)
    defaults = {"user": "", "amount": 0, "lines": [], "state": "OPEN", "code": 0, "counts": []}
    assert rows(Protobuf(ORDER, registry.address), values) == [
        {
            "user": "Ann", "amount": -5, "lines": [1, 2], "state": "PAID", "code": 1, "to": {"city": "Ulm"},
            "at": NOON, "counts": [("a", 7)], "later": None,
        },
        nothing,
        {**nothing, **defaults},
    ]  # fmt: skip


def test_the_message_is_the_one_that_the_value_names(registry: LoopbackRegistry, shop: Any) -> None:
    user = pa.schema([("user", pa.string())])
    inner = framed(3, b"\x22\x03Bob", b"\4\2\2")  # two indexes: 1, 1: Order.Inner, whose field has another number
    assert rows(Protobuf(user, registry.address), [inner, framed(3, b"", b"\0")]) == [{"user": "Bob"}, {"user": None}]
    for indexes, reason in ((b"\2\x0a", "has no message"), (b"\1", "is damaged"), (b"", "ends before its message")):
        with pytest.raises(BadValue, match=reason):
            rows(Protobuf(user, registry.address), [framed(3, b"", indexes)])
    with pytest.raises(BadValue, match="DecodeError"):
        rows(Protobuf(user, registry.address), [framed(3, b"\x0a\x05a", b"\2\2")])


# --- the registry -----------------------------------------------------------------------------------------------------


def test_user_and_password_are_sent_and_never_shown(registry: LoopbackRegistry) -> None:
    address = f"http://ann:s%40cret@{host_of(registry)}"
    registry.add(7, json.dumps(USER))
    assert SchemaRegistry(address).schema(7).kind == "AVRO"
    assert registry.asked == [("/schemas/ids/7", "Basic " + base64.b64encode(b"ann:s@cret").decode())]
    with pytest.raises(SchemaUnknown) as failure:
        SchemaRegistry(address).schema(8)
    assert "cret" not in f"{failure.value} {SchemaRegistry(address)!r} {Avro(WANTED, address)!r}"


def test_a_registry_that_fails_is_asked_again(registry: LoopbackRegistry) -> None:
    pauses: list[float] = []

    def mend(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            registry.add(7, json.dumps(USER))

    registry.answers["/schemas/ids/7"] = 503
    assert SchemaRegistry(registry.address, mend).schema(7).kind == "AVRO"
    assert pauses == [0.5, 1.0]
    registry.answers["/schemas/ids/8"] = b"[]"
    with pytest.raises(SchemaUnknown, match="no JSON object"):
        SchemaRegistry(registry.address, pauses.append).schema(8)
    assert len(pauses) == 5


def test_schemas_that_refer_in_a_circle_end(registry: LoopbackRegistry) -> None:
    reference = {"name": "A", "subject": "a", "version": 1}
    registry.add(1, "{}", references=[reference])
    registry.answers["/subjects/a/versions/1"] = {"schema": "{}", "references": [reference]}
    with pytest.raises(SchemaUnknown, match="refers to itself"):
        SchemaRegistry(registry.address).schema(1)


@pytest.mark.parametrize("address", ["", "registry:8081", "ftp://registry", "http://", "http://host:x", 7, None])
@pytest.mark.parametrize("decoder", [Avro, Protobuf])
def test_wrong_addresses_are_refused(decoder: Any, address: Any) -> None:
    with pytest.raises(InvalidConfig, match="registry"):
        decoder(WANTED, address)
