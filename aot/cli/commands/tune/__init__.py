"""``nojit tune``: Measure configs and keep the best in tables."""

from __future__ import annotations

import click
from nojit.aot.cli.lazy import LazyGroup

__all__ = ["command"]


@click.group(
    "tune",
    cls=LazyGroup,
    package=__name__,
    order=("run", "select", "evaluate", "report", "import"),
    no_args_is_help=False,
)
def command() -> None:
    """Measure the configs of kernels and write the few that matter into tables."""
