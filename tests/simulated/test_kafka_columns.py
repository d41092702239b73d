"""A topic whose batches are all columns: what Kafka clients produce, as its leader gets it and as clients read it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.cluster.admin_requests import AlterTopicSettings
from raylog.actors.cluster.setting_edits import SET
from raylog.api.kafka import column_conversion
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.batch_conversion import as_columns, as_kafka
from raylog.storage.format.compression import codec_named
from raylog.storage.format.record_batch import MAGIC_COLUMNS, MAGIC_KAFKA, read_header, split_batches
from raylog.storage.log.reader import Isolation
from tests.simulated.test_kafka_gateway import (
    TOPIC,
    Stage,
    batch_of,
    columns_of,
    fetched,
    outcome,
    parts_of,
    produced,
    values_of,
)
from tests.simulator.world.world import World
from tests.unit.actors.link_world import CALM


class ColumnStage(Stage):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.alter(batch_format="columns")

    def alter(self, **settings: Any) -> None:
        changes = {name.replace("_", "."): value for name, value in settings.items()}
        self.gateway.run(self.gateway.administration.ask(AlterTopicSettings(TOPIC, changes), 30.0))
        self.gateway.run(self._known(settings.get("batch_format")))

    async def _known(self, batch_format: Any) -> None:
        while batch_format is not None and self._told() != batch_format:
            await asyncio.sleep(0.05)

    def _told(self) -> str | None:
        view = self.gateway.link.topic(TOPIC)
        return None if view is None else view.batch_format

    def stored(self, partition: int) -> list[bytes]:
        """Return the batches in the leader's log, without what the leader has stamped."""
        read = self.leader(partition).log.read(0, 1 << 20, Isolation.LOG_END)
        return [bytes(batch[16:]) for batch in split_batches(read.data)]


@pytest.fixture
def stage() -> Iterator[ColumnStage]:
    with World(5, settings=CALM) as world:
        stage = ColumnStage(world)
        yield stage
        stage.cluster.is_over = True


@pytest.mark.parametrize("codec", range(5))
def test_what_is_produced_is_stored_in_columns_and_fetched_byte_for_byte(stage: ColumnStage, codec: int) -> None:
    sent = bytes(as_kafka(columns_of([b"a", b"", b"c" * 100]), codec))
    assert outcome(stage.ask("Produce", 9, **produced({0: sent}))) == [(0, 0)]
    assert stage.stored(0) == [bytes(as_columns(sent)[16:])]
    (batch,) = split_batches(parts_of(stage.ask("Fetch", 12, **fetched({0: 0})))[0].records)
    assert bytes(batch[16:]) == sent[16:]


def test_a_producer_that_repeats_itself_is_known_in_each_form(stage: ColumnStage) -> None:
    identity = stage.ask("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=0).producer_id
    first, second = (batch_of([b"%d" % number], producer=(identity, 0, number)) for number in range(2))
    for batch, offset in ((first, 0), (second, 1), (first, 0)):
        assert outcome(stage.ask("Produce", 9, **produced({0: batch}))) == [(0, offset)]
    stage.alter(batch_format="as-produced")
    assert outcome(stage.ask("Produce", 9, **produced({0: second}))) == [(0, 1)]
    gap = batch_of([b"x"], producer=(identity, 0, 7))
    assert outcome(stage.ask("Produce", 9, **produced({0: gap}))) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    assert values_of(stage.read(0)) == [b"0", b"1"]


def test_the_time_of_the_broker_stands_above_columns_too(stage: ColumnStage) -> None:
    stage.alter(message_timestamp_type="LogAppendTime")
    stage.world.run_for(2.0)
    answer = stage.ask("Produce", 9, **produced({0: batch_of([b"a", b"b"])}))
    (told,) = answer.responses[0].partition_responses
    assert (told.error_code, told.base_offset) == (0, 0)
    (batch,) = split_batches(parts_of(stage.ask("Fetch", 12, **fetched({0: 0})))[0].records)
    header = read_header(batch)
    assert header.is_log_append_time
    assert header.max_timestamp == told.log_append_time_ms > 0


def test_requests_under_way_together_keep_their_order(stage: ColumnStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_conversion, "CONVERTED_ON_LOOP", 4_000)  # the others are converted beside the loop
    large = [b"%d" % number * 2_000 for number in range(3)]
    values = [[b"first"], large, [b"second"], large, [b"third"]]

    async def send() -> list[Any]:
        sent = [stage.client.ask("Produce", 9, **produced({0: batch_of(each)})) for each in values]
        return await asyncio.gather(*sent)

    assert {outcome(answer)[0][0] for answer in stage.gateway.run(send())} == {0}
    assert values_of(stage.read(0)) == [value for each in values for value in each]


def test_a_batch_that_fits_only_as_it_came_stays_so(stage: ColumnStage) -> None:
    """Kafka's clients fill batches up to `max.message.bytes`, which is 10,000 here."""
    many = batch_of([b"v"] * 1_000)
    assert len(many) < 10_000 < len(as_columns(many))
    assert outcome(stage.ask("Produce", 9, **produced({0: many}))) == [(0, 0)]
    assert stage.stored(0) == [many[16:]]
    large = batch_of([b"v" * 20_000])
    assert outcome(stage.ask("Produce", 9, **produced({0: large}))) == [(ErrorCode.MESSAGE_TOO_LARGE, -1)]


@pytest.mark.parametrize("codec", [0, codec_named("lz4").number])
def test_what_is_damaged_or_no_records_is_refused_and_others_are_not(stage: ColumnStage, codec: int) -> None:
    good = bytes(as_kafka(columns_of([b"a" * 50]), codec))
    bent = good[:-1] + bytes([good[-1] ^ 1])
    answer = stage.ask("Produce", 9, **produced({0: bent, 1: good}))
    assert outcome(answer) == [(ErrorCode.CORRUPT_MESSAGE, -1), (0, 0)]
    assert outcome(stage.ask("Produce", 9, **produced({0: good}))) == [(0, 0)]


def test_a_record_without_a_key_is_refused_in_a_compacted_topic(stage: ColumnStage) -> None:
    stage.alter(cleanup_policy="compact")
    stage.world.run_for(2.0)
    assert outcome(stage.ask("Produce", 9, **produced({0: batch_of([b"v"])}))) == [(ErrorCode.INVALID_RECORD, -1)]


def test_kafkas_tools_change_it_on_a_topic_in_use(stage: ColumnStage) -> None:
    of_resource, of_config = (
        message_type("IncrementalAlterConfigsRequest", name) for name in ("AlterConfigsResource", "AlterableConfig")
    )

    def alter(value: str) -> int:
        resources = [of_resource(2, TOPIC, [of_config("batch.format", SET, value)])]
        (told,) = stage.ask("IncrementalAlterConfigs", 1, resources=resources).responses
        return int(told.error_code)

    assert alter("rows") == ErrorCode.INVALID_CONFIG
    batch = batch_of([b"v"])
    magics = []
    for value in ("as-produced", "columns", "kafka"):
        assert alter(value) == 0
        stage.world.run_for(2.0)
        assert outcome(stage.ask("Produce", 9, **produced({0: batch})))[0][0] == 0
        magics.append(stage.stored(0)[-1][0])
    assert magics == [MAGIC_KAFKA, MAGIC_COLUMNS, MAGIC_KAFKA]
