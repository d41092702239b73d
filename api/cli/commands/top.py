"""`raylog top`: a live view of the cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from raylog.api.cli.commands.top_frame import Sample, group_rows, headline, topic_rows
from raylog.api.cli.session.session import Session, connects
from raylog.api.cli.terminal.output import console, say
from raylog.errors import RaylogError, UnknownGroup, UnknownTopic

if TYPE_CHECKING:
    from rich.console import RenderableType

_DRAWN_WIDTH: Final = 80
_WHOLE_WIDTH: Final = 1_000  # no line is folded or cut


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
    traffic stand first. Into a pipe or a file it prints one frame after the other.
    """
    if svg_file is not None and not once:
        raise click.UsageError("--svg goes with --once.")
    before = _look(session, internal)
    if once:
        time.sleep(interval)
        is_drawn = svg_file is not None
        screen = console(record=is_drawn, width=None if _is_seen() else _DRAWN_WIDTH if is_drawn else _WHOLE_WIDTH)
        screen.print(_frame(session.name, before, _look(session, internal)))
        if svg_file is not None:
            screen.save_svg(svg_file, title="raylog top")
    elif _is_seen():
        _show(session, before, interval, internal)
    else:
        _list(session, before, interval, internal)


def _is_seen() -> bool:
    return sys.stdout.isatty()


def _show(session: Session, before: Sample, interval: float, internal: bool) -> None:
    """Draw on a terminal: each frame in the place of the last."""
    from rich.live import Live
    from rich.text import Text

    with Live(_frame(session.name, before, before), console=console(), screen=True) as live:
        for now in _looks(session, interval, internal):
            if isinstance(now, RaylogError):
                live.update(Text(str(now), style="red"))
            else:
                live.update(_frame(session.name, before, now))
                before = now


def _list(session: Session, before: Sample, interval: float, internal: bool) -> None:
    """Print into a pipe or a file: one frame after the other, until the reader has left."""
    page = console(width=_WHOLE_WIDTH)
    for now in _looks(session, interval, internal):
        if isinstance(now, RaylogError):
            say(f"raylog: {now}")
        else:
            page.print(_frame(session.name, before, now), "")
            before = now


def _looks(session: Session, interval: float, internal: bool) -> Iterator[Sample | RaylogError]:
    """Look at the cluster for ever. An error is one look: a cluster that is between two controllers is back soon."""
    while True:
        time.sleep(interval)
        try:
            now: Sample | RaylogError = _look(session, internal)
        except RaylogError as error:
            now = error
        yield now


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
