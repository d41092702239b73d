"""Partitions of the rows of a table: those of the keys one by one, however many of them differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

from raylog.api.producer.arrow_send import ArrowColumns, send_table  # noqa: E402
from raylog.api.producer.rules.producer_options import ProducerOptions  # noqa: E402
from raylog.storage.format.murmur2 import murmur2, partition_of_hash  # noqa: E402

STICKY = 1


class Routes:
    is_cached = True

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.numbers: dict[bytes, int] = {}

    def next_partition(self, size: int) -> int:
        return min(STICKY, self.partitions - 1)


class Bulk:
    """What was sent, by partition: places, keys and values."""

    def __init__(self, partitions: int) -> None:
        self.routes = Routes(partitions)
        self.options = ProducerOptions.parse({"batch_size": 20_000})
        self.sent: dict[int, list[tuple[int, Any, Any]]] = defaultdict(list)

    def add(self, partition: int, content: ArrowColumns, size: int, positions: Any) -> None:
        assert content.keys is not None
        rows = zip(positions(), content.keys.to_pylist(), content.values.to_pylist(), strict=True)
        self.sent[partition] += rows


def sent_of(keys: Sequence[bytes | None], partitions: int, cut: int) -> dict[int, list[tuple[int, Any, Any]]]:
    bulk: Any = Bulk(partitions)
    table = pa.table({"key": pa.array([b"-", *keys], pa.binary())[1:], "value": [b"%d" % n for n in range(len(keys))]})
    send_table(bulk, pa.concat_tables([table.slice(0, cut), table.slice(cut)]), None, 1)
    return dict(bulk.sent)


LAYOUTS: dict[str, list[bytes | None]] = {
    "few": [b"k%d" % (number % 7) for number in range(5_000)],
    "all differ": [b"%d" % (number * 31) for number in range(9_000)],
    "all differ, of one length": [b"%06d" % number for number in range(3_000)],
    "differ at first": [*(b"%d" % number for number in range(3_000)), *[b"same"] * 3_000],
    "repeat at first": [*[b"same"] * 3_000, *(b"%d" % number for number in range(3_000))],
    "some are null": [None if number % 3 == 0 else b"%d" % number for number in range(6_000)],
    "some are empty": [b"" if number % 50 == 0 else b"x" * (number % 40) + b"%d" % number for number in range(4_000)],
    "more than a chunk": [b"%d" % number for number in range(140_000)],
    "none at all": [],
}


@pytest.mark.parametrize("partitions", [1, 3, 300])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_row_goes_where_its_key_goes(layout: str, partitions: int) -> None:
    keys = LAYOUTS[layout]
    expected: dict[int, list[tuple[int, Any, Any]]] = defaultdict(list)
    for number, key in enumerate(keys):
        partition = min(STICKY, partitions - 1) if key is None else partition_of_hash(murmur2(key), partitions)
        expected[partition].append((number, key, b"%d" % number))
    assert sent_of(keys, partitions, cut=len(keys) // 3) == expected
