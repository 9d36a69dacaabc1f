"""A group that loads its commands on demand."""

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
    """Store the count of an output option before the command's name, as if it followed that name."""
    kept = ctx.meta.setdefault(GROUP_OPTIONS, {})
    kept[param.name] = kept.get(param.name, 0) + int(value)


class LazyGroup(click.Group):
    """A group that loads each command from its own module, as the attribute `command`.

    Args:
        modules: module in this package for each command's name.
        about: summary for each command's name, so that the list of commands loads none.
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
        """Return the names of the commands in the order of typical use."""
        return list(self._about)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is no such command."""
        if cmd_name not in self._about:
            return None
        command: click.Command = importlib.import_module(f"{__package__}.{self._modules[cmd_name]}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` start with; otherwise raise an error that suggests the nearest name."""
        if args[0] not in self._about and not args[0].startswith("-"):
            near = did_you_mean(args[0], tuple(self._about))
            raise click.UsageError(f"expected a command of {', '.join(self._about)}, got {args[0]!r}{near}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._about.items()))
