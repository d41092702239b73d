"""`raylog top`: a live view of the cluster."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from raylog.api.cli.session import Session, connects
from raylog.api.cli.top_frame import Sample, group_rows, headline, topic_rows
from raylog.errors import RaylogError, UnknownGroup, UnknownTopic

if TYPE_CHECKING:
    from rich.console import RenderableType

_PLAIN_WIDTH: Final = 100


@click.command()
@click.option(
    "--interval", type=click.FloatRange(min=0.2), default=2.0, metavar="S", help="Between looks.  [default: 2]"
)
@click.option("--once", is_flag=True, help="Print one frame, of two looks, and end.")
@click.option("--svg", "svg_file", type=click.Path(dir_okay=False), help="With --once: also draw it in this file.")
@click.option("-i", "--internal", is_flag=True, help="Also the topics of raylog itself.")
@connects
@click.pass_obj
def top(session: Session, interval: float, once: bool, svg_file: str | None, internal: bool) -> None:
    """Topics, rates, replicas in sync and the lag of groups, live. Ctrl-C ends it.

    In and out are records a second: written to a topic, and committed by groups that read it. The topics with most
    traffic stand first.
    """
    if svg_file is not None and not once:
        raise click.UsageError("--svg goes with --once.")
    from rich.console import Console

    before = _look(session, internal)
    if once:
        time.sleep(interval)
        is_drawn = svg_file is not None or sys.stdout.isatty()
        console = Console(
            highlight=False, record=svg_file is not None, width=None if sys.stdout.isatty() else _PLAIN_WIDTH
        )
        console.print(_frame(session.name, before, _look(session, internal)), no_wrap=not is_drawn)
        if svg_file is not None:
            console.save_svg(svg_file, title="raylog top")
        return
    _follow(session, before, interval, internal)


def _follow(session: Session, before: Sample, interval: float, internal: bool) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(
        _frame(session.name, before, before), console=Console(highlight=False), screen=sys.stdout.isatty()
    ) as live:
        while True:
            time.sleep(interval)
            try:
                now = _look(session, internal)
            except RaylogError as error:  # shown instead: a cluster that is between two controllers is back soon
                live.update(Text(str(error), style="red"))
                continue
            live.update(_frame(session.name, before, now))
            before = now


def _look(session: Session, internal: bool) -> Sample:
    cluster, timeout = session.cluster, session.timeout
    topics = []
    for name in cluster.list_topics(internal=internal, timeout=timeout):
        try:
            found = cluster.describe_topic(name, timeout=timeout), cluster.describe_replicas(name, timeout=timeout)
        except UnknownTopic:
            continue  # deleted meanwhile
        topics.append(found)
    groups = []
    for listed in cluster.list_groups(timeout=timeout):
        try:
            groups.append(cluster.describe_group(listed.group_id, timeout=timeout))
        except UnknownGroup:
            continue
    return Sample(time.monotonic(), cluster.describe_cluster(timeout=timeout), tuple(topics), tuple(groups))


def _frame(name: str, before: Sample, now: Sample) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    text = headline(name, now)
    style = "bold" if now.is_healthy else "bold red"
    topics = _table(("topic", "parts", "in/s", "out/s", "records", "size", "in sync", "under"), topic_rows(before, now))
    groups = _table(("group", "state", "members", "out/s", "lag"), group_rows(before, now))
    return Group(Text(text, style=style), Text(), topics, Text(), groups)


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), expand=False)
    for column in columns:
        table.add_column(column.upper(), justify="left" if column in ("topic", "group", "state") else "right")
    for row in rows:
        is_bad = columns[-1] == "under" and row[-1] != "0"
        table.add_row(*map(Text, row), style="red" if is_bad else "")
    return table
