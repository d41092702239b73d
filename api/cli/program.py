"""The root of the command line: which commands there are, and how a run of one ends.

What must stay true: whatever goes wrong is one line on stderr and an exit code (`exit_codes.py`), never a traceback,
unless RAYLOG_TRACEBACK is set. Without a command the program says which there are. A command's module is imported
when it is called or listed, not before.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import click

from raylog.api.cli.arguments.lazy_group import LazyGroup
from raylog.api.cli.failures import failure_of
from raylog.api.cli.session.session import Session
from raylog.api.cli.terminal.exit_codes import CLOSED_PIPE, FAILED, IN_WORDS, OK, USAGE
from raylog.api.cli.terminal.interrupts import Terminated, exit_code_of

TRACEBACK: Final = "RAYLOG_TRACEBACK"
# A group of commands without one is its whole help; an older click prints it by itself.
_NOTHING_SAID: Final[Any] = getattr(click.exceptions, "NoArgsIsHelpError", ())
_SETTINGS: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


class Program(LazyGroup):
    """The root. It ends every run by itself, so that tests see the exit codes that users see."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002  # click's
        windows_expand_args: bool = True,  # noqa: ARG002
        **extra: Any,
    ) -> NoReturn:
        name = prog_name or "raylog"
        self._main_shell_completion(extra, name, complete_var)
        session: Session = extra.pop("obj", None) or Session()

        def work() -> None:
            with self.make_context(name, list(sys.argv[1:] if args is None else args), obj=session, **extra) as context:
                self.invoke(context)

        sys.exit(_ended(work, session))


def _ended(work: Callable[[], None], session: Session) -> int:
    """Do it, and say in one line why it did not go well; the exit code."""
    try:
        code = OK
        try:
            work()
        except click.exceptions.Exit as end:
            code = end.exit_code
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_stdout()
        return CLOSED_PIPE
    except (KeyboardInterrupt, click.Abort) as end:
        return _interrupted(end)
    except Exception as error:  # noqa: BLE001  # the last to see it, and it tells the user
        return _report(error, session)
    return code


def _report(error: Exception, session: Session) -> int:
    if isinstance(error, _NOTHING_SAID):
        click.echo(error.format_message(), err=True)
        return USAGE
    if os.environ.get(TRACEBACK):
        traceback.print_exc()
    try:
        text, code = failure_of(error, session)
    except KeyboardInterrupt as end:  # while other names were looked for
        return _interrupted(end)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    _say(text)
    return code


def _interrupted(end: BaseException) -> int:
    _say("terminated" if isinstance(end, Terminated) else "interrupted")
    return exit_code_of(end)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"raylog: {text}", file=sys.stderr)


def _leave_stdout() -> None:
    """Let stdout go nowhere: its reader has left, and what is still buffered has to go somewhere at the end.
    """
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


@click.command(
    cls=Program,
    lazy={
        "start": "running:start",
        "stop": "running:stop",
        "status": "running:status",
        "topic": "topics:topic",
        "produce": "produce:produce",
        "consume": "consume:consume",
        "group": "groups:group",
        "pool": "pools:pool",
        "cluster": "cluster_admin:cluster",
        "log": "logs:log",
        "txn": "transactions:txn",
        "user": "users:user",
        "acl": "access_rules:acl",
        "top": "top:top",
        "bench": "bench:bench",
        "completion": "completion:completion",
    },
    context_settings=_SETTINGS,
    epilog=IN_WORDS,
    no_args_is_help=True,
)
@click.version_option(package_name="raylog", prog_name="raylog", message="%(prog)s %(version)s")
def program() -> None:
    """A durable, replicated, partitioned log on Ray, with Kafka's semantics."""


def run(arguments: Sequence[str]) -> int:
    """The exit code of one command."""
    try:
        program.main(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else (OK if end.code is None else FAILED)
