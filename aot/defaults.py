"""Defaults of a build, without imports: the command line shows them in its help."""

from __future__ import annotations

from typing import Final

__all__ = ["LOCAL_BUILDER", "MAX_VARIANTS"]

LOCAL_BUILDER: Final = "nojit:builder/local"
"""Builder id of a build that names none: a user's own machine."""

MAX_VARIANTS: Final = 250_000
"""Maximum number of variants of one kernel for one arch, before `exclude`; ``--max-variants`` changes it."""
