"""Topics, groups and clusters as a notebook shows them."""

from __future__ import annotations

from raylog.actors.cluster.html_tables import html_table
from raylog.api.admin.rules.group_descriptions import GroupDescription, GroupPartition
from raylog.api.connection.records import OffsetAndMetadata, TopicPartition
from tests.unit.api.cli.fake_cluster import FakeCluster


def test_a_topic_is_a_row_for_each_partition() -> None:
    cluster = FakeCluster()
    cluster.create_topic("clicks", 2, 2, {"retention.ms": 604_800_000})
    shown = cluster.describe_topic("clicks")._repr_html_()
    assert "<b>Topic &#x27;clicks&#x27;: 2 partitions, 2 replicas, retention.ms=7d</b>" in shown
    assert shown.count("<tr>") == 3
    assert "<tr><td>1</td><td>1</td><td>1, 2</td>" in shown


def test_a_cluster_is_a_row_for_each_broker_and_says_what_is_wrong() -> None:
    cluster = FakeCluster(2)
    cluster.create_topic("clicks", 1, 2, {})
    shown = cluster.describe_cluster()._repr_html_()
    assert "<b>Cluster id: 1 topics, 1 partitions</b>" in shown
    assert "<tr><td>1</td><td>10.0.0.1</td><td>yes</td><td>1</td><td>0</td><td>50 %</td>" in shown


def test_a_group_is_a_row_for_each_partition_with_its_lag() -> None:
    read = GroupPartition(TopicPartition("clicks", 0), "id of <a>", OffsetAndMetadata(40), 42, 2)
    unread = GroupPartition(TopicPartition("clicks", 1), "", None, -1, None)
    shown = GroupDescription("billing", "stable", 3, "range", "", "", (), (read, unread))._repr_html_()
    assert "<b>Group &#x27;billing&#x27;: stable, 0 members, lag 2</b>" in shown
    assert "<td>clicks</td><td>0</td><td>40</td><td>42</td><td>2</td><td>id of &lt;a&gt;</td>" in shown
    assert "<td>clicks</td><td>1</td><td></td><td></td><td></td><td></td>" in shown


def test_a_long_table_says_how_many_rows_it_leaves_out() -> None:
    shown = html_table("many", ("number",), [(number,) for number in range(60)])
    assert shown.count("<td>") == 50
    assert shown.endswith("<p>and 10 more</p>")
