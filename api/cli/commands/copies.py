"""`raylog topic recover`, `raylog log list-aside`, `raylog log drop-aside`."""

from __future__ import annotations

import dataclasses
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

import click

from raylog.api.cli.session.session import Session, connects
from raylog.api.cli.terminal.output import (
    JSON,
    formatted,
    known,
    say,
    show_facts,
    show_json,
    show_one,
    show_table,
    size,
)

if TYPE_CHECKING:
    from raylog.actors.cluster.copies import CopyDescription, PartitionCopies, SetAsideDescription

_MS: Final = 1000
_DAMAGED: Final = "damaged"


@click.command()
@click.argument("name", metavar="TOPIC")
@click.option("-p", "--partition", type=click.IntRange(min=0), metavar="N", required=True, help="Of this partition.")
@click.option("--from", "broker", type=click.IntRange(min=0), metavar="BROKER", help="Let this broker's copy lead.")
@click.option("--aside", default="", metavar="NAME", help="With --from: the log set aside there under this name.")
@click.option("--accept-loss", is_flag=True, help="With --from: although other copies may have more.")
@formatted
@connects
@click.pass_obj
def recover(
    session: Session,
    name: str,
    partition: int,
    broker: int | None,
    aside: str,
    accept_loss: bool,
    output_format: str,
) -> None:
    """Show every copy of a partition, or let one of them lead.

    For a partition that waits for a person: its last copies are damaged or gone. What other copies have more than the
    chosen one is set aside before it is cut, and can be restored.

    \b
    raylog topic recover clicks -p 3
    raylog topic recover clicks -p 3 --from 2 --accept-loss
    """
    if broker is None:
        if aside or accept_loss:
            raise click.UsageError("--aside and --accept-loss go with --from.")
        copies = session.cluster.describe_copies(name, partition, timeout=session.timeout)
    else:
        copies = session.cluster.recover_partition(
            name, partition, from_broker=broker, accept_loss=accept_loss, aside=aside, timeout=session.timeout
        )
    if output_format == JSON:
        show_json(copies_document(copies))
    else:
        _show(copies)


@click.command("list-aside")
@formatted
@connects
@click.pass_obj
def list_aside(session: Session, output_format: str) -> None:
    """The logs that were set aside, on all brokers."""
    listing = session.cluster.list_set_aside(timeout=session.timeout)
    if output_format == JSON:
        logs = [_aside_document(each) for each in listing.logs]
        show_json({"logs": logs, "unreachable": list(listing.unreachable)})
        return
    rows = [(each.broker, each.name, size(each.size_bytes), _when(each.at_ms), each.why) for each in listing.logs]
    show_table(("broker", "name", "size", "since", "why"), rows, numbers=("broker", "size"))
    _say_unreachable(listing.unreachable)


@click.command("drop-aside")
@click.argument("name")
@click.option("--broker", type=click.IntRange(min=0), metavar="N", help="Where several have one of this name.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask on a terminal.")
@formatted
@connects
@click.pass_obj
def drop_aside(session: Session, name: str, broker: int | None, yes: bool, output_format: str) -> None:
    """Remove a log that was set aside, for good."""
    if not yes and sys.stdin.isatty():
        click.confirm(f"Remove {name} and all records in there?", abort=True, err=True)
    holder = session.cluster.drop_set_aside(name, broker=broker, timeout=session.timeout)
    show_one(output_format, {"broker": holder, "name": name, "dropped": True}, f"{name} on broker {holder} is gone.")


def copies_document(copies: PartitionCopies) -> dict[str, Any]:
    return {
        "topic": copies.topic,
        "partition": copies.partition,
        "leader": copies.leader,
        "waits": copies.waits,
        "copies": [dataclasses.asdict(each) for each in copies.copies],
        "unreachable": list(copies.unreachable),
    }


def _aside_document(each: SetAsideDescription) -> dict[str, Any]:
    return dataclasses.asdict(each)


def _show(copies: PartitionCopies) -> None:
    leader = f"broker {copies.leader}" if copies.leader >= 0 else f"none: {copies.waits}"
    show_facts([("partition", f"{copies.topic}-{copies.partition}"), ("leader", leader)])
    rows = [
        (
            each.broker,
            each.state,
            known(each.last_epoch),
            known(each.log_end_offset),
            known(each.missing),
            size(each.size_bytes),
            _note(each),
        )
        for each in copies.copies
    ]
    columns = ("broker", "state", "epoch", "end", "missing", "size", "note")
    show_table(columns, rows, numbers=("broker", "epoch", "end", "missing", "size"))
    _say_unreachable(copies.unreachable)


def _note(each: CopyDescription) -> str:
    if each.name:
        return f"{each.name}{_limits_of(each)}"
    if each.in_sync or each.eligible:
        return "surely holds what was acknowledged"
    return each.why


def _limits_of(each: CopyDescription) -> str:
    if each.unusable:
        return f"; not usable: {each.unusable}"
    return "; sound up to that end, damaged behind it" if each.state == _DAMAGED else ""


def _say_unreachable(brokers: tuple[int, ...]) -> None:
    if brokers:
        say(f"Not asked, for they do not answer: broker {', '.join(map(str, brokers))}.")


def _when(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / _MS, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
