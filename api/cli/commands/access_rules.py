"""`raylog acl …`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import product
from typing import TYPE_CHECKING, Any, Final, TypedDict

import click

from raylog.actors.protocol.security_names import (
    ANY_HOST,
    CLUSTER_NAME,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourceType,
)
from raylog.api.admin.rules.kafka_acl_arguments import (
    ACL,
    ACLFilter,
    ResourcePattern,
    ResourcePatternFilter,
)
from raylog.api.cli.arguments.lazy_group import LazyGroup
from raylog.api.cli.session.session import Session, connects
from raylog.api.cli.terminal.exit_codes import FAILED
from raylog.api.cli.terminal.output import JSON, formatted, show_json, show_one, show_table

if TYPE_CHECKING:
    from typing_extensions import Unpack


def _word(value: ACLOperation | ResourceType | ACLPermissionType | ACLResourcePatternType) -> str:
    return value.name.lower().replace("_", "-")


_OPERATIONS: Final[dict[str, ACLOperation]] = {
    _word(each): each for each in ACLOperation if each is not ACLOperation.ANY
}
_WORDS: Final = f"What is done with it: {', '.join(_OPERATIONS)}."
_LITERAL, _PREFIXED = ACLResourcePatternType.LITERAL, ACLResourcePatternType.PREFIXED


class _Resources(TypedDict):
    """Values of the options for resources."""

    topic: str | None
    group: str | None
    transactional_id: str | None
    user: str | None
    whole_cluster: bool


def _of_resources(command: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in (
        click.option("--whole-cluster", is_flag=True, help="The cluster itself."),
        click.option("--user", metavar="NAME", help="A user, whose password is changed."),
        click.option("--transactional-id", metavar="NAME", help="A transactional id."),
        click.option("--group", metavar="NAME", help="A consumer group."),
        click.option("--topic", metavar="NAME", help="A topic; *: each of them."),
    ):
        command = decorate(command)
    return command


def _of_rules(command: Callable[..., Any]) -> Callable[..., Any]:
    operation = click.Choice(list(_OPERATIONS), case_sensitive=False)
    for decorate in (
        click.option("--prefixed", is_flag=True, help="All whose names begin so."),
        _of_resources,
        click.option("--operation", "operations", multiple=True, type=operation, metavar="WORD", help=_WORDS),
        click.option("--deny", metavar="PRINCIPAL", multiple=True, help="Whom it is denied, as User:NAME."),
        click.option("--allow", metavar="PRINCIPAL", multiple=True, help="Whom it is allowed; User:*: everybody."),
    ):
        command = decorate(command)
    return command


@click.group(cls=LazyGroup)
def acl() -> None:
    """Say who may do what.

    Rules are kept, and `check` decides by them. No listener obeys them yet.
    """


@acl.command()
@_of_rules
@click.option("--host", default=ANY_HOST, show_default=True, metavar="ADDRESS", help="From where.")
@formatted
@connects
@click.pass_obj
def add(
    session: Session,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    operations: tuple[str, ...],
    prefixed: bool,
    host: str,
    output_format: str,
    **resources: Unpack[_Resources],
) -> None:
    """Add rules: one for each principal and operation.

    \b
    raylog acl add --allow User:ann --operation read --topic clicks
    raylog acl add --deny User:bob --operation all --topic team- --prefixed
    """
    found = _resource(resources)
    if found is None or not operations or not (allow or deny):
        raise click.UsageError("A rule has a principal (--allow or --deny), an --operation, and a resource.")
    pattern = ResourcePattern(*found, _PREFIXED if prefixed else _LITERAL)
    rules = [
        ACL(principal, host, _OPERATIONS[operation], permission, pattern)
        for principal, permission in _principals(allow, deny)
        for operation in operations
    ]
    session.cluster.create_acls(rules, timeout=session.timeout)
    if output_format == JSON:
        show_json([_document(each) for each in rules])
    else:
        _show(rules)


@acl.command()
@_of_rules
@click.option("--host", metavar="ADDRESS", help="From where.  [default: from anywhere]")
@click.option("-y", "--yes", is_flag=True, help="Do not ask on a terminal.")
@formatted
@connects
@click.pass_obj
def remove(
    session: Session,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    operations: tuple[str, ...],
    prefixed: bool,
    host: str | None,
    yes: bool,
    output_format: str,
    **resources: Unpack[_Resources],
) -> None:
    """Remove the rules that say all that is said here."""
    found = _resource(resources)
    if found is None and not (allow or deny):
        raise click.UsageError("Say whose rules (--allow, --deny), or about which resource.")
    pattern = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    if found is not None:
        pattern = ResourcePatternFilter(*found, _PREFIXED if prefixed else _LITERAL)
    elif prefixed:
        raise click.UsageError("--prefixed goes with the name of a resource.")
    whom: list[tuple[str | None, ACLPermissionType]] = [*_principals(allow, deny)] or [(None, ACLPermissionType.ANY)]
    what: list[ACLOperation] = [_OPERATIONS[each] for each in operations] or [ACLOperation.ANY]
    filters = [
        ACLFilter(principal, host, operation, permission, pattern)
        for (principal, permission), operation in product(whom, what)
    ]
    if not yes and sys.stdin.isatty():
        click.confirm("Remove these rules?", abort=True, err=True)
    removed = session.cluster.delete_acls(filters, timeout=session.timeout)
    rules = sorted({rule for _, rules, _ in removed for rule in rules}, key=_row)
    if output_format == JSON:
        show_json([_document(each) for each in rules])
    else:
        _show(rules)


@acl.command("list")
@_of_resources
@click.option("--principal", metavar="PRINCIPAL", help="Those that name him, as User:NAME.")
@formatted
@connects
@click.pass_obj
def list_rules(
    session: Session, principal: str | None, output_format: str, **resources: Unpack[_Resources]
) -> None:
    """Rules; with a resource, all that hold for it."""
    found = _resource(resources)
    kind, name = found or (ResourceType.ANY, None)
    pattern = ResourcePatternFilter(kind, name, ACLResourcePatternType.MATCH)
    meant = ACLFilter(principal, None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)
    rules, _ = session.cluster.describe_acls(meant, timeout=session.timeout)
    if output_format == JSON:
        show_json([_document(each) for each in rules])
    else:
        _show(rules)


@acl.command()
@click.argument("principal")
@click.argument(
    "operation",
    metavar="OPERATION",
    type=click.Choice([each for each in _OPERATIONS if each != "all"], case_sensitive=False),
)
@_of_resources
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="From where.")
@formatted
@connects
@click.pass_obj
def check(
    session: Session, principal: str, operation: str, host: str, output_format: str, **resources: Unpack[_Resources]
) -> None:
    """Show whether the rules allow something; exit code 1 if they do not.

    \b
    raylog acl check User:ann read --topic clicks
    """
    found = _resource(resources)
    if found is None:
        raise click.UsageError("Say which resource: --topic, --group, --transactional-id, --user or --whole-cluster.")
    kind, name = found
    is_allowed = session.cluster.would_allow(
        principal, _OPERATIONS[operation], kind, name, host=host, timeout=session.timeout
    )
    says = "may" if is_allowed else "may not"
    show_one(output_format, {"allowed": is_allowed}, f"{principal} {says} {operation} {_word(kind)} {name}.")
    if not is_allowed:
        raise click.exceptions.Exit(FAILED)


def _resource(given: _Resources) -> tuple[ResourceType, str] | None:
    """Return the resource that is named; None: no name is given."""
    named = [
        (kind, name)
        for kind, name in (
            (ResourceType.TOPIC, given["topic"]),
            (ResourceType.GROUP, given["group"]),
            (ResourceType.TRANSACTIONAL_ID, given["transactional_id"]),
            (ResourceType.USER, given["user"]),
            (ResourceType.CLUSTER, CLUSTER_NAME if given["whole_cluster"] else None),
        )
        if name is not None
    ]
    if len(named) > 1:
        raise click.UsageError("One resource at a time.")
    return named[0] if named else None


def _principals(allow: Iterable[str], deny: Iterable[str]) -> list[tuple[str, ACLPermissionType]]:
    allowed = [(principal, ACLPermissionType.ALLOW) for principal in allow]
    return allowed + [(principal, ACLPermissionType.DENY) for principal in deny]


def _show(rules: Iterable[ACL]) -> None:
    show_table(("principal", "permission", "operation", "resource", "name", "host"), map(_row, rules))


def _row(rule: ACL) -> tuple[str, ...]:
    pattern = rule.resource_pattern
    name = f"{pattern.resource_name}…" if pattern.pattern_type is _PREFIXED else pattern.resource_name
    return (
        rule.principal,
        _word(rule.permission_type),
        _word(rule.operation),
        _word(pattern.resource_type),
        name,
        rule.host,
    )


def _document(rule: ACL) -> dict[str, Any]:
    pattern = rule.resource_pattern
    return {
        "principal": rule.principal,
        "permission": _word(rule.permission_type),
        "operation": _word(rule.operation),
        "resource": _word(pattern.resource_type),
        "name": pattern.resource_name,
        "pattern": _word(pattern.pattern_type),
        "host": rule.host,
    }
