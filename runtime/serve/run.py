"""Run a program whose processes are served: ``nojit run``, and ``python -m nojit.runtime.serve`` where only the runtime is installed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from nojit.runtime.autostart import environment
from nojit.runtime.base.environment import MISS, SERVE, SERVE_PRELOAD
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import ArgumentError, NojitError
from nojit.runtime.fallback.policy import POLICIES
from nojit.runtime.loader import load
from nojit.runtime.serve.settings import full_place

__all__ = ["USAGE", "main", "run", "served_environment"]

USAGE: Final = f"python -m nojit.runtime.serve --bundle PATH... [--miss {'|'.join(POLICIES)}] [--preload] -- COMMAND..."


def served_environment(
    given: Mapping[str, str], bundles: Sequence[str], *, miss: str | None = None, preload: bool = False
) -> dict[str, str]:
    """Return an environment whose Python processes are served.

    Args:
        given: the environment to extend.
        bundles: bundle files, folders or names, the most important first.
        miss: ``error``, ``warn`` or ``jit``; None leaves ``NOJIT_MISS`` as it is.
        preload: whether each process loads all variants of a device before its first launch there.

    Raises:
        FileNotFoundError: a path does not exist, a folder holds no bundle, or no bundle has a name.
        BundleError: a bundle is damaged, or may not be used.
    """
    places = [full_place(each) for each in bundles]
    for place in places:
        # else the program would fail when it imports Triton
        load(place).close()
    variables = {SERVE: os.pathsep.join(places)}
    if miss is not None:
        variables[MISS] = miss
    if preload:
        variables[SERVE_PRELOAD] = "1"
    return environment(given, **variables)


def run(words: Sequence[str], variables: Mapping[str, str]) -> None:
    """Replace this process by a command.

    Args:
        words: the command.
        variables: its environment.

    Raises:
        NojitError: the command cannot be run.
    """
    try:
        os.execvpe(words[0], [*words], dict(variables))  # noqa: S606 - the caller's own command
    except (OSError, ValueError) as error:
        # the first word is empty
        raise NojitError("expected a program to run", got=worded(error), where=words[0]) from None


def main(words: Sequence[str]) -> None:
    """Read the command line of ``python -m nojit.runtime.serve``, and run its command.

    Args:
        words: the words after the module's name.

    Raises:
        ArgumentError: a word is unknown, or there is no bundle or command.
        FileNotFoundError: there is no bundle at a path or of a name.
        NojitError: a bundle cannot be used, or the command cannot be run.
    """
    options, command = _parse(words)
    misses = options["--miss"][-1:]
    if misses and misses[0] not in POLICIES:
        raise _usage(f"expected --miss to be {', '.join(POLICIES)}, got {misses[0]!r}")
    if not options["--bundle"] or not command:
        raise _usage("expected --bundle and a command")
    miss, preload = misses[0] if misses else None, bool(options["--preload"])
    run(command, served_environment(os.environ, options["--bundle"], miss=miss, preload=preload))


def _parse(words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the values of each option, and the command behind them."""
    options: dict[str, list[str]] = {"--bundle": [], "--miss": [], "--preload": []}
    left = [*words]
    while left and left[0].startswith("--"):
        option, equals, value = left.pop(0).partition("=")
        if option == "--":
            break
        if option not in options or (option == "--preload" and equals):
            raise _usage(f"expected {', '.join(options)}, got {option + equals + value!r}")
        if option != "--preload" and not equals:
            if not left:
                raise _usage(f"expected a value after {option}")
            value = left.pop(0)
        options[option].append(value)
    return options, left


def _usage(what: str) -> ArgumentError:
    return ArgumentError(f"{what}; usage: {USAGE}")
