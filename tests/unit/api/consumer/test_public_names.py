"""What programs may call on a client, and that it is documented."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from raylog.api.consumer.async_consumer import AsyncConsumer
from raylog.api.consumer.consumer import Consumer
from raylog.api.producer.async_producer import AsyncProducer
from raylog.api.producer.producer import Producer

_TRANSACTIONS = {
    "abort_transaction",
    "begin_transaction",
    "commit_transaction",
    "init_transactions",
    "send_offsets_to_transaction",
    "transaction",
}
_PRODUCER = {"flush", "metrics", "partitions_for", "send", "send_arrow", "send_many", *_TRANSACTIONS}
_CONSUMER = {
    "assign",
    "assignment",
    "beginning_offsets",
    "commit",
    "committed",
    "end_offsets",
    "group_metadata",
    "highwater",
    "metrics",
    "offsets_for_times",
    "partitions_for_topic",
    "pause",
    "paused",
    "poll",
    "poll_arrow",
    "poll_batches",
    "position",
    "resume",
    "seek",
    "seek_to_beginning",
    "seek_to_end",
    "subscribe",
    "subscription",
    "topics",
    "unsubscribe",
}
_PUBLIC: dict[type[Any], set[str]] = {
    Producer: {"close", *_PRODUCER},
    AsyncProducer: {"send_and_wait", "start", "stop", *_PRODUCER},
    Consumer: {"close", "commit_async", "committed_offsets", "wakeup", *_CONSUMER},
    AsyncConsumer: {"getmany", "getone", "start", "stop", *_CONSUMER},
}


def _public(client: type[Any]) -> set[str]:
    return {name for name in dir(client) if not name.startswith("_")}


@pytest.mark.parametrize("client", _PUBLIC)
def test_nothing_else_is_public(client: type[Any]) -> None:
    assert _public(client) == _PUBLIC[client]


@pytest.mark.parametrize(("client", "name"), [(client, name) for client in _PUBLIC for name in sorted(_public(client))])
def test_each_has_a_docstring_that_says_what_its_parameters_are(client: type[Any], name: str) -> None:
    method = getattr(client, name)
    text = inspect.getdoc(method)
    assert text
    unknown = [
        each
        for each in inspect.signature(method).parameters
        if each != "self" and not re.search(rf"\b{each}\b", text)
    ]
    assert not unknown


def test_what_waits_is_a_coroutine_function() -> None:
    assert inspect.iscoroutinefunction(AsyncProducer.partitions_for)
    assert inspect.iscoroutinefunction(AsyncConsumer.commit)
    assert not inspect.iscoroutinefunction(AsyncConsumer.seek)
