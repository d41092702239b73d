"""Users and access rules on the handle: kafka-python's names and objects, and passwords that go nowhere."""

from __future__ import annotations

import inspect
import pickle

import pytest

import raylog
from raylog.api.admin.cluster_security import ClusterSecurity
from raylog.api.admin.rules.kafka_acl_arguments import acl_of, filter_of, rule_of
from raylog.errors import InvalidAccessRule, InvalidUser, UnknownUser, UserExists
from tests.unit.actors.security.examples import rule
from tests.unit.api.security_stand_in import SecurityHandle

CLICKS = raylog.ResourcePattern(raylog.ResourceType.TOPIC, "clicks")
ALLOW, READ = raylog.ACLPermissionType.ALLOW, raylog.ACLOperation.READ
ANN_READS = raylog.ACL("User:ann", "*", READ, ALLOW, CLICKS)


def test_users_come_change_and_go() -> None:
    handle = SecurityHandle()
    handle.create_user("ann", "secret-1")
    handle.create_user("bob", "secret-2", mechanisms=["SCRAM-SHA-512"])
    assert [(each.name, each.mechanisms) for each in handle.list_users()] == [
        ("ann", ["SCRAM-SHA-256", "SCRAM-SHA-512"]),
        ("bob", ["SCRAM-SHA-512"]),
    ]
    before = handle.controller.state.users["bob"]["SCRAM-SHA-512"]
    handle.set_password("bob", "secret-3", mechanisms=["SCRAM-SHA-512"])
    assert handle.controller.state.users["bob"]["SCRAM-SHA-512"] != before
    handle.delete_user("bob")
    with pytest.raises(UnknownUser):
        handle.set_password("bob", "secret-3")
    with pytest.raises(UserExists):
        handle.create_user("ann", "secret-3")
    with pytest.raises(InvalidUser, match="SCRAM-SHA-1"):
        handle.create_user("eve", "secret-4", mechanisms=["SCRAM-SHA-1"])


def test_a_password_is_in_nothing_that_leaves_the_process() -> None:
    handle = SecurityHandle()
    handle.create_user("ann", "secret-1")
    handle.set_password("ann", "secret-2")
    for request in handle.controller.asked:
        assert b"secret" not in pickle.dumps(request)
        assert "_key" not in repr(request)
    salts = {each.salt for each in handle.controller.state.users["ann"].values()}
    assert len(salts) == 2


def test_rules_are_added_found_and_removed() -> None:
    handle = SecurityHandle()
    assert handle.create_acls([ANN_READS]) == {"succeeded": [ANN_READS], "failed": []}
    assert handle.describe_acls() == ([ANN_READS], None)
    assert handle.would_allow("User:ann", READ, raylog.ResourceType.TOPIC, "clicks")
    assert not handle.would_allow("User:ann", raylog.ACLOperation.WRITE, raylog.ResourceType.TOPIC, "clicks")
    meant = raylog.ACLFilter(
        "User:ann",
        None,
        raylog.ACLOperation.ANY,
        raylog.ACLPermissionType.ANY,
        raylog.ResourcePatternFilter(raylog.ResourceType.ANY, None, raylog.ACLResourcePatternType.ANY),
    )
    assert handle.delete_acls([meant]) == [(meant, [ANN_READS], None)]
    assert handle.describe_acls() == ([], None)


def test_a_rule_is_written_in_three_ways_that_say_the_same() -> None:
    assert rule_of(ANN_READS) == rule("clicks")
    assert acl_of(rule("clicks")) == ANN_READS
    assert filter_of(ANN_READS).matches(rule("clicks"))
    open_host = raylog.ACLFilter("User:ann", None, READ, ALLOW, CLICKS)
    with pytest.raises(InvalidAccessRule):
        rule_of(open_host)


def test_numbers_names_and_objects_are_those_of_kafka_python() -> None:
    theirs = pytest.importorskip("kafka.admin", reason="the extra `kafka` is not installed")
    for name in ("ResourceType", "ACLOperation", "ACLPermissionType", "ACLResourcePatternType"):
        numbers = {each.name: each.value for each in getattr(theirs, name) if each.name != "UNKNOWN"}
        assert {each.name: each.value for each in getattr(raylog, name)} == numbers
    for name in ("ACL", "ACLFilter", "ResourcePattern", "ResourcePatternFilter"):
        arguments = list(inspect.signature(getattr(theirs, name)).parameters)
        assert list(inspect.signature(getattr(raylog, name)).parameters) == arguments
    for name in ("create_acls", "delete_acls", "describe_acls"):
        arguments = [*inspect.signature(getattr(theirs.KafkaAdminClient, name)).parameters, "timeout"]
        assert list(inspect.signature(getattr(ClusterSecurity, name)).parameters) == arguments
    pattern = theirs.ResourcePattern(theirs.ResourceType.TOPIC, "clicks")
    written = theirs.ACL("User:ann", "*", theirs.ACLOperation.READ, theirs.ACLPermissionType.ALLOW, pattern)
    handle = SecurityHandle()
    handle.create_acls([written])
    assert handle.describe_acls(written) == ([ANN_READS], None)
