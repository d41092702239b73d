"""`raylog cluster …`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from raylog.api.cli.arguments.argument_types import pairs
from raylog.api.cli.arguments.lazy_group import LazyGroup
from raylog.api.cli.commands.running import status_document
from raylog.api.cli.session.session import Session, connects
from raylog.api.cli.terminal.output import (
    JSON,
    formatted,
    listed,
    say,
    show_facts,
    show_json,
    show_one,
    show_table,
    size,
)
from raylog.api.cli.terminal.progress import follow

if TYPE_CHECKING:
    from raylog.actors.cluster.descriptions import BrokerDescription
    from raylog.api.cli.commands.rebalance_plan import Move


@click.group(cls=LazyGroup)
def cluster() -> None:
    """Look at brokers, and move what they hold."""


@cluster.command()
@formatted
@connects
@click.pass_obj
def describe(session: Session, output_format: str) -> None:
    """The brokers, and what each of them holds."""
    found = session.cluster.describe_cluster(timeout=session.timeout)
    if output_format == JSON:
        brokers = [_broker_document(each) for each in found.brokers]
        show_json(status_document(session.name, found) | {"voters": list(found.voters), "broker_list": brokers})
        return
    facts = [("cluster", f"{session.name} ({found.cluster_id})"), ("controller epoch", found.controller_epoch)]
    show_facts([*facts, ("voters", listed(found.voters))])
    columns = ("broker", "state", "host", "rack", "replicas", "leaders", "disk free", "directory")
    rows = [
        (
            each.broker,
            _state(each),
            each.host,
            each.rack or "-",
            each.replicas,
            each.leaders,
            size(each.free_bytes),
            each.directory,
        )
        for each in found.brokers
    ]
    show_table(columns, rows, numbers=("broker", "replicas", "leaders", "disk free"))


@cluster.command()
@click.option("--leaders-only", is_flag=True, help="Elect the preferred leaders; move no replica.")
@click.option("--dry-run", is_flag=True, help="Change nothing; show what would move.")
@click.option(
    "--throttle",
    type=click.IntRange(min=-1),
    metavar="BYTES",
    help="A second, that each broker receives or sends for moves, also for later ones; -1: no limit.",
)
@click.option("--no-wait", is_flag=True, help="Return at once; it goes on.")
@formatted
@connects
@click.pass_obj
def rebalance(
    session: Session, leaders_only: bool, dry_run: bool, throttle: int | None, no_wait: bool, output_format: str
) -> None:
    """Let all brokers hold equally many replicas and leaders.

    Moves as little as that takes, and keeps replicas on as many racks and nodes as they are on. Ctrl-C ends only the
    waiting; `raylog cluster cancel` ends the moves.
    """
    moves = [] if leaders_only else _plan(session)
    _show_moves(moves, dry_run, output_format)
    if dry_run:
        return
    if moves or throttle is not None:
        targets = {each.partition: each.after for each in moves}
        session.cluster.reassign_partitions(targets, throttle=throttle, timeout=session.timeout)
    if no_wait:
        return
    follow("moving replicas", lambda: len(session.cluster.list_reassignments(timeout=session.timeout)))
    refused = session.cluster.elect_leaders("preferred", timeout=session.timeout)
    for (topic, partition), error in sorted(refused.items()):
        say(f"{topic}-{partition} keeps its leader: {error}")


@cluster.command()
@formatted
@connects
@click.pass_obj
def cancel(session: Session, output_format: str) -> None:
    """End the moves of replicas that are under way; they go back."""
    moving = session.cluster.list_reassignments(timeout=session.timeout)
    if moving:
        session.cluster.cancel_reassignment(timeout=session.timeout)
    show_one(output_format, {"cancelled": len(moving)}, f"{len(moving)} moves are cancelled.")


@cluster.command()
@click.argument("broker", type=click.IntRange(min=0))
@click.option("--force", is_flag=True, help="Where a replica has nowhere to go, make do with fewer.")
@click.option("--undo", is_flag=True, help="It stays after all.")
@click.option("--no-wait", is_flag=True, help="Return at once; it goes on.")
@formatted
@connects
@click.pass_obj
def drain(session: Session, broker: int, force: bool, undo: bool, no_wait: bool, output_format: str) -> None:
    """Move everything off a broker, before its node is taken away.

    Ctrl-C ends only the waiting. `raylog cluster remove` then stops the broker.
    """
    if undo:
        session.cluster.undrain_broker(broker, timeout=session.timeout)
        line = f"Broker {broker} stays."
    else:
        session.cluster.drain_broker(broker, force=force, wait=False, timeout=session.timeout)
        line = f"Broker {broker} is being drained."
        if not no_wait:
            follow(f"draining broker {broker}", lambda: _replicas_of(session, broker))
            line = f"Broker {broker} holds nothing any more."
    left = _replicas_of(session, broker) if output_format == JSON else 0
    show_one(output_format, {"broker": broker, "draining": not undo, "replicas": left}, line)


@cluster.command()
@click.argument("broker", type=click.IntRange(min=0))
@formatted
@connects
@click.pass_obj
def remove(session: Session, broker: int, output_format: str) -> None:
    """Stop a drained broker for good, and forget it."""
    session.cluster.remove_broker(broker, timeout=session.timeout)
    show_one(output_format, {"broker": broker, "removed": True}, f"Broker {broker} is removed.")


@cluster.command("rotate-secrets")
@click.option(
    "--grace",
    type=click.FloatRange(min=0.0),
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the former secrets stay valid beside the new ones.",
)
@formatted
@connects
@click.pass_obj
def rotate_secrets(session: Session, grace: float, output_format: str) -> None:
    """Let the cluster have new secrets, without a stop.

    Producers and consumers that reach Ray go on without an error. Programs that do not, such as Spark's
    workers, have to be started anew before the former secrets end.
    """
    session.cluster.rotate_secrets(grace=grace, timeout=session.timeout)
    line = f"Every broker holds new secrets. The former ones are valid for {grace:g} s more."
    show_one(output_format, {"rotated": True, "grace_seconds": grace}, line)


@cluster.command()
@click.option("-c", "--set", "-s", "changes", multiple=True, metavar="KEY=VALUE", help="Change a setting.")
@click.option("-d", "--delete", "defaults", multiple=True, metavar="KEY", help="Put a setting back to its default.")
@formatted
@connects
@click.pass_obj
def config(session: Session, changes: tuple[str, ...], defaults: tuple[str, ...], output_format: str) -> None:
    """Show the settings of the whole cluster, or change some.

    \b
    raylog cluster config -c group.assignors=our_package.by_region
    """
    settings = {**pairs(changes, "-c"), **dict.fromkeys(defaults)}
    if settings:
        session.cluster.alter_cluster_config(settings, timeout=session.timeout)
    found = session.cluster.describe_cluster_config(timeout=session.timeout)
    if output_format == JSON:
        show_json(found)
        return
    show_facts([(name, value or "-") for name, value in found.items()])


# --- how ----------------------------------------------------------------------------------------------------------


def _state(broker: BrokerDescription) -> str:
    if not broker.alive:
        return "away"
    return "draining" if broker.draining else "alive"


def _plan(session: Session) -> list[Move]:
    from raylog.actors.cluster.placement.placement import Site
    from raylog.api.cli.commands.rebalance_plan import plan

    found = session.cluster.describe_cluster(timeout=session.timeout)
    sites = [Site(each.broker, each.rack, each.node_id) for each in found.brokers if each.alive and not each.draining]
    placement = {}
    for name in session.cluster.list_topics(internal=True, timeout=session.timeout):
        for each in session.cluster.describe_topic(name, timeout=session.timeout).partitions:
            if not each.is_reassigning:
                placement[name, each.partition] = each.replicas
    return plan(placement, sites)


def _show_moves(moves: list[Move], dry_run: bool, output_format: str) -> None:
    if output_format == JSON:
        documents = [
            {"topic": each.partition[0], "partition": each.partition[1], "before": each.before, "after": each.after}
            for each in moves
        ]
        show_json({"dry_run": dry_run, "moves": documents})
        return
    if not moves:
        click.echo("No replica has to move.")
        return
    rows = [(*each.partition, listed(each.before), listed(each.after)) for each in moves]
    show_table(("topic", "partition", "before", "after"), rows, numbers=("partition",))


def _replicas_of(session: Session, broker: int) -> int:
    found = session.cluster.describe_cluster(timeout=session.timeout)
    return sum(each.replicas for each in found.brokers if each.broker == broker)


def _broker_document(each: BrokerDescription) -> dict[str, Any]:
    return {
        "broker": each.broker,
        "alive": each.alive,
        "draining": each.draining,
        "node_id": each.node_id,
        "host": each.host,
        "rack": each.rack,
        "directory": each.directory,
        "replicas": each.replicas,
        "leaders": each.leaders,
        "free_bytes": each.free_bytes,
        "total_bytes": each.total_bytes,
    }
