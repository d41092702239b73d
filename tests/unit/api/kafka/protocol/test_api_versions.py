"""What is served, and what an ApiVersions says of it."""

from __future__ import annotations

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from kafka.protocol.broker_version_data import infer_broker_version_from_api_versions

from raylog.api.kafka.protocol import codecs
from raylog.api.kafka.protocol.api_versions import (
    SERVED,
    Api,
    Feature,
    api_versions_answer,
    has_flexible_header,
    served,
)
from raylog.api.kafka.protocol.schemas import schema
from raylog.errors import UnsupportedRequestVersion

_FEATURES = [Feature("group.version", range(2), 1), Feature("metadata.version", range(7, 28), 27)]


@pytest.mark.parametrize("api", SERVED.values(), ids=lambda api: api.name)
def test_what_is_served_has_its_messages(api: Api) -> None:
    for kind in ("Request", "Response"):
        described = schema(f"{api.name}{kind}")
        assert described.api_key == api.key
        assert set(api.versions) <= set(described.versions)


@pytest.mark.parametrize("api", SERVED.values(), ids=lambda api: api.name)
def test_other_versions_are_refused(api: Api) -> None:
    assert served(api.key, api.versions[0]) is api
    for version in (-1, api.versions[0] - 1, api.versions[-1] + 1):
        with pytest.raises(UnsupportedRequestVersion):
            served(api.key, version)
    with pytest.raises(UnsupportedRequestVersion):
        served(1000, 0)


def test_produce_is_advertised_from_0_and_served_from_3() -> None:
    _, answer = api_versions_answer(4, 17)
    ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert ranges.keys() == SERVED.keys()
    assert ranges[0] == (0, 13)
    assert ranges[18] == (0, 4)
    with pytest.raises(UnsupportedRequestVersion):
        served(0, 2)


def test_kafka_python_takes_a_gateway_for_kafka_4_1() -> None:
    _, answer = api_versions_answer(4, 17)
    ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert infer_broker_version_from_api_versions(ranges) == (4, 1)


@pytest.mark.parametrize("asked", [-1, 5, 99])
def test_an_unknown_version_is_answered_in_version_0_with_the_ranges(asked: int) -> None:
    version, answer = api_versions_answer(asked, 17)
    assert version == 0
    frame = b"".join(codecs.answer_frame("ApiVersions", version, answer, correlation_id=1))
    assert frame[8:10] == b"\0\x23"
    assert len(codecs.decoder("ApiVersionsResponse", 0)(frame, 8).api_keys) == len(SERVED)


def test_the_header_of_an_unknown_version_can_be_read() -> None:
    assert [has_flexible_header(18, version) for version in (0, 2, 3, 5, 99)] == [False, False, True, True, True]
    assert codecs.read_request_header(b"\0\x12\0\x05\0\0\0\x01\0\2me\0what is new", has_flexible_header)[:4] == (
        18,
        5,
        1,
        "me",
    )


@pytest.mark.parametrize(("version", "names"), [(3, ["metadata.version"]), (4, ["group.version", "metadata.version"])])
def test_features_of_level_0_are_said_to_clients_that_bear_them(version: int, names: list[str]) -> None:
    _, answer = api_versions_answer(version, 17, _FEATURES)
    frame = b"".join(codecs.answer_frame("ApiVersions", version, answer, correlation_id=1))
    found = codecs.decoder("ApiVersionsResponse", version)(frame, 8)
    assert [each.name for each in found.supported_features] == names
    assert [each.name for each in found.finalized_features] == names
    assert found.finalized_features_epoch == 18
    assert found.finalized_features[-1][1:] == (27, 27)
