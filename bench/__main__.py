"""Runs the benchmarks and prints their table.

python -m bench                all of them
python -m bench codec          those of one group
python -m bench partitions --kafka HOST:PORT --subject creation
                               some of that group, and Apache Kafka beside them
python -m bench kafka --against HOST:PORT
                               Kafka's clients on raylog's gateway, and on Apache Kafka in the same run
python -m bench data --against HOST:PORT
                               Ray Data's connector for Kafka on an Apache Kafka as well
python -m bench --json FILE    the figures for a program as well
python -m bench --write        the figures into docs/performance.md as well
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from bench import (
    codec_bench,
    command_bench,
    consume_bench,
    group_bench,
    heartbeat_bench,
    hostile_bench,
    housekeeping_bench,
    kafka_batch_bench,
    kafka_codec_bench,
    log_bench,
    produce_bench,
    rebalance_bench,
    replication_bench,
    spark_bench,
    stream_bench,
    sustained_bench,
    timer_bench,
    transaction_bench,
)
from bench.gateway import record_profile
from bench.gateway import subjects as gateway_subjects
from bench.measuring import Figure
from bench.partitions import first_use
from bench.partitions import subjects as partition_subjects
from bench.performance_page import PAGE, Taken, present_commit, with_figures
from bench.ray_data import rates
from bench.security import access_rules

GROUPS: dict[str, Callable[[], Iterator[Figure]]] = {
    "access-rules": access_rules.run,
    "codec": codec_bench.run,
    "kafka-batches": kafka_batch_bench.run,
    "kafka-codec": kafka_codec_bench.run,
    "log": log_bench.run,
    "timers": timer_bench.run,
    "streams": stream_bench.run,
    "replication": replication_bench.run,
    "sustained": sustained_bench.run,
    "consume": consume_bench.run,
    "housekeeping": housekeeping_bench.run,
    "hostile": hostile_bench.run,
    "first-use": first_use.run,
    "groups": group_bench.run,
    "kafka": gateway_subjects.run,
    "kafka-profile": record_profile.run,
    "heartbeats": heartbeat_bench.run,
    "rebalance": rebalance_bench.run,
    "partitions": partition_subjects.run,
    "produce": produce_bench.run,
    "commands": command_bench.run,
    "spark": spark_bench.run,
    "data": rates.run,
    "transactions": transaction_bench.run,
}
_SUBJECTS = {"kafka": gateway_subjects.SUBJECTS, "partitions": partition_subjects.SUBJECTS}
_VERDICTS = {None: "", True: "[green]met[/]", False: "[red]missed[/]"}


@click.command()
@click.argument("groups", nargs=-1, type=click.Choice(list(GROUPS)))
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures to this file too.")
@click.option("--write", "writes", is_flag=True, help="Write the figures into docs/performance.md too.")
@click.option(
    "--against", "--kafka", "kafka", metavar="HOST:PORT",
    help="Measure Apache Kafka there too (kafka, partitions, data).",
)  # fmt: skip
@click.option(
    "--subject", "subjects", multiple=True,
    type=click.Choice([*partition_subjects.SUBJECTS, *gateway_subjects.SUBJECTS]),
    help="Of kafka or partitions, only this; may be given several times.",
)  # fmt: skip
def main(
    groups: tuple[str, ...], json_path: Path | None, writes: bool, kafka: str | None, subjects: tuple[str, ...]
) -> None:
    """Measure raylog on this machine."""
    if writes and subjects:
        raise click.UsageError("--write replaces a whole table: leave --subject out.")
    if subjects and len(groups) != 1:
        raise click.UsageError("--subject is of one group: kafka, or partitions.")
    if subjects and not set(subjects) <= set(_SUBJECTS.get(groups[0], ())):
        raise click.UsageError(f"{groups[0]} has no such subject: {', '.join(subjects)}.")
    measures: dict[str, Callable[[], Iterator[Figure]]] = {
        **GROUPS,
        "kafka": partial(gateway_subjects.run, kafka, subjects),
        "kafka-profile": partial(record_profile.run, kafka),
        "partitions": partial(partition_subjects.run, kafka, subjects),
        "data": partial(rates.run, kafka),
    }
    console = Console(highlight=False, width=None if os.isatty(1) else 140)
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores"
    console.print(f"{machine}; median of the rounds, [dim]least to most[/]\n")
    taken = Taken(datetime.now(timezone.utc).date(), present_commit(), machine)
    figures: list[Figure] = []
    for group in groups or GROUPS:
        of_group: list[Figure] = []
        for figure in measures[group]():
            of_group.append(figure)
            console.print(_line(figure), soft_wrap=True)
        figures += of_group
        if writes:
            PAGE.write_text(with_figures(PAGE.read_text(), group, of_group, taken))
    if json_path is not None:
        json_path.write_text(json.dumps([_row(figure) for figure in figures], indent=2) + "\n")


def _line(figure: Figure) -> str:
    spread = f"{min(figure.rounds):.4g} to {max(figure.rounds):.4g}"
    sign = "≤" if figure.smaller_is_better else "≥"
    goal = "" if figure.goal is None else f"{sign} {figure.goal:g}"
    return (
        f"{figure.name:38} [bold]{figure.median:>9.4g}[/] {figure.unit:15} [dim]{spread:>20}[/]  "
        f"{goal:>6} {_VERDICTS[figure.meets_goal]:6} {figure.note}"
    )


def _row(figure: Figure) -> dict[str, object]:
    return {
        "name": figure.name,
        "median": figure.median,
        "rounds": list(figure.rounds),
        "unit": figure.unit,
        "goal": figure.goal,
        "meets_goal": figure.meets_goal,
        "note": figure.note,
    }


if __name__ == "__main__":
    main()
