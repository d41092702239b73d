"""Runs local brokers of Apache Kafka until it is interrupted.

    python -m bench.kafka_peer DIRECTORY                three brokers; their jars stay in DIRECTORY for the next time
    python -m bench.kafka_peer DIRECTORY --brokers 1

It prints the address that clients take, such as `127.0.0.1:40001,127.0.0.1:40003,127.0.0.1:40005`.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from bench.kafka_peer.brokers import kafka_brokers


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--brokers", default=3, show_default=True, help="How many brokers, each also a voter of the controller.")
def main(directory: Path, brokers: int) -> None:
    """Run brokers of Apache Kafka on this machine, from Maven's jars, with their data below DIRECTORY."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # an exit ends them, as Ctrl-C does
    with kafka_brokers(directory, brokers) as address:
        print(address, flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
