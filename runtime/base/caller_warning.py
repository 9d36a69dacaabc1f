"""The program's line that called nojit, for warnings."""

from __future__ import annotations

import sys
import warnings
from typing import Final

__all__ = ["warn_caller"]

# a call may pass through Triton's autotuners and torch's dispatcher
_OTHERS: Final = ("nojit", "triton", "torch")


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the program's line: the innermost one outside of nojit, Triton and torch.

    Raises:
        Warning: if the program turns such warnings into errors.
    """
    level, frame = 1, sys._getframe()  # noqa: SLF001 - `inspect` is slow to import
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OTHERS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
