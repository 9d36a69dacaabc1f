"""A group that loads its commands on demand."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import click
from nojit.aot.cli.console import GROUP_OPTIONS
from nojit.runtime.base.suggestions import did_you_mean

__all__ = ["LazyGroup", "OutputGroup", "summary_of"]

_SUMMARY: Final = re.compile(r'^(?:""")?``nojit [\w ]+``: (.*?)(?:""")?$')


_HELP = {
    "json": "Write one JSON object on standard output.",
    "quiet": "Print only errors and warnings.",
    "verbose": "Print more; -vv adds tracebacks.",
}


def _keep(ctx: click.Context, param: click.Parameter, value: int) -> None:
    """Store the count of an output option before the command's name, as if it followed that name."""
    kept = ctx.meta.setdefault(GROUP_OPTIONS, {})
    kept[param.name] = kept.get(param.name, 0) + int(value)


class OutputGroup(click.Group):
    """A group that takes the output options before its command's name, too.

    Args:
        rest: arguments of `click.Group`.
    """

    def __init__(self, **rest: Any) -> None:
        super().__init__(**rest)
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


class LazyGroup(OutputGroup):
    """A group that finds its commands by the names of modules, and loads each on demand.

    A command is the attribute `command` of a module of the package; an underscore at the end of the module's name is not part
    of the command's. The first line of the module, ``nojit NAME`` and the summary, spares the list of commands their import.

    Args:
        package: name of the package that contains the modules.
        order: names of commands in the order of the list; others follow by name.
        rest: arguments of `click.Group`.
    """

    def __init__(self, *, package: str, order: Sequence[str] = (), **rest: Any) -> None:
        super().__init__(**rest)
        self._package = package
        self._order = order

    @cached_property
    def _folder(self) -> str:
        """Folder of the package."""
        (folder,) = importlib.import_module(self._package).__path__
        return folder

    @cached_property
    def _modules(self) -> dict[str, str]:
        """Names of the modules by those of the commands, in the order of the list."""
        entries = (entry.partition(".")[0] for entry in os.listdir(self._folder))  # noqa: PTH208 - pathlib is slow
        found = {name.rstrip("_"): f"{self._package}.{name}" for name in entries if not name.startswith("_")}
        first = [name for name in self._order if name in found]
        return {name: found[name] for name in dict.fromkeys([*first, *sorted(found)])}

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of typical use."""
        return list(self._modules)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is no such command."""
        if cmd_name not in self._modules:
            return None
        command: click.Command = importlib.import_module(self._modules[cmd_name]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` start with; otherwise raise an error that suggests the nearest name."""
        if args[0] not in self._modules and not args[0].startswith("-"):
            near = did_you_mean(args[0], tuple(self._modules))
            raise click.UsageError(f"expected a command of {', '.join(self._modules)}, got {args[0]!r}{near}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary_of(module, self._folder)) for name, module in self._modules.items()])


def summary_of(module: str, folder: str) -> str:
    """Return the summary of a command from the first line of its module, which is not imported.

    Args:
        module: name of the module.
        folder: folder of its package.
    """
    file = os.path.join(folder, module.rpartition(".")[2])  # noqa: PTH118 - pathlib is slow
    for path in (f"{file}.py", f"{file}/__init__.py"):
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as source:  # noqa: PTH123 - pathlib is slow
            found = _SUMMARY.match(source.readline().rstrip())
            return found[1] if found else ""
    # an installation without sources
    found = _SUMMARY.match((importlib.import_module(module).__doc__ or "").partition("\n")[0])
    return found[1] if found else ""
