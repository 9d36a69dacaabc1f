"""Requests of a program that only a real GPU can answer: where the program makes them, and how they end."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeAlias

from nojit.runtime.errors import FakeValueError

__all__ = ["OnProblem", "Problems", "place_of_program"]

OnProblem: TypeAlias = Callable[[str, str], object]
"""Called with the program's request, and the place, ``file.py:12``."""

_ADVICE = "compute the value on the CPU, or record the program on a machine with a GPU"


def _folders() -> tuple[str, ...]:
    """List the folders of this package, torch and Triton."""
    folders = [str(Path(__file__).parent)]
    for name in ("torch", "triton"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            folders.append(str(Path(file).parent))
    return tuple(folder + os.sep for folder in folders)


def _is_standard(file: str) -> bool:
    standard = sysconfig.get_path("stdlib") + os.sep
    return file.startswith(standard) and not file.startswith((standard + "site-packages", standard + "dist-packages"))


def place_of_program() -> str:
    """Return the innermost line of the program that is running, ``file.py:12``.

    Frames of torch, Triton, the standard library and this package do not count.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - a stack without its text, as warnings take it
    agents = _folders()
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(("<", *agents)) and not _is_standard(file):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown"


class Problems:
    """Reports what a program asked for in vain, and stops the program there.

    Args:
        on_problem: called before the program stops; None to only stop it.
    """

    def __init__(self, on_problem: OnProblem | None) -> None:
        self._on_problem = on_problem

    def report(self, what: str) -> str:
        """Report a request without stopping the program; return the place.

        Args:
            what: the request, for example ``Tensor.item() of int64[] on cuda:0``.
        """
        where = place_of_program()
        if self._on_problem is not None:
            self._on_problem(what, where)
        return where

    def stop(self, what: str) -> NoReturn:
        """Report a request and stop the program.

        Args:
            what: the request.

        Raises:
            FakeValueError: always.
        """
        where = self.report(what)
        error = FakeValueError("expected only requests that need no GPU", got=what, where=where)
        raise error.advise(_ADVICE)
