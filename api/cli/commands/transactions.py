"""`raylog txn …`."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from raylog.api.cli.arguments.lazy_group import LazyGroup
from raylog.api.cli.session.session import Session, connects
from raylog.api.cli.terminal.exit_codes import FAILED
from raylog.api.cli.terminal.output import JSON, formatted, listed, one_by_one, say, show_facts, show_json, show_table

if TYPE_CHECKING:
    from raylog.api.admin.rules.transaction_descriptions import (
        HangingTransaction,
        HangingTransactions,
        TransactionDescription,
    )


@click.group(cls=LazyGroup)
def txn() -> None:
    """Look at transactions, and end those that nobody ends."""


@txn.command("list")
@click.option(
    "--hanging", is_flag=True, help="Those open in a partition, or with offsets staged, that no coordinator knows of."
)
@formatted
@connects
@click.pass_obj
def list_transactions(session: Session, hanging: bool, output_format: str) -> None:
    """All transactional ids, and where each one's transaction stands."""
    if hanging:
        _show_hanging(session, output_format)
        return
    found = session.cluster.list_transactions(timeout=session.timeout)
    if output_format == JSON:
        names = ("transactional_id", "state", "producer_id", "epoch", "began_ms")
        show_json([{name: getattr(each, name) for name in names} for each in found])
        return
    rows = [(each.transactional_id, each.state, each.producer_id, each.epoch, _moment(each.began_ms)) for each in found]
    show_table(("id", "state", "producer", "epoch", "began"), rows, numbers=("producer", "epoch"))


@txn.command()
@click.argument("name", metavar="ID")
@formatted
@connects
@click.pass_obj
def describe(session: Session, name: str, output_format: str) -> None:
    """Show what the coordinator of a transactional id knows of it."""
    found = session.cluster.describe_transaction(name, timeout=session.timeout)
    if output_format == JSON:
        show_json(_document(found))
        return
    show_facts(
        [
            ("id", found.transactional_id),
            ("state", found.state),
            ("producer", f"{found.producer_id}, epoch {found.epoch}"),
            ("time-out", f"{found.timeout_ms} ms"),
            ("began", _moment(found.began_ms)),
            ("changed", _moment(found.changed_ms)),
            ("partitions", listed(map(str, found.partitions))),
            ("groups", listed(found.groups)),
        ]
    )


@txn.command()
@click.argument("names", metavar="[ID]...", nargs=-1)
@click.option("--hanging", is_flag=True, help="All that hang, in place of ids.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask on a terminal.")
@formatted
@connects
@click.pass_obj
def abort(session: Session, names: tuple[str, ...], hanging: bool, yes: bool, output_format: str) -> None:
    """End open transactions; their producers are fenced."""
    if bool(names) == hanging:
        raise click.UsageError("Say either ids or --hanging.")
    hangs = _hanging(session) if hanging else None
    found = names if hangs is None else hangs
    if found and not yes and sys.stdin.isatty():
        click.confirm(f"Abort {len(found)} transactions?", abort=True, err=True)
    with one_by_one(output_format) as tell:
        for each in found:
            session.cluster.abort_transaction(each, timeout=session.timeout)
            document = {"transactional_id": each} if isinstance(each, str) else _hanging_document(each)
            line = f"{each if isinstance(each, str) else _in_words(each)} is aborted."
            tell(document | {"aborted": True}, line)
    if hangs is not None:
        if not hangs and not hangs.unasked and output_format != JSON:
            click.echo("No transaction hangs.")
        _end_with_what_is_unknown(hangs)


def _hanging(session: Session) -> HangingTransactions:
    return session.cluster.find_hanging_transactions(timeout=session.timeout)


def _end_with_what_is_unknown(found: HangingTransactions) -> None:
    """Fail where not all could be asked: "nothing hangs" must not be believed then."""
    for partition, error in sorted(found.unasked.items()):
        say(f"{partition} could not be asked: {error}")
    if found.unasked:
        sys.exit(FAILED)


def _show_hanging(session: Session, output_format: str) -> None:
    found = _hanging(session)
    documents = list(map(_hanging_document, found))
    if output_format == JSON:
        show_json(documents)
    else:
        columns = ("topic", "partition", "producer", "epoch", "first-offset", "last-write", "groups")
        rows = [
            (
                *each.partition, each.producer_id, each.epoch, "-" if each.groups else each.first_offset,
                _moment(each.last_write_ms), listed(each.groups),
            )
            for each in found
        ]  # fmt: skip
        show_table(columns, rows, numbers=columns[1:5])
    _end_with_what_is_unknown(found)


def _hanging_document(each: HangingTransaction) -> dict[str, Any]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "producer_id": each.producer_id,
        "epoch": each.epoch,
        "first_offset": each.first_offset,
        "last_write_ms": each.last_write_ms,
        "groups": list(each.groups),
    }


def _document(found: TransactionDescription) -> dict[str, Any]:
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "epoch": found.epoch,
        "timeout_ms": found.timeout_ms,
        "began_ms": found.began_ms,
        "changed_ms": found.changed_ms,
        "partitions": [{"topic": each.topic, "partition": each.partition} for each in found.partitions],
        "groups": list(found.groups),
    }


def _in_words(each: HangingTransaction) -> str:
    if each.groups:
        return f"What producer {each.producer_id} has staged for {listed(each.groups)}"
    return f"The transaction of producer {each.producer_id} in {each.partition}"


def _moment(milliseconds: Any) -> str:
    if milliseconds is None:
        return "-"
    return f"{datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
