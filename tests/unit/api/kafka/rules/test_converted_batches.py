"""The cache of converted batches, against a plain model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raylog.api.kafka.rules.converted_batches import ConvertedBatch, ConvertedBatches
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.record_batch import read_header

_NAMES = [ConvertedBatch(b"t" * 16, 0, offset, 1, 2, 3) for offset in range(6)]


@given(st.lists(st.tuples(st.sampled_from(_NAMES), st.none() | st.integers(0, 60))))
def test_those_asked_for_last_are_kept_up_to_the_room(steps: list[tuple[ConvertedBatch, int | None]]) -> None:
    batches, model = ConvertedBatches(room=100), dict[ConvertedBatch, bytes]()
    for name, size in steps:
        if size is None:
            assert batches.find(name) == model.get(name)
            if name in model:
                model[name] = model.pop(name)
        else:
            batches.keep(name, bytes(size))
            model.pop(name, None)
            model[name] = bytes(size)
            while sum(map(len, model.values())) > 100:
                model.pop(next(iter(model)))
        assert (len(batches), batches.size) == (len(model), sum(map(len, model.values())))
        assert batches.broken_invariants() == []


def test_a_batch_over_the_room_is_not_kept() -> None:
    batches = ConvertedBatches(room=100)
    batches.keep(_NAMES[0], bytes(50))
    batches.keep(_NAMES[1], bytes(101))
    assert (batches.find(_NAMES[0]), batches.find(_NAMES[1])) == (bytes(50), None)
    assert (batches.hits, batches.misses) == (1, 1)


def test_another_batch_under_the_same_offset_and_epoch_has_another_name() -> None:
    """As after compaction."""
    first, second = (read_header(encode_batch([value], timestamps=5)) for value in (b"a", b"b"))
    names = {ConvertedBatch.of(b"t" * 16, 0, header, codec) for header in (first, second) for codec in (3, 4)}
    assert len(names) == 4
