"""``nojit help``: Show the help of a command."""

from __future__ import annotations

import click
from nojit.aot.cli.console import Output, output_options
from nojit.runtime.base.suggestions import did_you_mean

__all__ = ["command"]


@click.command("help")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@output_options
@click.pass_context
def command(context: click.Context, out: Output, words: tuple[str, ...]) -> None:
    """Show the help of a command, as its option -h does; without a command, list all.

    Examples: `nojit help build`, `nojit help tune run`.
    """
    found = context.find_root()
    for word in words:
        group = found.command
        inner = group.get_command(found, word) if isinstance(group, click.Group) else None
        if inner is None:
            known = group.list_commands(found) if isinstance(group, click.Group) else []
            what = (
                f"expected a command of {', '.join(known)}"
                if known
                else f"expected no word after {found.command_path}, which has no subcommands"
            )
            raise click.UsageError(f"{what}, got {word!r}{did_you_mean(word, tuple(known))}", context)
        found = click.Context(inner, info_name=word, parent=found)
    text = found.get_help()
    out.emit("help", {"help": text})
    out.block(text)
