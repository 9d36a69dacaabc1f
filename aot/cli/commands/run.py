"""``nojit run``: Run a program that launches its Triton kernels from bundles and compiles nothing."""

from __future__ import annotations

import os

import click
from nojit.runtime.fallback.policy import POLICIES
from nojit.runtime.serve.run import run, served_environment

__all__ = ["command"]


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option(
    "--bundle",
    "bundles",
    metavar="PATH",
    multiple=True,
    required=True,
    help="Bundle, folder with bundles, or name of installed bundles; can be repeated, the most important first.",
)
@click.option(
    "--miss",
    type=click.Choice(POLICIES),
    help="For calls that no bundle serves: raise an error, or let Triton compile them, with or without a warning.  [default: error]",
)
@click.option("--preload", is_flag=True, help="Load every variant for a device before the first launch there.")
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(bundles: tuple[str, ...], miss: str | None, preload: bool, words: tuple[str, ...]) -> None:
    """Run a program that launches its Triton kernels from bundles of a recording.

    The program and its child processes launch from the bundles. With --miss error, nothing is compiled: Triton's compiler, ptxas and
    the C compiler of its driver raise an error. The program replaces this process. Where the command line is not installed,
    `python -m nojit.runtime.serve` takes the same words.
    """
    run(words, served_environment(os.environ, bundles, miss=miss, preload=preload))
