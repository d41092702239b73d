"""Which nodes a pool has Ray's autoscaler asked for, and when."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.api.pool.nodes_wish import AGAIN_SECONDS, NodesWish, Wish
from raylog.api.pool.rules.pool_options import PoolOptions, PoolSpec


def spec(**options: Any) -> PoolSpec:
    return PoolSpec("c", "g", ("t",), PoolOptions.parse(options), b"")


def test_a_wish_is_told_when_it_changes_and_again_after_a_while() -> None:
    told: list[Wish] = []
    wish, pool = NodesWish(told.append), spec(num_cpus=2, actor_options={"num_gpus": 1, "resources": {"disk": 3}})
    for at in (0.0, 1.0, AGAIN_SECONDS):
        wish.want(2, pool, at)
    assert told == [[{"CPU": 2, "GPU": 1, "disk": 3}] * 2] * 2
    wish.want(0, pool, AGAIN_SECONDS)
    wish.want(0, pool, 9 * AGAIN_SECONDS)
    assert told[2:] == [[]], "none are wanted, which is told once"


def test_the_first_wish_is_told_also_when_nothing_is_wanted() -> None:
    told: list[Wish] = []
    NodesWish(told.append).want(0, spec(), 0.0)
    assert told == [[]], "the supervisor before may have wanted some"


def test_a_wish_that_could_not_be_told_is_told_again() -> None:
    told: list[Wish] = []

    def tell(wish: Wish) -> None:
        told.append(wish)
        if len(told) == 1:
            raise ConnectionError("the control store is away")

    wish = NodesWish(tell)
    with pytest.raises(ConnectionError):
        wish.want(1, spec(), 0.0)
    wish.want(1, spec(), 1.0)
    assert told == [[{"CPU": 1}]] * 2


def test_the_autoscaler_is_left_alone_where_nothing_is_to_be_asked() -> None:
    for pool in (spec(request_nodes=False), spec(num_cpus=0)):
        told: list[Wish] = []
        wish = NodesWish(told.append)
        wish.want(3, pool, 0.0)
        wish.want(0, pool, 1.0)
        assert told == []
