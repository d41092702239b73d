"""`help` lists every option of a client with its type, default and meaning, as the definitions have them."""

from __future__ import annotations

import inspect
import pydoc
from typing import Any

import pytest

from raylog.api.consumer.async_consumer import AsyncConsumer
from raylog.api.consumer.consumer import Consumer
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.parallel.parallel_consumer import ParallelConsumer
from raylog.api.parallel.rules.parallel_options import ParallelOptions
from raylog.api.producer.async_producer import AsyncProducer
from raylog.api.producer.producer import Producer
from raylog.api.producer.rules.producer_options import ProducerOptions


@pytest.mark.parametrize(
    ("client", "kinds"),
    [
        (Producer, [ProducerOptions]),
        (AsyncProducer, [ProducerOptions]),
        (Consumer, [ConsumerOptions]),
        (AsyncConsumer, [ConsumerOptions]),
        (ParallelConsumer, [ParallelOptions, ConsumerOptions]),
    ],
)
def test_the_signature_and_the_help_have_every_option(client: Any, kinds: list[Any]) -> None:
    parameters = inspect.signature(client).parameters
    text = pydoc.render_doc(client, renderer=pydoc._PlainTextDoc())  # type: ignore[attr-defined]
    for option in (each for kind in kinds for each in kind.describe()):
        if client is ParallelConsumer and option.name in ("consumer", "enable_auto_commit", "handler"):
            continue
        assert parameters[option.name].default == option.default
        assert f"{option.name}: " in text
        assert option.doc in text


def test_values_of_sets_and_large_sizes_are_written_out() -> None:
    assert "auto_offset_reset: Literal['earliest', 'latest', 'none'] = 'latest'" in (Consumer.__doc__ or "")
    assert "request_timeout_ms: int | str = 30000 (30s)" in (Producer.__doc__ or "")
    assert "buffer_memory: int | str = 67108864 (64MiB)" in (Producer.__doc__ or "")
    assert inspect.signature(ParallelConsumer).parameters["handler"].default is inspect.Parameter.empty
    assert next(iter(inspect.signature(Consumer).parameters)) == "topics"
