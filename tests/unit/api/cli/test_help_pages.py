"""docs/command_line.md says what `--help` says, and names every key of the JSON documents."""

from __future__ import annotations

import re
from typing import Any

import pytest

from raylog.api.cli.program import program
from raylog.api.connection.records import TopicPartition
from tests.unit.api.cli.fake_cluster import FakeCluster, FakePool, run_json
from tests.unit.api.cli.help_pages import BEGIN, PAGE, commands, help_of, reference


def test_the_reference_is_what_help_prints() -> None:
    _, sign, text = PAGE.read_text().partition(BEGIN)
    assert sign
    assert text.strip() == reference().strip(), "python -m tests.unit.api.cli.help_pages"


def test_help_fits_into_80_columns() -> None:
    for path in commands(program):
        assert max(map(len, help_of(path).splitlines())) <= 80, path


@pytest.mark.parametrize(
    "arguments",
    [
        "topic list", "topic describe clicks", "topic trim clicks -o 0", "topic create more",
        "group list", "group describe billing", "group seek billing --to start",
        "status", "cluster describe", "cluster rebalance --dry-run", "start /data",
        "txn list", "txn list --hanging", "txn describe x", "txn abort x", "stop",
        "cluster drain 0", "cluster remove 0", "cluster cancel", "topic alter clicks -r 2", "topic delete clicks",
        "topic recover clicks -p 0", "log list-aside",
        "group delete billing",
        "pool list", "pool describe billing", "pool scale billing --min 1", "pool stop billing",
    ],
)  # fmt: skip
def test_every_key_is_documented(arguments: str) -> None:
    cluster = FakeCluster()
    cluster.fill("clicks", 2, 4)
    cluster.committed["billing"] = {TopicPartition("clicks", 0): 1}
    cluster.fake_pools["billing"] = FakePool("billing")
    documented = set(re.findall(r"`(\w+)`", PAGE.read_text().partition(BEGIN)[0]))
    assert _keys(run_json(cluster, *arguments.split())) - documented == set()


@pytest.mark.parametrize(
    "path", [(), *[(name,) for name in ("topic", "group", "pool", "cluster", "log", "txn", "user", "acl")]]
)
def test_what_a_group_lists_is_not_cut(path: tuple[str, ...]) -> None:
    _, _, listed = help_of(path).partition("Commands:\n")
    assert listed
    assert [line for line in listed.splitlines() if line.endswith("...")] == []


def test_what_is_printed_can_be_had_as_json() -> None:
    for path in set(commands(program)) - {("produce",), ("top",), ("completion",)}:
        assert re.search(r"--format \[\w+\|json\]|-f, --format PATTERN +json, or", help_of(path)), path


def _keys(document: Any) -> set[str]:
    if isinstance(document, list):
        return set().union(*map(_keys, document)) if document else set()
    if isinstance(document, dict):
        inner = (_keys(value) for name, value in document.items() if name != "config")
        return set(document).union(*inner)
    return set()
