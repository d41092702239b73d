"""Arguments under their former names work for a release, and say so."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from raylog.api.admin.cluster_groups import ClusterGroups
from raylog.api.admin.kafka_admin_names import KafkaAdminNames
from raylog.api.connection.former_names import formerly


@formerly(name="cluster")
def start(data_dir: str, *, cluster: str = "default") -> tuple[str, str]:
    return data_dir, cluster


def test_the_former_name_works_and_warns_where_it_is_used() -> None:
    with pytest.warns(DeprecationWarning, match=r"start\(name=…\) is start\(cluster=…\) now") as said:
        assert start("data", name="mine") == ("data", "mine")  # type: ignore[call-arg]
    assert said[0].filename == __file__


def test_the_present_name_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert start("data", cluster="mine") == ("data", "mine")


def test_both_are_refused() -> None:
    for given in ({"name": "a", "cluster": "b"}, {"cluster": "b", "name": "a"}):
        with pytest.raises(TypeError, match="got 'cluster' twice"):
            start("data", **given)


_OF_GROUPS: dict[str, dict[str, Any]] = {
    "describe_group": {},
    "delete_group": {},
    "remove_members": {},
    "list_group_offsets": {},
    "alter_group_offsets": {"offsets": {}},
    "reset_group_offsets": {"to": "earliest"},
    "delete_group_offsets": {"partitions": []},
}


@pytest.mark.parametrize(("call", "more"), _OF_GROUPS.items())
def test_calls_about_groups_take_group_id_and_still_group(call: str, more: dict[str, Any]) -> None:
    class Handle(ClusterGroups):
        def _administer(self, call: object, timeout: float) -> object:  # type: ignore[override]
            return "asked"

    ask = getattr(Handle(), call)
    ask("billing", **more)
    ask(group_id="billing", **more)
    with pytest.warns(DeprecationWarning, match="group_id"):
        ask(group="billing", **more)


def test_a_time_is_timestamp_ms_as_in_send() -> None:
    class Handle(ClusterGroups):
        def _administer(self, call: object, timeout: float) -> object:  # type: ignore[override]
            return "asked"

    Handle().reset_group_offsets("billing", timestamp_ms=1_700_000_000_000)
    with pytest.warns(DeprecationWarning, match="timestamp_ms"):
        Handle().reset_group_offsets("billing", timestamp=1_700_000_000_000)  # type: ignore[call-arg]


def test_elections_and_deletions_take_kafkas_names_and_still_ours() -> None:
    class Handle(KafkaAdminNames):
        def _elect_leaders(self, kind: str, partitions: object, timeout: float) -> object:
            return kind, partitions

        def _begin_logs_at(self, starts: object, timeout: float) -> object:
            return starts

    with pytest.warns(DeprecationWarning, match="election_type"):
        assert Handle().elect_leaders(kind="unclean") == ("unclean", None)  # type: ignore[call-arg,comparison-overlap]
    with pytest.warns(DeprecationWarning, match="records_to_delete"):
        Handle().delete_records(before={("clicks", 0): 4})  # type: ignore[call-arg]
