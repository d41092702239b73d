"""Large batches for compacted topics: looked into beside the loop, in their producer's order, bounded (rule 34)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import cramjam
import pytest

from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.protocol.coordinator_records import CLAIM_KEY
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.names import OFFSETS_TOPIC
from raylog.actors.protocol.replication_messages import NO_EPOCH, Append, Appended, ListedOffset, ListOffset
from raylog.actors.replica import parked_appends
from raylog.actors.replica.parked_appends import PayloadChecks
from raylog.errors import RaylogError, RemoteFailed
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.columns import encode_columns
from raylog.storage.format.record_batch import HEADER_BYTES, BatchHeader, Bytes, check_batch
from raylog.storage.log import appends
from tests.simulator.clients.clients import refuse
from tests.simulator.mutations.loop_work import LOOP_MUTATIONS, clause_off, watched
from tests.simulator.world.world import World
from tests.unit.actors.replica_trio import TOPIC_ID, Trio
from tests.unit.storage.batches import sealed

KIB = 1024
MESSAGE_BYTES = 64 * KIB
ALLOWED = 16 * MESSAGE_BYTES
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
LARGE = 500 * KIB


@pytest.fixture
def trio() -> Iterator[Trio]:
    with World(5) as world:
        yield led(Trio(world))


def led(trio: Trio, **settings: str) -> Trio:
    trio.settings |= {"cleanup.policy": "compact", "max.message.bytes": str(MESSAGE_BYTES)}
    trio.settings |= {name.replace("_", "."): value for name, value in settings.items()}
    trio.start(1, 2, 3)
    trio.elect(1, (1, 2, 3))
    trio.until(lambda: trio.log(1).epochs.latest == trio.epoch)
    return trio


def record(
    size: int, codec: int = GZIP, *, key: bytes | None = b"k", producer: int = -1, sequence: int = -1, time: int = 1
) -> bytes:
    epoch = -1 if producer < 0 else 0
    batch = encode_batch(
        [bytes(size)], keys=[key], timestamps=time, codec=codec, producer_id=producer, producer_epoch=epoch,
        base_sequence=sequence,
    )  # fmt: skip
    return bytes(batch)


def several_zstd_frames(size: int) -> bytes:
    """The first of which declares next to nothing."""
    payload = b"".join(encode_columns([b"k"], [bytes(size)], bytes(8)))
    front, rest = cramjam.zstd.compress(payload[:100]), cramjam.zstd.compress(payload[100:])
    return bytes(sealed(bytes(front) + bytes(rest), 1, codec=ZSTD))


def send(trio: Trio, *batches: Bytes) -> list[asyncio.Task[int | str]]:
    """All over one stream, at once. The offset of each, or its error's name."""
    hello = trio.members[1].host_hello
    assert hello is not None
    trio.ask(1, ListOffset(0, NO_EPOCH, False))  # there is a client now
    assert trio.client is not None
    client, endpoint = trio.client, Endpoint.parse(hello.endpoints[-1])

    async def opened() -> Stream:
        return await client.environment.dial(endpoint, "client", refuse)

    dialled = client.run(opened())
    trio.until(dialled.done)

    async def one(batch: Bytes) -> int | str:
        append = Append(NO_EPOCH, -1, 10_000)
        try:
            answer = await dialled.result().request(append, batch, topic_id=TOPIC_ID, partition=0, timeout=60)
        except RemoteFailed as error:
            return type(error.error).__name__
        except RaylogError as error:
            return type(error).__name__
        assert isinstance(answer.message, Appended)
        return answer.message.base_offset

    return [client.run(one(batch)) for batch in batches]


def outcomes(trio: Trio, *batches: Bytes) -> list[int | str]:
    sent = send(trio, *batches)
    trio.until(lambda: all(each.done() for each in sent))
    return [each.result() for each in sent]


@pytest.mark.parametrize("codec", range(5))
def test_large_batches_are_unpacked_beside_the_loop(codec: int) -> None:
    with World(5) as world, watched(16 << 20) as broken:
        trio = led(Trio(world), max_message_bytes=str(1 << 20))
        assert outcomes(trio, record(LARGE, codec), record(LARGE, codec, key=None)) == [0, "NullKey"]
        assert not broken


def test_a_batch_that_says_too_little_of_itself_is_not_unpacked_on_the_loop(trio: Trio) -> None:
    with watched(ALLOWED) as broken:
        assert outcomes(trio, several_zstd_frames(LARGE)) == [0]
        assert not broken


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_what_unpacks_to_too_much_is_refused(trio: Trio, codec: int) -> None:
    with watched(ALLOWED) as broken:
        bomb = record(10 * ALLOWED, codec)
        assert outcomes(trio, bomb, record(10, LZ4)) == ["PayloadTooLarge", 0]
        assert not broken
    assert trio.log(1).log_end_offset == 1


@pytest.mark.parametrize("producer", [7, -1])
def test_no_batch_overtakes_an_earlier_one_of_its_producer(trio: Trio, producer: int) -> None:
    """A producer without an id is its stream."""
    sequence = 0 if producer >= 0 else -1
    batches = [
        record(LARGE if number % 3 == 0 else 10, producer=producer, sequence=number if sequence == 0 else -1)
        for number in range(9)
    ]
    assert outcomes(trio, *batches) == list(range(9))


def test_nobody_waits_for_another_producers_large_batch(trio: Trio) -> None:
    trio.members[1].machine.slow_disk(200.0)  # as is all work beside the loop
    first, second = send(
        trio, record(LARGE, producer=7, sequence=0), record(10, LZ4, producer=8, sequence=0)
    )
    trio.until(lambda: first.done() and second.done())
    assert (first.result(), second.result()) == (1, 0)


def test_what_is_behind_a_refused_batch_of_its_producer_is_told_so(trio: Trio) -> None:
    batches = [record(10, LZ4, producer=7, sequence=0)]
    batches += [record(LARGE, key=None, producer=7, sequence=1), record(10, LZ4, producer=7, sequence=2)]
    assert outcomes(trio, *batches) == [0, "NullKey", "OutOfOrderSequence"]


def test_who_leads_no_more_when_it_was_looked_into_takes_nothing(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    process = trio.members[1].process
    assert process is not None
    off_loop = process.off_loop

    late: asyncio.Future[None] | None = None

    def stand_still(work: object) -> object:
        nonlocal late
        late = process.loop.create_future()
        return late

    monkeypatch.setattr(process, "off_loop", stand_still)
    (sent,) = send(trio, record(LARGE, producer=7, sequence=0))
    trio.until(lambda: late is not None)
    monkeypatch.setattr(process, "off_loop", off_loop)
    trio.elect(2, (1, 2, 3))
    trio.until(lambda: trio.log(2).epochs.latest == trio.epoch)
    trio.world.run_for(0.5)
    assert late is not None
    process.loop.call_soon(late.set_result, None)
    trio.until(sent.done)
    assert sent.result() in ("NotLeader", "LeadershipLost")
    assert trio.log(1).log_end_offset == 0


def test_what_is_parked_has_a_bound(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [record(LARGE, producer=number, sequence=0) for number in range(3)]
    monkeypatch.setattr(parked_appends, "MAX_PARKED_BYTES", 2 * len(batches[0]))
    trio.members[1].machine.slow_disk(200.0)  # as is all work beside the loop: the first is still checked
    assert sorted(map(str, outcomes(trio, *batches))) == ["0", "1", "TooManyBytesInFlight"]
    trio.members[1].machine.slow_disk(1.0)
    assert outcomes(trio, batches[2]) in ([2], [0], [1])


def test_a_batch_is_summed_once(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []
    original = check_batch

    def check(batch: Bytes) -> BatchHeader:
        checked.append(len(batch))
        return original(batch)

    monkeypatch.setattr(appends, "check_batch", check)
    assert outcomes(trio, record(10), record(LARGE)) == [0, 1]
    trio.until(lambda: trio.log(2).log_end_offset == trio.log(3).log_end_offset == 2)
    assert len(checked) == 2 * len(trio.members)


def test_ordinary_topics_do_not_come_by_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PayloadChecks, "append", lambda *_: pytest.fail("looked at"))
    with World(5) as world, watched(0) as broken:
        trio = led(Trio(world), cleanup_policy="delete")
        assert outcomes(trio, record(4 * ALLOWED), record(10)) == [0, 1]
        assert not broken, "nothing was unpacked at all"


# --- looking up times, and claims -----------------------------------------------------------------------------------


def listed(trio: Trio, timestamp: int) -> tuple[int, int]:
    message = trio.answer(trio.ask(1, ListOffset(timestamp, NO_EPOCH, False))).message
    assert isinstance(message, ListedOffset)
    return message.offset, message.timestamp


@pytest.mark.parametrize("codec", range(5))
def test_a_time_is_looked_up_beside_the_loop_where_that_unpacks_much(codec: int) -> None:
    with World(5) as world, watched(16 << 20) as broken:
        trio = led(Trio(world), max_message_bytes=str(1 << 20), cleanup_policy="delete")
        assert outcomes(trio, record(10, codec, time=5), record(LARGE, codec, time=9)) == [0, 1]
        assert listed(trio, 4) == (0, 5)
        assert listed(trio, 7) == (1, 9)
        assert not broken


def test_the_time_of_a_batch_that_unpacks_to_too_much_is_its_newest(trio: Trio) -> None:
    with World(5) as world, watched(ALLOWED) as broken:
        other = led(Trio(world), cleanup_policy="delete")
        assert outcomes(other, record(10 * ALLOWED, ZSTD, time=9)) == [0]
        assert listed(other, 7) == (0, 9)
        assert not broken


def test_what_cannot_be_a_claim_is_not_unpacked() -> None:
    with World(5) as world, watched(0) as broken:
        trio = led(Trio(world, topic=OFFSETS_TOPIC))
        bomb = encode_batch(
            [bytes(10 * ALLOWED)], keys=[CLAIM_KEY], timestamps=1, codec=ZSTD, producer_id=7, producer_epoch=0,
            base_sequence=0,
        )  # fmt: skip
        assert outcomes(trio, bytes(bomb)) == ["InternalTopic"]
        assert not broken


# --- the rule switched off ------------------------------------------------------------------------------------------


def _under_hostile_clients(broken: list[str]) -> bool:
    """Whether the leader keeps the rule while it is sent all of the above."""
    with World(5) as world:
        trio = led(Trio(world))
        for batch in (several_zstd_frames(LARGE), record(LARGE), record(10 * ALLOWED), record(LARGE, ZSTD, time=9)):
            outcomes(trio, batch)
        listed(trio, 7)
    with World(5) as world:
        trio = led(Trio(world, topic=OFFSETS_TOPIC))
        outcomes(trio, record(LARGE, ZSTD, key=CLAIM_KEY, producer=7, sequence=0))
    return not broken


@pytest.mark.parametrize("name", sorted(LOOP_MUTATIONS))
def test_the_watch_notices_that_a_clause_is_off(name: str) -> None:
    with watched(ALLOWED) as broken:
        assert _under_hostile_clients(broken)
    with watched(ALLOWED) as broken, clause_off(name):
        assert not _under_hostile_clients(broken)


def test_a_header_is_all_that_is_read_of_a_batch_too_short_for_one(trio: Trio) -> None:
    assert outcomes(trio, b"x" * (HEADER_BYTES - 1), record(10)) == ["CorruptBatch", 0]

