"""Programs that make a pool of one name at once; and a handler that is read by its worker."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from raylog.api.pool.handlers import Handler
from raylog.api.pool.making import make_once
from raylog.api.pool.pickled_handler import PickledHandler
from raylog.api.pool.rules.pool_options import PoolOptions, PoolSpec
from raylog.api.pool.worker import Loop, OpenLoop
from raylog.errors import PoolExists


class OneOfManyStores:
    def __init__(self, kept: dict[str, PoolSpec], making: str) -> None:
        self._kept, self._making = kept, making

    def load(self) -> PoolSpec | None:
        return self._kept.get(self._making)

    def save(self, spec: PoolSpec) -> None:
        self._kept[self._making] = spec

    def clear(self) -> None:
        self._kept.pop(self._making, None)


def test_a_making_that_is_refused_leaves_the_others_spec_and_none_of_its_own() -> None:
    kept: dict[str, PoolSpec] = {}
    first, second = (PoolSpec("c", "g", ("t",), PoolOptions.parse({}), code) for code in (b"first", b"second"))

    def refused() -> None:
        raise ValueError("the name is taken")

    def quicker() -> None:
        with pytest.raises(PoolExists):
            make_once(second, OneOfManyStores(kept, "b"), refused)

    make_once(first, OneOfManyStores(kept, "a"), quicker)
    assert kept == {"a": first}


def hangs() -> None:
    pytest.fail("read where the actor has to answer")


class Hanging:
    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return hangs, ()


class FakeLoop:
    def run(self) -> None: ...


def test_a_handler_is_read_when_its_worker_makes_it_and_not_before() -> None:
    given: list[Mapping[str, Any]] = []

    def loops(options: Mapping[str, Any]) -> OpenLoop:
        given.append(options)

        @contextmanager
        def open_loop(handler: Handler, pause: Callable[[float], bool]) -> Iterator[Loop]:
            assert handler.function is print
            yield FakeLoop()

        return open_loop

    hanging = PickledHandler(pickle.dumps((Hanging(), {})), loops)
    with pytest.raises(pytest.fail.Exception):
        hanging.make()
    handler = PickledHandler(pickle.dumps((print, {"max_poll_records": 7})), loops)
    assert given == []
    with handler.open(handler.make(), lambda seconds: False) as loop:
        loop.run()
    assert given == [{"max_poll_records": 7}]
