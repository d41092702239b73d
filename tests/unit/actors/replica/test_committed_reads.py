"""Readers of committed records, in logs with more aborted transactions than one answer may name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from raylog.actors.protocol.messages import pack
from raylog.actors.protocol.replication_messages import NO_EPOCH, Fetch, Fetched
from raylog.actors.replica import reads
from raylog.actors.replica.reads import MAX_ABORTED
from raylog.api.connection.records import TopicPartition
from raylog.api.consumer.rules.fetched import Chunk, VisibleBatches, check_chain
from raylog.storage.format.batch_codec import decode_batch
from raylog.storage.format.control_records import Marker, MarkerType, encode_marker
from raylog.storage.format.record_batch import filler, next_offset_of
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.segment.transaction_index import AbortedTransaction
from tests.simulator.world.world import World
from tests.unit.actors.disk_on_the_loop import watched
from tests.unit.actors.replica_trio import Trio
from tests.unit.storage.small_log import batch

NOW_MS = 1_700_000_000_000
NEAR, FAR = "node-1", ""


@pytest.fixture
def trio() -> Iterator[Trio]:
    with World(1) as world:
        trio = Trio(world)
        trio.settings |= {"max.message.bytes": "4000000", "segment.bytes": "2000000", "retention.ms": "-1"}
        trio.min_insync = 1
        trio.start(1)
        trio.elect(1, (1,))
        world.run_for(1.0)
        yield trio


def write(log: PartitionLog, value: bytes, producer: int, sequence: int = 0) -> None:
    data = batch(value, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True)
    log.append_as_leader(data, log.epochs.latest, NOW_MS)


def end(log: PartitionLog, producer: int, kind: MarkerType) -> None:
    marker = encode_marker(Marker(kind, 0), producer, 0, NOW_MS)
    log.append_as_leader(marker, log.epochs.latest, NOW_MS, control=True)
    log.advance_high_watermark(log.log_end_offset)


def fetch(trio: Trio, offset: int, node: str, max_bytes: int) -> tuple[Fetched, bytes]:
    """The answer, and its batches, from the file where it names one."""
    response = trio.answer(trio.ask(1, Fetch(offset, NO_EPOCH, -1, 1, max_bytes, 0, True, node)))
    answer: Any = response.message
    assert isinstance(answer, Fetched)
    if answer.file is None:
        return answer, bytes(response.payload)
    path, _, position, length, _ = answer.file
    return answer, trio.members[1].machine.disk.open(path).read_at(length, position)


def read_all(trio: Trio, node: str, max_bytes: int = 1 << 20) -> tuple[list[bytes], int, int]:
    """What a reader from the beginning sees; the most aborted transactions of an answer; how many files."""
    log, offset, seen, most, files = trio.log(1), 0, [], 0, 0
    while offset < log.last_stable_offset:
        answer, data = fetch(trio, offset, node, max_bytes)
        most, files = max(most, len(answer.aborted)), files + (answer.file is not None)
        assert data, "one batch always makes progress"
        end_of_chain = check_chain(data, offset)
        walk = VisibleBatches(Chunk(TopicPartition("t", 0), 0, offset, end_of_chain.next_offset, data, answer.aborted))
        while (found := walk.next()) is not None:
            seen += [value for value in decode_batch(found[1]).values if value is not None]
            walk.passed(found[0])
        assert next_offset_of(data) == end_of_chain.next_offset > offset
        offset = end_of_chain.next_offset
    return seen, most, files


@pytest.mark.parametrize("size", [10, 70_000])
@pytest.mark.parametrize("node", [NEAR, FAR])
@pytest.mark.parametrize("limit", [1, 3])
def test_an_answer_ends_where_it_would_name_too_many_aborted_transactions(
    trio: Trio, monkeypatch: pytest.MonkeyPatch, limit: int, node: str, size: int
) -> None:
    monkeypatch.setattr(reads, "MAX_ABORTED", limit)
    log, committed = trio.log(1), []
    write(log, b"long" + bytes(size), 99)
    for number in range(30):
        value = b"%03d" % number + bytes(size)
        write(log, value, number)
        write(log, value, number, 1)
        end(log, number, MarkerType.COMMIT if number % 5 == 4 else MarkerType.ABORT)
        committed += [value, value] if number % 5 == 4 else []
    end(log, 99, MarkerType.ABORT)
    seen, most, files = read_all(trio, node)
    assert seen == committed
    assert most == limit
    assert (files > 0) == (node == NEAR and size > 65_536)


def test_batches_of_more_open_transactions_than_an_answer_names_are_read_one_by_one(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "MAX_ABORTED", 2)
    log, committed = trio.log(1), []
    for sequence in range(3):
        for producer in range(8):
            write(log, b"%d of %d" % (sequence, producer), producer, sequence)
            committed += [b"%d of %d" % (sequence, producer)] if producer == 3 else []
    for producer in range(8):
        end(log, producer, MarkerType.COMMIT if producer == 3 else MarkerType.ABORT)
    seen, most, _ = read_all(trio, FAR)
    assert seen == committed
    assert most <= 2


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("node", [NEAR, FAR])
def test_what_a_process_does_not_know_of_aborts_is_read_beside_its_loop(trio: Trio, node: str, is_there: bool) -> None:
    """After an opening, and also where an index has to be made again from the batches."""
    log, committed = trio.log(1), []
    for number in range(30):
        value = b"%03d" % number + bytes(70_000)
        write(log, value, number)
        end(log, number, MarkerType.COMMIT if number % 5 == 4 else MarkerType.ABORT)
        committed += [value] if number % 5 == 4 else []
        if number % 7 == 0:
            log.roll()
    process, machine = trio.members[1].process, trio.members[1].machine
    assert process is not None
    process.kill()
    if not is_there:
        for path in [path for path in machine.disk.files() if path.endswith((".txnindex", ".snapshot"))]:
            machine.disk.remove(path)
    trio.start(1)
    trio.elect(1, (1,))
    trio.until(lambda: trio.log(1).high_watermark == 60)
    assert len(trio.log(1).segments) > 4
    process = trio.members[1].process
    assert process is not None
    with watched(process) as found:
        assert read_all(trio, node)[0] == committed
    assert [each.path for each in found if each.path.endswith((".txnindex", ".snapshot"))] == []
    assert not trio.log(1).lacks_aborted(0)


def test_two_million_aborted_transactions_behind_a_slice_are_not_in_its_answer(trio: Trio) -> None:
    """Each answer named all that were aborted up to the last stable offset: 2 M passed the limit of a frame."""
    log, many = trio.log(1), 2_000_000
    log.append_as_leader(batch(bytes(100_000)), log.epochs.latest, NOW_MS)
    log.append_as_follower(bytes(filler(1, 2 * many + 1, log.epochs.latest)), NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    index = log.segments.active.transactions
    for number in range(many):
        first = 2 * number + 1
        index.add(AbortedTransaction(5, first, first + 1, first + 2))
    for node in (NEAR, FAR):
        answer, data = fetch(trio, 0, node, 100_100)
        assert (len(data) > 100_000, answer.aborted, answer.file is None) == (True, (), node == FAR)
    answer, data = fetch(trio, 1, FAR, 1 << 20)
    assert len(answer.aborted) <= MAX_ABORTED
    assert len(pack(answer)[2]) < 200_000
