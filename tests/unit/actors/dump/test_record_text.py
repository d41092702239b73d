"""What a dump tells of the records of `__transaction_state` and `__cluster_metadata`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from raylog.actors.dump.record_text import describe_metadata_record, describe_transaction_record
from raylog.actors.metadata_log.rules.tail import encode_change
from raylog.actors.protocol.coordinator_records import CLAIM_KEY
from raylog.actors.protocol.messages import Done, Message, pack
from raylog.actors.protocol.metadata_quorum_records import ControllerStarted, Voters
from raylog.actors.protocol.metadata_records import PartitionChanged
from raylog.actors.protocol.names import METADATA_TOPIC, TRANSACTIONS_TOPIC
from raylog.actors.protocol.transaction_family_messages import FamilyRecord
from raylog.actors.protocol.transaction_messages import TransactionRecord
from raylog.actors.transactions.rules.transaction import FAMILY_PREFIX, Phase, transaction_entry
from raylog.api.cli.commands.log_dump import dump_command
from raylog.errors import FrameInvalid, MessageUnknown
from raylog.storage.directory.partition_directory import PartitionIdentity
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.log.partition_log import PartitionLog
from tests.unit.actors.security.examples import credential
from tests.unit.actors.small_cluster import SmallCluster

WALL_MS = 1_700_000_000_000
OPEN = TransactionRecord(
    "mover", 7, 3, 60_000, int(Phase.ONGOING), (("clicks", b"c" * 16, 2),), ("billing",), 40, 50, -1, -1, -1, -1
)
FAMILY = FamilyRecord("counts", 12, b"0123456789ab", 1000, -1, 4, 60)


def encoded(record: Message) -> bytes:
    kind, version, data = pack(record)
    return bytes((kind, version)) + data


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (
            OPEN,
            "Ongoing, producer 7 epoch 3, time-out 60000 ms; partitions clicks-2; groups billing; begun at 40; at 50",
        ),
        (
            replace(OPEN, phase=int(Phase.PREPARE_ABORT), groups=(), marker_id=7, marker_epoch=4, timed_out=True),
            "PrepareAbort, producer 7 epoch 3, time-out 60000 ms; partitions clicks-2; begun at 40; "
            "markers of producer 7 epoch 4; timed out; at 50",
        ),
        (
            replace(OPEN, phase=int(Phase.COMPLETE_COMMIT), partitions=(), groups=(), ended_id=7, ended_epoch=2),
            "CompleteCommit, producer 7 epoch 3, time-out 60000 ms; ended last: producer 7 epoch 2; at 50",
        ),
    ],
)
def test_a_transactional_id_is_told(record: TransactionRecord, text: str) -> None:
    assert describe_transaction_record(*transaction_entry(record)) == f"transactional id 'mover': {text}"


def test_what_else_is_in_the_topic_of_transactions_is_told() -> None:
    key = FAMILY_PREFIX + b"counts"
    assert describe_transaction_record(key, encoded(FAMILY)) == (
        "family 'counts': epoch 12 of driver 38396162, last batch 4; time-out 1000 ms, kept for ever; at 60"
    )
    assert describe_transaction_record(key, None) == "family 'counts': no more"
    assert describe_transaction_record(b"tmover", None) == "transactional id 'mover': no more"
    assert describe_transaction_record(CLAIM_KEY, b"7") == "claimed under producer epoch 7"


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"tmover", encoded(Done())), (b"tmover", b"\x82"), (b"what", b""), (None, None), (b"tmover", b"\xfe\xfethat")],
)
def test_what_is_no_record_of_transactions_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises((FrameInvalid, MessageUnknown)):
        describe_transaction_record(key, value)


def test_each_record_of_the_metadata_is_told() -> None:
    cluster = SmallCluster(2, racks=["a", ""])
    cluster.create("clicks", [1, 2], settings={"retention.ms": 5})
    told = [describe_metadata_record(None, encoded(record)) for record in cluster.state.to_records()]
    assert told[0] == "ClusterFormed: cluster_id cluster-1, formed_at_ms 1, format_version 1"
    (topic,) = [each for each in told if each.startswith("TopicCreated")]
    assert topic == "TopicCreated: topic_id 00000000, name clicks, settings [[retention.ms, 5]]"
    (partition,) = [each for each in told if each.startswith(PartitionChanged.__name__)]
    assert "partition 0, replicas [1, 2], adding [], target [], leader 1, leader_epoch 0" in partition
    assert any("rack ''" in each for each in told)
    for record, text in (
        (ControllerStarted(4), "ControllerStarted: controller_epoch 4"),
        (Voters(((1, "d1"), (2, "d2"))), "Voters: voters [[1, d1], [2, d2]]"),
    ):
        assert describe_metadata_record(None, encoded(record)) == text


def test_keys_of_users_are_not_told() -> None:
    told = describe_metadata_record(None, encoded(credential("ann")))
    assert told == "ScramCredential: user ann, mechanism SCRAM-SHA-256, iterations 4096"


@pytest.mark.parametrize("value", [None, b"", b"\xfe\xfe", encoded(OPEN)])
def test_what_is_no_record_of_the_metadata_is_refused(value: bytes | None) -> None:
    with pytest.raises((FrameInvalid, MessageUnknown)):
        describe_metadata_record(None, value)


def decoded(tmp_path: Path, topic: str, batch: bytes | bytearray) -> list[Any]:
    """By `raylog log dump`."""
    path = tmp_path / f"{topic}-0"
    log = PartitionLog.open(str(path), PartitionIdentity("c1", topic, "id1", 0), {}, now_ms=WALL_MS)
    log.begin_epoch(1)
    log.append_as_leader(bytearray(batch), 1, WALL_MS)
    log.close()
    arguments = ["--records", "--format", "json", str(path)]
    output = CliRunner().invoke(dump_command, arguments, catch_exceptions=False).output
    return [each["decoded"] for each in map(json.loads, output.splitlines()) if each["kind"] == "record"]


def test_the_command_decodes_both_topics(tmp_path: Path) -> None:
    key, value = transaction_entry(OPEN)
    (told,) = decoded(tmp_path, TRANSACTIONS_TOPIC, encode_batch([value], keys=[key], timestamps=WALL_MS))
    assert told.startswith("transactional id 'mover': Ongoing, producer 7")
    (told,) = decoded(tmp_path, METADATA_TOPIC, encode_change([ControllerStarted(4)], 0, 1, WALL_MS))
    assert told == "ControllerStarted: controller_epoch 4"
