"""`raylog user …`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TextIO

import click

from raylog.actors.protocol.security_names import SCRAM_MECHANISMS
from raylog.api.cli.arguments.lazy_group import LazyGroup
from raylog.api.cli.session.session import Session, connects
from raylog.api.cli.terminal.output import JSON, formatted, show_json, show_one, show_table

_MOST_CHARACTERS: Final = 10_000  # of the line that a password is read from


def _with_password(command: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in (
        click.option(
            "--mechanism",
            "mechanisms",
            multiple=True,
            type=click.Choice(SCRAM_MECHANISMS, case_sensitive=False),
            help="How it can be proved; may be given twice.  [default: both]",
        ),
        click.option(
            "--password-file",
            type=click.File(),
            metavar="FILE",
            help="Its first line is the password; -: of stdin.  [default: it is asked for]",
        ),
    ):
        command = decorate(command)
    return command


@click.group(cls=LazyGroup)
def user() -> None:
    """Create, list and change users with passwords.

    Listeners for Kafka clients that begin with SASL_PLAINTEXT:// ask for them.
    """


@user.command()
@click.argument("name")
@_with_password
@formatted
@connects
@click.pass_obj
def create(
    session: Session, name: str, password_file: TextIO | None, mechanisms: tuple[str, ...], output_format: str
) -> None:
    """Create a user. The cluster keeps salted hashes of the password.

    \b
    raylog user create ann --password-file ann.password
    """
    secret = _password(password_file)
    session.cluster.create_user(name, secret, mechanisms=mechanisms or SCRAM_MECHANISMS, timeout=session.timeout)
    show_one(output_format, {"user": name, "created": True}, f"User {name} is there.")


@user.command()
@click.argument("name")
@_with_password
@formatted
@connects
@click.pass_obj
def password(
    session: Session, name: str, password_file: TextIO | None, mechanisms: tuple[str, ...], output_format: str
) -> None:
    """Let a user have another password."""
    secret = _password(password_file)
    session.cluster.set_password(name, secret, mechanisms=mechanisms or SCRAM_MECHANISMS, timeout=session.timeout)
    show_one(output_format, {"user": name, "changed": True}, f"User {name} has another password.")


@user.command()
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask on a terminal.")
@formatted
@connects
@click.pass_obj
def delete(session: Session, name: str, yes: bool, output_format: str) -> None:
    """Delete a user. Access rules that name him stay."""
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete user {name}?", abort=True, err=True)
    session.cluster.delete_user(name, timeout=session.timeout)
    show_one(output_format, {"user": name, "deleted": True}, f"User {name} is gone.")


@user.command("list")
@formatted
@connects
@click.pass_obj
def list_users(session: Session, output_format: str) -> None:
    """All users, and how each can prove himself."""
    users = session.cluster.list_users(timeout=session.timeout)
    if output_format == JSON:
        show_json([{"user": each.name, "iterations": each.iterations} for each in users])
        return
    show_table(("user", "mechanisms"), [(each.name, ", ".join(each.mechanisms)) for each in users])


def _password(file: TextIO | None) -> str:
    """Return the password that the user has given, in a file or by typing it. It is shown nowhere."""
    if file is not None:
        return file.readline(_MOST_CHARACTERS).rstrip("\r\n")
    if not sys.stdin.isatty():
        raise click.UsageError("--password-file says where the password is; - is stdin.")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
