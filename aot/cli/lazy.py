"""A group of commands that loads each on demand."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click
from nojit.aot.cli.console import GROUP_OPTIONS
from nojit.runtime.errors import did_you_mean

__all__ = ["LazyGroup"]


_HELP = {
    "json": "Write one JSON object on standard output.",
    "quiet": "Print only errors and warnings.",
    "verbose": "Print more; -vv adds tracebacks.",
}


def _keep(ctx: click.Context, param: click.Parameter, value: int) -> None:
    """Count an option that stands before the command for the command, as if it stood after."""
    kept = ctx.meta.setdefault(GROUP_OPTIONS, {})
    kept[param.name] = kept.get(param.name, 0) + int(value)


class LazyGroup(click.Group):
    """Load each command from its own module, where it is named `command`.

    Args:
        modules: module in this package, by name of a command.
        about: line in the list of commands, by name of a command; the list loads none.
        rest: arguments of `click.Group`.
    """

    def __init__(self, *, modules: Mapping[str, str], about: Mapping[str, str], **rest: Any) -> None:
        super().__init__(**rest)
        self._modules = modules
        self._about = about
        self.params += [
            click.Option(
                ["--json", "as_json"],
                is_flag=True,
                default=False,
                expose_value=False,
                callback=_keep,
                help=_HELP["json"],
            ),
            click.Option(
                ["-q", "--quiet"], is_flag=True, default=False, expose_value=False, callback=_keep, help=_HELP["quiet"]
            ),
            click.Option(["-v", "--verbose"], count=True, expose_value=False, callback=_keep, help=_HELP["verbose"]),
        ]

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names, in the order of a working day."""
        return list(self._about)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command; None if there is none."""
        if cmd_name not in self._about:
            return None
        command: click.Command = importlib.import_module(f"{__package__}.{self._modules[cmd_name]}").command
        return command

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
