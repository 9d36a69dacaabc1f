"""Option ``--toolchain``: the Tritons that a build compiles with."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from nojit.aot.base.defaults import TOOLCHAIN_NAME, TOOLCHAIN_WORDS

__all__ = ["toolchain_option"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def toolchain_option(about: str) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the option to a command, which takes pairs of a name and an environment or None.

    Args:
        about: help text.
    """
    return click.option("--toolchain", "toolchains", multiple=True, metavar="VERSION=VENV", callback=_read, help=about)


def _read(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[str, Path | None], ...]:
    found: dict[str, Path | None] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        if not re.fullmatch(TOOLCHAIN_NAME, name) or (equals and not place):
            raise click.BadParameter(
                f"expected {TOOLCHAIN_WORDS}, or 3.6=VENV with a virtual environment, got {text!r}"
            )
        if name in found:
            raise click.BadParameter(f"expected each toolchain once, got {name} twice")
        found[name] = Path(place) if equals else None
    return tuple(found.items())
