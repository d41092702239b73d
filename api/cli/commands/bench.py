"""`raylog bench`: workloads on the cluster, and side by side on other systems."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from raylog.api.cli.arguments.argument_types import WrittenFile
from raylog.api.cli.arguments.former_options import formerly
from raylog.api.cli.session.session import Session, connects
from raylog.api.cli.terminal.output import JSON, formatted, say, show_json, show_table
from raylog.api.cli.terminal.progress import working
from raylog.errors import RaylogError, WorkloadFailed

if TYPE_CHECKING:
    from raylog.api.workloads.driver import Target
    from raylog.api.workloads.workload import Outcome, Workload

_SERVERS: Final = ("redis", "nats")


def _several(text: str, option: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise click.UsageError(f"{option} is a number, or several as 1,3,12, and not {text!r}.")
    return found


@click.command(
    cls=formerly(replicas="replication-factor"), short_help="Measure rates and latencies, here and beside others."
)
@click.option("-p", "--partitions", default="3", metavar="N,...", help="Partitions of the topics.  [default: 3]")
@click.option("-s", "--size", default="100", metavar="N,...", help="Bytes of a record, from 8 on.  [default: 100]")
@click.option(
    "-r",
    "--replication-factor",
    default="",
    metavar="N,...",
    help="[default: 3, or as many as there are brokers]",
)
@click.option("-a", "--acks", default="all", metavar="A,...", help="0, 1, all.  [default: all]")
@click.option(
    "--rate", type=click.IntRange(min=1), default=1_000, metavar="N", help="A second, for latencies.  [default: 1000]"
)
@click.option(
    "--seconds", type=click.FloatRange(min=0.1), default=5.0, metavar="S", help="Of each phase.  [default: 5]"
)
@click.option("--against", multiple=True, type=click.Choice(_SERVERS), help="Also on this; may be repeated.")
@click.option("--kafka", metavar="HOST:PORT", help="Also on the Kafka there.")
@click.option("--own", type=click.IntRange(min=1), metavar="N", help="On a cluster of N brokers made for this.")
@click.option("--json", "json_file", type=WrittenFile(), metavar="FILE", help="Write the figures to a file.")
@click.option("--html", "html_file", type=WrittenFile(), metavar="FILE", help="Draw them in a file.")
@formatted
@connects
@click.pass_obj
def bench(
    session: Session,
    partitions: str,
    size: str,
    replication_factor: str,
    acks: str,
    rate: int,
    seconds: float,
    against: tuple[str, ...],
    kafka: str | None,
    own: int | None,
    json_file: Path | None,
    html_file: Path | None,
    output_format: str,
) -> None:
    """Measure publish rate and latency, end-to-end latency and backlog drain.

    \b
    raylog bench --own 3                       on a cluster made for this
    raylog bench -p 1,12 -s 100,1000 -r 1,3 -a 1,all --html bench.html
    raylog bench --against redis --against nats --kafka localhost:9092

    Several values make a grid, of which every point is measured. Redis and NATS are started for the run, on loopback
    and on files of their own, from redis-server and nats-server on PATH. All run on this machine, beside whatever else
    it does: compare figures of one run. A point that fails is left out, and what was measured is kept, also by Ctrl-C.
    """
    from raylog.api.workloads.workload import STAMP_BYTES

    sizes = _several(size, "-s")
    if min(sizes) < STAMP_BYTES:
        raise click.UsageError(f"A record has {STAMP_BYTES} bytes at least: they hold when it was due.")
    wanted_acks = acks.split(",")
    if not set(wanted_acks) <= {"0", "1", "all"}:
        raise click.UsageError(f"-a is 0, 1 or all, or several of them with commas, and not {acks!r}.")
    counts = _several(partitions, "-p")
    factors = _several(replication_factor, "-r") if replication_factor else []
    with ExitStack() as stack:
        targets, left_out = _targets(session, stack, own, against, kafka)
        brokers = session.bench_brokers()
        loads = _grid(counts, sizes, factors or [min(3, brokers)], wanted_acks, rate, seconds)
        outcomes: list[Outcome] = []
        failed: dict[str, str] = {}
        try:
            _measure(targets, loads, outcomes, failed)
        finally:  # however it ends, what took so long is kept
            if outcomes or failed:
                _tell(outcomes, left_out | failed, json_file, html_file, output_format)
    if failed:
        raise click.ClickException(f"{len(failed)} of {len(outcomes) + len(failed)} points could not be measured.")


def _targets(
    session: Session, stack: ExitStack, own: int | None, against: Sequence[str], kafka: str | None
) -> tuple[list[Target], dict[str, str]]:
    """Return what is measured, and what is left out and why."""
    from raylog.api.workloads.driver import KAFKA, Target
    from raylog.api.workloads.servers import missing, server

    left_out = {kind: missing(kind) for kind in against if missing(kind)}
    if kafka and missing(KAFKA):
        left_out[KAFKA] = missing(KAFKA)
    for kind, reason in left_out.items():
        say(f"raylog: without {kind}: {reason}")
    found = [stack.enter_context(session.bench_target(own))]
    found += [stack.enter_context(server(kind)) for kind in dict.fromkeys(against) if kind not in left_out]
    if kafka and KAFKA not in left_out:
        found.append(Target(KAFKA, kafka, ""))
    return found, left_out


def _grid(
    counts: Sequence[int], sizes: Sequence[int], factors: Sequence[int], acks: Sequence[str], rate: int, seconds: float
) -> list[Workload]:
    from raylog.api.workloads.workload import Workload, grid

    return list(grid(Workload(rate=rate, seconds=seconds), counts, sizes, factors, acks))


def _measure(
    targets: Sequence[Target], loads: Sequence[Workload], outcomes: list[Outcome], failed: dict[str, str]
) -> None:
    """One point after the other, and each is told at once; `failed`: those that came to no figure, and why."""
    from raylog.api.workloads.measuring import measure

    for target, load in _runs(targets, loads):
        name = f"{target.kind} {load.point_of(target.kind)}"
        try:
            with working(name):
                found = measure(target, load, lambda _: None)
        except RaylogError as error:
            failed[name] = error.reason if isinstance(error, WorkloadFailed) else str(error)
            say(f"raylog: without {name}: {failed[name]}")
            continue
        outcomes.append(found)
        say(f"raylog: {name}: {found.publish_rate:,.0f} records/s, publish p99 {found.publish_latency.p99:.2f} ms")


def _runs(targets: Sequence[Target], loads: Sequence[Workload]) -> Iterator[tuple[Target, Workload]]:
    """Each load on all systems before the next; where a system has no replicas and acks, once for all of those."""
    seen: set[tuple[str, int, int]] = set()
    for load in loads:
        for target in targets:
            point = target.kind, load.partitions, load.size
            if target.kind in _SERVERS and point in seen:
                continue
            seen.add(point)
            yield target, load


def _tell(
    outcomes: Sequence[Outcome],
    left_out: dict[str, str],
    json_file: Path | None,
    html_file: Path | None,
    output_format: str,
) -> None:
    from raylog.api.workloads.chart import page
    from raylog.api.workloads.report import document

    report: dict[str, Any] = document(outcomes, left_out)
    try:
        if json_file is not None:
            json_file.write_text(json.dumps(report, indent=2) + "\n")
        if html_file is not None:
            machine = report["machine"]
            html_file.write_text(page(outcomes, left_out, f"Python {machine['python']}, {machine['cores']} cores"))
    finally:
        if output_format == JSON:
            show_json(report)
        elif outcomes:
            _show(outcomes)


def _show(outcomes: Sequence[Outcome]) -> None:
    columns = (
        "system",
        "workload",
        "records/s",
        "MB/s",
        "publish p50 p99 p99.9 ms",
        "end-to-end p50 p99 ms",
        "drain/s",
    )
    rows = [
        (
            each.driver,
            each.point,
            f"{each.publish_rate:,.0f}",
            f"{each.publish_megabytes:.1f}",
            f"{each.publish_latency.p50:.2f} {each.publish_latency.p99:.2f} {each.publish_latency.p999:.2f}",
            f"{each.end_to_end_latency.p50:.2f} {each.end_to_end_latency.p99:.2f}",
            f"{each.drain_rate:,.0f}",
        )
        for each in outcomes
    ]
    show_table(columns, rows, numbers=columns[2:])
    click.echo()
    told = dict.fromkeys((each.driver, each.version, each.guarantee) for each in outcomes)
    show_table(("system", "version", "acknowledged means"), list(told))
