"""Names of the actors of pools: whose they are can be told from them."""

from __future__ import annotations

import pytest

from raylog.actors.protocol.actor_names import group_of_pool, pool_actor_name, pool_name, pool_worker_of


@pytest.mark.parametrize("group", ["g", "g-0123abcd", "a:b", "pool:x", "größe 1"])
def test_a_pool_and_its_actors_are_known_by_their_names(group: str) -> None:
    assert group_of_pool(pool_name(group)) == group
    worker = f"{group}-89abcdef"
    assert group_of_pool(pool_actor_name(worker)) is None
    assert pool_worker_of(pool_actor_name(worker), group) == worker
    assert pool_worker_of(pool_name(group), group) is None


def test_a_group_does_not_take_the_actors_of_another_for_its_own() -> None:
    others = pool_actor_name("g-0123abcd-89abcdef")
    assert pool_worker_of(others, "g") is None
    assert pool_worker_of(others, "g-0123abcd") == "g-0123abcd-89abcdef"
    assert pool_worker_of("controller", "g") is None
    assert group_of_pool("controller") is None
