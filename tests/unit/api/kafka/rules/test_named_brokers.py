"""Which gateway a client is sent to."""

from __future__ import annotations

from raylog.api.kafka.rules.named_brokers import GatewayAddress, Gateways

ADDRESSES = [GatewayAddress(number, f"host-{number}", 9092) for number in range(1, 6)]
TOPIC_ID = b"t" * 16
KEYS = [b"group-%d" % number for number in range(500)]


def named(gateways: Gateways, key: bytes) -> int:
    found = gateways.for_key(key)
    assert found is not None
    return found.broker_id


def test_a_partition_is_that_of_its_leaders_gateway() -> None:
    gateways = Gateways(ADDRESSES)
    assert [gateways.for_leader(each.broker_id, TOPIC_ID, 0) for each in gateways] == ADDRESSES


def test_without_a_gateway_beside_the_leader_another_one_is_named_and_the_same_by_all() -> None:
    named_by_one = [Gateways(ADDRESSES[1:]).for_leader(1, TOPIC_ID, number) for number in range(50)]
    named_by_other = [Gateways(reversed(ADDRESSES[1:])).for_leader(1, TOPIC_ID, number) for number in range(50)]
    assert named_by_one == named_by_other
    assert set(named_by_one) == set(ADDRESSES[1:])


def test_keys_are_spread_and_few_move_when_a_gateway_goes() -> None:
    before = {key: named(Gateways(ADDRESSES), key) for key in KEYS}
    counts = [list(before.values()).count(each.broker_id) for each in ADDRESSES]
    assert min(counts) > 50
    after = {key: named(Gateways(ADDRESSES[:-1]), key) for key in KEYS}
    assert {before[key] for key in KEYS if before[key] != after[key]} == {ADDRESSES[-1].broker_id}


def test_where_there_is_no_gateway_nobody_is_named() -> None:
    assert Gateways().for_key(b"group") is None
    assert Gateways().for_leader(1, TOPIC_ID, 0) is None
    assert len(Gateways()) == 0
