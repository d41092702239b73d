"""`raylog group …`."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from raylog.api.cli.arguments.lazy_group import LazyGroup
from raylog.api.cli.records.read_range import END, START, parse_place
from raylog.api.cli.session.session import Session, connects
from raylog.api.cli.terminal.output import JSON, formatted, known, one_by_one, show_facts, show_json, show_table

if TYPE_CHECKING:
    from raylog.api.admin.rules.group_descriptions import GroupDescription
    from raylog.api.connection.records import TopicPartition


@click.group(cls=LazyGroup)
def group() -> None:
    """Look at consumer groups and change where they are."""


@group.command("list")
@formatted
@connects
@click.pass_obj
def list_groups(session: Session, output_format: str) -> None:
    """Name, state and members of all groups."""
    found = session.cluster.list_groups(timeout=session.timeout)
    if output_format == JSON:
        show_json([{"group": each.group_id, "state": each.state, "members": each.members} for each in found])
    else:
        rows = [(each.group_id, each.state, each.members) for each in found]
        show_table(("group", "state", "members"), rows, numbers=("members",))


@group.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("--lag", "only_lag", is_flag=True, help="Only the lag, in records, of all partitions together.")
@formatted
@connects
@click.pass_obj
def describe(session: Session, names: tuple[str, ...], only_lag: bool, output_format: str) -> None:
    """Members, and offsets and lag of each partition."""
    found = [session.cluster.describe_group(name, timeout=session.timeout) for name in names]
    if output_format == JSON:
        lags = [{"group": each.group_id, "lag": each.lag} for each in found]
        show_json(lags if only_lag else [group_document(each) for each in found])
        return
    if only_lag:
        show_table(("group", "lag"), [(each.group_id, each.lag) for each in found], numbers=("lag",))
        return
    for place, each in enumerate(found):
        click.echo("\n" if place else "", nl=False)
        _show(each)


@group.command()
@click.argument("name", metavar="GROUP")
@click.option("--to", "place", metavar="PLACE", required=True, help="start, end, 42, +10, -10 or @TIME.")
@click.option("-t", "--topics", multiple=True, metavar="TOPIC", help="Of this topic; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Change nothing; show what would be.")
@formatted
@connects
@click.pass_obj
def seek(session: Session, name: str, place: str, topics: tuple[str, ...], dry_run: bool, output_format: str) -> None:
    """Put the offsets of a group without members elsewhere.

    \b
    raylog group seek billing --to start --dry-run
    raylog group seek billing --to @2026-01-31T12:00:00Z -t clicks
    raylog group seek billing --to -100             100 records back

    Without -t: of all that the group has committed; with -t the group need not be there yet. Never beyond what the
    logs hold. With --dry-run the group may have members.
    """
    to = _reset(place)
    before, members = _before(session, name)
    after = session.cluster.reset_group_offsets(
        name, to.pop("to", None), topics=topics or None, dry_run=dry_run, timeout=session.timeout, **to
    )
    if dry_run and members:
        told = f"raylog: {name} has {members} members. Stop them before you move its offsets."
        click.echo(told, err=True)
    if not after:
        raise click.ClickException(f"The group {name!r} has committed nothing. -t names the topics to begin in.")
    moves = [(each.topic, each.partition, before.get(each, -1), offset) for each, offset in sorted(after.items())]
    if output_format == JSON:
        names = ("topic", "partition", "before", "after")
        show_json(
            {"group": name, "dry_run": dry_run, "partitions": [dict(zip(names, each, strict=True)) for each in moves]}
        )
        return
    rows = [(topic, partition, known(was), will) for topic, partition, was, will in moves]
    show_table(("topic", "partition", "before", "after"), rows, numbers=("partition", "before", "after"))


@group.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask on a terminal.")
@formatted
@connects
@click.pass_obj
def delete(session: Session, names: tuple[str, ...], yes: bool, output_format: str) -> None:
    """Delete groups without members, with their offsets."""
    for name in names:  # so that a wrong name is told before anything is deleted
        session.cluster.describe_group(name, timeout=session.timeout)
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(names)} and their offsets?", abort=True, err=True)
    with one_by_one(output_format) as tell:
        for name in names:
            session.cluster.delete_group(name, timeout=session.timeout)
            tell({"group": name, "deleted": True}, f"{name} is deleted.")


# --- how ----------------------------------------------------------------------------------------------------------


def _reset(text: str) -> dict[str, Any]:
    """Return the argument as `Cluster.reset_group_offsets` takes it."""
    try:
        place = parse_place(text, round(time.time() * 1000))
    except ValueError as error:
        raise click.UsageError(f"--to: {error}.") from None
    if place.kind == "time":
        return {"timestamp_ms": place.number}
    if place.kind == "at":
        return {"offset": place.number}
    if place.kind in (START, END):
        return {"to": "earliest" if place.kind == START else "latest"}
    return {"shift": place.number if place.kind == "after" else -place.number}


def _before(session: Session, name: str) -> tuple[dict[TopicPartition, int], int]:
    """Return what a group has committed, and how many members it has. A group that is not there yet has nothing."""
    from raylog.errors import UnknownGroup

    try:
        found = session.cluster.describe_group(name, timeout=session.timeout)
    except UnknownGroup:
        return {}, 0
    committed = {each.partition: each.committed for each in found.partitions}
    return {each: at.offset for each, at in committed.items() if at is not None}, len(found.members)


def group_document(each: GroupDescription) -> dict[str, Any]:
    return {
        "group": each.group_id,
        "state": each.state,
        "epoch": each.epoch,
        "assignor": each.assignor,
        "problem": each.problem,
        "lag": each.lag,
        "members": [
            {
                "member_id": one.member_id,
                "instance_id": one.group_instance_id,
                "client_id": one.client_id,
                "host": one.host,
                "partitions": [{"topic": held.topic, "partition": held.partition} for held in sorted(one.assignment)],
            }
            for one in each.members
        ],
        "partitions": [
            {
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "committed": -1 if one.committed is None else one.committed.offset,
                "end_offset": one.end_offset,
                "lag": one.lag,
                "member_id": one.member_id,
            }
            for one in each.partitions
        ],
    }


def _show(each: GroupDescription) -> None:
    facts: list[tuple[str, object]] = [("group", each.group_id), ("state", each.state), ("assignor", each.assignor)]
    facts += [("members", len(each.members)), ("lag", each.lag)]
    show_facts([*facts, ("problem", each.problem)] if each.problem else facts)
    clients: Mapping[str, str] = {one.member_id: one.client_id for one in each.members}
    rows = [
        (
            one.partition.topic,
            one.partition.partition,
            known(None if one.committed is None else one.committed.offset),
            known(one.end_offset),
            known(one.lag),
            one.member_id or "-",
            clients.get(one.member_id, "-"),
        )
        for one in each.partitions
    ]
    columns = ("topic", "partition", "committed", "end", "lag", "member", "client")
    if rows:
        show_table(columns, rows, numbers=("partition", "committed", "end", "lag"))
