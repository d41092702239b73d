"""Each request of administrators is answered, with what its type says, and is named as people know it."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import pytest

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
from raylog.actors.cluster.election.leader_election import PREFERRED
from raylog.actors.cluster.security_requests import (
    AlterUser,
    CreateAcls,
    CreateUser,
    DeleteAcls,
    DeleteUser,
    DescribeAcls,
    ListUsers,
)
from raylog.actors.cluster.setting_edits import SET, SettingEdit
from raylog.actors.controller.admin_calls import HANDLERS, carry_out
from raylog.actors.security.rule_filters import RuleFilter
from raylog.actors.security.scram_credentials import MECHANISMS
from raylog.errors import InvalidAccessRule, SetAsideUnknown, TopicExists, UnknownTopic, UnknownUser
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, ControlCluster
from tests.unit.actors.security.examples import credential, rule

_ALL: list[type[AdminRequest[Any]]] = AdminRequest.__subclasses__()


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(7, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.form()
        yield cluster


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (CreateTopic("clicks", 3, None, None, {}), "create_topic('clicks')"),
        (DeleteTopic("clicks"), "delete_topic('clicks')"),
        (CreatePartitions("clicks", 4, None), "create_partitions('clicks')"),
        (AlterTopicSettings("clicks", {}), "alter_topic_settings('clicks')"),
        (ChangeReplicationFactor("clicks", 2), "change_replication_factor('clicks')"),
        (RecoverPartition("clicks", 0, 1, False, ""), "recover_partition('clicks')"),
        (DropSetAsideLog("clicks-0.aside", None), "drop_set_aside('clicks-0.aside')"),
        (DrainBroker(2, False, True), "drain_broker(2)"),
        (UndrainBroker(2), "undrain_broker(2)"),
        (CreateUser("ann", ()), "create_user('ann')"),
        (AlterUser("ann", ()), "alter_user('ann')"),
        (DeleteUser("ann"), "delete_user('ann')"),
        (ElectLeaders("preferred", None), "elect_leaders"),
        (Reassign({}, None), "reassign"),
        (DescribeTopic("clicks"), "describe_topic"),
    ],
)
def test_errors_name_what_a_person_has_asked_for(request_: AdminRequest[Any], expected: str) -> None:
    assert request_.asked == expected


def test_no_two_requests_have_one_name() -> None:
    assert len({each.call for each in _ALL}) == len(_ALL) == 32


@pytest.mark.parametrize("kind", _ALL, ids=lambda each: each.__name__)
def test_each_is_answered_with_what_its_type_says(kind: type[AdminRequest[Any]]) -> None:
    (answer,) = typing.get_args(kind.__orig_bases__[0])  # type: ignore[attr-defined]  # of each generic subclass
    hints = typing.get_type_hints(HANDLERS[kind])
    assert hints["return"] == answer
    assert kind in hints.values()


def test_requests_are_carried_out(cluster: ControlCluster) -> None:
    def ask(request: AdminRequest[Any]) -> Any:
        return cluster.ask(carry_out(cluster.admin, request, 30.0))

    assert ask(CreateTopic("t", None, None, [[1, 2, 3]], {"retention.ms": 5})).settings == (("retention.ms", "5"),)
    assert ask(ListTopics(False)) == ("t",)
    assert len(ask(CreatePartitions("t", 2, [[2, 3, 1]])).partitions) == 2
    assert ask(AlterTopicSettings("t", {"retention.ms": 6})).settings == (("retention.ms", "6"),)
    assert ask(AlterClusterSettings({})) is None
    ask(EditTopicSettings("t", [SettingEdit("retention.ms", SET, "7")], True, False))
    assert ask(DescribeTopicSettings(["t", "gone"]))["t"].settings == (("retention.ms", "7"),)
    ask(EditClusterSettings([SettingEdit("num.partitions", SET, "3")], False))
    assert ask(CreateTopic("three", None, None, None, {}, b"", True)).replication_factor == 3
    assert "group.assignors" in ask(DescribeClusterSettings())
    assert [each.partition for each in ask(DescribeTopic("t")).partitions] == [0, 1]
    assert len(ask(DescribeReplicas("t"))) == 6
    cluster.until(lambda: [each.topic for each in ask(DescribeBrokerLogs(1)).logs] == ["t", "t"])
    assert ask(DescribeCopies("t", 0)).leader == 1
    assert ask(ListSetAsideLogs()).logs == ()
    assert ask(ElectLeaders(PREFERRED, None)) == {}
    ask(Reassign({("t", 0): (1, 2)}, 1000))
    cluster.until(lambda: ask(ListReassignments()) == ())
    ask(ChangeReplicationFactor("t", 3))
    assert [each.adding for each in ask(ListReassignments())] == [(3,)]
    ask(CancelReassignments([("t", 0)]))
    assert ask(ListReassignments()) == ()
    ask(DrainBroker(3, True, False))
    assert [each.broker for each in ask(DescribeCluster()).brokers if each.draining] == [3]
    ask(UndrainBroker(3))
    ask(DeleteTopic("t"))
    assert ask(ListTopics(False)) == ()


def test_requests_about_users_and_rules_are_carried_out(cluster: ControlCluster) -> None:
    def ask(request: AdminRequest[Any]) -> Any:
        return cluster.ask(carry_out(cluster.admin, request, 30.0))

    ask(CreateUser("ann", [credential("ann"), credential("ann", "SCRAM-SHA-512")]))
    assert [(each.name, each.mechanisms) for each in ask(ListUsers())] == [("ann", list(MECHANISMS))]
    ask(AlterUser("ann", [credential("ann")]))
    ask(CreateAcls([rule("clicks"), rule("views")]))
    assert ask(DescribeAcls(RuleFilter(name="views"))) == (rule("views"),)
    assert ask(DeleteAcls([RuleFilter(name="views"), RuleFilter(name="gone")])) == ((rule("views"),), ())
    cluster.until(lambda: all(each.state.security.rules == {rule("clicks")} for each in cluster.brokers.values()))
    assert all(list(each.state.security.users["ann"]) == ["SCRAM-SHA-256"] for each in cluster.brokers.values())
    ask(DeleteUser("ann"))
    assert ask(ListUsers()) == ()


@pytest.mark.parametrize(
    ("request_", "refusal"),
    [
        (CreateTopic("clicks", 1, None, None, {}), TopicExists),
        (RecoverPartition("gone", 0, 1, True, ""), UnknownTopic),
        (DropSetAsideLog("gone", 1), SetAsideUnknown),
        (DeleteUser("eve"), UnknownUser),
        (CreateAcls([rule("clicks")._replace(principal="ann")]), InvalidAccessRule),
    ],
)
def test_what_is_refused_is_raised(
    cluster: ControlCluster, request_: AdminRequest[Any], refusal: type[Exception]
) -> None:
    cluster.create_topic("clicks")
    with pytest.raises(refusal):
        cluster.ask(carry_out(cluster.admin, request_, 30.0))
