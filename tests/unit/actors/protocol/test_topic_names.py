"""Names that topics may have."""

from __future__ import annotations

import pytest

from raylog.actors.protocol.names import MAX_NAME_LENGTH, check_topic_name, collision_key
from raylog.errors import InvalidTopicName

_FREE = ["t", "a.b-c_D9", "...", "_hidden", "__debezium-heartbeat.shop", "__", "x" * MAX_NAME_LENGTH]
_ILLEGAL = ["", ".", "..", "x" * (MAX_NAME_LENGTH + 1), "a b", "a/b", "ä", "a\n", "a:b", "a\0"]
_OWN = ["__consumer_offsets", "__transaction.state", "__cluster_metadata", "__share_group_state"]


@pytest.mark.parametrize("name", _FREE)
def test_legal_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", [*_ILLEGAL, *_OWN])
def test_illegal_names(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        check_topic_name(name)


def test_names_of_raylogs_own_topics() -> None:
    check_topic_name("__consumer_offsets", internal=True)
    with pytest.raises(InvalidTopicName):
        check_topic_name("__a/b", internal=True)


def test_dots_and_underscores_collide() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a.b") != collision_key("a-b")
