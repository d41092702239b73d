"""`raylog pool …`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from raylog.api.cli.arguments.lazy_group import LazyGroup
from raylog.api.cli.session.session import Session, connects
from raylog.api.cli.terminal.output import (
    JSON,
    formatted,
    known,
    one_by_one,
    show_facts,
    show_json,
    show_one,
    show_table,
)
from raylog.errors import UnknownPool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raylog.api.admin.rules.pool_descriptions import PoolDescription

_NODE_DIGITS = 8
_EVENTS_SHOWN = 10


@click.group(cls=LazyGroup)
def pool() -> None:
    """Look at pools of consumers, and change their bounds."""


@pool.command("list")
@formatted
@connects
@click.pass_obj
def list_pools(session: Session, output_format: str) -> None:
    """Group, state, actors and lag of all pools."""
    found = list(_described(session))
    if output_format == JSON:
        show_json([_summary(each) for each in found])
        return
    rows = [(each.group_id, each.state, each.running, each.wanted, each.lag, ",".join(each.topics)) for each in found]
    show_table(
        ("group", "state", "running", "wanted", "lag", "topics"), rows, numbers=("running", "wanted", "lag")
    )


@pool.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@formatted
@connects
@click.pass_obj
def describe(session: Session, names: tuple[str, ...], output_format: str) -> None:
    """Actors of a pool, and why there are so many."""
    found = [session.cluster.pool(name, session.timeout).describe(session.timeout) for name in names]
    if output_format == JSON:
        show_json([pool_document(each) for each in found])
        return
    for place, each in enumerate(found):
        click.echo("\n" if place else "", nl=False)
        _show(each)


@pool.command()
@click.argument("name", metavar="GROUP")
@click.option("--min", "least", type=click.IntRange(min=0), metavar="N", help="At least so many actors.")
@click.option("--max", "most", type=click.IntRange(min=1), metavar="N", help="At most so many actors.")
@formatted
@connects
@click.pass_obj
def scale(session: Session, name: str, least: int | None, most: int | None, output_format: str) -> None:
    """Set how few and how many actors a pool may have.

    What is not named stays. A pool that is halted goes on.
    """
    if least is None and most is None:
        raise click.UsageError("--min or --max says how many.")
    handle = session.cluster.pool(name, session.timeout)
    before = handle.describe(session.timeout)
    bounds = before.min_actors if least is None else least, before.max_actors if most is None else most
    handle.scale(*bounds, timeout=session.timeout)
    document = {"group": name, "min_actors": bounds[0], "max_actors": bounds[1]}
    show_one(output_format, document, f"{name} may have {bounds[0]} to {bounds[1]} actors.")


@pool.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@formatted
@connects
@click.pass_obj
def stop(session: Session, names: tuple[str, ...], output_format: str) -> None:
    """End pools, whose actors end and commit what they have in hand.

    Their groups keep what they have committed.
    """
    handles = [session.cluster.pool(name, session.timeout) for name in names]  # a wrong name is told before
    with one_by_one(output_format) as tell:
        for handle in handles:
            handle.stop(session.timeout_or(120.0))
            tell({"group": handle.group_id, "stopped": True}, f"{handle.group_id} is stopped.")


# --- how ----------------------------------------------------------------------------------------------------------


def _described(session: Session) -> Iterator[PoolDescription]:
    for each in session.cluster.pools():
        try:
            yield each.describe(session.timeout)
        except UnknownPool:
            continue  # it has ended meanwhile


def _summary(each: PoolDescription) -> dict[str, Any]:
    return {
        "group": each.group_id,
        "state": each.state,
        "topics": list(each.topics),
        "running": each.running,
        "wanted": each.wanted,
        "min_actors": each.min_actors,
        "max_actors": each.max_actors,
        "lag": each.lag,
        "problem": each.problem,
    }


def pool_document(each: PoolDescription) -> dict[str, Any]:
    return {
        **_summary(each),
        "reason": each.reason,
        "arrival": each.arrival,
        "actor_rate": -1 if each.actor_rate is None else each.actor_rate,
        "version": each.version,
        "handled": each.handled,
        "failed": each.failed,
        "put_aside": each.put_aside,
        "deaths": each.deaths,
        "actors": [
            {
                "name": one.name,
                "phase": one.phase,
                "version": one.version,
                "node_id": one.node_id,
                "pid": one.pid,
                "partitions": one.partitions,
                "handled": one.handled,
                "error": one.error,
            }
            for one in each.actors
        ],
        "events": [{"at_ms": round(one.at * 1000), "text": one.text} for one in each.events],
    }


def _show(each: PoolDescription) -> None:
    rate = None if each.actor_rate is None else round(each.actor_rate, 1)
    facts: list[tuple[str, object]] = [
        ("group", each.group_id), ("topics", ", ".join(each.topics)), ("state", each.state),
        ("actors", f"{each.running} of {each.wanted}, {each.min_actors} to {each.max_actors} allowed"),
        ("reason", each.reason), ("lag", each.lag), ("arrival", f"{each.arrival:.1f} records/s"),
        ("rate", "-" if rate is None else f"{rate} records/s of one actor"), ("handler", f"version {each.version}"),
        ("handled", f"{each.handled} records, {each.put_aside} of them put aside"),
        ("failed", f"{each.failed} attempts, {each.deaths} actors"),
    ]  # fmt: skip
    show_facts([*facts, ("problem", each.problem)] if each.problem else facts)
    rows = [
        (one.name, one.phase, one.version, one.node_id[:_NODE_DIGITS] or "-", known(one.pid or None), one.partitions,
         one.handled, one.error or "-")
        for one in each.actors
    ]  # fmt: skip
    columns = ("actor", "phase", "version", "node", "pid", "partitions", "handled", "error")
    if rows:
        show_table(columns, rows, numbers=("version", "pid", "partitions", "handled"))
    for one in each.events[-_EVENTS_SHOWN:]:
        click.echo(f"{time.strftime('%H:%M:%S', time.localtime(one.at))}  {one.text}")
