"""`raylog topic …`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from raylog.api.cli.arguments.argument_types import Partitions, moment, pairs
from raylog.api.cli.arguments.former_options import formerly
from raylog.api.cli.arguments.lazy_group import LazyGroup
from raylog.api.cli.session.session import Session, connects
from raylog.api.cli.terminal.output import (
    JSON,
    formatted,
    known,
    listed,
    one_by_one,
    show_facts,
    show_json,
    show_table,
    size,
)
from raylog.errors import TopicExists

if TYPE_CHECKING:
    from raylog.actors.cluster.descriptions import PartitionDescription, ReplicaDescription, TopicDescription

_YES_HELP: Final = "Do not ask on a terminal."
_RENAMED: Final = formerly(replicas="replication-factor")


@click.group(cls=LazyGroup, lazy={"recover": "copies:recover"})
def topic() -> None:
    """Create, look at and change topics."""


@topic.command(cls=_RENAMED)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("-p", "--partitions", type=click.IntRange(min=1), metavar="N", help="How many.  [default: 1]")
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(min=1),
    metavar="N",
    help="Replicas of each partition.  [default: 3, or as many as there are brokers]",
)
@click.option("-c", "--topic-config", "config", multiple=True, metavar="KEY=VALUE", help="A setting; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="A topic that is there is no failure.")
@formatted
@connects
@click.pass_obj
def create(
    session: Session,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    config: tuple[str, ...],
    if_not_exists: bool,
    output_format: str,
) -> None:
    """Create topics.

    \b
    raylog topic create clicks -p 6 -r 3 -c retention.ms=86400000
    """
    settings = pairs(config, "-c")
    made: list[dict[str, Any]] = []
    for name in names:
        try:
            found = session.cluster.create_topic(
                name, partitions, replication_factor, settings, timeout=session.timeout
            )
        except TopicExists:
            if not if_not_exists:
                raise
            found = session.cluster.describe_topic(name, timeout=session.timeout)
            made.append(_summary(found) | {"created": False})
        else:
            made.append(_summary(found) | {"created": True})
    if output_format == JSON:
        show_json(made)
        return
    rows = [
        (each["topic"], each["partitions"], each["replicas"], "created" if each["created"] else "was there")
        for each in made
    ]
    show_table(("topic", "partitions", "replicas", "status"), rows, numbers=("partitions", "replicas"))


@topic.command("list")
@click.option("-i", "--internal", is_flag=True, help="Also the topics of raylog itself.")
@formatted
@connects
@click.pass_obj
def list_topics(session: Session, internal: bool, output_format: str) -> None:
    """Name, partitions and replicas of all topics."""
    cluster = session.cluster
    names = cluster.list_topics(internal=internal, timeout=session.timeout)
    found = [_summary(cluster.describe_topic(name, timeout=session.timeout)) for name in names]
    if output_format == JSON:
        show_json(found)
        return
    rows = [(each["topic"], each["partitions"], each["replicas"], each["under_replicated"]) for each in found]
    columns = ("topic", "partitions", "replicas", "under-replicated")
    show_table(columns, rows, numbers=columns[1:])


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("-a", "--all-config", is_flag=True, help="Also the settings that are the defaults.")
@formatted
@connects
@click.pass_obj
def describe(session: Session, names: tuple[str, ...], all_config: bool, output_format: str) -> None:
    """Partitions, replicas and settings of topics."""
    documents = []
    for place, name in enumerate(names):
        found = session.cluster.describe_topic(name, timeout=session.timeout)
        replicas = session.cluster.describe_replicas(name, timeout=session.timeout)
        config = _settings_of(session, found, all_config)
        if output_format == JSON:
            documents.append(topic_document(found, replicas, config))
        else:
            click.echo("\n" if place else "", nl=False)
            _show(found, replicas, config)
    if output_format == JSON:
        show_json(documents)


@topic.command(cls=_RENAMED)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("-c", "--set", "-s", "changes", multiple=True, metavar="KEY=VALUE", help="Change a setting.")
@click.option("-d", "--delete", "defaults", multiple=True, metavar="KEY", help="Put a setting back to its default.")
@click.option("-r", "--replication-factor", type=click.IntRange(min=1), metavar="N", help="Change how many replicas.")
@formatted
@connects
@click.pass_obj
def alter(
    session: Session,
    names: tuple[str, ...],
    changes: tuple[str, ...],
    defaults: tuple[str, ...],
    replication_factor: int | None,
    output_format: str,
) -> None:
    """Change settings of topics, or their number of replicas.

    \b
    raylog topic alter clicks -c retention.ms=3600000 -d segment.bytes
    """
    if not (changes or defaults or replication_factor):
        raise click.UsageError("Say what to change: -c KEY=VALUE, -d KEY or -r N.")
    settings = {**pairs(changes, "-c"), **dict.fromkeys(defaults)}
    under_way = replication_factor is not None
    with one_by_one(output_format) as tell:
        for name in names:
            if settings:
                session.cluster.alter_topic_config(name, settings, timeout=session.timeout)
            if replication_factor is not None:
                session.cluster.change_replication_factor(name, replication_factor, timeout=session.timeout)
            line = f"{name} is changed; its replicas are under way." if under_way else f"{name} is changed."
            tell({"topic": name, "altered": True, "reassigning": under_way}, line)


@topic.command("add-partitions")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("-n", "--num", type=click.IntRange(min=1), metavar="N", help="How many to add.")
@click.option("--total", type=click.IntRange(min=1), metavar="N", help="How many there are to be, in place of -n.")
@formatted
@connects
@click.pass_obj
def add_partitions(
    session: Session, names: tuple[str, ...], num: int | None, total: int | None, output_format: str
) -> None:
    """Add partitions. Keys then go to other partitions than before."""
    if (num is None) == (total is None):
        raise click.UsageError("Say either -n or --total.")
    with one_by_one(output_format) as tell:
        for name in names:
            wanted = total
            if wanted is None:
                now = session.cluster.describe_topic(name, timeout=session.timeout)
                wanted = len(now.partitions) + (num or 0)
            session.cluster.create_partitions(name, wanted, timeout=session.timeout)
            tell({"topic": name, "partitions": wanted}, f"{name} has {wanted} partitions.")


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help=_YES_HELP)
@formatted
@connects
@click.pass_obj
def delete(session: Session, names: tuple[str, ...], yes: bool, output_format: str) -> None:
    """Delete topics and their records."""
    for name in names:  # so that a wrong name is told before anything is deleted
        session.cluster.describe_topic(name, timeout=session.timeout)
    _confirm(f"Delete {', '.join(names)} and all records in there?", yes)
    with one_by_one(output_format) as tell:
        for name in names:
            session.cluster.delete_topic(name, timeout=session.timeout)
            tell({"topic": name, "deleted": True}, f"{name} is deleted.")


@topic.command()
@click.argument("name")
@click.option("-o", "--offset", required=True, metavar="OFFSET", help="N, end, or @TIME: what is before it goes.")
@click.option("-p", "--partitions", type=Partitions(), metavar="0,2,5-7", help="Of these.  [default: of all]")
@click.option("-y", "--yes", is_flag=True, help=_YES_HELP)
@formatted
@connects
@click.pass_obj
def trim(
    session: Session, name: str, offset: str, partitions: Sequence[int] | None, yes: bool, output_format: str
) -> None:
    """Delete the records before an offset, or before a time.

    \b
    raylog topic trim clicks -o end
    raylog topic trim clicks -o @2026-01-31T12:00:00Z -p 0,1
    """
    place = _trim_place(offset)
    found = session.cluster.describe_topic(name, timeout=session.timeout)
    chosen = [each.partition for each in found.partitions] if partitions is None else list(partitions)
    before = _trim_offsets(session, found, chosen, place)
    _confirm(f"Delete the records of {name} before {offset} in {len(chosen)} partitions?", yes)
    starts = session.cluster.delete_records(before, timeout=session.timeout)
    rows = sorted((partition, start) for (_, partition), start in starts.items())
    if output_format == JSON:
        show_json([{"topic": name, "partition": partition, "log_start_offset": start} for partition, start in rows])
    else:
        show_table(("partition", "log-start"), rows, numbers=("partition", "log-start"))


# --- how ----------------------------------------------------------------------------------------------------------


def _confirm(question: str, yes: bool) -> None:
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)


def _trim_place(text: str) -> int | str:
    """An offset (−1: the end), or a time in milliseconds as "@…"."""
    if text == "end":
        return -1
    if text.isdecimal():
        return int(text)
    if text.startswith("@"):
        try:
            return f"@{moment(text[1:], round(time.time() * 1000))}"
        except ValueError as error:
            raise click.UsageError(f"-o: {error}.") from None
    raise click.UsageError(f"-o is an offset, end or @TIME, and not {text!r}.")


def _trim_offsets(
    session: Session, found: TopicDescription, chosen: Sequence[int], place: int | str
) -> dict[tuple[str, int], int]:
    if isinstance(place, int):
        return {(found.name, partition): place for partition in chosen}
    from raylog.api.connection.records import TopicPartition

    wanted = {TopicPartition(found.name, partition): int(place[1:]) for partition in chosen}
    with session.consumer() as consumer:
        ends = consumer.end_offsets(wanted)  # before the times: what arrives from here on may be newer, and stays
        places = consumer.offsets_for_times(wanted)
    return {(each.topic, each.partition): ends[each] if at is None else at.offset for each, at in places.items()}


def _settings_of(session: Session, found: TopicDescription, with_defaults: bool) -> dict[str, Any]:
    if with_defaults:
        return dict(session.cluster.describe_topic_config(found.name, timeout=session.timeout))
    return dict(found.settings)


def _summary(found: TopicDescription) -> dict[str, Any]:
    return {
        "topic": found.name,
        "partitions": len(found.partitions),
        "replication_factor": found.replication_factor,
        "replicas": found.replication_factor,  # its former name
        "under_replicated": sum(each.is_under_replicated for each in found.partitions),
        "internal": found.internal,
    }


def topic_document(
    found: TopicDescription, replicas: Sequence[ReplicaDescription], config: dict[str, Any]
) -> dict[str, Any]:
    return {
        **_summary(found),
        "topic_id": found.topic_id.hex(),
        "config": config,
        "partition_list": [_partition_document(each, replicas) for each in found.partitions],
    }


def _partition_document(each: PartitionDescription, replicas: Sequence[ReplicaDescription]) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "leader": each.leader,
        "leader_epoch": each.leader_epoch,
        "replicas": list(each.replicas),
        "isr": list(each.isr),
        "waits": each.waits,
        "adding": list(each.adding),
        "removing": list(each.removing),
        "log_start_offset": each.log_start_offset,
        "high_watermark": each.high_watermark,
        "log_end_offset": each.log_end_offset,
        "size_bytes": leader_size(each, replicas),
        "hosts": [
            {"broker": one.broker, "host": one.host, "pid": one.pid}
            for one in replicas
            if one.partition == each.partition
        ],
    }


def _hosts(partition: int, replicas: Sequence[ReplicaDescription]) -> str:
    """Name the process of each replica, the preferred leader's first."""
    return ", ".join(f"{one.host} {known(one.pid)}".strip() for one in replicas if one.partition == partition)


def leader_size(each: PartitionDescription, replicas: Sequence[ReplicaDescription]) -> int:
    sizes = [one.size_bytes for one in replicas if (one.partition, one.broker) == (each.partition, each.leader)]
    return sizes[0] if sizes else -1


def _show(found: TopicDescription, replicas: Sequence[ReplicaDescription], config: dict[str, Any]) -> None:
    from raylog.config import readable

    settings = [(f"  {name}", readable(name, value)) for name, value in sorted(config.items())]
    facts = [("topic", found.name), ("partitions", len(found.partitions)), ("replicas", found.replication_factor)]
    show_facts([*facts, ("settings", "" if settings else "all are the defaults"), *settings])
    columns = ("partition", "leader", "epoch", "replicas", "isr", "start", "high-watermark", "size", "hosts")
    rows = [
        (
            each.partition,
            known(each.leader),
            each.leader_epoch,
            listed(each.replicas),
            listed(each.isr),
            known(each.log_start_offset),
            known(each.high_watermark),
            size(leader_size(each, replicas)),
            _hosts(each.partition, replicas),
        )
        for each in found.partitions
    ]
    show_table(columns, rows, numbers=("partition", "leader", "epoch", "start", "high-watermark", "size"))
    for each in found.partitions:
        if each.waits:
            click.echo(f"Nobody leads partition {each.partition}: {each.waits}.")
