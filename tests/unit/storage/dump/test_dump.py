"""The dump shows what is there, finds what is wrong, goes on behind it, and changes nothing."""

import base64
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeAlias

import pytest
from click.testing import CliRunner, Result

from raylog.config import ConfigValue
from raylog.errors import DiskReadOnly, LogDamaged
from raylog.storage.compaction.cleaner import run_compaction
from raylog.storage.compaction.key_map import MemoryBudget
from raylog.storage.compaction.swap import commit_swap
from raylog.storage.directory.data_directory import BrokerIdentity, Claim, DataDirectory
from raylog.storage.directory.partition_directory import (
    CHECKPOINT_FILE,
    CLEAN_SHUTDOWN_FILE,
    PARTITION_FILE,
    QUARANTINE_FILE,
    LogCheckpoint,
    PartitionIdentity,
)
from raylog.storage.directory.set_aside_names import SET_ASIDE
from raylog.storage.disk.disk import DiskFile
from raylog.storage.disk.local_disk import LocalDisk
from raylog.storage.dump.command import dump_command
from raylog.storage.dump.events import BatchSeen, Event, Note, Problem, as_json
from raylog.storage.dump.files import ReadOnlyDisk
from raylog.storage.dump.formats import RECORD_FORMATS
from raylog.storage.dump.log import DumpOptions
from raylog.storage.dump.replica import Dump
from raylog.storage.dump.text import TextLines, iso_time, shown_bytes, time_span
from raylog.storage.dump.walk import FoundBatch, LogWalk, LostBytes
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.control_records import Marker, MarkerType, encode_marker
from raylog.storage.format.record_batch import HEADER_BYTES, Bytes, read_header, stamp
from raylog.storage.log.compaction import plan_compaction
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.segment.batch_scan import next_sound_batch
from raylog.storage.segment.indexes import OffsetIndex, TimeIndex
from raylog.storage.segment.leader_epochs import FILE_NAME as LEADER_EPOCHS_FILE
from raylog.storage.segment.leader_epochs import LeaderEpochs
from raylog.storage.segment.transaction_index import AbortedTransaction, TransactionIndex
from tests.unit.storage.batches import CODECS, Record, sealed, written_by_aiokafka
from tests.unit.storage.compacted_log import compact

NOW_MS = 1_763_467_200_000  # 2025-11-18T12:00:00Z
EPOCH = 3
FIRST_LOG = "00000000000000000000.log"
Objects: TypeAlias = list[dict[str, Any]]


# --- logs to look at ------------------------------------------------------------------------------------------------


class Replica(NamedTuple):
    """A log, and the directory it is in."""

    log: PartitionLog
    path: Path

    def append(self, batch: bytearray, *, control: bool = False) -> None:
        self.log.append_as_leader(batch, self.log.epochs.latest, NOW_MS, control=control)
        self.log.advance_high_watermark(self.log.log_end_offset)

    def append_values(self, *values: bytes | None, codec: int = 0, at_ms: int = 0) -> None:
        keys = [b"k%d" % len(values)] * len(values)
        self.append(encode_batch(values, keys=keys, timestamps=NOW_MS + at_ms, codec=codec))

    def closed(self) -> Path:
        self.log.close()
        return self.path

    def crashed(self) -> Path:
        """As a process that dies leaves it."""
        self.log.directory.release()
        return self.path


def open_replica(parent: Path, topic: str = "clicks", settings: Mapping[str, ConfigValue] | None = None) -> Replica:
    overrides: dict[str, ConfigValue] = {"index.interval.bytes": 300, "segment.bytes": 4000}
    overrides |= {name.replace("_", "."): value for name, value in (settings or {}).items()}
    path = parent / f"{topic}-0"
    log = PartitionLog.open(str(path), PartitionIdentity("c1", topic, "id1", 0), overrides, now_ms=NOW_MS)
    log.begin_epoch(EPOCH)
    return Replica(log, path)


def plain(parent: Path, batches: int = 12, **settings: ConfigValue) -> Replica:
    replica = open_replica(parent, settings=settings)
    for number in range(batches):
        replica.append_values(*[b"value %d" % number * 5] * (1 + number % 3), codec=number % 5, at_ms=number * 10)
    return replica


def transactional(parent: Path) -> Replica:
    replica = open_replica(parent)
    for producer_id, end in ((7, MarkerType.COMMIT), (8, MarkerType.ABORT)):
        batch = encode_batch(
            [b"a", b"b"],
            timestamps=NOW_MS,
            producer_id=producer_id,
            producer_epoch=1,
            base_sequence=0,
            transactional=True,
        )
        replica.append(batch)
        replica.append(encode_marker(Marker(end, 5), producer_id, 1, NOW_MS), control=True)
    return replica


def compacted(parent: Path) -> Replica:
    replica = open_replica(parent, "users", {"cleanup.policy": "compact", "segment.bytes": 1000})
    for number in range(40):
        batch = encode_batch([b"v%d" % number * 9], keys=[b"k%d" % (number % 4)], timestamps=NOW_MS + number)
        if number < 10:
            batch = encode_batch(
                [b"v"], keys=[b"k0"], timestamps=NOW_MS, producer_id=9, producer_epoch=0, base_sequence=number
            )
        replica.append(batch)
    assert compact(replica.log, NOW_MS, MemoryBudget(1 << 22), force=True) is not None
    return replica


def of_every_kind(parent: Path) -> Path:
    """A closed replica with every kind of file that a replica can have, but for the quarantine."""
    replica = transactional(parent)
    for number in range(60):
        replica.append_values(b"%d" % number * 9, codec=number % 5, at_ms=number)
    replica.log.update_config({**replica.log.config.overrides(), "cleanup.policy": "compact"})
    assert compact(replica.log, NOW_MS, MemoryBudget(1 << 22), force=True) is not None
    return replica.closed()


# --- running it -----------------------------------------------------------------------------------------------------


def dump(*arguments: object) -> Result:
    result = CliRunner().invoke(dump_command, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def objects(*arguments: object) -> Objects:
    return [json.loads(line) for line in dump("--format", "json", *arguments).stdout.splitlines()]


def of_kind(kind: str, *arguments: object) -> Objects:
    return [each for each in objects(*arguments) if each["kind"] == kind]


def events(*paths: Path, **options: Any) -> list[Event]:
    return list(Dump(DumpOptions(**options)).events(map(str, paths)))


def problems(path: Path) -> list[Problem]:
    return [event for event in events(path, verify=True) if isinstance(event, Problem)]


def assert_well(path: Path) -> None:
    result = dump("--verify", path)
    assert result.exit_code == 0, result.stdout
    assert result.stdout.startswith("All is well in ")
    assert len(result.stdout.splitlines()) == 1


def flip(path: Path, byte: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)


def positions(log_file: Path) -> list[int]:
    data, found, position = log_file.read_bytes(), [], 0
    while position < len(data):
        found.append(position)
        position += read_header(data, position).size
    return found


# --- what is there --------------------------------------------------------------------------------------------------


def test_a_line_a_batch(tmp_path: Path) -> None:
    path = transactional(tmp_path).closed()
    result = dump(path / FIRST_LOG)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()[1:]
    size = (path / FIRST_LOG).stat().st_size
    second, third, fourth = positions(path / FIRST_LOG)[1:]
    assert lines == [
        f"{path / FIRST_LOG}  {size} bytes, batches from offset 0 on",
        "position offsets   count   bytes epoch codec  time (UTC)              span   crc producer, flags",
        f"       0 0-1           2     {second:>3}     3 none   2025-11-18T12:00:00.000        ok  pid 7/1 seq 0-1 txn",
        f"     {second:>3} 2             1     {third - second:>3}     3 none   2025-11-18T12:00:00.000        ok "
        " pid 7/1 COMMIT coordinator-epoch 5",
        f"     {third:>3} 3-4           2     {fourth - third:>3}     3 none   2025-11-18T12:00:00.000        ok "
        " pid 8/1 seq 0-1 txn",
        f"     {fourth:>3} 5             1     {size - fourth:>3}     3 none   2025-11-18T12:00:00.000        ok "
        " pid 8/1 ABORT coordinator-epoch 5",
        "  4 batches, 6 records, 0 problems; offset 6 comes next",
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec(tmp_path: Path, codec: int) -> None:
    replica = open_replica(tmp_path)
    rows: list[tuple[bytes | None, bytes | None]] = [(b"k", b"v" * 100), (None, b""), (b"\xff", None)]
    replica.append(
        encode_batch(
            [value for _, value in rows],
            keys=[key for key, _ in rows],
            headers=[[("h", b"1"), ("n", None)], None, None],
            timestamps=[NOW_MS, NOW_MS + 1, NOW_MS + 2],
            codec=codec,
        )
    )
    found = of_kind("record", "--records", replica.closed())
    assert [(_decoded(each["key"]), _decoded(each["value"])) for each in found] == rows
    assert [each["offset"] for each in found] == [0, 1, 2]
    assert [each["timestamp"] for each in found] == [NOW_MS, NOW_MS + 1, NOW_MS + 2]
    assert [each["headers"] for each in found] == [[["h", "MQ=="], ["n", None]], [], []]


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_kafka_clients(tmp_path: Path, codec: int) -> None:
    replica = open_replica(tmp_path)
    replica.append(bytearray(written_by_aiokafka([Record(n, NOW_MS + n, b"k", b"v%d" % n) for n in range(3)], codec)))
    path = replica.closed()
    assert dump(path / FIRST_LOG).stdout.splitlines()[3].endswith("ok  magic-2")
    assert [_decoded(each["value"]) for each in of_kind("record", "--records", path)] == [b"v0", b"v1", b"v2"]
    assert_well(path)


def test_the_lines_of_records(tmp_path: Path) -> None:
    replica = open_replica(tmp_path)
    values = (b"plain", "ünï \"quoted\"\n".encode(), b"\x00\xff", None, b"long " * 30, b"\x01" * 100, b"\x1b[2J")
    for value in values:
        replica.append(encode_batch([value], timestamps=NOW_MS))
    replica.append(encode_batch([b"v"], keys=[b"k"], headers=[[("a", b"1"), ("b", None)]], timestamps=NOW_MS))
    path = replica.closed() / FIRST_LOG
    shown = [line for line in dump("--records", path).stdout.splitlines() if line.startswith("    ")]
    shown = [line.strip() for line in shown if "key" in line]
    time = "2025-11-18T12:00:00.000Z (1763467200000)"
    assert shown == [
        f'0  {time}  key null  value "plain"',
        f'1  {time}  key null  value "ünï \\"quoted\\"\\n"',
        f"2  {time}  key null  value 0x00ff",
        f"3  {time}  key null  value null",
        f'4  {time}  key null  value "{"long " * 12}"... (150 bytes)',
        f"5  {time}  key null  value 0x{'01' * 30}... (100 bytes)",
        f"6  {time}  key null  value 0x1b5b324a",
        f'7  {time}  key "k"  value "v"  headers {{"a": "1", "b": null}}',
    ]
    full = dump("--records", "--full", path).stdout
    assert f'"{"long " * 30}"\n' in full
    assert f"0x{'01' * 100}\n" in full


def test_a_compacted_log(tmp_path: Path) -> None:
    replica = compacted(tmp_path)
    path = replica.closed()
    assert_well(path)
    output = dump(path).stdout
    assert " filler\n" in output
    assert " pid 9/0 seq 9 emptied\n" in output
    assert "up to offset" in output
    assert {each["records"] for each in of_kind("batch", path) if each["filler"] or each["emptied"]} == {0}
    deleted = sorted(path.glob("*.log.deleted"))
    assert deleted
    assert all(of_kind("batch", each) for each in deleted)
    assert len(of_kind("batch", path)) == sum(len(positions(each)) for each in path.glob("*.log"))


def test_a_whole_directory(tmp_path: Path) -> None:
    path = of_every_kind(tmp_path)
    result = dump("--records", path)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[1] == f"{path}: topic clicks, partition 0"
    assert "closed cleanly" in lines[2]
    for name in os.listdir(path):
        assert sum(line.startswith(f"{path / name}  ") for line in lines) == (not name.endswith(".deleted")), name
        assert sum(f"  {name} " in line for line in lines) == 1, name
    assert "epoch 3 from offset 0 on" in result.stdout
    assert {each["name"] for each in _listed(path)} == set(os.listdir(path))
    found = {each["kind"] for each in objects("--records", path)}
    assert found >= {"offset_entry", "time_entry", "aborted_transaction", "producer", "checkpoint", "log_end", "total"}


def _listed(path: Path) -> Objects:
    return [{"name": Path(each["path"]).name} for each in of_kind("listed", path)]


def test_lines_stay_narrow(tmp_path: Path) -> None:
    text = TextLines()
    paths = (transactional(tmp_path / "a").closed(), plain(tmp_path / "b", batches=60).closed())
    lines = [line for event in events(*paths) if isinstance(event, BatchSeen) for line in text.lines(event)]
    assert len(lines) > 60
    assert max(map(len, lines)) <= 120
    assert sum(len(line) <= 80 for line in lines) >= 60


def test_a_batch_shows_what_its_header_says(tmp_path: Path) -> None:
    replica = open_replica(tmp_path, settings={"message.timestamp.type": "LogAppendTime"})
    replica.append_values(b"a", b"b", codec=3)
    path = replica.closed()
    header = read_header((path / FIRST_LOG).read_bytes())
    (batch,) = of_kind("batch", path / FIRST_LOG)
    assert batch == {
        "kind": "batch",
        "path": str(path / FIRST_LOG),
        "position": 0,
        "base_offset": 0,
        "last_offset": 1,
        "records": 2,
        "bytes": header.size,
        "leader_epoch": EPOCH,
        "magic": 16,
        "codec": "lz4",
        "log_append_time": True,
        "base_timestamp": NOW_MS,
        "max_timestamp": NOW_MS,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "last_sequence": -1,
        "transactional": False,
        "control": False,
        "marker": None,
        "coordinator_epoch": None,
        "filler": False,
        "emptied": False,
        "crc": header.crc,
        "crc_ok": True,
    }
    assert " append-time\n" in dump(path / FIRST_LOG).stdout


def test_json_has_the_same_keys_for_the_same_kind(tmp_path: Path) -> None:
    path = of_every_kind(tmp_path)
    flip(path / FIRST_LOG, 100)
    keys: dict[str, list[str]] = {}
    for each in objects("--records", path):
        assert keys.setdefault(each["kind"], list(each)) == list(each)
        assert next(iter(each)) == "kind"
    assert {"replica", "listed", "file", "batch", "record", "problem", "total"} < set(keys)


def test_a_brokers_data_directory(tmp_path: Path) -> None:
    broker = DataDirectory.open(str(tmp_path), BrokerIdentity("c1", 4), claim=Claim("d"))
    plain(tmp_path).closed()
    compacted(tmp_path).closed()
    aside = plain(tmp_path / "elsewhere").closed().rename(tmp_path / f"old-0{SET_ASIDE}17")
    flip(aside / FIRST_LOG, 70)
    broker.close()
    assert [each["topic"] for each in of_kind("replica", tmp_path)] == ["clicks", "users"]
    assert "broker_id: 4" in dump(tmp_path).stdout
    assert "broker_id: 4" in dump(tmp_path / "broker.json").stdout
    assert_well(tmp_path)
    assert problems(aside)


def test_the_lock_says_who_took_it(tmp_path: Path) -> None:
    path = plain(tmp_path).closed()
    assert f"pid {os.getpid()}" in dump(path / ".lock").stdout


# --- a part of it ---------------------------------------------------------------------------------------------------


def test_from_an_offset_on(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=60, segment_bytes=2000).closed()
    all_batches = of_kind("batch", path)
    end = all_batches[-1]["last_offset"] + 1
    for offset in range(0, end, 5):
        expected = [each for each in all_batches if each["last_offset"] >= offset]
        assert of_kind("batch", "--from-offset", offset, path) == expected
        assert of_kind("batch", "--from-offset", offset, "--max-batches", 2, path) == expected[:2]
    records = of_kind("record", "--records", "--from-offset", 20, "--max-batches", 3, path)
    assert records[0]["offset"] == 20
    assert of_kind("batch", "--from-offset", end, path) == []


def test_from_an_offset_on_without_a_sound_index(tmp_path: Path) -> None:
    path = plain(tmp_path).closed()
    expected = of_kind("batch", "--from-offset", 9, path / FIRST_LOG)
    flip(path / FIRST_LOG.replace(".log", ".index"), 30)
    assert of_kind("batch", "--from-offset", 9, path / FIRST_LOG) == expected
    index = OffsetIndex(0)
    index.add(9, 77)
    index.save(LocalDisk(), str(path / FIRST_LOG.replace(".log", ".index")), (path / FIRST_LOG).stat().st_size)
    assert of_kind("batch", "--from-offset", 9, path / FIRST_LOG) == expected


# --- internal topics ------------------------------------------------------------------------------------------------


def test_a_registered_format_decodes_its_topics_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def describe(key: bytes | None, value: bytes | None) -> str:
        assert key is not None
        if value is None:
            raise ValueError("no value\n")
        return f"group {key.decode()} at {int(value)}"

    monkeypatch.setitem(RECORD_FORMATS, "__offsets", describe)
    for topic, expected in (
        ("__offsets", ["group g at 17", "cannot be decoded (ValueError: no value\n)"]),
        ("others", [None, None]),
    ):
        replica = open_replica(tmp_path, topic=topic)
        replica.append(encode_batch([b"17", None], keys=[b"g", b"g"], timestamps=NOW_MS))
        path = replica.closed()
        assert [each["decoded"] for each in of_kind("record", "--records", path / FIRST_LOG)] == expected
    output = dump("--records", tmp_path / "__offsets-0" / FIRST_LOG).stdout
    assert "\n        group g at 17\n" in output
    assert "no value\\n)\n" in output


def test_markers_are_decoded(tmp_path: Path) -> None:
    path = transactional(tmp_path).closed()
    decoded = [each["decoded"] for each in of_kind("record", "--records", path)]
    assert [each for each in decoded if each] == ["COMMIT, coordinator epoch 5", "ABORT, coordinator epoch 5"]
    (aborted,) = of_kind("aborted_transaction", path)
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (8, 3, 5)
    assert [each["producer_id"] for each in of_kind("producer", path)] == [7, 8]


# --- all is well ----------------------------------------------------------------------------------------------------


def _after_delete_records(parent: Path) -> Replica:
    replica = plain(parent, batches=40)
    replica.log.delete_records(7)
    replica.log.checkpoint()
    return replica


def _after_several_epochs(parent: Path) -> Replica:
    replica = plain(parent)
    replica.log.begin_epoch(9)
    replica.append_values(b"x")
    replica.log.truncate_to(15, NOW_MS)
    replica.log.begin_epoch(12)
    replica.append_values(b"y")
    return replica


def _after_idle_time(parent: Path) -> Replica:
    replica = plain(parent)
    replica.log.roll()
    return replica


@pytest.mark.parametrize(
    "make",
    [open_replica, plain, transactional, compacted, _after_delete_records, _after_several_epochs, _after_idle_time],
)
def test_a_sound_log_verifies(tmp_path: Path, make: Callable[[Path], Replica]) -> None:
    replica = make(tmp_path)
    assert_well(replica.path)  # while it is open, and locked
    replica.log.checkpoint()
    assert_well(replica.path)
    replica.crashed()
    assert_well(replica.path)
    config = replica.log.config.overrides()
    log = PartitionLog.open(str(replica.path), replica.log.directory.identity, config, now_ms=NOW_MS)
    assert_well(replica.path)
    log.close()
    assert_well(replica.path)
    log = PartitionLog.open(str(replica.path), replica.log.directory.identity, config, now_ms=NOW_MS)
    log.begin_epoch(log.epochs.latest + 1)
    log.append_as_leader(encode_batch([b"v"], keys=[b"k"], timestamps=NOW_MS), log.epochs.latest, NOW_MS)
    assert_well(replica.path)  # the indexes on disk are those of the last close
    assert "left from an earlier stop" in dump(replica.path).stdout
    log.close()
    for path in replica.path.iterdir():
        if not path.name.endswith(".deleted"):
            assert_well(path)


def test_a_compaction_on_its_way_is_no_problem(tmp_path: Path) -> None:
    replica = plain(tmp_path, batches=60, cleanup_policy="compact", segment_bytes=1000)
    plan = plan_compaction(replica.log, NOW_MS, force=True)
    assert plan is not None
    report = run_compaction(replica.log.disk, plan, MemoryBudget(1 << 22))
    assert_well(replica.path)
    commit_swap(replica.log.directory, report.replaced[0][0], plan.run)
    assert_well(replica.path)
    (replica.path / FIRST_LOG).unlink()  # the next step, half done
    assert_well(replica.path)
    assert "need not be so" in dump(replica.path).stdout
    assert of_kind("batch", replica.path / f"{FIRST_LOG}.swap")
    flip(replica.path / f"{FIRST_LOG}.swap", 20)
    assert [Path(problem.path).suffix for problem in problems(replica.path)] == [".swap"]
    replica.crashed()


def test_nothing_is_changed(tmp_path: Path) -> None:
    path = of_every_kind(tmp_path)
    flip(path / FIRST_LOG, 200)
    before = {each: (each.read_bytes(), each.stat().st_mtime_ns) for each in path.iterdir()}
    for options in (["--records"], ["--verify"], ["--format", "json"]):
        dump(*options, path)
    assert {each: (each.read_bytes(), each.stat().st_mtime_ns) for each in path.iterdir()} == before


@pytest.mark.parametrize(
    "change",
    [
        lambda disk, path: disk.open(path + ".new", create=True),
        lambda disk, path: disk.write_file(path, b""),
        lambda disk, path: disk.make_directory(path + ".new"),
        lambda disk, path: disk.rename(path, path + ".new"),
        lambda disk, path: disk.remove(path),
        lambda disk, path: disk.lock_directory(path),
    ],
)
def test_its_disk_refuses_to_change_anything(tmp_path: Path, change: Callable[[ReadOnlyDisk, str], object]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with pytest.raises(DiskReadOnly):
        change(ReadOnlyDisk(), str(path))
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"content"]


# --- damage: the log file -------------------------------------------------------------------------------------------


def test_a_tail_torn_at_every_byte(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=5).crashed()
    log_file = path / FIRST_LOG
    whole, last = log_file.read_bytes(), positions(log_file)[-1]
    expected_offset = read_header(whole, last).base_offset
    for length in range(last + 1, len(whole)):
        log_file.write_bytes(whole[:length])
        found = problems(path)
        assert [(each.position, each.offset, each.lost_bytes) for each in found[:1]] == [
            (last, expected_offset, length - last)
        ]
        assert found[0].resumes_at is None
        assert "If the replica is running, look again" in found[0].remedy
    assert len(of_kind("batch", log_file)) == 4
    assert dump("--verify", path).exit_code == 1


BATCHES = 9


@pytest.mark.parametrize("byte", [*range(HEADER_BYTES), HEADER_BYTES + 10])
def test_every_bit_of_a_header_is_missed_and_the_rest_is_shown(tmp_path: Path, byte: int) -> None:
    path = plain(tmp_path, batches=BATCHES).closed()
    log_file = path / FIRST_LOG
    starts = positions(log_file)
    at = starts[4]
    others = [each for each in of_kind("batch", log_file) if each["position"] != at]
    for bit in range(8):
        flip(log_file, at + byte, bit)
        found = problems(path)
        assert [(Path(each.path).name, each.position) for each in found] == [(FIRST_LOG, at)]
        shown = of_kind("batch", log_file)
        assert [each for each in shown if each["position"] != at] == others
        for each in shown:
            if each["position"] == at:
                assert each["crc_ok"] == (byte < 17)
        flip(log_file, at + byte, bit)
    assert_well(path)


def test_two_damaged_batches_in_a_row_are_told_apart(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=BATCHES).closed() / FIRST_LOG
    starts = positions(path)
    for start in starts[3:5]:
        flip(path, start + HEADER_BYTES)
    batches = of_kind("batch", path)
    assert [each["position"] for each in batches] == starts
    assert [each["crc_ok"] for each in batches] == [index not in (3, 4) for index in range(BATCHES)]
    assert dump(path).stdout.count(" BAD") == 2


def test_a_hole_is_measured(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=BATCHES).closed() / FIRST_LOG
    starts, data = positions(path), bytearray(path.read_bytes())
    data[starts[2] : starts[5]] = bytes(starts[5] - starts[2])
    path.write_bytes(data)
    offsets = [read_header(data, start).base_offset for start in (*starts[:2], *starts[5:])]
    (problem,) = problems(path)
    assert problem.reason == "There are only zeros, as a power cut can leave them."
    assert (problem.position, problem.resumes_at) == (starts[2], starts[5])
    assert (problem.lost_bytes, problem.resumes_offset) == (starts[5] - starts[2], offsets[2])
    lines = dump(path).stdout.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("  !! "))
    assert lines[at] == f"  !! byte {starts[2]}, offset {problem.offset} expected: {problem.reason}"
    lost = f"{problem.lost_bytes} bytes, offsets {problem.offset}-{offsets[2] - 1}"
    assert lines[at + 1].startswith(f"     Lost: {lost}. Sound again at byte {starts[5]}, offset {offsets[2]}.")
    assert len(of_kind("batch", path)) == BATCHES - 3


def test_zeros_at_the_end_are_named(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=BATCHES).crashed() / FIRST_LOG
    with path.open("ab") as file:
        file.write(bytes(5000))
    (problem,) = problems(path)
    assert problem.reason == "There are only zeros, as a power cut can leave them."
    size = path.stat().st_size
    kept = path.read_bytes()[: size - 5020].rstrip(b"\0")
    path.write_bytes(kept + bytes(size - len(kept)))
    (problem,) = problems(path)
    assert problem.reason.endswith(f"; the last {size - len(kept)} bytes are zeros, as a power cut can leave them.")


def test_a_missing_batch_is_missed_once(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=BATCHES).crashed() / FIRST_LOG
    starts, data = positions(path), path.read_bytes()
    path.write_bytes(data[: starts[3]] + data[starts[4] :])
    (problem,) = problems(path)
    came, expected = (read_header(data, starts[at]).base_offset for at in (4, 3))
    assert problem.reason == f"The batch claims offset {came} where {expected} comes next."
    assert len(of_kind("batch", path)) == BATCHES - 1


def test_a_file_under_a_wrong_name(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=BATCHES).crashed() / FIRST_LOG
    renamed = path.rename(path.with_name("00000000000000000500.log"))
    assert [problem.position for problem in problems(renamed)] == [0]
    assert len(of_kind("batch", renamed)) == BATCHES


def test_garbage_of_all_kinds_is_survived(tmp_path: Path) -> None:
    path = of_every_kind(tmp_path)
    names = [each for each in path.iterdir() if each.name != ".lock" and not each.name.endswith(".deleted")]
    random = Random(1)
    for victim in names:
        whole = victim.read_bytes()
        for damaged in _damaged(whole, random):
            victim.write_bytes(damaged)
            assert dump("--verify", path).exit_code == 1, (victim, damaged)
            assert dump("--verify", victim).exit_code == 1, (victim, damaged)
            assert dump("--records", path).exit_code == 0
        victim.write_bytes(whole)
    assert_well(path)


def _damaged(whole: bytes, random: Random) -> Iterator[bytes]:
    for _ in range(4):
        data = bytearray(whole)
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        yield bytes(data)
    yield whole[: random.randrange(1, len(whole))] + random.randbytes(40)
    yield random.randbytes(len(whole))
    yield bytes(len(whole))
    yield whole + b"\0"
    yield whole + whole[:100]


@pytest.mark.parametrize("seed", range(20))
def test_however_it_is_damaged_every_byte_is_told_of_and_no_sound_batch_is_missed(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    path = plain(tmp_path, batches=25, **{"segment.bytes": 100_000}).crashed() / FIRST_LOG
    whole, starts = path.read_bytes(), positions(path)
    ends = [*starts[1:], len(whole)]
    for _ in range(10):
        data = bytearray(whole)
        for _ in range(random.randrange(1, 8)):
            at = random.randrange(len(data))
            change = random.choice((bytes(random.randrange(1, 200)), random.randbytes(random.randrange(1, 90)), None))
            if change is None:
                data[at] ^= 1 << random.randrange(8)
            else:
                data[at : at + len(change)] = change[: len(data) - at]
        path.write_bytes(data)
        file = ReadOnlyDisk().open(str(path))
        pieces = list(LogWalk(file, 0, None))
        file.close()
        assert [piece.position for piece in pieces] == [0, *(piece.end for piece in pieces)][:-1]
        assert pieces[-1].end == len(data)
        found = {piece.position for piece in pieces if isinstance(piece, FoundBatch) and piece.is_readable}
        intact = {start for start, end in zip(starts, ends, strict=True) if data[start:end] == whole[start:end]}
        assert intact <= found


def test_a_batch_that_cannot_be_unpacked(tmp_path: Path) -> None:
    replica = open_replica(tmp_path)
    replica.append(sealed(b"no lz4 at all", 1, codec=3))
    replica.append_values(b"sound")
    path = replica.closed()
    (problem,) = problems(path)
    assert problem.reason.startswith("The CRC fits, but the records cannot be decoded: lz4 payload")
    assert problem.position == 0
    assert dump(path).stdout.count("!!") == 0
    assert dump("--records", path).stdout.count("!!") == 1


def test_a_marker_that_cannot_be_read(tmp_path: Path) -> None:
    replica = open_replica(tmp_path)
    marker = encode_batch(
        [b"short"], keys=[b"k"], timestamps=NOW_MS, producer_id=1, producer_epoch=0, transactional=True, control=True
    )
    stamp(marker, 0, EPOCH)
    path = replica.closed()
    (path / FIRST_LOG).write_bytes(marker)
    assert "too short to be a transaction marker" in dump(path / FIRST_LOG).stdout
    assert dump(path / FIRST_LOG).stdout.splitlines()[3].endswith("pid 1/0 control")


# --- damage: the files beside it ------------------------------------------------------------------------------------


def index_file(path: Path, suffix: str) -> Path:
    return path / FIRST_LOG.replace(".log", suffix)


def save_indexes(path: Path, offsets: OffsetIndex | None = None, times: TimeIndex | None = None) -> None:
    size = (path / FIRST_LOG).stat().st_size
    if offsets is not None:
        offsets.save(LocalDisk(), str(index_file(path, ".index")), size)
    if times is not None:
        times.save(LocalDisk(), str(index_file(path, ".timeindex")), size)


@pytest.mark.parametrize(
    ("offset", "shift", "expected"),
    [(0, 5, "where no batch begins"), (1, 0, "where offset"), (0, 100_000, "where no batch begins")],
)
def test_an_offset_index_that_leads_astray(tmp_path: Path, offset: int, shift: int, expected: str) -> None:
    path = plain(tmp_path, batches=BATCHES).closed()
    index = OffsetIndex(0)
    batches = of_kind("batch", path / FIRST_LOG)
    for each in batches[2:5]:
        wrong = each is batches[4]
        index.add(each["base_offset"] + offset * wrong, each["position"] + shift * wrong)
    save_indexes(path, offsets=index)
    for looked_at in (path, index_file(path, ".index")):
        (problem,) = problems(looked_at)
        assert problem.path == str(index_file(path, ".index"))
        assert expected in problem.reason
        assert "made again from the log" in problem.remedy


@pytest.mark.parametrize(
    ("timestamp", "offset", "expected"),
    [(1, 0, "but its batch's largest is"), (0, 1, "where no batch begins")],
)
def test_a_time_index_that_leads_astray(tmp_path: Path, timestamp: int, offset: int, expected: str) -> None:
    path = plain(tmp_path, batches=BATCHES).closed()
    index = TimeIndex(0)
    batches = of_kind("batch", path / FIRST_LOG)
    for each in batches[2:]:
        wrong = each is batches[5]
        index.add(each["max_timestamp"] + timestamp * wrong, each["base_offset"] + offset * wrong)
    save_indexes(path, times=index)
    for looked_at in (path, index_file(path, ".timeindex")):
        (problem,) = problems(looked_at)
        assert problem.path == str(index_file(path, ".timeindex"))
        assert expected in problem.reason


def test_a_time_index_that_knows_no_newest_record(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=BATCHES).closed()
    save_indexes(path, times=TimeIndex(0))
    (problem,) = problems(path)
    assert f"the segment's largest timestamp is {NOW_MS + 10 * (BATCHES - 1)}" in problem.reason


def test_a_time_index_over_times_that_fall(tmp_path: Path) -> None:
    replica = open_replica(tmp_path)
    for at_ms in (0, 50, 20, 60):
        replica.append_values(b"x", at_ms=at_ms)
    path = replica.closed()
    index = TimeIndex(0)
    index.add(NOW_MS + 20, 2)
    index.add(NOW_MS + 60, 3)
    save_indexes(path, times=index)
    (problem,) = problems(path)
    assert "not larger than all before it" in problem.reason


@pytest.mark.parametrize("wrong", [AbortedTransaction(7, 0, 2, 3), AbortedTransaction(8, 3, 4, 6)])
def test_a_transaction_index_that_aborts_the_wrong_one(tmp_path: Path, wrong: AbortedTransaction) -> None:
    path = transactional(tmp_path).closed()
    size = (path / FIRST_LOG).stat().st_size
    TransactionIndex([wrong]).save(LocalDisk(), str(index_file(path, ".txnindex")), size)
    (problem,) = problems(path)
    assert problem.reason == f"Producer {wrong.producer_id} has no abort marker at offset {wrong.last_offset}."


def test_entries_for_damaged_batches_are_not_reported_again(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=30, index_interval_bytes=0).closed()
    starts = positions(path / FIRST_LOG)
    for at in (4, 5, 9, len(starts) - 1):
        flip(path / FIRST_LOG, starts[at] + 90)
    flip(path / FIRST_LOG, starts[15] + 8, 5)
    assert {(Path(each.path).name) for each in problems(path)} == {FIRST_LOG}


def test_missing_files(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=60, segment_bytes=1000).closed()
    segments = sorted(path.glob("*.log"))
    for missing in (index_file(path, ".index"), path / PARTITION_FILE, path / CHECKPOINT_FILE):
        content = missing.read_bytes()
        missing.unlink()
        (problem,) = problems(path)
        assert problem.path == str(missing)
        assert problem.reason.startswith("The file is missing")
        missing.write_bytes(content)
    segments[2].unlink()
    reasons = [problem.reason for problem in problems(path)]
    assert any("but the next segment begins at" in reason for reason in reasons)
    assert any("no file now" in reason for reason in reasons)
    segments[0].unlink()
    assert any("one is missing" in problem.reason for problem in problems(path))


def test_marks_that_the_log_does_not_reach(tmp_path: Path) -> None:
    replica = plain(tmp_path, batches=BATCHES)
    replica.log.checkpoint()
    marks = replica.log.marks.now()
    end = replica.log.log_end_offset
    replica.log.directory.write_checkpoint(LogCheckpoint(marks.boot_id, end + 1, end + 2, 0))
    LeaderEpochs(LocalDisk(), str(replica.path), [*replica.log.epochs.history, (end + 3, end + 3)]).save()  # type: ignore[list-item]
    replica.crashed()
    assert [problem.reason for problem in problems(replica.path)] == [
        f"The recovery point is {end + 1}, but the log ends at offset {end}.",
        f"The high watermark is {end + 2}, but the log ends at offset {end}.",
        f"Epoch {end + 3} begins at offset {end + 3}, after the end of the log at {end}.",
    ]


def test_epochs_that_do_not_rise(tmp_path: Path) -> None:
    replica = plain(tmp_path, batches=BATCHES)
    LeaderEpochs(LocalDisk(), str(replica.path), [(3, 0), (2, 4)]).save()  # type: ignore[list-item]
    replica.crashed()
    (problem,) = problems(replica.path)
    assert Path(problem.path).name == LEADER_EPOCHS_FILE


def test_a_log_that_changed_after_its_close(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=BATCHES).closed()
    starts = positions(path / FIRST_LOG)
    os.truncate(path / FIRST_LOG, starts[-1])
    found = {Path(problem.path).name for problem in problems(path)}
    assert {CLEAN_SHUTDOWN_FILE, CHECKPOINT_FILE, index_file(path, ".index").name} < found


def test_a_quarantined_replica(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=BATCHES).crashed()
    flip(path / FIRST_LOG, positions(path / FIRST_LOG)[3] + 100)
    with pytest.raises(LogDamaged):
        open_replica(tmp_path)
    assert "QUARANTINED" in dump(path).stdout
    first, second = problems(path)
    assert Path(first.path).name == QUARANTINE_FILE
    assert first.reason.startswith("The replica is quarantined: ")
    assert Path(second.path).name == FIRST_LOG


def test_a_damaged_checkpoint_is_shown_as_it_is(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=1).closed() / CHECKPOINT_FILE
    path.write_bytes(path.read_bytes().replace(b"high", b"\x1b\xff\xffh"))
    output = dump(path).stdout
    assert "!! The content does not match its checksum." in output
    assert "\\x1b\\xff\\xffh_watermark" in output


def test_a_file_of_a_newer_version(tmp_path: Path) -> None:
    from raylog.storage.disk.checkpoints import write_checkpoint

    path = plain(tmp_path, batches=1).closed()
    write_checkpoint(LocalDisk(), str(path / CLEAN_SHUTDOWN_FILE), 99, {})
    (problem,) = problems(path)
    assert "format version 99" in problem.reason


# --- a replica that is alive ----------------------------------------------------------------------------------------


class LateFile:
    """A file whose last batch is written while it is looked at."""

    def __init__(self, file: DiskFile, sizes: list[int]) -> None:
        self._file = file
        self._sizes = sizes
        self.path = file.path

    def size(self) -> int:
        return self._sizes.pop(0) if len(self._sizes) > 1 else self._sizes[0]

    def read_at(self, length: int, position: int) -> bytes:
        return self._file.read_at(max(0, min(length, self._sizes[0] - position)), position)

    def drop_cached(self, length: int, position: int) -> None:
        raise NotImplementedError

    def inode(self) -> int:
        return self._file.inode()

    def write_at(self, data: Bytes, position: int) -> None:
        raise NotImplementedError

    def links(self) -> int:
        raise NotImplementedError

    def truncate(self, length: int) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._file.close()


def test_an_append_that_is_finished_meanwhile_is_no_tear(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=4).crashed() / FIRST_LOG
    starts, size = positions(path), path.stat().st_size
    for seen in range(starts[2] + 1, starts[3]):
        file = LateFile(ReadOnlyDisk().open(str(path)), [seen, size])
        pieces = list(LogWalk(file, 0, None))
        assert all(isinstance(piece, FoundBatch) for piece in pieces)
        assert [piece.position for piece in pieces] == starts[:3]
        file.close()


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=4).crashed() / FIRST_LOG
    starts, size = positions(path), path.stat().st_size
    for left in (starts[2], starts[2] + 9, starts[3] - 1):
        file = LateFile(ReadOnlyDisk().open(str(path)), [size, left])
        pieces = list(LogWalk(file, 0, None))
        assert [piece.position for piece in pieces] == starts[:3]
        assert isinstance(pieces[-1], LostBytes)
        assert pieces[-1].end == size
        file.close()


def test_files_that_go_while_the_directory_is_read(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=60, segment_bytes=1000).closed()
    told = Dump(DumpOptions()).events([str(path)])
    found = [next(told)]
    for each in sorted(path.glob("*0.*"))[:8]:
        each.unlink()
    found += told
    assert any(isinstance(event, Note) and "gone since" in event.text for event in found)
    assert not any(isinstance(event, Problem) and "segment" in event.reason for event in found)


def test_the_next_sound_batch_is_found(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=BATCHES).crashed() / FIRST_LOG
    starts, data = positions(path), path.read_bytes()
    file = ReadOnlyDisk().open(str(path))
    offsets = [read_header(data, start).base_offset for start in starts]
    for at in range(BATCHES - 1):
        assert next_sound_batch(file, starts[at], offsets[at]) == starts[at + 1]
        assert next_sound_batch(file, starts[at], offsets[at + 1]) == [*starts, None][at + 2]
    assert next_sound_batch(file, starts[-1], offsets[-1]) is None
    file.close()


# --- the command ----------------------------------------------------------------------------------------------------


def test_what_cannot_be_read(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=2).closed()
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    empty = tmp_path / "empty"
    empty.mkdir()
    for unreadable in (tmp_path / "missing", tmp_path / "missing" / FIRST_LOG, other, empty):
        result = dump(unreadable, path)
        assert result.exit_code == 2
        assert str(unreadable) in result.stderr
        assert "2 batches" in result.stdout  # what can be read is
        assert dump("--verify", unreadable).exit_code == 2
        assert [each["path"] for each in of_kind("unreadable", unreadable)] == [str(unreadable)]


@pytest.mark.parametrize(
    "arguments",
    [[], ["--from-offset", "-1", "x"], ["--max-batches", "0", "x"], ["--verify", "--from-offset", "3", "x"], ["--no"]],
)
def test_bad_usage(arguments: list[str]) -> None:
    result = dump(*arguments)
    assert result.exit_code == 2
    assert "Usage:" in result.stderr


def test_problems_end_with_1_only_where_asked_for(tmp_path: Path) -> None:
    path = plain(tmp_path, batches=3).closed()
    flip(path / FIRST_LOG, 70)
    assert dump(path).exit_code == 0
    result = dump("--verify", path)
    assert result.exit_code == 1
    problem, total = result.stdout.splitlines()
    assert problem.startswith(f"{path / FIRST_LOG}: byte 0, offset 0 expected: Batch at offset 0 has CRC ")
    assert total.startswith("1 problem in ")
    kinds = [each["kind"] for each in objects("--verify", path)]
    assert kinds == ["problem", "total"]


@pytest.mark.parametrize("options", [[], ["--format", "json"]])
def test_a_closed_pipe_ends_it_quietly(tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = plain(tmp_path, batches=3).closed()
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as ended:
            dump_command.main([*options, str(path)])
        assert ended.value.code == 141


def test_an_interrupt_ends_it_quietly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(run: Dump, paths: object) -> Iterator[Event]:
        yield Note("x", "so far")
        raise KeyboardInterrupt

    monkeypatch.setattr(Dump, "events", interrupted)
    result = dump(tmp_path)
    assert (result.exit_code, result.stdout, result.stderr) == (130, "  so far\n", "")


# --- small things ---------------------------------------------------------------------------------------------------


def test_times_that_no_calendar_reaches() -> None:
    assert iso_time(-1) == "-"
    assert iso_time(0) == "1970-01-01T00:00:00.000"
    assert iso_time(2**62) == str(2**62)
    assert [time_span(ms) for ms in (0, 7, -7, 1500, 90_000, 7_200_000, 10**12)] == [
        "", "+7ms", "-7ms", "+1.5s", "+90.0s", "+2.0h", "+11574d",
    ]  # fmt: skip


def test_shown_bytes_never_holds_control_characters() -> None:
    for byte in range(256):
        assert shown_bytes(bytes([byte])).isprintable()
    assert shown_bytes("\u202eright to left".encode()).startswith("0x")


def test_a_problem_cannot_play_tricks_on_the_terminal() -> None:
    (line,) = TextLines(paths=True).lines(Problem("p", "bad \x1b[2J\n"))
    assert line == "p: bad \\x1b[2J\\n"
    assert json.loads(as_json(Problem("p", "bad \x1b[2J\n")))["reason"] == "bad \x1b[2J\n"
