"""Defaults of a build, in a module without imports, so that the help of the command line loads fast."""

from __future__ import annotations

from typing import Final

__all__ = ["LOCAL_BUILDER", "MAX_VARIANTS"]

LOCAL_BUILDER: Final = "nojit:builder/local"
"""Builder id in the provenance of a build without ``--builder``: a user's own machine."""

MAX_VARIANTS: Final = 250_000
"""Maximum number of variants of one kernel for one arch, before `exclude`; ``--max-variants`` changes it."""
