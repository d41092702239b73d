"""The options of parallel consumers, and what a dead letter says."""

from __future__ import annotations

import dataclasses

from raylog.api.connection.client_options import ClientOptions
from raylog.api.connection.records import ConsumerRecord
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.parallel.dead_letters import HEADERS, dead_letter_headers
from raylog.api.parallel.rules.parallel_options import ParallelOptions, ParallelSettings, parse


def test_type_checkers_know_the_same_options() -> None:
    own = _names(ParallelOptions) - {"consumer"}
    assert set(ParallelSettings.__annotations__) >= own
    assert not own & _names(ConsumerOptions)


def _names(options: type[ClientOptions]) -> set[str]:
    return {field.name for field in dataclasses.fields(options)}


def test_the_consumer_gets_bytes_and_commits_nothing_by_itself() -> None:
    options, for_consumer = parse({"group_id": "g", "handler": print, "value_deserializer": int, "workers": 2})
    assert options.workers == 2
    assert options.consumer.value_deserializer is not None
    assert for_consumer == {
        "group_id": "g", "key_deserializer": None, "value_deserializer": None, "enable_auto_commit": False,
    }  # fmt: skip


def test_a_partition_waits_for_less_than_what_costs_the_membership() -> None:
    given = {"group_id": "g", "handler": print}
    assert parse(given)[0].revoke_seconds == 30.0
    assert parse(given | {"max_poll_interval_ms": 4_000})[0].revoke_seconds == 2.0
    assert parse(given | {"revoke_timeout_ms": 5})[0].revoke_seconds == 0.005


class Untold(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_a_dead_letter_says_why() -> None:
    record = ConsumerRecord("t", 3, 42, 1_000, 0, b"k", b"v", (("own", b"1"),), 0)
    headers = dead_letter_headers("g", record, ValueError("x" * 5_000), 4)
    told = dict(headers)
    assert headers[0] == ("own", b"1")
    assert set(told) == {"own", *HEADERS}
    assert (told["dead-letter.offset"], told["dead-letter.attempts"]) == (b"42", b"4")
    assert told["dead-letter.error"] == b"builtins.ValueError"
    assert told["dead-letter.reason"] == b"x" * 1_000
    assert b"no text" in (dict(dead_letter_headers("g", record, Untold(), 1))["dead-letter.reason"] or b"")
