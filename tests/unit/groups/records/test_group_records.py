"""Records: their bytes, the state as a fold in any order that compaction leaves, and what a dump tells of them."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.protocol.coordinator_records import CLAIM_KEY, stored
from raylog.actors.protocol.messages import Done
from raylog.errors import FrameInvalid, MessageUnknown
from raylog.groups.dump.command import dump_command
from raylog.groups.dump.record_text import describe_group_record
from raylog.groups.records.classic_messages import ClassicKey, ClassicValue
from raylog.groups.records.messages import Profile
from raylog.groups.records.records import (
    OFFSETS_TOPIC,
    Claim,
    ClaimKey,
    CurrentKey,
    CurrentValue,
    EncodedRecord,
    GroupKey,
    GroupValue,
    MemberKey,
    MemberValue,
    OffsetKey,
    OffsetValue,
    Record,
    StagedKey,
    StagedValue,
    TargetKey,
    TargetValue,
    TransactionEnd,
    TransactionKey,
    decode,
    encode,
)
from raylog.groups.rules.group import Group, GroupsState
from raylog.storage.directory.partition_directory import PartitionIdentity
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.log.partition_log import PartitionLog
from tests.unit.groups.small_group import WALL_MS, Client, Machine, settle, topic_id

_PROFILE = Profile("one", "", "reader", "here", 10_000, 300_000, "", ("clicks",), "logs-.*")
_EXAMPLES: list[tuple[Record, str]] = [
    ((ClaimKey(), Claim(7)), "coordinator: epoch 7"),
    (
        (GroupKey("g"), GroupValue(4, 3, "range", 12, ((topic_id("t"), 6),), -1, "m joined")),
        "group g: epoch 4 because m joined; targets of epoch 3 by range of topics 00000000 (6) at metadata version 12; "
        "with members",
    ),
    (
        (GroupKey("g"), GroupValue(1, 0, "", -1, (), 99, "")),
        "group g: epoch 1 because nothing; targets of epoch 0; empty since 99",
    ),
    ((GroupKey("g"), None), "group g: no more"),
    (
        (
            ClassicKey("g"),
            ClassicValue(3, "consumer", "range", "m", (("m", "", "rdkafka", "", 10_000, 300_000, b"t", b"t0"),), -1),
        ),
        "classic group g: generation 3 by range; with members; assigned: m (2 bytes)",
    ),
    (
        (ClassicKey("g"), ClassicValue(4, "consumer", "", "", (), 99)),
        "classic group g: generation 4 by nothing; empty since 99; assigned: nothing",
    ),
    (
        (MemberKey("g", "m"), MemberValue(_PROFILE.fields(), 5)),
        "group g, member m: (one, reader, here) wants clicks /logs-.*/ by any assignor; session 10000 ms, "
        "rebalance 300000 ms",
    ),
    (
        (TargetKey("g", "m"), TargetValue(((b"\0" * 12 + b"abcd", (0, 2)),))),
        "group g, target of m: 61626364-0, 61626364-2",
    ),
    (
        (CurrentKey("g", "m"), CurrentValue(4, 3, ((b"abcd", 0, 2),), ((b"abcd", 1, 1),))),
        "group g, assignment of m: epoch 4 (before 3), owns 61626364-0 since 2; gives up 61626364-1 since 1",
    ),
    ((CurrentKey("g", "m"), CurrentValue(4, 0, (), ())), "group g, assignment of m: epoch 4 (before 0), owns nothing"),
    (
        (OffsetKey("g", b"abcd", 3), OffsetValue("clicks", 42, 1, "half", 77)),
        "group g, offset of 61626364-3: 42 of topic clicks, leader epoch 1, text 'half', at 77",
    ),
    (
        (StagedKey("g", 9, b"abcd", 3), StagedValue(2, "clicks", 42, -1, "", 77)),
        "group g, offset of 61626364-3 staged by producer 9: 42 of topic clicks, producer epoch 2",
    ),
    (
        (TransactionKey(9), TransactionEnd(2, 5, 77)),
        "transactions of producer 9: epoch 2 has ended, by coordinator epoch 5",
    ),
]


@pytest.mark.parametrize(("record", "text"), _EXAMPLES)
def test_records_survive_their_bytes_and_can_be_read(record: Record, text: str) -> None:
    assert decode(*encode(record)) == record
    assert describe_group_record(*encode(record)) == text


def test_a_claim_of_the_log_itself_can_be_read_too() -> None:
    assert describe_group_record(CLAIM_KEY, b"7") == "claimed under producer epoch 7"


def test_there_is_an_example_of_each_kind() -> None:
    kinds = {part[0] for record, _ in _EXAMPLES for part in encode(record) if part is not None}
    assert kinds == {*range(140, 156), 172, 173}


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (None, FrameInvalid),
        (b"", FrameInvalid),
        (b"\x8e", FrameInvalid),
        (b"\x8e\x01junk", FrameInvalid),
        (b"\xff\x01\x90", MessageUnknown),
        (b"\x8e\x02\x92\xa1g\x01", MessageUnknown),
        (b"user-1", FrameInvalid),
        (b"\x8e\x02user-1", FrameInvalid),
        (stored(Done()), FrameInvalid),
        (stored(Claim(1)), FrameInvalid),
    ],
)
def test_other_bytes_are_refused(key: bytes | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode(key, None)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"", FrameInvalid),
        (b'{"clicks": 7}', FrameInvalid),
        (stored(Claim(1)), FrameInvalid),
        (stored(GroupKey("g")), FrameInvalid),
        (b"\x8f\x02\x91\x07", MessageUnknown),
    ],
)
def test_other_values_of_a_group_are_refused(value: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode(stored(GroupKey("g")), value)


# --- the fold -----------------------------------------------------------------------------------------------------


def compacted(records: list[EncodedRecord], cleaned_until: int, keeps_tombstones: bool) -> list[EncodedRecord]:
    last = {key: place for place, (key, _) in enumerate(records[:cleaned_until])}
    kept = [records[place] for place in sorted(last.values())]
    return [each for each in kept if keeps_tombstones or each[1] is not None] + records[cleaned_until:]


def folded(records: list[EncodedRecord]) -> GroupsState:
    state = GroupsState()
    for record in records:
        state.replay(*decode(*record))
    state.finish_recovery()
    return state


def shape_of(group: Group) -> object:
    members = {
        each.member_id: (each.profile, each.epoch, each.previous_epoch, each.assigned, each.revoking, each.target)
        for each in group.members.values()
    }
    return (group.value, group.exists, members, group.by_instance, group.owners, group.offsets, group.staged)


def a_busy_history(random: Random) -> Machine:
    """Members that come, go, return under their id or instance, commit, and are removed."""
    machine = Machine(t=5)
    clients = [Client(machine, f"m{each}", "t", instance="" if each < 3 else f"i{each}") for each in range(5)]
    inside: dict[str, Client] = {}
    for step in range(40):
        client = random.choice(clients)
        action = random.randrange(4)
        if client.name not in inside or action == 0:
            if client.profile.instance_id and random.random() < 0.5:
                inside.pop(client.name, None)
                client.name = f"s{step}"
            inside[client.name] = client.join()
        elif action == 1:
            inside.pop(client.name).leave()
        elif action == 2:
            client.beat()
            client.commit(*(("t", number, step) for _, number in client.owned))
        else:
            machine.assign()
            for each in inside.values():
                each.beat()
    return machine


@given(seed=st.integers(0, 10_000), cut=st.floats(0, 1), keeps_tombstones=st.booleans())
def test_a_compacted_log_gives_the_same_state(seed: int, cut: float, keeps_tombstones: bool) -> None:
    machine = a_busy_history(Random(seed))
    left = compacted(machine.written, int(cut * len(machine.written)), keeps_tombstones)
    expected = {name: shape_of(group) for name, group in machine.shard.state.groups.items()}
    assert {name: shape_of(group) for name, group in folded(left).groups.items()} == expected
    assert {name: shape_of(group) for name, group in folded(machine.written).groups.items()} == expected


# --- the dump -----------------------------------------------------------------------------------------------------


def test_a_dump_decodes_the_topic(tmp_path: Path) -> None:
    machine = Machine(t=1)
    client = Client(machine, "m", "t").join()
    settle(machine, client)
    client.commit(("t", 0, 17), text="so far")
    keys, values = zip(*machine.written, strict=True)
    path = tmp_path / f"{OFFSETS_TOPIC}-0"
    log = PartitionLog.open(str(path), PartitionIdentity("c1", OFFSETS_TOPIC, "id1", 0), {}, now_ms=WALL_MS)
    log.begin_epoch(1)
    log.append_as_leader(encode_batch(list(values), keys=list(keys), timestamps=WALL_MS), 1, WALL_MS)
    log.close()
    arguments = ["--records", "--format", "json", str(path)]
    output = CliRunner().invoke(dump_command, arguments, catch_exceptions=False).output
    decoded = [each["decoded"] for each in map(json.loads, output.splitlines()) if each["kind"] == "record"]
    assert decoded[0].startswith("group g, member m: (test) wants t by any assignor")
    assert decoded[-1].startswith("group g, offset of 00000000-0: 17 of topic t, text 'so far', at ")
