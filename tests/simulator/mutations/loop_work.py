"""Work of a leader, on its loop and elsewhere, with batches that hold more than they seem to (rule 34).

    with watched(limit) as broken, switched_off("payloads_are_checked_on_the_loop"):
        ...                                  # `broken` says what was unpacked where it must not be

The rule is switched off clause by clause, as in `mutations.py`, to see that the watch notices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from raylog.actors.protocol import coordinator_records
from raylog.actors.replica import parked_appends
from raylog.actors.replica.parked_appends import PayloadChecks
from raylog.storage.format import batch_codec
from raylog.storage.format.batch_codec import QUICK_BYTES, unpack_limit
from raylog.storage.format.compression import DEFAULT_UNPACK_LIMIT
from raylog.storage.format.record_batch import BatchHeader, Bytes
from raylog.storage.log import reader
from raylog.storage.log.appends import check_payload
from tests.simulator.mutations.mutations import Patches
from tests.simulator.world.machines import Process


@contextmanager
def watched(limit: int) -> Iterator[list[str]]:
    """Yield a list of what is unpacked beyond 256 KiB on a loop, or beyond `limit` anywhere."""
    broken: list[str] = []
    beside = 0
    patches = Patches()

    def do(self: Process, work: Callable[[], Any], future: Any) -> None:
        nonlocal beside
        beside += 1
        try:
            before(self, work, future)
        finally:
            beside -= 1

    def look(header: BatchHeader, batch: Bytes, unpack_limit: int) -> Bytes:
        payload = unpacked(header, batch, unpack_limit)
        if len(payload) > limit:
            broken.append(f"{len(payload)} bytes were unpacked, and {limit} are allowed")
        if not beside and len(payload) > QUICK_BYTES:
            broken.append(f"{len(payload)} bytes were unpacked on the loop")
        return payload

    unpacked = batch_codec.unpacked
    before = patches.attribute(Process, "_do", do)
    patches.function(unpacked, look)
    try:
        yield broken
    finally:
        patches.undo()


def payloads_are_checked_on_the_loop(patches: Patches) -> None:
    def is_fine(self: Any, header: BatchHeader, batch: Bytes) -> bool:
        check_payload(header, batch, unpack_limit(self._hosted.log.config))
        return True

    patches.attribute(PayloadChecks, "_is_fine", is_fine)


def a_batch_is_believed_to_be_as_small_as_it_says(patches: Patches) -> None:
    patches.attribute(parked_appends, "QUICK_BYTES", DEFAULT_UNPACK_LIMIT)


def times_are_looked_up_on_the_loop(patches: Patches) -> None:
    patches.attribute(reader, "_opens_quickly", lambda header, data: True)
    patches.attribute(reader, "QUICK_BYTES", DEFAULT_UNPACK_LIMIT)


def claims_are_read_before_their_size(patches: Patches) -> None:
    patches.attribute(coordinator_records, "_may_be_claim", lambda header, batch: True)


def what_unpacks_to_any_size_is_taken(patches: Patches) -> None:
    patches.function(batch_codec.unpack_limit, lambda config: DEFAULT_UNPACK_LIMIT)


LOOP_MUTATIONS: Final[dict[str, Callable[[Patches], None]]] = {
    each.__name__: each
    for each in (
        payloads_are_checked_on_the_loop,
        a_batch_is_believed_to_be_as_small_as_it_says,
        times_are_looked_up_on_the_loop,
        claims_are_read_before_their_size,
        what_unpacks_to_any_size_is_taken,
    )
}


@contextmanager
def clause_off(name: str) -> Iterator[None]:
    patches = Patches()
    try:
        LOOP_MUTATIONS[name](patches)
        yield
    finally:
        patches.undo()
