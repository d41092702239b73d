"""raylog: a durable, replicated, partitioned log whose moving parts are Ray actors.

This folder holds the public names, the base layer that every other folder may import (`errors`, `config`),
and one symlink per folder at the top of the repository: `raylog.storage` is `../storage`, and so on. Import a
folder only under its `raylog.` name.

Importing any part, say `raylog.storage.format.record_batch`, runs this file first, so it imports none of them: a
replica process stays small, and unit tests (which forbid Ray) can import every pure module. A public name is looked up
on first use (`lazy_names`), not imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.lazy_names import lazy_names

if TYPE_CHECKING:
    from raylog import data, errors
    from raylog.actors.cluster.descriptions import ClusterDescription, TopicDescription
    from raylog.actors.cluster.security_requests import UserDescription
    from raylog.actors.protocol.security_names import (
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ResourceType,
    )
    from raylog.api.admin.cluster import Cluster
    from raylog.api.admin.formation import connect, start
    from raylog.api.admin.rules.group_descriptions import GroupDescription
    from raylog.api.admin.rules.kafka_acl_arguments import ACL, ACLFilter, ResourcePattern, ResourcePatternFilter
    from raylog.api.admin.rules.kafka_admin_arguments import (
        ConfigResource,
        ConfigResourceType,
        MemberToRemove,
        NewPartitions,
        NewTopic,
    )
    from raylog.api.connection.progress import show_progress
    from raylog.api.connection.records import (
        ConsumerRecord,
        GroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TopicPartition,
    )
    from raylog.api.consumer.async_consumer import AsyncConsumer
    from raylog.api.consumer.consumer import Consumer
    from raylog.api.consumer.group.rebalance_listener import RebalanceListener
    from raylog.api.consumer.rules.column_batches import ColumnBatch
    from raylog.api.parallel.parallel_consumer import ParallelConsumer
    from raylog.api.pool.consumer_pool import ConsumerPool
    from raylog.api.producer.async_producer import AsyncProducer
    from raylog.api.producer.buffer.record_future import RecordFuture
    from raylog.api.producer.bulk_send import BulkFuture, BulkMetadata
    from raylog.api.producer.producer import Producer
    from raylog.errors import (
        BufferFull,
        BulkSendFailed,
        ClientError,
        ClusterNotFound,
        ClusterNotReady,
        ClusterUnreachable,
        FencedMember,
        GroupError,
        InvalidConfig,
        NotEnoughReplicas,
        PartitionNotOwned,
        ProducerClosed,
        ProducerFenced,
        RaylogError,
        RecordTooLarge,
        RequestTimedOut,
        ResultNotReady,
        TopicExists,
        TransactionAborted,
        TransactionPending,
        UnknownConfig,
        UnknownGroup,
        UnknownMember,
        UnknownTopic,
        WakeupError,
    )

__version__ = "0.1.0"
__all__ = [
    "ACL",
    "ACLFilter",
    "ACLOperation",
    "ACLPermissionType",
    "ACLResourcePatternType",
    "AsyncConsumer",
    "AsyncProducer",
    "BufferFull",
    "BulkFuture",
    "BulkMetadata",
    "BulkSendFailed",
    "ClientError",
    "Cluster",
    "ClusterDescription",
    "ClusterNotFound",
    "ClusterNotReady",
    "ClusterUnreachable",
    "ColumnBatch",
    "ConfigResource",
    "ConfigResourceType",
    "Consumer",
    "ConsumerPool",
    "ConsumerRecord",
    "FencedMember",
    "GroupDescription",
    "GroupError",
    "GroupMetadata",
    "InvalidConfig",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "NotEnoughReplicas",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "ParallelConsumer",
    "PartitionNotOwned",
    "Producer",
    "ProducerClosed",
    "ProducerFenced",
    "RaylogError",
    "RebalanceListener",
    "RecordFuture",
    "RecordMetadata",
    "RecordTooLarge",
    "RequestTimedOut",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "ResultNotReady",
    "TopicDescription",
    "TopicExists",
    "TopicPartition",
    "TransactionAborted",
    "TransactionPending",
    "UnknownConfig",
    "UnknownGroup",
    "UnknownMember",
    "UnknownTopic",
    "UserDescription",
    "WakeupError",
    "connect",
    "data",
    "errors",
    "show_progress",
    "start",
]

_HOMES = {
    "ACL": "raylog.api.admin.rules.kafka_acl_arguments",
    "ACLFilter": "raylog.api.admin.rules.kafka_acl_arguments",
    "ACLOperation": "raylog.actors.protocol.security_names",
    "ACLPermissionType": "raylog.actors.protocol.security_names",
    "ACLResourcePatternType": "raylog.actors.protocol.security_names",
    "AsyncConsumer": "raylog.api.consumer.async_consumer",
    "AsyncProducer": "raylog.api.producer.async_producer",
    "BufferFull": "raylog.errors",
    "BulkFuture": "raylog.api.producer.bulk_send",
    "BulkMetadata": "raylog.api.producer.bulk_send",
    "BulkSendFailed": "raylog.errors",
    "ClientError": "raylog.errors",
    "Cluster": "raylog.api.admin.cluster",
    "ClusterDescription": "raylog.actors.cluster.descriptions",
    "ClusterNotFound": "raylog.errors",
    "ClusterNotReady": "raylog.errors",
    "ClusterUnreachable": "raylog.errors",
    "ColumnBatch": "raylog.api.consumer.rules.column_batches",
    "ConfigResource": "raylog.api.admin.rules.kafka_admin_arguments",
    "ConfigResourceType": "raylog.api.admin.rules.kafka_admin_arguments",
    "Consumer": "raylog.api.consumer.consumer",
    "ConsumerPool": "raylog.api.pool.consumer_pool",
    "ConsumerRecord": "raylog.api.connection.records",
    "FencedMember": "raylog.errors",
    "GroupDescription": "raylog.api.admin.rules.group_descriptions",
    "GroupError": "raylog.errors",
    "GroupMetadata": "raylog.api.connection.records",
    "InvalidConfig": "raylog.errors",
    "MemberToRemove": "raylog.api.admin.rules.kafka_admin_arguments",
    "NewPartitions": "raylog.api.admin.rules.kafka_admin_arguments",
    "NewTopic": "raylog.api.admin.rules.kafka_admin_arguments",
    "NotEnoughReplicas": "raylog.errors",
    "OffsetAndMetadata": "raylog.api.connection.records",
    "OffsetAndTimestamp": "raylog.api.connection.records",
    "ParallelConsumer": "raylog.api.parallel.parallel_consumer",
    "PartitionNotOwned": "raylog.errors",
    "Producer": "raylog.api.producer.producer",
    "ProducerClosed": "raylog.errors",
    "ProducerFenced": "raylog.errors",
    "RaylogError": "raylog.errors",
    "RebalanceListener": "raylog.api.consumer.group.rebalance_listener",
    "RecordFuture": "raylog.api.producer.buffer.record_future",
    "RecordMetadata": "raylog.api.connection.records",
    "RecordTooLarge": "raylog.errors",
    "RequestTimedOut": "raylog.errors",
    "ResourcePattern": "raylog.api.admin.rules.kafka_acl_arguments",
    "ResourcePatternFilter": "raylog.api.admin.rules.kafka_acl_arguments",
    "ResourceType": "raylog.actors.protocol.security_names",
    "ResultNotReady": "raylog.errors",
    "TopicDescription": "raylog.actors.cluster.descriptions",
    "TopicExists": "raylog.errors",
    "TopicPartition": "raylog.api.connection.records",
    "TransactionAborted": "raylog.errors",
    "TransactionPending": "raylog.errors",
    "UnknownConfig": "raylog.errors",
    "UnknownGroup": "raylog.errors",
    "UnknownMember": "raylog.errors",
    "UnknownTopic": "raylog.errors",
    "UserDescription": "raylog.actors.cluster.security_requests",
    "WakeupError": "raylog.errors",
    "connect": "raylog.api.admin.formation",
    "data": "raylog.data",
    "errors": "raylog.errors",
    "show_progress": "raylog.api.connection.progress",
    "start": "raylog.api.admin.formation",
}
_NAMES_ELSEWHERE = {
    "AIOKafkaConsumer": "raylog.AsyncConsumer",
    "AIOKafkaProducer": "raylog.AsyncProducer",
    "AdminClient": "the handle that raylog.connect() returns",
    "ConsumerRebalanceListener": "raylog.RebalanceListener",
    "KafkaAdminClient": "the handle that raylog.connect() returns",
    "KafkaConsumer": "raylog.Consumer",
    "KafkaError": "raylog.RaylogError",
    "KafkaProducer": "raylog.Producer",
}


def _elsewhere(name: str) -> str:
    elsewhere = _NAMES_ELSEWHERE.get(name)
    return f"; here it is {elsewhere}, see docs/coming-from-kafka.md" if elsewhere else ""


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(globals(), _HOMES, _elsewhere)
