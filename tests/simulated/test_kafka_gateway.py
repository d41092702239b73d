"""The gateway in front of a simulated cluster: model clients of Kafka's protocol against real brokers and replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.protocol.replication_messages import NO_EPOCH, Append, Appended, ListedOffset, ListOffset
from raylog.api.kafka.protocol.api_versions import SERVED
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.batch_conversion import as_kafka
from raylog.api.kafka.sasl_session import AUTHENTICATE_KEY, HANDSHAKE_KEY
from raylog.config import KIB
from raylog.errors import MalformedRequest, UnknownTopic, UnsupportedRequestVersion
from raylog.storage.format.batch_codec import decode_batch, encode_batch
from raylog.storage.format.compression import codec_named
from raylog.storage.format.record_batch import MAGIC_KAFKA, read_header, split_batches, with_producer
from tests.simulator.clients.kafka_clients import KafkaClient, gateways_beside
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.world import World
from tests.unit.actors.link_world import CALM

TOPIC: Final = "clicks"
_TIME_MS: Final = 1_800_000_000_000
_SETTINGS: Final = {
    "max.message.bytes": "10000",
    "message.timestamp.after.max.ms": str(10**15),
    "min.insync.replicas": "2",
}
_TO_BE_REPEATED: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
)


class Stage:
    """A cluster of three brokers with a topic of two partitions, and a gateway."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = SimulatedCluster(world)
        self.cluster.form(3)
        self.cluster.create_topic(TOPIC, 2, 3, _SETTINGS)
        self.gateway, *self.others = gateways_beside(self.cluster, *self.cluster.homes)
        self.client = self.gateway.client()

    def ask(self, name: str, version: int, *, client: KafkaClient | None = None, **fields: Any) -> Any:
        return self.gateway.run((client or self.client).ask(name, version, **fields))

    def topic_id(self) -> bytes:
        view = self.gateway.link.topic(TOPIC)
        assert view is not None
        return view.topic_id

    def append_columns(self, partition: int, values: Sequence[bytes], codec: int = 0) -> int:
        """Append as raylog's own producers do. Return the offset."""
        link = self.gateway.link
        leader = link.leader(TOPIC, partition)
        assert leader is not None
        append = Append(NO_EPOCH, -1, 5_000)
        asked = link.ask(leader, append, bytes(columns_of(values, codec=codec)), expect=Appended, timeout=10.0)
        told = self.gateway.run(asked)
        return told.message.base_offset

    def read(self, partition: int) -> Any:
        """All of a partition, by a client of its own."""
        answer = self.ask("Fetch", 12, client=self.gateway.client(), **fetched({partition: 0}, wait_ms=2_000))
        return parts_of(answer)[partition]

    def produce_at_last(self, partition: int, batch: bytes) -> None:
        """Produce until it is taken."""

        async def repeat() -> None:
            while (code := outcome(await self.client.ask("Produce", 10, **produced({partition: batch})))[0][0]) != 0:
                assert code in _TO_BE_REPEATED
                await asyncio.sleep(0.05)

        self.gateway.run(repeat())

    def leader(self, partition: int) -> Any:
        """The replica that leads, by its own word."""
        leading = [
            each
            for each in self.cluster.replicas
            if each.spec.topic == TOPIC and each.spec.partition == partition and each.leads_epoch is not None
        ]
        return max(leading, key=lambda each: each.leads_epoch or 0)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with World(5, settings=CALM) as world:
        stage = Stage(world)
        yield stage
        stage.cluster.is_over = True


def columns_of(
    values: Sequence[bytes], *, producer: tuple[int, int, int] = (-1, -1, -1), codec: int = 0
) -> bytearray:
    batch = encode_batch(list(values), timestamps=_TIME_MS, codec=codec)
    return with_producer(batch, *producer) if producer[0] >= 0 else batch


def batch_of(values: Sequence[bytes], *, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """A batch as Kafka's producers write it."""
    return bytes(as_kafka(columns_of(values, producer=producer)))


def produced(
    batches: dict[int, bytes | None], *, acks: int = -1, topic: str = TOPIC, topic_id: bytes = bytes(16)
) -> dict[str, Any]:
    part, of_topic = (message_type("ProduceRequest", name) for name in ("PartitionProduceData", "TopicProduceData"))
    parts = [part(number, records) for number, records in batches.items()]
    return {"acks": acks, "timeout_ms": 5_000, "topic_data": [of_topic(topic, topic_id, parts)]}


def fetched(
    offsets: dict[int, int],
    *,
    topic: str = TOPIC,
    topic_id: bytes = bytes(16),
    wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    **fields: Any,
) -> dict[str, Any]:
    part, of_topic = (message_type("FetchRequest", name) for name in ("FetchPartition", "FetchTopic"))
    parts = [part(number, fetch_offset=offset, partition_max_bytes=1 << 20) for number, offset in offsets.items()]
    topics = [of_topic(topic, topic_id, parts)] if parts else []
    bounds = {"max_wait_ms": wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes}
    return {**bounds, "topics": topics, **fields}


def outcome(answer: Any) -> list[tuple[int, int]]:
    """(error, base offset) of each partition that was produced to."""
    return [(each.error_code, each.base_offset) for topic in answer.responses for each in topic.partition_responses]


def parts_of(answer: Any) -> dict[int, Any]:
    """Return what a fetch says of each partition."""
    return {each.partition_index: each for topic in answer.responses for each in topic.partitions}


def values_of(part: Any) -> list[bytes | None]:
    """The values of a fetched partition; each batch is magic 2, and sound."""
    found: list[bytes | None] = []
    for batch in split_batches(part.records) if part.records else ():
        assert read_header(batch).magic == MAGIC_KAFKA
        found += decode_batch(batch).values
    return found


@pytest.mark.parametrize(("produce", "fetch"), [(3, 4), (7, 7), (9, 12), (13, 18)])
def test_what_is_produced_is_fetched_byte_for_byte(stage: Stage, produce: int, fetch: int) -> None:
    topic_id = stage.topic_id()
    sent = batch_of([b"a", b"b", b"c"])
    answer = stage.ask("Produce", produce, **produced({0: sent, 1: batch_of([b"x"])}, topic_id=topic_id))
    assert outcome(answer) == [(0, 0), (0, 0)]
    assert outcome(stage.ask("Produce", produce, **produced({0: sent}, topic_id=topic_id))) == [(0, 3)]
    part = parts_of(stage.ask("Fetch", fetch, **fetched({0: 0}, topic_id=topic_id)))[0]
    first, second = split_batches(part.records)
    assert (read_header(first).base_offset, read_header(second).base_offset) == (0, 3)
    assert bytes(first[16:]) == bytes(second[16:]) == sent[16:]
    assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (6, 6, 0 if fetch > 4 else -1)
    assert values_of(part) == [b"a", b"b", b"c"] * 2


def test_columns_of_python_are_fetched_as_kafkas_batches(stage: Stage) -> None:
    stage.append_columns(0, [b"columns", b"of", b"python"])
    assert outcome(stage.ask("Produce", 9, **produced({0: batch_of([b"kafka"])}))) == [(0, 3)]
    for _ in range(2):
        part = parts_of(stage.ask("Fetch", 12, **fetched({0: 0})))[0]
        assert values_of(part) == [b"columns", b"of", b"python", b"kafka"]
    gateway = stage.gateway.gateway
    assert gateway is not None
    assert (gateway.converted.misses, gateway.converted.hits) == (1, 1)


def test_what_takes_long_to_look_through_is_looked_through_beside_the_loop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = stage.gateway.link
    assert link is not None
    off_loop, beside = link.env.off_loop, []

    def counted(work: Any) -> Any:
        beside.append(work)
        return off_loop(work)

    monkeypatch.setattr(link.env, "off_loop", counted)
    many = [b""] * 9_000  # records in few bytes
    stage.append_columns(0, [b"few"])
    assert values_of(parts_of(stage.ask("Fetch", 12, **fetched({0: 0})))[0]) == [b"few"]
    assert beside == []
    stage.append_columns(0, many, codec_named("zstd").number)
    assert values_of(parts_of(stage.ask("Fetch", 12, **fetched({0: 1})))[0]) == many
    assert len(beside) == 1
    large = [b"%d" % number * 3_000 for number in range(100)]
    for value in large:
        stage.ask("Produce", 9, **produced({1: batch_of([value])}))
    assert values_of(parts_of(stage.ask("Fetch", 12, **fetched({1: 0})))[1]) == large
    assert len(beside) == 2


# --- producing ----------------------------------------------------------------------------------------------------


def test_a_producer_that_repeats_itself_over_a_killed_leader_writes_once(stage: Stage) -> None:
    identity = stage.ask("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=0)
    assert (identity.error_code, identity.producer_epoch) == (0, 0)
    batches = [batch_of([b"%d" % number], producer=(identity.producer_id, 0, number)) for number in range(6)]

    async def deliver() -> list[int]:
        found = []
        for number, batch in enumerate(batches):
            if number in (2, 4):  # the batch is on its way when its leader dies
                stage.world.after(0.001, stage.leader(0).process.kill)
            while (told := outcome(await stage.client.ask("Produce", 10, **produced({0: batch}))))[0][0]:
                assert told[0][0] in _TO_BE_REPEATED
                await asyncio.sleep(0.05)
            found.append(told[0][1])
        return found

    assert stage.gateway.run(deliver()) == list(range(6))
    assert values_of(stage.read(0)) == [b"%d" % number for number in range(6)]
    gap = batch_of([b"x"], producer=(identity.producer_id, 0, 9))
    assert outcome(stage.ask("Produce", 10, **produced({0: gap}))) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    newer = batch_of([b"y"], producer=(identity.producer_id, 1, 0))
    assert outcome(stage.ask("Produce", 10, **produced({0: newer}))) == [(0, 6)]
    old = batch_of([b"z"], producer=(identity.producer_id, 0, 6))
    assert outcome(stage.ask("Produce", 10, **produced({0: old}))) == [(ErrorCode.INVALID_PRODUCER_EPOCH, -1)]


def test_requests_of_a_connection_that_are_under_way_together_keep_their_order(stage: Stage) -> None:
    async def send() -> list[Any]:
        sent = [
            stage.client.ask("Produce", 9, **produced({number % 2: batch_of([b"%d" % number]), 2: None}))
            for number in range(20)
        ]
        return await asyncio.gather(*sent)

    assert {outcome(answer)[0][0] for answer in stage.gateway.run(send())} == {0}
    for partition in (0, 1):
        assert values_of(stage.read(partition)) == [b"%d" % number for number in range(partition, 20, 2)]


def _two(batch: bytes) -> bytes:
    return batch + batch


def _older(batch: bytes) -> bytes:
    return batch[:16] + b"\x01" + batch[17:]


def _bent(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


def _cut(batch: bytes) -> bytes:
    return batch[:-3]


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (_two, ErrorCode.INVALID_RECORD),
        (_older, ErrorCode.INVALID_RECORD),
        (_bent, ErrorCode.CORRUPT_MESSAGE),
        (_cut, ErrorCode.CORRUPT_MESSAGE),
        (lambda _: b"", ErrorCode.INVALID_RECORD),
        (lambda _: batch_of([b"v" * 20_000]), ErrorCode.MESSAGE_TOO_LARGE),
        (lambda _: bytes(columns_of([b"columns"])), ErrorCode.INVALID_RECORD),
    ],
    ids=["two", "older", "bent", "cut", "none", "large", "columns"],
)
def test_a_batch_that_is_wrong_is_refused_and_others_are_not(stage: Stage, damage: Any, code: ErrorCode) -> None:
    answer = stage.ask("Produce", 9, **produced({0: damage(batch_of([b"a"])), 1: batch_of([b"b"])}))
    assert outcome(answer) == [(code, -1), (0, 0)]
    assert answer.responses[0].partition_responses[0].error_message


def test_what_is_not_there_is_not_produced_to(stage: Stage) -> None:
    batch = batch_of([b"a"])
    unknown = [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert outcome(stage.ask("Produce", 9, **produced({0: batch}, topic="nowhere"))) == unknown
    assert outcome(stage.ask("Produce", 9, **produced({7: batch}))) == unknown
    by_id = produced({0: batch}, topic_id=b"n" * 16)
    assert outcome(stage.ask("Produce", 13, **by_id)) == [(ErrorCode.UNKNOWN_TOPIC_ID, -1)]
    wrong = produced({0: batch}, acks=2)
    assert outcome(stage.ask("Produce", 9, **wrong)) == [(ErrorCode.INVALID_REQUIRED_ACKS, -1)]
    transactional = stage.ask("InitProducerId", 4, transactional_id="t", transaction_timeout_ms=0)
    assert transactional.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_acks_0_gets_no_answer_and_a_failure_closes_the_connection(stage: Stage) -> None:
    assert stage.ask("Produce", 9, **produced({0: batch_of([b"a"])}, acks=0)) is None
    assert values_of(stage.read(0)) == [b"a"]
    with pytest.raises(UnknownTopic):
        stage.ask("Produce", 9, **produced({0: batch_of([b"a"])}, acks=0, topic="nowhere"))


def _no_answers(stage: Stage, batches: list[dict[int, bytes]]) -> list[Any]:
    """Send these requests at once with acks=0, and return what becomes of each."""

    async def send() -> list[Any]:
        asked = [stage.client.ask("Produce", 9, **produced(dict(each), acks=0)) for each in batches]
        return await asyncio.gather(*asked, return_exceptions=True)

    return stage.gateway.run(send())


def test_acks_0_keeps_the_order_of_a_partition_while_another_ones_leader_is_dialled(stage: Stage) -> None:
    assert outcome(stage.ask("Produce", 9, **produced({1: batch_of([b"0"])}))) == [(0, 0)]
    batches = [{0: batch_of([b"a"]), 1: batch_of([b"1"])}, {1: batch_of([b"2"])}]
    assert _no_answers(stage, batches) == [None, None]
    stage.world.run_for(1.0)  # without an answer nobody waits for the followers
    assert values_of(stage.read(1)) == [b"0", b"1", b"2"]


def test_acks_0_waits_for_room_instead_of_ending_the_connection(stage: Stage) -> None:
    values = [b"%04d" % number + bytes(9_000) for number in range(2_500)]
    assert set(_no_answers(stage, [{0: batch_of([each])} for each in values])) == {None}
    stage.world.run_for(1.0)  # without an answer nobody waits for the followers
    link = stage.gateway.link
    leader = link.leader(TOPIC, 0)
    assert leader is not None
    asked = link.ask(leader, ListOffset(-1, -1, False), expect=ListedOffset, timeout=10.0)
    assert stage.gateway.run(asked).message.offset == len(values)


# --- fetching -----------------------------------------------------------------------------------------------------


def test_a_fetch_waits_until_there_is_something(stage: Stage) -> None:
    async def wait() -> tuple[Any, float]:
        loop = asyncio.get_running_loop()
        await stage.client.ask("Fetch", 12, **fetched({0: 0, 1: 0}, wait_ms=0))
        began = loop.time()
        fetching = asyncio.ensure_future(stage.client.ask("Fetch", 12, **fetched({0: 0, 1: 0}, wait_ms=20_000)))
        await asyncio.sleep(1.0)
        other = stage.gateway.client()
        assert outcome(await other.ask("Produce", 9, **produced({1: batch_of([b"late"])}))) == [(0, 0)]
        return await fetching, loop.time() - began

    answer, seconds = stage.gateway.run(wait())
    assert values_of(parts_of(answer)[1]) == [b"late"]
    assert parts_of(answer)[0].high_watermark == 0
    assert 1.0 <= seconds < 3.0
    again = parts_of(stage.ask("Fetch", 12, **fetched({0: 0, 1: 1}, wait_ms=100)))
    assert [values_of(part) for part in again.values()] == [[], []]
    assert again[1].high_watermark == 1


def test_a_fetch_without_news_is_answered_when_its_time_is_over(stage: Stage) -> None:
    async def wait() -> list[float]:
        loop = asyncio.get_running_loop()
        seconds = []
        for _ in range(3):
            began = loop.time()
            answer = await stage.client.ask("Fetch", 12, **fetched({0: 0, 1: 0}, wait_ms=400))
            assert [values_of(part) for part in parts_of(answer).values()] == [[], []]
            assert [part.high_watermark for part in parts_of(answer).values()] == [0, 0]
            seconds.append(loop.time() - began)
        return seconds

    assert all(0.39 <= each < 1.5 for each in stage.gateway.run(wait()))


def test_an_answer_has_no_more_than_it_may_but_for_its_first_partition(stage: Stage) -> None:
    large = [batch_of([b"%d" % number * 3_000]) for number in range(3)]
    for batch in large:
        assert [code for code, _ in outcome(stage.ask("Produce", 9, **produced({0: batch, 1: batch})))] == [0, 0]
    read: dict[int, list[bytes | None]] = {0: [], 1: []}
    sizes = []
    while min(map(len, read.values())) < 3:
        offsets = {number: len(values) for number, values in read.items()}
        parts = parts_of(stage.ask("Fetch", 12, **fetched(offsets, max_bytes=100)))
        sizes.append([len(part.records or b"") for part in parts.values()])
        for number, part in parts.items():
            read[number] += values_of(part)
    assert all(min(each) == 0 and max(each) < 4_000 for each in sizes)
    assert read == {number: [b"%d" % each * 3_000 for each in range(3)] for number in read}


def test_a_session_says_only_what_is_new(stage: Stage) -> None:
    first = stage.ask("Fetch", 12, **fetched({0: 0, 1: 0}, wait_ms=0, session_epoch=0))
    assert first.session_id > 0
    assert parts_of(first).keys() == {0, 1}
    session: dict[str, Any] = {"session_id": first.session_id, "wait_ms": 50}
    assert parts_of(stage.ask("Fetch", 12, **fetched({}, session_epoch=1, **session))) == {}
    stage.ask("Produce", 9, **produced({1: batch_of([b"new"])}))
    news = parts_of(stage.ask("Fetch", 12, **fetched({}, session_epoch=2, **session)))
    assert {number: values_of(part) for number, part in news.items()} == {1: [b"new"]}
    wrong = stage.ask("Fetch", 12, **fetched({}, session_epoch=9, **session))
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = stage.ask("Fetch", 12, **fetched({}, session_epoch=2, session_id=12345))
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_errors_of_a_fetch_are_told_at_once(stage: Stage) -> None:
    def codes(version: int, **fields: Any) -> dict[int, int]:
        answer = stage.ask("Fetch", version, **fetched(wait_ms=600_000, **fields))
        return {number: part.error_code for number, part in parts_of(answer).items()}

    assert codes(12, offsets={0: 5, 1: 0}) == {0: ErrorCode.OFFSET_OUT_OF_RANGE, 1: 0}
    assert codes(12, offsets={0: 0, 9: 0}) == {0: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes(12, offsets={0: 0}, topic="nowhere") == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes(13, offsets={0: 0}, topic_id=b"n" * 16) == {0: ErrorCode.UNKNOWN_TOPIC_ID}


def test_a_reader_hears_of_a_newer_leader_and_where_its_log_parts(stage: Stage) -> None:
    stage.ask("Produce", 9, **produced({0: batch_of([b"a", b"b"])}))
    before = stage.read(0)
    (epoch,) = {read_header(batch).leader_epoch for batch in split_batches(before.records)}
    stage.leader(0).process.kill()
    stage.produce_at_last(0, batch_of([b"c"]))
    part = message_type("FetchRequest", "FetchPartition")
    topic = message_type("FetchRequest", "FetchTopic")

    def fetch(**fields: int) -> Any:
        asked = topic(TOPIC, partitions=[part(0, partition_max_bytes=1 << 20, **fields)])
        bounds: dict[str, Any] = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20}
        return parts_of(stage.ask("Fetch", 16, **{**bounds, "topics": [asked._replace(topic_id=stage.topic_id())]}))[0]

    fenced = fetch(fetch_offset=2, current_leader_epoch=epoch)
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert fenced.current_leader.leader_epoch > epoch
    assert fenced.current_leader.leader_id in stage.cluster.homes
    parted = fetch(fetch_offset=3, last_fetched_epoch=epoch)
    assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (epoch, 2)
    ends = message_type("OffsetForLeaderEpochRequest", "OffsetForLeaderPartition")
    of_topic = message_type("OffsetForLeaderEpochRequest", "OffsetForLeaderTopic")
    (told,) = stage.ask("OffsetForLeaderEpoch", 4, topics=[of_topic(TOPIC, [ends(0, -1, epoch)])]).topics
    (end,) = told.partitions
    assert (end.error_code, end.leader_epoch, end.end_offset) == (0, epoch, 2)


# --- answers about the cluster ------------------------------------------------------------------------------------


def test_offsets_are_listed(stage: Stage) -> None:
    stage.ask("Produce", 9, **produced({0: batch_of([b"a", b"b"])}))
    part = message_type("ListOffsetsRequest", "ListOffsetsPartition")
    topic = message_type("ListOffsetsRequest", "ListOffsetsTopic")

    def listed(version: int, timestamp: int, number: int = 0) -> tuple[int, int]:
        asked = [topic(TOPIC, [part(number, timestamp=timestamp)])]
        ((found,),) = [each.partitions for each in stage.ask("ListOffsets", version, topics=asked).topics]
        return found.error_code, found.offset

    for version in (1, 7, 10):
        assert listed(version, -1) == (0, 2)
        assert listed(version, -2) == (0, 0)
        assert listed(version, _TIME_MS) == (0, 0)
        assert listed(version, _TIME_MS + 1) == (0, -1)
    assert [listed(10, timestamp)[1] for timestamp in (-3, -4, -5, -6)] == [0, 0, -1, -1]
    assert listed(7, -1, number=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_a_partition_that_is_named_twice_is_refused(stage: Stage) -> None:
    part = message_type("ListOffsetsRequest", "ListOffsetsPartition")
    topic = message_type("ListOffsetsRequest", "ListOffsetsTopic")
    asked = [topic(TOPIC, [part(0, timestamp=-1), part(1, timestamp=-1)]), topic(TOPIC, [part(0, timestamp=-2)])]
    answer = stage.ask("ListOffsets", 7, topics=asked)
    codes = [[each.error_code for each in found.partitions] for found in answer.topics]
    assert codes == [[ErrorCode.INVALID_REQUEST, 0], [ErrorCode.INVALID_REQUEST]]


def test_metadata_names_gateways(stage: Stage) -> None:
    named = message_type("MetadataRequest", "MetadataRequestTopic")
    answer = stage.ask("Metadata", 12, topics=[named(name=TOPIC), named(name="nowhere"), named(name="no/name")])
    assert [(each.node_id, each.host) for each in answer.brokers] == [(n, f"10.0.0.{n}") for n in (1, 2, 3)]
    assert answer.controller_id in stage.cluster.homes
    assert answer.cluster_id
    found, nowhere, wrong = answer.topics
    assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wrong.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (found.error_code, found.name, found.topic_id) == (0, TOPIC, stage.topic_id())
    for partition in found.partitions:
        assert partition.leader_id == stage.leader(partition.partition_index).spec.broker_id
        assert sorted(partition.replica_nodes) == [1, 2, 3]
        assert partition.leader_id in partition.isr_nodes
    (by_id, unknown) = stage.ask("Metadata", 12, topics=[named(stage.topic_id(), None), named(b"n" * 16, None)]).topics
    assert (by_id.name, unknown.error_code) == (TOPIC, ErrorCode.UNKNOWN_TOPIC_ID)
    assert [each.name for each in stage.ask("Metadata", 0, topics=[]).topics] == [TOPIC]
    assert [each.name for each in stage.ask("Metadata", 9, topics=None).topics] == [TOPIC]
    assert stage.ask("Metadata", 9, topics=[]).topics == []
    with pytest.raises(MalformedRequest):
        stage.ask("Metadata", 10, topics=[named(stage.topic_id(), None)])
    described = stage.ask("DescribeCluster", 1)
    assert [each.broker_id for each in described.brokers] == [1, 2, 3]
    assert stage.ask("DescribeCluster", 1, endpoint_type=2).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


@pytest.mark.parametrize("version", [0, 1, 12, 13])
def test_topics_do_not_vanish_while_no_broker_answers(stage: Stage, version: int) -> None:
    named = message_type("MetadataRequest", "MetadataRequestTopic")
    before = stage.ask("Metadata", version, topics=[] if version == 0 else None)
    for process in [home.process for home in stage.cluster.homes.values()]:
        assert process is not None
        process.pause(30.0)
    answer = stage.ask("Metadata", version, topics=[] if version == 0 else None)
    assert (answer.error_code, answer.cluster_id, answer.brokers) == (0, before.cluster_id, before.brokers)
    (found,), (known,) = answer.topics, before.topics
    assert [each._replace(isr_nodes=()) for each in found.partitions] == [
        each._replace(isr_nodes=()) for each in known.partitions
    ]
    assert found.topic_id == known.topic_id
    (one,) = stage.ask("Metadata", version, topics=[named(name=TOPIC)]).topics
    assert one.error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_each_gateway_names_the_same_coordinator(stage: Stage) -> None:
    one = stage.ask("FindCoordinator", 2, key="group", key_type=0)
    other = stage.others[0]
    asked = other.client().ask("FindCoordinator", 4, coordinator_keys=["group", "others"], key_type=0)
    found, _ = other.run(asked).coordinators
    assert (one.error_code, one.node_id, one.port) == (0, found.node_id, found.port)
    wrong = stage.ask("FindCoordinator", 4, coordinator_keys=["group"], key_type=7)
    assert wrong.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.fixture
def narrow(stage: Stage) -> Stage:
    """Streams of clients that take frames of 64 KiB, and more only where a topic takes larger batches."""
    network = stage.world.network
    network.limits = replace(network.limits, client_frame_bytes=64 * KIB)
    return stage


def test_a_batch_that_no_stream_takes_is_too_large_and_other_requests_go_on(narrow: Stage) -> None:
    async def beside_others() -> list[int]:
        sent: list[dict[int, bytes | None]] = [
            {1: batch_of([b"small"])},
            {0: batch_of([bytes(400 * KIB)])},
            {1: batch_of([b"small"])},
        ]
        told = await asyncio.gather(*(narrow.client.ask("Produce", 9, **produced(each)) for each in sent))
        return [code for each in told for code, _ in outcome(each)]

    narrow.produce_at_last(1, batch_of([b"first"]))
    narrow.produce_at_last(0, batch_of([b"first"]))
    assert narrow.gateway.run(beside_others()) == [0, ErrorCode.MESSAGE_TOO_LARGE, 0]


def test_a_raised_bound_of_a_topic_counts_on_streams_that_are_open(narrow: Stage) -> None:
    narrow.produce_at_last(0, batch_of([b"first"]))
    controller, process = narrow.cluster.serving(), narrow.cluster.controllers[-1].process
    assert controller is not None
    bounds = {"max.message.bytes": str(500 * KIB)}
    changed = process.run(controller.admin.alter_topic_settings(TOPIC, bounds, timeout=30.0))
    assert narrow.world.run_until_idle_or(changed.done, 40.0)
    narrow.world.run_for(3.0)
    sent = produced({0: batch_of([bytes(400 * KIB)])})
    assert outcome(narrow.ask("Produce", 9, **sent)) == [(0, 1)]


def test_polls_that_wait_keep_no_producer_waiting(stage: Stage) -> None:
    """All clients of a gateway share one stream to a leader, and one poll is open there for each that waits."""
    network = stage.world.network
    network.limits = replace(network.limits, max_handlers=8)
    polling = [stage.gateway.client() for _ in range(20)]

    async def produce_beside_polls() -> float:
        loop = asyncio.get_running_loop()
        polls = [loop.create_task(each.ask("Fetch", 12, **fetched({0: 1}, wait_ms=60_000))) for each in polling]
        await asyncio.sleep(1.0)
        began = loop.time()
        assert outcome(await stage.client.ask("Produce", 9, **produced({0: batch_of([b"late"])}))) == [(0, 1)]
        seconds = loop.time() - began
        assert [values_of(parts_of(await each)[0]) for each in polls] == [[b"late"]] * 20
        return seconds

    stage.produce_at_last(0, batch_of([b"first"]))
    assert stage.gateway.run(produce_beside_polls()) < 1.0


def test_only_what_is_served_is_advertised(stage: Stage) -> None:
    answer = stage.ask("ApiVersions", 3, client_software_name="model", client_software_version="1")
    assert {each.api_key for each in answer.api_keys} == SERVED.keys() - {HANDSHAKE_KEY, AUTHENTICATE_KEY}
    with pytest.raises(UnsupportedRequestVersion):
        stage.ask("ListOffsets", 11)
