"""What a build takes where nothing else is asked for: the command line names it, and so imports nothing for it."""

from __future__ import annotations

from typing import Final

__all__ = ["LOCAL_BUILDER", "MAX_VARIANTS"]

LOCAL_BUILDER: Final = "nojit:builder/local"
"""The builder where none is named: somebody's own machine."""

MAX_VARIANTS: Final = 250_000
"""Variants of one kernel for one architecture, before `exclude`, unless a build allows more."""
