"""``nojit tune``: measure the configs of kernels, and freeze the best into tables."""

from __future__ import annotations

from typing import Final

import click
from nojit.aot.cli.lazy import LazyGroup

__all__ = ["COMMANDS", "command"]

# name, what the list of commands says of it; the module of `run` is `tune_run`
COMMANDS: Final = {
    "run": "Time every config of a tuning bundle on this GPU.",
    "select": "Choose the few configs that matter, and write tuned tables.",
    "evaluate": "Compare what tuned tables choose with the best.",
    "report": "Write a page on which tunables matter, and for which shapes.",
    "import": "Make tuned tables of what others measured.",
}


@click.group(
    "tune",
    cls=LazyGroup,
    modules={name: f"tune_{name}" for name in COMMANDS},
    about=COMMANDS,
    no_args_is_help=False,
)
def command() -> None:
    """Measure which configs of kernels are fast where, and freeze the few that matter into tables."""
