"""`raylog completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    eval "$(raylog completion bash)"                           in ~/.bashrc
    eval "$(raylog completion zsh)"                            in ~/.zshrc
    raylog completion fish > ~/.config/fish/completions/raylog.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    click.echo(kind(context.find_root().command, {}, "raylog", "_RAYLOG_COMPLETE").source())
