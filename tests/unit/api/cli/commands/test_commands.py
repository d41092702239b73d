"""Commands on a cluster in memory: what they print, what they ask for, and what they end with."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from raylog.actors.cluster.descriptions import CoordinatorDescription
from raylog.api.admin.rules.group_descriptions import MemberDescription
from raylog.api.admin.rules.transaction_descriptions import HangingTransaction, HangingTransactions
from raylog.api.cli.program import program
from raylog.api.cli.terminal.exit_codes import CLOSED_PIPE, FAILED, INTERRUPTED, USAGE
from raylog.api.connection.records import TopicPartition
from raylog.errors import AdminTimedOut, NotLeader, RayUnreachable
from tests.unit.api.cli.fake_cluster import FakeCluster, FakeConsumer, FakeSession, run, run_json


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.fill("clicks", 2, 10)
    return made


def test_topics_are_created_listed_described_and_deleted() -> None:
    cluster = FakeCluster()
    made = run(cluster, "topic", "create", "clicks", "-p", "3", "-r", "2", "-c", "retention.ms=5")
    assert made.stdout.splitlines() == ["TOPIC   PARTITIONS  REPLICAS  STATUS", "clicks           3         2  created"]
    assert run_json(cluster, "topic", "list") == [
        {"topic": "clicks", "partitions": 3, "replication_factor": 2, "replicas": 2, "under_replicated": 0,
         "internal": False}
    ]
    (found,) = run_json(cluster, "topic", "describe", "clicks")
    assert found["config"] == {"retention.ms": "5"}
    assert found["partition_list"][1]["replicas"] == [1, 2]
    assert found["partition_list"][1]["size_bytes"] == 2048
    assert "retention.ms  5" in run(cluster, "topic", "describe", "clicks").stdout
    assert run(cluster, "topic", "delete", "clicks").stdout == "clicks is deleted.\n"
    assert run_json(cluster, "topic", "list") == []


def test_a_topic_that_is_there_fails_unless_it_may_be(cluster: FakeCluster) -> None:
    assert run(cluster, "topic", "create", "clicks").exit_code == FAILED
    assert "was there" in run(cluster, "topic", "create", "clicks", "--if-not-exists").stdout


def test_topics_are_changed(cluster: FakeCluster) -> None:
    assert run(cluster, "topic", "alter", "clicks", "-c", "a=b", "-d", "c", "-r", "2").exit_code == 0
    assert run(cluster, "topic", "add-partitions", "clicks", "-n", "2").stdout == "clicks has 4 partitions.\n"
    assert cluster.calls == [
        ("alter", {"a": "b", "c": None}),
        ("replicas", ("clicks", 2)),
        ("partitions", ("clicks", 4)),
    ]


@pytest.mark.parametrize("option", [["--replicas", "2"], ["--replicas=2"]])
def test_an_option_under_its_former_name_works_and_says_what_it_is_now(cluster: FakeCluster, option: list[str]) -> None:
    made = run(cluster, "topic", "create", "views", *option, "--format", "json")
    assert made.stderr == (
        "raylog: --replicas is --replication-factor now. The former name goes with the next release.\n"
    )
    assert json.loads(made.stdout)[0]["replication_factor"] == 2
    assert run(cluster, "topic", "alter", "clicks", *option).exit_code == 0
    assert cluster.calls == [("replicas", ("clicks", 2))]
    assert run(cluster, "topic", "create", "other", "--replication-factor", "2").stderr == ""
    assert "--replicas" not in run(cluster, "topic", "create", "--help").stdout


def test_records_are_trimmed_by_offset_end_and_time(cluster: FakeCluster) -> None:
    assert [each["log_start_offset"] for each in run_json(cluster, "topic", "trim", "clicks", "-o", "end")] == [5, 5]
    assert run_json(cluster, "topic", "trim", "clicks", "-o", "3", "-p", "1") == [
        {"topic": "clicks", "partition": 1, "log_start_offset": 3}
    ]
    assert [
        each["log_start_offset"]
        for each in run_json(cluster, "topic", "trim", "clicks", "-o", "@1970-01-01T00:00:01.004")
    ] == [2, 2]


def test_what_arrives_while_a_time_is_looked_up_or_the_question_is_read_is_not_trimmed(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up = FakeConsumer.offsets_for_times

    def arrives(*_: object) -> None:
        cluster.append("clicks", b"newer", None, [], 0, 99_000)

    def looked_up(self: FakeConsumer, times: Mapping[TopicPartition, int]) -> object:
        found = look_up(self, times)
        arrives()
        return found

    monkeypatch.setattr(FakeConsumer, "offsets_for_times", looked_up)
    monkeypatch.setattr("raylog.api.cli.commands.topics._confirm", arrives)
    trimmed = run_json(cluster, "topic", "trim", "clicks", "-o", "@1970-01-01T00:00:50Z")
    assert [each["log_start_offset"] for each in trimmed] == [5, 5]


def test_lines_become_records_and_records_lines(cluster: FakeCluster) -> None:
    run(cluster, "topic", "create", "words")
    made = run(cluster, "produce", "words", "-K", ":", "-H", "from=test", stdin=b"a:1\nb:2\nc:")
    assert made.stderr == "3 records written to words.\n"
    assert made.stdout == ""
    shown = run(cluster, "consume", "words", "-e", "-f", "%t %p %o %k=%v %h")
    assert shown.stdout == "words 0 0 a=1 from=test\nwords 0 1 b=2 from=test\nwords 0 2 c= from=test\n"
    first = json.loads(run(cluster, "consume", "words", "-n", "1", "-f", "json").stdout)
    assert first["headers"] == [{"key": "from", "value": "test"}]


def test_files_are_read_line_by_line_or_whole(cluster: FakeCluster, tmp_path: Path) -> None:
    run(cluster, "topic", "create", "files")
    (tmp_path / "one").write_bytes(b"1\n2\n")
    (tmp_path / "two").write_bytes(b"3")
    files = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert run(cluster, "produce", "files", *files, "-v", "-q").stdout == "files\t0\t0\nfiles\t0\t1\nfiles\t0\t2\n"
    run(cluster, "produce", "files", "--whole", "-k", "name", *files)
    assert [each.value for each in cluster.logs[TopicPartition("files", 0)]] == [b"1", b"2", b"3", b"1\n2\n", b"3"]
    run(cluster, "produce", "files", "-Z", stdin=b"\n")
    assert cluster.logs[TopicPartition("files", 0)][-1].value is None


def test_a_line_that_is_not_as_the_pattern_says_is_named(cluster: FakeCluster) -> None:
    result = run(cluster, "produce", "clicks", "-f", "%k:%v", stdin=b"a:1\nnothing\n")
    assert result.exit_code == FAILED
    assert result.stderr == "raylog: stdin, record 2: it has no b':' behind %k.\n"


@pytest.mark.parametrize("options", [[], ["-v"]])
def test_many_records_go_as_columns_and_arrive_as_single_ones_do(cluster: FakeCluster, options: list[str]) -> None:
    session = FakeSession(cluster)
    lines = b"".join(b"%d\tk%d\t%d\tv%d\n" % (number % 2, number, 100 + number, number) for number in range(300))
    arguments = ["produce", "clicks", "-f", "%p\\t%k\\t%T\\t%v", "-H", "from=test", "-Z", *options]
    made = run(cluster, *arguments, stdin=lines, session=session)
    assert made.stderr == "300 records written to clicks.\n"
    for partition in range(2):
        found = cluster.logs[TopicPartition("clicks", partition)][5:]
        assert [(each.key, each.value, each.timestamp, each.headers) for each in found] == [
            (b"k%d" % number, b"v%d" % number, 100 + number, [("from", b"test")])
            for number in range(partition, 300, 2)
        ]
    assert session.producers[0].columns_sent == ([] if options else [150, 150])


def test_many_lines_may_have_one_key_or_be_tombstones(cluster: FakeCluster) -> None:
    cluster.fill("words", 1, 0)
    run(cluster, "produce", "words", "-k", "all", "-Z", stdin=b"a\n\n" * 100)
    found = cluster.logs[TopicPartition("words", 0)]
    assert [(each.key, each.value) for each in found] == [(b"all", b"a"), (b"all", None)] * 100


def test_options_of_the_producer_arrive(cluster: FakeCluster) -> None:
    session = FakeSession(cluster)
    run(cluster, "produce", "clicks", "--acks", "1", "-z", "lz4", session=session)
    assert session.producers[0].options == {"acks": 1, "compression_type": "lz4"}


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (["-e"], "0 2 4 6 8 1 3 5 7 9"),
        (["-n", "3"], "0 2 4"),
        (["-o", "-1", "-e"], "8 9"),
        (["-o", "+1:3"], "2 4 3 5"),
        (["-o", "4:", "-p", "1"], "9"),
        (["-o", "@1970-01-01T00:00:01.007Z:end"], "8 7 9"),
    ],
)
def test_what_is_asked_for_is_read(cluster: FakeCluster, options: list[str], values: str) -> None:
    result = run(cluster, "consume", "clicks", *options)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.split() == values.split()


def test_a_group_commits_what_was_printed(cluster: FakeCluster) -> None:
    assert run(cluster, "consume", "clicks", "-g", "billing", "-n", "3").stdout.split() == ["0", "2", "4"]
    assert cluster.committed["billing"] == {TopicPartition("clicks", 0): 3}
    interrupted = run(cluster, "consume", "clicks", "-g", "billing")
    assert interrupted.exit_code == INTERRUPTED
    assert interrupted.stderr == "raylog: interrupted\n"
    assert cluster.committed["billing"] == {TopicPartition("clicks", 0): 5, TopicPartition("clicks", 1): 5}
    assert run(cluster, "consume", "clicks", "-g", "billing", "-e").stdout == ""


def test_a_member_without_partitions_ends_where_it_would_end_at_the_end(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls: list[int] = []

    def poll(self: FakeConsumer, _timeout: float, _most: int) -> dict[TopicPartition, list[object]]:
        polls.append(len(polls))
        if len(polls) == 1:
            del cluster.committed["billing"]  # as long as nobody has joined there is no such group
        elif len(polls) == 2:
            cluster.join("billing", self.options["client_id"])
            cluster.states["billing"] = "Assigning"
        elif len(polls) == 3:
            cluster.states["billing"] = "Stable"
        else:
            raise KeyboardInterrupt
        return {}

    clock = itertools.count(step=10)
    stepping = SimpleNamespace(monotonic=lambda: next(clock), time=time.time)
    monkeypatch.setattr("raylog.api.cli.commands.consume.time", stepping)
    monkeypatch.setattr(FakeConsumer, "poll", poll)
    monkeypatch.setattr(FakeConsumer, "assignment", lambda _self: set())
    ended = run(cluster, "consume", "clicks", "-g", "billing", "-e")
    assert (ended.exit_code, ended.stdout) == (0, "")
    assert ended.stderr == "raylog: other members of billing have all partitions.\n"
    assert len(polls) == 3  # not before it is a member, and not while shares are still worked out


def test_groups_are_shown_moved_and_deleted(cluster: FakeCluster) -> None:
    cluster.committed["billing"] = {TopicPartition("clicks", 0): 3}
    assert run_json(cluster, "group", "list") == [{"group": "billing", "state": "Empty", "members": 0}]
    (found,) = run_json(cluster, "group", "describe", "billing")
    assert run_json(cluster, "group", "describe", "billing", "--lag") == [{"group": "billing", "lag": found["lag"]}]
    assert found["lag"] == 2
    assert "clicks          0          3    5    2" in run(cluster, "group", "describe", "billing").stdout
    moved = run_json(cluster, "group", "seek", "billing", "--to", "-2", "--dry-run")
    assert moved["partitions"] == [{"topic": "clicks", "partition": 0, "before": 3, "after": 0}]
    run(cluster, "group", "seek", "billing", "--to", "end", "-t", "clicks")
    first, second = (dict(call) for name, call in cluster.calls if name == "reset")
    assert (first["shift"], first["dry_run"]) == (-2, True)
    assert (second["to"], second["topics"], second["dry_run"]) == ("latest", ("clicks",), False)
    none: frozenset[TopicPartition] = frozenset()
    cluster.members["billing"] = {"one": MemberDescription("1", "", "c", "h", 1, none, none, none, 0)}
    told = run(cluster, "group", "seek", "billing", "--to", "start", "--dry-run").stderr
    assert told == "raylog: billing has 1 members. Stop them before you move its offsets.\n"
    assert run(cluster, "group", "delete", "billing").exit_code == 0
    assert cluster.committed == {}


def test_brokers_are_shown_drained_and_evened_out() -> None:
    cluster = FakeCluster(brokers=2)
    cluster.fill("clicks", 4, 0)
    cluster.brokers = 3
    assert [each["replicas"] for each in run_json(cluster, "cluster", "describe")["broker_list"]] == [4, 4, 0]
    planned = run_json(cluster, "cluster", "rebalance", "--dry-run")["moves"]
    assert len([each for each in planned if 2 in each["after"]]) == 2
    assert run(cluster, "cluster", "rebalance").exit_code == 0
    assert ("elect", "preferred") in cluster.calls
    assert run(cluster, "cluster", "rebalance", "--throttle", "-1").exit_code == 0  # though nothing is left to be moved
    assert ("throttle", -1) in cluster.calls
    assert run(cluster, "cluster", "drain", "1", "--force").stdout == "Broker 1 holds nothing any more.\n"


def test_transactions_are_shown_and_ended(cluster: FakeCluster) -> None:
    assert run_json(cluster, "txn", "list")[0]["state"] == "Ongoing"
    assert run_json(cluster, "txn", "list", "--hanging")[0]["first_offset"] == 40
    assert "began       2023-11-14T22:13:20Z" in run(cluster, "txn", "describe", "transfers").stdout
    assert run(cluster, "txn", "abort", "transfers").stdout == "transfers is aborted.\n"
    hanging = run(cluster, "txn", "abort", "--hanging")
    assert hanging.stdout == "The transaction of producer 9 in clicks-1 is aborted.\n"
    assert [name for name, _ in cluster.calls] == ["abort", "abort"]
    cluster.hanging = HangingTransactions()
    assert run(cluster, "txn", "abort", "--hanging").stdout == "No transaction hangs.\n"


def test_what_hangs_is_shown_and_ended_though_a_partition_could_not_be_asked(cluster: FakeCluster) -> None:
    offsets, leaderless = TopicPartition("__consumer_offsets", 3), TopicPartition("clicks", 1)
    staged = HangingTransaction(offsets, 9, 2, -1, 1_700_000_000_000, -1, ("billing",))
    cluster.hanging = HangingTransactions([staged], {leaderless: NotLeader("clicks", 1, -1, -1)})
    shown = run(cluster, "txn", "list", "--hanging")
    assert shown.exit_code == 1
    assert shown.stdout.split()[-7:] == ["__consumer_offsets", "3", "9", "2", "-", "2023-11-14T22:13:20Z", "billing"]
    assert shown.stderr.startswith("clicks-1 could not be asked: ")
    ended = run(cluster, "txn", "abort", "--hanging")
    assert (ended.exit_code, ended.stdout) == (1, "What producer 9 has staged for billing is aborted.\n")
    cluster.hanging = HangingTransactions((), cluster.hanging.unasked)
    assert (run(cluster, "txn", "abort", "--hanging").exit_code, ended.stderr) == (1, shown.stderr)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("topic alter clicks -c a=b", [{"topic": "clicks", "altered": True, "reassigning": False}]),
        ("topic alter clicks -r 2", [{"topic": "clicks", "altered": True, "reassigning": True}]),
        ("topic add-partitions clicks -n 2", [{"topic": "clicks", "partitions": 4}]),
        ("topic delete clicks", [{"topic": "clicks", "deleted": True}]),
        ("group delete billing", [{"group": "billing", "deleted": True}]),
        ("cluster drain 1", {"broker": 1, "draining": True, "replicas": 0}),
        ("cluster drain 1 --undo", {"broker": 1, "draining": False, "replicas": 2}),
        ("cluster remove 1", {"broker": 1, "removed": True}),
        ("cluster cancel", {"cancelled": 0}),
        ("cluster rotate-secrets --grace 60", {"rotated": True, "grace_seconds": 60.0}),
        ("stop --ray", {"cluster": "default", "stopped": True, "stopped_ray": True}),
        ("txn abort transfers", [{"transactional_id": "transfers", "aborted": True}]),
    ],
)
def test_what_has_been_changed_is_told_to_programs(cluster: FakeCluster, arguments: str, told: object) -> None:
    cluster.committed["billing"] = {}
    assert run_json(cluster, *arguments.split()) == told
    (hanging,) = run_json(cluster, "txn", "abort", "--hanging")
    assert (hanging["producer_id"], hanging["aborted"]) == (9, True)


def test_where_one_of_several_fails_programs_hear_of_those_before_it(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.fill("views", 1, 0)
    delete = cluster.delete_topic

    def fails_at_views(name: str, *, timeout: float) -> None:
        if name == "views":
            raise AdminTimedOut("delete_topic", 5)
        delete(name, timeout=timeout)

    monkeypatch.setattr(cluster, "delete_topic", fails_at_views)
    result = run(cluster, "topic", "delete", "clicks", "views", "--format", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (FAILED, [{"topic": "clicks", "deleted": True}])
    result = run(cluster, "topic", "delete", "views", "--format", "json")
    assert (result.exit_code, result.stdout) == (FAILED, "")


def test_top_prints_one_frame(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster.committed["billing"] = {TopicPartition("clicks", 0): 3}
    clock = iter([10.0, 12.0])

    def wait(_seconds: float) -> None:
        for _ in range(50):
            cluster.append("clicks", b"", None, [], 0, 0)
        cluster.committed["billing"][TopicPartition("clicks", 0)] = 13

    monkeypatch.setattr("raylog.api.cli.commands.top.time", SimpleNamespace(sleep=wait, monotonic=lambda: next(clock)))
    result = run(cluster, "top", "--once", "--svg", str(tmp_path / "top.svg"))
    assert result.exit_code == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert "brokers 3/3" in result.stdout
    assert ["clicks", "2", "25", "5", "60", "12.0", "KiB", "6/6", "0"] in lines
    assert ["billing", "Empty", "0", "5", "42"] in lines
    assert "<svg" in (tmp_path / "top.svg").read_text()


def test_top_goes_on_through_a_failure_until_it_is_interrupted(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([None, AdminTimedOut("list_topics", 5), None])

    def wait(_seconds: float) -> None:
        try:
            cluster.failure = next(looks)
        except StopIteration:
            raise KeyboardInterrupt from None

    clock = iter(range(10))
    monkeypatch.setattr("raylog.api.cli.commands.top.time", SimpleNamespace(sleep=wait, monotonic=lambda: next(clock)))
    result = run(cluster, "top")
    assert result.exit_code == INTERRUPTED
    missed, last = result.stderr.splitlines()
    assert missed.startswith("raylog: ")
    assert "list_topics" in missed
    assert last == "raylog: interrupted"
    assert result.stdout.count("\nTOPIC ") == 2
    assert next(clock) == 3  # the first look, and the two that went well


def test_top_ends_when_its_reader_has_left(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    read, write = os.pipe()
    os.close(read)
    restless = SimpleNamespace(sleep=lambda _seconds: None, monotonic=iter(range(9)).__next__)
    monkeypatch.setattr("raylog.api.cli.commands.top.time", restless)
    with open(write, "w") as nobody, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", nobody)
        with pytest.raises(SystemExit) as ended:
            program.main(["top"], "raylog", obj=FakeSession(cluster))
    assert (ended.value.code, capfd.readouterr().err) == (CLOSED_PIPE, "")


def test_start_stop_and_status(cluster: FakeCluster) -> None:
    session = FakeSession(cluster)
    cluster.kafka = "10.0.0.1:9092"
    how = ("--kafka", "0.0.0.0:9092", "--kafka-advertised", "10.0.0.1:9092")
    started = run(cluster, "start", "/data", "-b", "3", "--form", "--ray-port", "7000", *how, session=session)
    assert "Kafka clients are served at 10.0.0.1:9092." in started.stdout
    assert "brokers 0,1,2 on a Ray of its own at 10.0.0.1:6379" in started.stdout
    run(cluster, "stop", "--ray", session=session)
    assert session.started == [
        ("ray", "/data", 3, False, 7000, None, False, 60.0),
        ("cluster", "/data", 3, True, 60.0, "0.0.0.0:9092", "10.0.0.1:9092", False),
        ("stop", False),
        ("stop ray",),
    ]
    assert run_json(cluster, "status")["healthy"] is True
    assert run_json(cluster, "status")["kafka"] == ["10.0.0.1:9092"]
    assert re.search("Kafka clients +10.0.0.1:9092\n", run(cluster, "status").stdout)
    assert run_json(cluster, "status")["control_store"] == "memory"
    assert "in memory: losing Ray's head is a cold start" in run(cluster, "status").stdout
    assert run(cluster, "status", "--healthy").exit_code == 0


def test_dead_coordinators_are_no_good_health(cluster: FakeCluster) -> None:
    why = "another process listens at its socket"
    cluster.coordinators = (CoordinatorDescription("__consumer_offsets", 0, 0, 18, False, 18, why),)
    assert "0 of 1 serve" in run(cluster, "status").stdout
    ill = run(cluster, "status", "--healthy")
    assert ill.exit_code == 1
    assert "coordinator of __consumer_offsets-0 does not serve (epoch 18, attempt 19)" in ill.stderr
    assert why in ill.stderr
    assert run_json(cluster, "status")["healthy"] is False


# --- what goes wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("topc list", "There is no command 'topc'. Did you mean 'topic'?"),
        ("topic creat", "topic: There is no command 'creat'. Did you mean 'create'?"),
        ("topic create", "topic create: Missing argument"),
        ("topic create a -p 0", "Invalid value for '-p'"),
        ("start /data --kafka 9092", "Setting 'kafka' cannot be '9092': expected HOST:PORT"),
        ("start /data --kafka-advertised a:1", "Setting 'kafka_advertised' cannot be 'a:1'"),
        ("topic create a -c x", "-c is KEY=VALUE, and not 'x'."),
        ("topic alter clicks", "Say what to change"),
        ("topic add-partitions clicks", "Say either -n or --total."),
        ("topic trim clicks -o soon", "-o is an offset, end or @TIME"),
        ("produce clicks -f %k%v", "nothing stands between %k and %v"),
        ("produce clicks -H x", "-H is NAME=VALUE"),
        ("produce clicks /nothing/there", "does not exist"),
        ("consume clicks -o soon", "'soon' is no place"),
        ("consume clicks -o 5:3", "-o: '5:3' ends before it begins."),
        ("consume clicks -f %y", "%y is nothing in the pattern"),
        ("consume clicks -p 1-", "Partitions are given as 0,2,5-7"),
        ("consume clicks -g g -p 1", "-p does not go with -g"),
        ("consume clicks -g g -o 3:4", "With -g, -o is start or end"),
        ("group seek g --to soon", "--to: 'soon' is no place"),
        ("status --wait 3", "--wait goes with --healthy"),
        ("completion tcsh", "Invalid value"),
        ("txn abort", "Say either ids or --hanging."),
        ("top --svg x", "--svg goes with --once."),
        ("bench -s 4", "A record has 8 bytes at least"),
        ("bench -p x", "-p is a number, or several"),
        ("bench -a 2", "-a is 0, 1 or all"),
    ],
)
def test_wrong_usage_is_one_line_and_ends_with_2(cluster: FakeCluster, arguments: str, message: str) -> None:
    result = run(cluster, *arguments.split())
    assert result.exit_code == USAGE
    assert message in result.stderr
    assert result.stderr.startswith("raylog: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize("arguments", [[], ["topic"], ["log"]])
def test_without_a_command_it_tells_which_there_are(cluster: FakeCluster, arguments: list[str]) -> None:
    result = run(cluster, *arguments)
    assert (result.exit_code, result.stdout) == (USAGE, "")
    assert result.stderr == run(cluster, *arguments, "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("topic describe clikcs", "raylog: There is no topic 'clikcs'. Did you mean 'clicks'?\n"),
        ("topic delete other", "raylog: There is no topic 'other'. `raylog topic list` shows what there is.\n"),
        ("consume clikcs", "raylog: There is no topic 'clikcs'. Did you mean 'clicks'?\n"),
        ("consume clikcs -g billing", "raylog: There is no topic 'clikcs'. Did you mean 'clicks'?\n"),
        ("produce clikcs", "raylog: There is no topic 'clikcs'. Did you mean 'clicks'?\n"),
        ("consume clicks -p 7", "raylog: Topic 'clicks' has no partition 7"),
        ("group describe bilings", "raylog: There is no group 'bilings'. Did you mean 'billing'?\n"),
        ("group seek nobody --to start", "raylog: The group 'nobody' has committed nothing. -t names the topics"),
        ("status --cluster othr", "raylog: No raylog cluster 'othr' is running; --cluster may name: 'default'.\n"),
    ],
)
def test_names_that_are_not_there(cluster: FakeCluster, arguments: str, message: str) -> None:
    cluster.committed["billing"] = {}
    result = run(cluster, *arguments.split())
    assert result.exit_code == FAILED
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


def test_what_fails_is_told_in_one_line(cluster: FakeCluster) -> None:
    cluster.failure = RayUnreachable("this machine", "none is running.")
    told = run(cluster, "topic", "list")
    assert (told.exit_code, told.stderr.count("\n")) == (FAILED, 1)
    assert "No Ray is running on this machine" in told.stderr
    cluster.failure = AdminTimedOut("list_topics", 5)
    assert run(cluster, "topic", "list").exit_code == FAILED


def test_an_error_that_nobody_expected_is_no_traceback(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr(cluster, "list_groups", fail)
    result = run(cluster, "group", "list")
    assert result.exit_code == FAILED
    assert result.stderr == "raylog: unexpected ZeroDivisionError: by zero. RAYLOG_TRACEBACK=1 shows where.\n"


@pytest.mark.parametrize("arguments", [["--help"], ["topic", "--help"], ["consume", "--help"], ["start", "-h"]])
def test_help_fits_into_80_columns(cluster: FakeCluster, arguments: list[str]) -> None:
    result = run(cluster, *arguments)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80


# --- the process --------------------------------------------------------------------------------------------------

_MODULES = "from raylog.api.cli.program import run; import sys; code = run({arguments!r}); {then}"


def test_help_and_wrong_usage_import_neither_ray_nor_asyncio_nor_rich() -> None:
    for arguments in (["--help"], ["topic", "create"], ["consume", "x", "-o", "soon"]):
        then = "print([n for n in ('ray', 'asyncio', 'rich', 'msgpack') if n in sys.modules], file=sys.stderr)"
        program = _MODULES.format(arguments=arguments, then=then)
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert ran.stderr.splitlines()[-1] == "[]"


def test_a_reader_that_has_left_is_no_failure() -> None:
    read, write = os.pipe()
    os.close(read)
    program = _MODULES.format(arguments=["--help"], then="sys.exit(code)")
    ran = subprocess.run([sys.executable, "-c", program], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (CLOSED_PIPE, b"")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(cluster: FakeCluster, shell: str) -> None:
    assert "_RAYLOG_COMPLETE" in run(cluster, "completion", shell).stdout


def test_words_are_completed() -> None:
    words = {"_RAYLOG_COMPLETE": "bash_complete", "COMP_WORDS": "raylog topic de", "COMP_CWORD": "2"}
    program = _MODULES.format(arguments=[], then="sys.exit(code)")
    ran = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **words}, capture_output=True, text=True, check=False
    )
    assert ran.stdout.split() == ["plain,describe", "plain,delete"]


def test_a_failure_while_other_names_are_looked_for_hides_nothing(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cluster, "list_topics", fail)
    result = run(cluster, "topic", "describe", "other")
    assert (result.exit_code, result.stderr) == (FAILED, "raylog: There is no topic 'other'.\n")
