"""Requests of Kafka that are served, and their versions: Kafka 4.1's, as far as raylog does what they ask for.

A client learns the ranges by ApiVersions and takes the highest version that both know. Three things are not obvious:

- An ApiVersions of a version that is not served is answered in version 0, with the error UNSUPPORTED_VERSION and the
  ranges all the same. So the client knows which version to ask with.
- Produce is advertised from 0, and served from 3. Older librdkafka turns compression off, silently, where the lowest
  version is above 0 (KAFKA-18659).
- Below ApiVersions 4 features whose lowest level is 0 are left out: clients of that time refuse them (KAFKA-17492).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.protocol.schemas import schema
from raylog.errors import UnsupportedRequestVersion

_ANSWER: Final = "ApiVersionsResponse"
_FEATURES_OF_LEVEL_0: Final = 4  # the ApiVersions that may carry them


class Api(NamedTuple):
    """One of Kafka's requests, with the versions that are served and the lowest that is advertised."""

    key: int
    name: str
    versions: range
    lowest_advertised: int

    def is_flexible(self, version: int) -> bool:
        return version in schema(f"{self.name}Request").flexible


class Feature(NamedTuple):
    """A feature of the cluster: the levels that a gateway can do, and the one that is in force."""

    name: str
    levels: range
    level: int


def _api(key: int, name: str, lowest: int, highest: int, lowest_advertised: int | None = None) -> Api:
    return Api(key, name, range(lowest, highest + 1), lowest if lowest_advertised is None else lowest_advertised)


SERVED: Final = {
    api.key: api
    for api in (
        _api(0, "Produce", 3, 13, lowest_advertised=0),
        _api(1, "Fetch", 4, 18),
        _api(2, "ListOffsets", 1, 10),  # by 11 kafka-python takes a broker for Kafka 4.2
        _api(3, "Metadata", 0, 13),
        _api(8, "OffsetCommit", 2, 10),
        _api(9, "OffsetFetch", 1, 10),
        _api(10, "FindCoordinator", 0, 6),
        _api(11, "JoinGroup", 0, 9),
        _api(12, "Heartbeat", 0, 4),
        _api(13, "LeaveGroup", 0, 5),
        _api(14, "SyncGroup", 0, 5),
        _api(15, "DescribeGroups", 0, 6),
        _api(16, "ListGroups", 0, 5),
        _api(17, "SaslHandshake", 1, 1),  # 0 is followed by messages without headers
        _api(18, "ApiVersions", 0, 4),  # 5 names the broker that it expects: wrong behind an address for all
        _api(19, "CreateTopics", 2, 7),
        _api(20, "DeleteTopics", 1, 6),
        _api(21, "DeleteRecords", 0, 2),
        _api(22, "InitProducerId", 0, 5),  # 6 is for two-phase commit
        _api(23, "OffsetForLeaderEpoch", 2, 4),
        _api(29, "DescribeAcls", 1, 3),
        _api(32, "DescribeConfigs", 1, 4),
        _api(33, "AlterConfigs", 0, 2),
        _api(35, "DescribeLogDirs", 1, 4),
        _api(36, "SaslAuthenticate", 0, 2),
        _api(37, "CreatePartitions", 0, 3),
        _api(42, "DeleteGroups", 0, 2),
        _api(44, "IncrementalAlterConfigs", 0, 1),
        _api(46, "ListPartitionReassignments", 0, 0),
        _api(47, "OffsetDelete", 0, 0),
        _api(60, "DescribeCluster", 0, 2),
        _api(75, "DescribeTopicPartitions", 0, 0),
    )
}
_API_VERSIONS: Final = SERVED[18]


def served(api_key: int, version: int) -> Api:
    """Return what serves this request. UnsupportedRequestVersion."""
    api = SERVED.get(api_key)
    if api is None or version not in api.versions:
        raise UnsupportedRequestVersion(api_key, version)
    return api


def has_flexible_header(api_key: int, version: int) -> bool:
    """Whether the header of this request ends in tagged fields. UnsupportedRequestVersion where nobody can tell.

    An ApiVersions of an unknown version is newer than the last one known, so its header does.
    """
    if api_key == _API_VERSIONS.key and version >= _API_VERSIONS.versions.stop:
        return True
    return served(api_key, version).is_flexible(version)


def api_versions_answer(
    version: int, metadata_version: int, features: Sequence[Feature] = (), apis: Collection[int] = SERVED
) -> tuple[int, Any]:
    """(version of the answer, the answer) to an ApiVersions of this version.

    `metadata_version` counts the changes of the cluster's metadata. All gateways have to say the same, because clients
    believe the one that is highest. `apis`: keys of what is named.
    """
    answer = message_type(_ANSWER)
    ranges = [
        message_type(_ANSWER, "ApiVersion")(api.key, api.lowest_advertised, api.versions[-1])
        for api in SERVED.values()
        if api.key in apis
    ]
    if version not in _API_VERSIONS.versions:
        return 0, answer(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=ranges)
    known = [each for each in features if version >= _FEATURES_OF_LEVEL_0 or each.levels[0] > 0]
    supported = message_type(_ANSWER, "SupportedFeatureKey")
    finalized = message_type(_ANSWER, "FinalizedFeatureKey")
    return version, answer(
        api_keys=ranges,
        supported_features=[supported(each.name, each.levels[0], each.levels[-1]) for each in known],
        finalized_features_epoch=metadata_version + 1,
        finalized_features=[finalized(each.name, each.level, each.level) for each in known],
    )
