"""The way from the loop to the thread that polls: nothing is lost, whatever interrupts that thread."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest

from raylog.api.connection.client_runtime import client_runtime
from raylog.api.consumer.consumer_core import MOST_WAITING, FetchBuffer
from raylog.api.consumer.fetching.fetcher import Fetcher
from raylog.api.consumer.rules.fetched import Item, Resized


class Source:
    """A source in place of a fetcher: takes of two items, as many as there are."""

    def __init__(self, takes: int) -> None:
        self.left = takes
        self.taken = 0

    async def take(self) -> list[Item]:
        if self.taken == self.left:
            await asyncio.Event().wait()
        self.taken += 1
        return [Resized("t", 2 * self.taken - 1), Resized("t", 2 * self.taken)]


def buffer_of(source: Source) -> FetchBuffer:
    async def make() -> FetchBuffer:
        return FetchBuffer(cast("Fetcher", source))

    return client_runtime().run(make(), 5.0)


def next_item(buffer: FetchBuffer, seconds: float = 5.0) -> Item | None:
    deadline = time.monotonic() + seconds
    while True:
        buffer.expect()
        item = buffer.first()
        left = deadline - time.monotonic()
        if item is not None or left <= 0:
            return item
        buffer.wait(left)


def test_items_come_in_order_and_stay_until_they_are_dealt_with() -> None:
    source = Source(20)
    buffer = buffer_of(source)
    for number in range(1, 41):
        for _ in range(2):  # looked at twice, as after an interrupt
            assert next_item(buffer) == Resized("t", number)
        assert source.taken <= (number + 1) // 2 + MOST_WAITING
        buffer.taken()
    assert next_item(buffer, 0.1) is None
    client_runtime().loop.call_soon_threadsafe(buffer.close)


def test_a_wait_ends_by_a_wake_that_came_before_it() -> None:
    buffer = buffer_of(Source(0))
    buffer.expect()
    buffer.wake()
    buffer.wake()
    began = time.monotonic()
    buffer.wait(30.0)
    assert time.monotonic() - began < 0.4
    client_runtime().loop.call_soon_threadsafe(buffer.close)


def test_what_ends_the_pump_is_raised() -> None:
    class Broken(Source):
        async def take(self) -> list[Item]:
            raise ValueError("broken")

    buffer = buffer_of(Broken(1))
    with pytest.raises(ValueError, match="broken"):
        next_item(buffer)
