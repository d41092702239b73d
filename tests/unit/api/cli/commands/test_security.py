"""`raylog user …` and `raylog acl …`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.api.cli.fake_cluster import FakeCluster, run, run_json
from tests.unit.api.security_stand_in import SecurityHandle


class SecureCluster(FakeCluster, SecurityHandle):
    """With users and rules, kept as a controller keeps them."""

    def __init__(self) -> None:
        FakeCluster.__init__(self)
        SecurityHandle.__init__(self)


@pytest.fixture
def cluster() -> SecureCluster:
    return SecureCluster()


# --- users ------------------------------------------------------------------------------------------------------------


def test_a_users_password_comes_from_a_file_and_is_shown_nowhere(cluster: SecureCluster, tmp_path: Path) -> None:
    file = tmp_path / "ann.password"
    file.write_text("secret-1\nand more\n")
    made = run(cluster, "user", "create", "ann", "--password-file", str(file))
    assert (made.exit_code, made.stdout) == (0, "User ann is there.\n")
    assert run(cluster, "user", "list").stdout.splitlines()[1].split() == ["ann", "SCRAM-SHA-256,", "SCRAM-SHA-512"]
    before = dict(cluster.controller.state.users["ann"])
    piped = run(cluster, "user", "password", "ann", "--password-file", "-", stdin=b"secret-2\r\n")
    assert piped.exit_code == 0
    assert cluster.controller.state.users["ann"] != before
    assert "secret" not in made.output + piped.output


def test_a_user_has_the_mechanisms_that_were_asked_for(cluster: SecureCluster) -> None:
    arguments = ("user", "create", "ann", "--mechanism", "scram-sha-512", "--password-file", "-")
    assert run(cluster, *arguments, stdin=b"secret").exit_code == 0
    assert run_json(cluster, "user", "list") == [{"user": "ann", "iterations": {"SCRAM-SHA-512": 8192}}]
    assert run_json(cluster, "user", "delete", "ann") == {"user": "ann", "deleted": True}
    assert run_json(cluster, "user", "list") == []


def test_what_is_refused_is_said_in_one_line(cluster: SecureCluster) -> None:
    for arguments, code, said in (
        (("user", "create", "ann"), 2, "--password-file"),
        (("user", "create", "ann", "--password-file", "-"), 1, "0 bytes"),
        (("user", "delete", "eve"), 1, "no user 'eve'"),
        (("acl", "add", "--allow", "User:ann", "--topic", "t"), 2, "--operation"),
        (("acl", "add", "--allow", "User:ann", "--operation", "read", "--topic", "t", "--group", "g"), 2, "at a time"),
        (("acl", "add", "--allow", "ann", "--operation", "read", "--topic", "t"), 1, "User:NAME"),
        (("acl", "remove",), 2, "whose rules"),
        (("acl", "remove", "--allow", "User:ann", "--prefixed"), 2, "--prefixed"),
        (("acl", "check", "User:ann", "read"), 2, "which resource"),
    ):  # fmt: skip
        refused = run(cluster, *arguments)
        assert refused.exit_code == code, refused.output
        assert said in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


# --- rules ------------------------------------------------------------------------------------------------------------


def test_rules_are_added_listed_checked_and_removed(cluster: SecureCluster) -> None:
    added = run(
        cluster, "acl", "add", "--allow", "User:ann", "--deny", "User:bob", "--operation", "read",
        "--operation", "alter-configs", "--topic", "team-", "--prefixed",
    )  # fmt: skip
    assert added.exit_code == 0
    assert len(added.stdout.splitlines()) == 5
    run(cluster, "acl", "add", "--allow", "User:ann", "--operation", "all", "--whole-cluster", "--host", "10.0.0.1")
    listed = run(cluster, "acl", "list", "--topic", "team-a", "--principal", "User:ann")
    assert [line.split() for line in listed.stdout.splitlines()[1:]] == [
        ["User:ann", "allow", "read", "topic", "team-…", "*"],
        ["User:ann", "allow", "alter-configs", "topic", "team-…", "*"],
    ]
    allowed = run(cluster, "acl", "check", "User:ann", "describe-configs", "--topic", "team-b")
    assert (allowed.exit_code, allowed.stdout) == (0, "User:ann may describe-configs topic team-b.\n")
    denied = run(cluster, "acl", "check", "User:bob", "read", "--topic", "team-b")
    assert (denied.exit_code, denied.stdout) == (1, "User:bob may not read topic team-b.\n")
    assert run(cluster, "acl", "check", "User:ann", "alter", "--whole-cluster").exit_code == 1
    assert run(cluster, "acl", "check", "User:ann", "alter", "--whole-cluster", "--host", "10.0.0.1").exit_code == 0
    removed = run_json(cluster, "acl", "remove", "--deny", "User:bob", "--operation", "read", "-y")
    assert removed == [
        {"principal": "User:bob", "permission": "deny", "operation": "read", "resource": "topic", "name": "team-",
         "pattern": "prefixed", "host": "*"},
    ]  # fmt: skip
    assert run_json(cluster, "acl", "remove", "--topic", "team-a") == []
    assert len(run_json(cluster, "acl", "remove", "--topic", "team-", "--prefixed")) == 3
    assert [each["resource"] for each in run_json(cluster, "acl", "list")] == ["cluster"]
