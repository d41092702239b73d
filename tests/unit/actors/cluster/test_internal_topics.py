"""Who may write to raylog's own topics, and delete from them: their coordinators, and nobody else (rule 25)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from raylog.actors.cluster.coordinator_state import FENCING_EPOCH
from raylog.actors.link.delete_records import delete_records
from raylog.actors.protocol.coordinator_records import CLAIM_KEY
from raylog.actors.protocol.names import OFFSETS_TOPIC
from raylog.actors.protocol.replication_messages import (
    NO_EPOCH,
    Append,
    AppendTransactional,
    DeleteRecords,
    RecordsDeleted,
)
from raylog.errors import InternalTopic, PolicyViolation, ProducerFenced, RemoteFailed
from raylog.storage.format.batch_codec import encode_batch
from tests.simulator.world.world import World
from tests.unit.actors.replica_trio import Trio

NOBODY = -1
COORDINATOR = 20


@pytest.fixture
def trio() -> Iterator[Trio]:
    with World(5) as world:
        trio = Trio(world, topic=OFFSETS_TOPIC)
        trio.settings["cleanup.policy"] = "compact"
        trio.start(1, 2, 3)
        trio.elect(1, (1, 2, 3))
        yield trio


def batch(keys: list[bytes], producer_id: int, epoch: int, sequence: int, *, transactional: bool = False) -> bytes:
    return bytes(
        encode_batch(
            [b"v"] * len(keys), keys=keys, timestamps=1, producer_id=producer_id, producer_epoch=epoch,
            base_sequence=sequence, transactional=transactional,
        )
    )  # fmt: skip


def outcome(trio: Trio, data: bytes, to: int = 1) -> int | type[BaseException | None]:
    asked = trio.ask(to, Append(NO_EPOCH, -1, 1_000), data)
    try:
        return trio.offset_of(asked)
    except RemoteFailed as error:
        return type(error.error)


def test_who_has_claimed_the_partition_writes_there(trio: Trio) -> None:
    assert outcome(trio, batch([CLAIM_KEY], COORDINATOR, 0, 0)) == 0
    assert outcome(trio, batch([CLAIM_KEY], COORDINATOR, 0, 0)) == 0, "the same claim, sent again"
    assert outcome(trio, batch([b"a", b"b"], COORDINATOR, 0, 1)) == 1
    assert outcome(trio, batch([CLAIM_KEY], COORDINATOR, 1, 0)) == 3, "the next coordinator"
    assert outcome(trio, batch([b"a"], COORDINATOR, 0, 3)) is ProducerFenced
    assert outcome(trio, batch([CLAIM_KEY], COORDINATOR, FENCING_EPOCH, 0)) == 4, "its id is retired"
    assert outcome(trio, batch([CLAIM_KEY], COORDINATOR + 1, 0, 0)) == 5


@pytest.mark.parametrize(
    "stray",
    [
        batch([b"user-1"], NOBODY, -1, -1),
        batch([CLAIM_KEY], NOBODY, -1, -1),
        batch([b"user-1"], 7, 0, 0),
        batch([b"user-1"], 7, 0, 12),
        batch([CLAIM_KEY, b"user-1"], 7, 0, 0),
        batch([CLAIM_KEY], 7, 0, 1),
        batch([b"user-1"], COORDINATOR, 1, 0),
    ],
)
def test_who_has_not_is_refused_and_nothing_is_appended(trio: Trio, stray: bytes) -> None:
    assert outcome(trio, batch([CLAIM_KEY], COORDINATOR, 0, 0)) == 0
    assert outcome(trio, stray) is InternalTopic
    assert trio.log(1).log_end_offset == 1


def test_no_transaction_writes_there(trio: Trio) -> None:
    data = batch([b"user-1"], 7, 0, 0, transactional=True)
    asked = trio.ask(1, AppendTransactional(NO_EPOCH, -1, 1_000, "mover"), data)
    with pytest.raises(RemoteFailed, match="is internal"):
        trio.answer(asked)
    assert trio.log(1).log_end_offset == 0


def test_the_next_leader_knows_who_has_claimed(trio: Trio) -> None:
    assert outcome(trio, batch([CLAIM_KEY], COORDINATOR, 0, 0)) == 0
    trio.elect(2, (1, 2, 3))
    assert outcome(trio, batch([b"a"], COORDINATOR, 0, 1), to=2) == 1
    assert outcome(trio, batch([b"user-1"], 7, 0, 0), to=2) is InternalTopic


def refusal(trio: Trio, before: int) -> type[BaseException | None]:
    with pytest.raises(RemoteFailed) as failed:
        trio.answer(trio.ask(1, DeleteRecords(before, 1_000)))
    return type(failed.value.error)


def test_a_leader_deletes_nothing_from_them(trio: Trio) -> None:
    assert outcome(trio, batch([CLAIM_KEY], COORDINATOR, 0, 0)) == 0
    assert refusal(trio, -1) is InternalTopic
    assert trio.log(1).log_start_offset == 0


@pytest.mark.parametrize(("policy", "deletes"), [("compact", False), ("compact,delete", True), ("delete", True)])
def test_a_leader_deletes_nothing_where_only_compaction_may(policy: str, deletes: bool) -> None:
    with World(5) as world:
        trio = Trio(world)
        trio.settings["cleanup.policy"] = policy
        trio.start(1, 2, 3)
        trio.elect(1, (1, 2, 3))
        assert outcome(trio, batch([b"a"], NOBODY, -1, -1)) == 0
        if deletes:
            assert trio.answer(trio.ask(1, DeleteRecords(-1, 5_000))).message == RecordsDeleted(1)
        else:
            assert refusal(trio, -1) is PolicyViolation
            assert trio.log(1).log_start_offset == 0


def test_nobody_is_asked_to_delete_from_them() -> None:
    before = {("clicks", 0): 5, (OFFSETS_TOPIC, 0): 5}
    with pytest.raises(InternalTopic):
        asyncio.run(delete_records(cast(Any, None), [], before, "", 1.0))
