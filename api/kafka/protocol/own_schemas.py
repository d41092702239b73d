"""Messages that kafka-python's collection lacks, in the notation of `schemas.py`: those of KIP-848's groups."""

from __future__ import annotations

from typing import Any, Final

_NULL_TEXT: Final = {"type": "string", "versions": "0+", "nullableVersions": "0+", "default": "null"}
_MEMBER_PARTITIONS: Final = [
    {"name": "TopicId", "type": "uuid", "versions": "0+"},
    {"name": "Partitions", "type": "[]int32", "versions": "0+"},
]
_DESCRIBED_PARTITIONS: Final = [
    {"name": "TopicId", "type": "uuid", "versions": "0+"},
    {"name": "TopicName", "type": "string", "versions": "0+"},
    {"name": "Partitions", "type": "[]int32", "versions": "0+"},
]
_DESCRIBED_MEMBER: Final = [
    {"name": "MemberId", "type": "string", "versions": "0+"},
    {"name": "InstanceId", **_NULL_TEXT},
    {"name": "RackId", **_NULL_TEXT},
    {"name": "MemberEpoch", "type": "int32", "versions": "0+"},
    {"name": "ClientId", "type": "string", "versions": "0+"},
    {"name": "ClientHost", "type": "string", "versions": "0+"},
    {"name": "SubscribedTopicNames", "type": "[]string", "versions": "0+"},
    {"name": "SubscribedTopicRegex", **_NULL_TEXT},
    {"name": "Assignment", "type": "Assignment", "versions": "0+"},
    {"name": "TargetAssignment", "type": "Assignment", "versions": "0+"},
    {"name": "MemberType", "type": "int8", "versions": "1+", "default": "-1"},
]

OWN_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "ConsumerGroupHeartbeatRequest": {
        "apiKey": 68,
        "validVersions": "0-1",
        "flexibleVersions": "0+",
        "fields": [
            {"name": "GroupId", "type": "string", "versions": "0+"},
            {"name": "MemberId", "type": "string", "versions": "0+"},
            {"name": "MemberEpoch", "type": "int32", "versions": "0+"},
            {"name": "InstanceId", **_NULL_TEXT},
            {"name": "RackId", **_NULL_TEXT},
            {"name": "RebalanceTimeoutMs", "type": "int32", "versions": "0+", "default": "-1"},
            {"name": "SubscribedTopicNames", **_NULL_TEXT, "type": "[]string"},
            {"name": "SubscribedTopicRegex", **_NULL_TEXT, "versions": "1+", "nullableVersions": "1+"},
            {"name": "ServerAssignor", **_NULL_TEXT},
            {"name": "TopicPartitions", **_NULL_TEXT, "type": "[]TopicPartitions", "fields": _MEMBER_PARTITIONS},
        ],
    },
    "ConsumerGroupHeartbeatResponse": {
        "apiKey": 68,
        "validVersions": "0-1",
        "flexibleVersions": "0+",
        "fields": [
            {"name": "ThrottleTimeMs", "type": "int32", "versions": "0+"},
            {"name": "ErrorCode", "type": "int16", "versions": "0+"},
            {"name": "ErrorMessage", **_NULL_TEXT},
            {"name": "MemberId", **_NULL_TEXT},
            {"name": "MemberEpoch", "type": "int32", "versions": "0+"},
            {"name": "HeartbeatIntervalMs", "type": "int32", "versions": "0+"},
            {
                "name": "Assignment",
                **_NULL_TEXT,
                "type": "Assignment",
                "fields": [
                    {
                        "name": "TopicPartitions",
                        "type": "[]TopicPartitions",
                        "versions": "0+",
                        "fields": _MEMBER_PARTITIONS,
                    }
                ],
            },
        ],
    },
    "ConsumerGroupDescribeRequest": {
        "apiKey": 69,
        "validVersions": "0-1",
        "flexibleVersions": "0+",
        "fields": [
            {"name": "GroupIds", "type": "[]string", "versions": "0+"},
            {"name": "IncludeAuthorizedOperations", "type": "bool", "versions": "0+"},
        ],
    },
    "ConsumerGroupDescribeResponse": {
        "apiKey": 69,
        "validVersions": "0-1",
        "flexibleVersions": "0+",
        "fields": [
            {"name": "ThrottleTimeMs", "type": "int32", "versions": "0+"},
            {
                "name": "Groups",
                "type": "[]DescribedGroup",
                "versions": "0+",
                "fields": [
                    {"name": "ErrorCode", "type": "int16", "versions": "0+"},
                    {"name": "ErrorMessage", **_NULL_TEXT},
                    {"name": "GroupId", "type": "string", "versions": "0+"},
                    {"name": "GroupState", "type": "string", "versions": "0+"},
                    {"name": "GroupEpoch", "type": "int32", "versions": "0+"},
                    {"name": "AssignmentEpoch", "type": "int32", "versions": "0+"},
                    {"name": "AssignorName", "type": "string", "versions": "0+"},
                    {"name": "Members", "type": "[]Member", "versions": "0+", "fields": _DESCRIBED_MEMBER},
                    {"name": "AuthorizedOperations", "type": "int32", "versions": "0+", "default": "-2147483648"},
                ],
            },
        ],
        "commonStructs": [
            {"name": "TopicPartitions", "versions": "0+", "fields": _DESCRIBED_PARTITIONS},
            {
                "name": "Assignment",
                "versions": "0+",
                "fields": [{"name": "TopicPartitions", "type": "[]TopicPartitions", "versions": "0+"}],
            },
        ],
    },
}
