"""Requests of administrators, carried out by `ControllerAdmin`: for each request the method that answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from raylog.actors.cluster.admin_requests import (
    AdminRequest,
    AlterClusterSettings,
    AlterTopicSettings,
    CancelReassignments,
    ChangeReplicationFactor,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    DescribeBrokerLogs,
    DescribeCluster,
    DescribeClusterSettings,
    DescribeCopies,
    DescribeReplicas,
    DescribeTopic,
    DescribeTopicSettings,
    DrainBroker,
    DropSetAsideLog,
    EditClusterSettings,
    EditTopicSettings,
    ElectLeaders,
    ListReassignments,
    ListSetAsideLogs,
    ListTopics,
    Reassign,
    RecoverPartition,
    UndrainBroker,
)
from raylog.actors.cluster.copies import PartitionCopies, SetAsideListing
from raylog.actors.cluster.descriptions import (
    BrokerLogs,
    ClusterDescription,
    PartitionDescription,
    ReplicaDescription,
    TopicDescription,
    TopicSettingsDescription,
)
from raylog.actors.cluster.security_requests import (
    AlterUser,
    CreateAcls,
    CreateUser,
    DeleteAcls,
    DeleteUser,
    DescribeAcls,
    ListUsers,
    UserDescription,
)
from raylog.actors.cluster.topic_admin import NewTopic
from raylog.actors.controller.admin import ControllerAdmin
from raylog.actors.protocol.security_names import AccessRule
from raylog.config import ConfigValue
from raylog.errors import RaylogError

_T = TypeVar("_T")
_R = TypeVar("_R", bound="AdminRequest[Any]")
_Run = Callable[[ControllerAdmin, _R, float], Awaitable[_T]]

HANDLERS: Final[dict[type[AdminRequest[Any]], _Run[Any, Any]]] = {}


async def carry_out(admin: ControllerAdmin, request: AdminRequest[_T], timeout: float) -> _T:
    """The answer, or the typed error of the method that the request is for."""
    answer: _T = await HANDLERS[type(request)](admin, request, timeout)
    return answer


def _answers(kind: type[_R]) -> Callable[[_Run[_R, _T]], _Run[_R, _T]]:
    def register(run: _Run[_R, _T]) -> _Run[_R, _T]:
        HANDLERS[kind] = run
        return run

    return register


# --- looking ------------------------------------------------------------------------------------------------------


@_answers(DescribeCluster)
async def _describe_cluster(admin: ControllerAdmin, _: DescribeCluster, _timeout: float) -> ClusterDescription:
    return admin.describe_cluster()


@_answers(DescribeClusterSettings)
async def _describe_settings(
    admin: ControllerAdmin, _: DescribeClusterSettings, _timeout: float
) -> dict[str, ConfigValue]:
    return admin.describe_cluster_settings()


@_answers(ListTopics)
async def _list_topics(admin: ControllerAdmin, request: ListTopics, _timeout: float) -> tuple[str, ...]:
    return admin.list_topics(internal=request.internal)


@_answers(DescribeTopic)
async def _describe_topic(admin: ControllerAdmin, request: DescribeTopic, _timeout: float) -> TopicDescription:
    return admin.describe_topic(request.topic)


@_answers(DescribeReplicas)
async def _describe_replicas(
    admin: ControllerAdmin, request: DescribeReplicas, _timeout: float
) -> tuple[ReplicaDescription, ...]:
    return admin.describe_replicas(request.topic)


@_answers(DescribeTopicSettings)
async def _describe_topic_settings(
    admin: ControllerAdmin, request: DescribeTopicSettings, _timeout: float
) -> dict[str, TopicSettingsDescription]:
    return admin.describe_topic_settings(request.topics)


@_answers(DescribeBrokerLogs)
async def _describe_logs(admin: ControllerAdmin, request: DescribeBrokerLogs, _timeout: float) -> BrokerLogs:
    return admin.describe_broker_logs(request.broker_id)


@_answers(ListReassignments)
async def _list_reassignments(
    admin: ControllerAdmin, _: ListReassignments, _timeout: float
) -> tuple[PartitionDescription, ...]:
    return admin.list_reassignments()


@_answers(DescribeCopies)
async def _describe_copies(admin: ControllerAdmin, request: DescribeCopies, timeout: float) -> PartitionCopies:
    return await admin.describe_copies(request.topic, request.partition, timeout=timeout)


@_answers(ListSetAsideLogs)
async def _list_set_aside(admin: ControllerAdmin, _: ListSetAsideLogs, timeout: float) -> SetAsideListing:
    return await admin.list_set_aside(timeout=timeout)


# --- changing -----------------------------------------------------------------------------------------------------


@_answers(CreateTopic)
async def _create_topic(admin: ControllerAdmin, request: CreateTopic, timeout: float) -> TopicDescription:
    topic = NewTopic(
        request.name, request.partitions, request.replication_factor, request.assignment, request.settings
    )
    if request.validate_only:
        return admin.plan_topic(topic)
    return await admin.create_topic(topic, topic_id=request.topic_id, timeout=timeout)


@_answers(DeleteTopic)
async def _delete_topic(admin: ControllerAdmin, request: DeleteTopic, timeout: float) -> None:
    await admin.delete_topic(request.topic, topic_id=request.topic_id, timeout=timeout)


@_answers(CreatePartitions)
async def _create_partitions(admin: ControllerAdmin, request: CreatePartitions, timeout: float) -> TopicDescription:
    if request.validate_only:
        return admin.plan_partitions(request.topic, request.total, request.assignment)
    return await admin.create_partitions(request.topic, request.total, request.assignment, timeout=timeout)


@_answers(AlterTopicSettings)
async def _alter_topic(admin: ControllerAdmin, request: AlterTopicSettings, timeout: float) -> TopicDescription:
    return await admin.alter_topic_settings(request.topic, request.changes, timeout=timeout)


@_answers(EditTopicSettings)
async def _edit_topic(admin: ControllerAdmin, request: EditTopicSettings, timeout: float) -> None:
    await admin.edit_topic_settings(request, timeout=timeout)


@_answers(EditClusterSettings)
async def _edit_cluster(admin: ControllerAdmin, request: EditClusterSettings, timeout: float) -> None:
    await admin.edit_cluster_settings(request, timeout=timeout)


@_answers(AlterClusterSettings)
async def _alter_cluster(admin: ControllerAdmin, request: AlterClusterSettings, timeout: float) -> None:
    await admin.alter_cluster_settings(request.changes, timeout=timeout)


@_answers(ElectLeaders)
async def _elect_leaders(
    admin: ControllerAdmin, request: ElectLeaders, timeout: float
) -> dict[tuple[str, int], RaylogError]:
    return await admin.elect_leaders(request.kind, request.partitions, timeout=timeout)


@_answers(Reassign)
async def _reassign(admin: ControllerAdmin, request: Reassign, timeout: float) -> None:
    await admin.reassign(request.targets, request.throttle, timeout=timeout)


@_answers(CancelReassignments)
async def _cancel_reassignments(admin: ControllerAdmin, request: CancelReassignments, timeout: float) -> None:
    await admin.cancel_reassignments(request.partitions, timeout=timeout)


@_answers(ChangeReplicationFactor)
async def _change_factor(admin: ControllerAdmin, request: ChangeReplicationFactor, timeout: float) -> None:
    await admin.change_replication_factor(request.topic, request.replication_factor, timeout=timeout)


@_answers(DrainBroker)
async def _drain_broker(admin: ControllerAdmin, request: DrainBroker, timeout: float) -> None:
    await admin.drain_broker(request.broker_id, force=request.force, wait=request.wait, timeout=timeout)


@_answers(UndrainBroker)
async def _undrain_broker(admin: ControllerAdmin, request: UndrainBroker, timeout: float) -> None:
    await admin.undrain_broker(request.broker_id, timeout=timeout)


@_answers(RecoverPartition)
async def _recover_partition(admin: ControllerAdmin, request: RecoverPartition, timeout: float) -> PartitionCopies:
    return await admin.recover_partition(
        request.topic,
        request.partition,
        request.broker,
        accept_loss=request.accept_loss,
        aside=request.aside,
        timeout=timeout,
    )


@_answers(DropSetAsideLog)
async def _drop_set_aside(admin: ControllerAdmin, request: DropSetAsideLog, timeout: float) -> int:
    return await admin.drop_set_aside(request.name, broker=request.broker, timeout=timeout)


# --- users and access rules -------------------------------------------------------------------------------------------


@_answers(ListUsers)
async def _list_users(admin: ControllerAdmin, _: ListUsers, _timeout: float) -> tuple[UserDescription, ...]:
    return admin.security.list_users()


@_answers(CreateUser)
async def _create_user(admin: ControllerAdmin, request: CreateUser, timeout: float) -> None:
    await admin.security.create_user(request.user, request.credentials, timeout=timeout)


@_answers(AlterUser)
async def _alter_user(admin: ControllerAdmin, request: AlterUser, timeout: float) -> None:
    await admin.security.alter_user(request.user, request.credentials, timeout=timeout)


@_answers(DeleteUser)
async def _delete_user(admin: ControllerAdmin, request: DeleteUser, timeout: float) -> None:
    await admin.security.delete_user(request.user, timeout=timeout)


@_answers(DescribeAcls)
async def _describe_acls(admin: ControllerAdmin, request: DescribeAcls, _timeout: float) -> tuple[AccessRule, ...]:
    return admin.security.describe_acls(request.meant)


@_answers(CreateAcls)
async def _create_acls(admin: ControllerAdmin, request: CreateAcls, timeout: float) -> None:
    await admin.security.create_acls(request.rules, timeout=timeout)


@_answers(DeleteAcls)
async def _delete_acls(
    admin: ControllerAdmin, request: DeleteAcls, timeout: float
) -> tuple[tuple[AccessRule, ...], ...]:
    return await admin.security.delete_acls(request.meant, timeout=timeout)
