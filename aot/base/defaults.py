"""Defaults of a build, in a module without imports, so that the help of the command line loads fast."""

from __future__ import annotations

from typing import Final

__all__ = ["BUNDLE_NAME", "BUNDLE_NAME_WORDS", "LOCAL_BUILDER", "MAX_VARIANTS", "TOOLCHAIN_NAME", "TOOLCHAIN_WORDS"]

# a bare `$` would match before a final newline too
BUNDLE_NAME: Final = r"^[A-Za-z][A-Za-z0-9_.\-]{0,99}$(?!\n)"
"""Pattern of bundles' names. The format also allows longer names and a first `_` (`nj_is_name`); builds keep to names that suit
wheels and registries, too."""
BUNDLE_NAME_WORDS: Final = "a name of at most 100 letters, digits, '.', '_' and '-', first a letter"
"""Description of `BUNDLE_NAME`, for messages."""

TOOLCHAIN_NAME: Final = r"^[0-9][A-Za-z0-9.+]{0,49}$(?!\n)"
"""Pattern of toolchains' names."""
TOOLCHAIN_WORDS: Final = "a version of Triton such as 3.6 or 3.6.0"
"""Description of `TOOLCHAIN_NAME`, for messages."""

LOCAL_BUILDER: Final = "nojit:builder/local"
"""Builder id in the provenance of a build without ``--builder``: a user's own machine."""

MAX_VARIANTS: Final = 250_000
"""Maximum number of variants of one kernel for one arch, before `exclude`; ``--max-variants`` changes it."""
