"""Clients refuse to be sent to another process, and do not fail when Ray looks at their attributes to say why."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable

import pytest

from raylog.api.consumer.async_consumer import AsyncConsumer
from raylog.api.producer.async_producer import AsyncProducer
from tests.unit.api.producer_cluster import producer_of


def test_a_producer_is_refused_with_a_sentence_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    with producer_of(monkeypatch) as (producer, _link):
        with pytest.raises(TypeError, match=r"This Producer belongs to the process .* Make one there: Producer\("):
            pickle.dumps(producer)
        inspect.getmembers(producer)
    inspect.getmembers(producer)  # also one that is closed


@pytest.mark.parametrize("make", [AsyncProducer, AsyncConsumer])
def test_one_of_coroutines_that_was_not_started_is_refused_too(make: Callable[[], object]) -> None:
    client = make()
    with pytest.raises(TypeError, match=f"This {type(client).__name__} belongs to the process"):
        pickle.dumps(client)
    inspect.getmembers(client)
