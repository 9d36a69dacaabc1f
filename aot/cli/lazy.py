"""A group of commands that loads each when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click
from nojit.runtime.errors import did_you_mean

__all__ = ["LazyGroup"]

# what `output_options` gives every command
_OF_COMMANDS = ("--json", "-q", "--quiet", "-v", "--verbose")


class LazyGroup(click.Group):
    """Finds commands in modules of their own, each of which names it `command`.

    Args:
        modules: by name of a command, its module in this package.
        about: by name of a command, what a list says of it, so that none is loaded to be listed.
        rest: what `click.Group` takes.
    """

    def __init__(self, *, modules: Mapping[str, str], about: Mapping[str, str], **rest: Any) -> None:
        super().__init__(**rest)
        self._modules = modules
        self._about = about

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names, in the order of a working day."""
        return list(self._about)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command; None if there is none."""
        if cmd_name not in self._about:
            return None
        command: click.Command = importlib.import_module(f"{__package__}.{self._modules[cmd_name]}").command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the group's own options; those of every command go after its name."""
        words = [word for word in args if word in self._about] or ["COMMAND"]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in _OF_COMMANDS:
                raise
            right = f"{ctx.command_path} {words[0]} {error.option_name}"
            message = f"expected {error.option_name} after the command, got it before: {right}"
            raise click.UsageError(message, ctx) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that `args` start with, or name the nearest."""
        if args[0] not in self._about and not args[0].startswith("-"):
            near = did_you_mean(args[0], tuple(self._about))
            raise click.UsageError(f"expected a command of {', '.join(self._about)}, got {args[0]!r}{near}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._about.items()))
