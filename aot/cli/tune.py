"""``nojit tune``: measure the configs of kernels and write the best into tables."""

from __future__ import annotations

from typing import Final

import click
from nojit.aot.cli.lazy import LazyGroup

__all__ = ["COMMANDS", "command"]

# name and summary of each command; the module of `run` is `tune_run`
COMMANDS: Final = {
    "run": "Time every config of a tuning bundle on this GPU.",
    "select": "Select the few configs that matter and write tuned tables.",
    "evaluate": "Compare the configs of tuned tables with the best.",
    "report": "Write an HTML page about tunables and shapes.",
    "import": "Convert other tools' measurements to tuned tables.",
}


@click.group(
    "tune",
    cls=LazyGroup,
    modules={name: f"tune_{name}" for name in COMMANDS},
    about=COMMANDS,
    no_args_is_help=False,
)
def command() -> None:
    """Measure the configs of kernels and write the few that matter into tables."""
