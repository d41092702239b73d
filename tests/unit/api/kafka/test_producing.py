"""Produce requests that nothing of a cluster is needed for."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.api.kafka.batch_turns import BatchTurns
from raylog.api.kafka.producing import Producing
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.memory_budget import MemoryBudget
from raylog.api.kafka.unanswered_work import UnansweredWork
from raylog.errors import RaylogError


def test_an_error_that_ends_a_connection_is_not_kept_by_its_own_traceback() -> None:
    part = message_type("ProduceRequest", "PartitionProduceData")
    topic = message_type("ProduceRequest", "TopicProduceData")
    request = message_type("ProduceRequest")(
        acks=0, topic_data=[topic("clicks", partition_data=[part(0, b"no batch"), part(1, b"neither")])]
    )

    async def refused() -> weakref.ref[Any]:
        unused: Any = None
        producing = Producing(unused, unused, unused, UnansweredWork(MemoryBudget()))
        with pytest.raises(RaylogError) as raised:
            await producing.serve(9, request, BatchTurns(), unused)
        held = weakref.ref(raised.value)
        del raised
        return held

    gc.disable()
    try:
        assert asyncio.run(refused())() is None
    finally:
        gc.enable()
