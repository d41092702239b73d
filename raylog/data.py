"""Ray Data reads and writes topics. Needs the extra: pip install raylog[data]

    import raylog

    dataset = raylog.data.read("clicks", columns=["key", "value"])
    raylog.data.write(dataset, "copies", key="key")

Names are looked up on first use, so that importing this brings neither Ray nor Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.lazy_names import lazy_names

if TYPE_CHECKING:
    from raylog.api.data.avro_values import Avro
    from raylog.api.data.protobuf_values import Protobuf
    from raylog.api.data.reading import read
    from raylog.api.data.rules.positions import Timestamp
    from raylog.api.data.streaming import sink, stream
    from raylog.api.data.value_decoders import ArrowIpc, Json, MsgPack
    from raylog.api.data.writing import write

__all__ = ["ArrowIpc", "Avro", "Json", "MsgPack", "Protobuf", "Timestamp", "read", "sink", "stream", "write"]

_HOMES = {
    "ArrowIpc": "raylog.api.data.value_decoders",
    "Avro": "raylog.api.data.avro_values",
    "Json": "raylog.api.data.value_decoders",
    "MsgPack": "raylog.api.data.value_decoders",
    "Protobuf": "raylog.api.data.protobuf_values",
    "Timestamp": "raylog.api.data.rules.positions",
    "read": "raylog.api.data.reading",
    "sink": "raylog.api.data.streaming",
    "stream": "raylog.api.data.streaming",
    "write": "raylog.api.data.writing",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(globals(), _HOMES)
