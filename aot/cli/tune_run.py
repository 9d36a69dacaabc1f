"""``nojit tune run``: time every config of a tuning bundle on this GPU."""

from __future__ import annotations

import click
from nojit.aot.cli.console import Output, output_options

__all__ = ["command"]


@click.command("run")
@output_options
def command(out: Output) -> None:
    """Time every config of a tuning bundle on this GPU."""
    raise click.ClickException(f"not there yet: {out}")
