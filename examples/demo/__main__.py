"""The demo from the command line: a Ray and a folder of its own, and nothing left of either."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

_INTERRUPTED: Final = 130
_FAILED: Final = 1
_TRACEBACK: Final = "RAYLOG_TRACEBACK"
_CPUS: Final = 4  # Ray's count: brokers take none, Spark's executor takes one


def main(picture: str | None = None) -> int:
    """`picture`: where to draw what was told, as SVG."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as told_to:
        return _tell_to(told_to, picture)


def _tell_to(told_to: TextIO, picture: str | None) -> int:
    from rich.console import Console

    from examples.demo.account import WIDTH, Account
    from examples.demo.failures import in_one_line

    width = None if told_to.isatty() else WIDTH
    console = Console(file=told_to, width=width, record=picture is not None)
    account = Account(console)
    account.title("raylog", "a durable, replicated log made of Ray actors")
    try:
        with _own_folder() as folder, _quiet_ray(folder):
            from examples.demo.story import Story

            Story(account, folder / "data").run()
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted; everything is stopped and removed.\n")
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001  # Ray's and Spark's too, which have no base in common
        if os.environ.get(_TRACEBACK):
            traceback.print_exc()
        sys.stderr.write(f"The demo failed: {in_one_line(error)}\n")
        return _FAILED
    account.closing(f"{account.seconds:.0f} s in all. Next: README.md, or `raylog --help`.")
    if picture is not None:
        console.save_svg(picture, title="make demo", unique_id="demo")
    return 0


@contextmanager
def _own_folder() -> Iterator[Path]:
    """Short, since Ray's sockets lie in it. Nothing here meets a Ray that is running."""
    folder = Path(tempfile.mkdtemp(prefix="rl", dir="/tmp"))
    os.environ.update(RAY_TMPDIR=str(folder), TMPDIR=str(folder))
    os.environ["PYTHONWARNINGS"] = "ignore"
    os.environ.pop("RAY_ADDRESS", None)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _quiet_ray(folder: Path) -> Iterator[None]:
    """Send what Ray and Java print (about a process that was killed, say) into a file of the folder."""
    import ray

    from raylog.actors.on_ray.runtime.join_ray import join_or_start_ray

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.CRITICAL}
    with _output_to(folder / "output"):
        try:
            join_or_start_ray(num_cpus=_CPUS, **quiet)
            yield
        finally:
            ray.shutdown()


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Redirect the output of this process and of all that it starts, Java too."""
    ours = os.dup(1), os.dup(2)
    with path.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        for descriptor, saved in enumerate(ours, start=1):
            os.dup2(saved, descriptor)
            os.close(saved)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
