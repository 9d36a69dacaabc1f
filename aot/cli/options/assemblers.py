"""Options for the programs that assemble images: one for each vendor that has one, such as ``--ptxas``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click
from nojit.aot.backends.registry import vendors
from nojit.aot.cli.console import PLACE

__all__ = ["assembler_options", "given_assemblers"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def assembler_options(about: str) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the options to a command, which takes them as keyword arguments.

    Args:
        about: help text; ``{}`` stands for the name of the program.
    """
    names = [vendor.ASSEMBLER for vendor in vendors() if vendor.ASSEMBLER]
    options = [click.option(f"--{name}", name, type=PLACE, help=about.format(name)) for name in names]
    return lambda command: reduce(lambda done, option: option(done), reversed(options), command)


def given_assemblers(given: Mapping[str, Path | None]) -> dict[str, Path]:
    """Return the programs that a command line names, by the name of their option."""
    return {name: path for name, path in given.items() if path is not None}
