"""Existing bundles in a build's output folder. Pure.

A build of only some kernels keeps the other kernels of the existing bundle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nojit.runtime.errors import PackageError

__all__ = ["ExistingBundle"]


@dataclass(frozen=True, slots=True)
class ExistingBundle:
    """A bundle that already exists in the build's output folder."""

    path: Path
    name: str
    version: str
    arch: str
    kernels: frozenset[str]
    profile: str | None
    """Profile that the bundle was built with; None if it has no provenance statement."""
    tuned: bool
    """True if the bundle was built with tuned tables; False also if it has no provenance statement."""
    toolchains: tuple[str, ...] = ()
    """Names of its toolchains, if it has several."""

    def check_alike(
        self, profile: str | None, *, tuned: bool, kept: Sequence[str], toolchains: Sequence[str] = ()
    ) -> str:
        """Return the profile for a build that also builds the other kernels of this existing bundle again.

        Args:
            profile: the requested profile, if any.
            tuned: whether the build uses tuned tables.
            kept: names of the bundle's kernels that the command did not select; the build keeps them.
            toolchains: names of the build's toolchains, if it has several.

        Raises:
            PackageError: the bundle was built with another profile, with other toolchains, or with tuned tables where this
                build has none (or the reverse), or its profile is unknown and none is requested.
        """
        advice = f"it also holds {kept[0]}; use the same option, or another --out folder"
        if self.profile is None:
            if profile is None:
                what = f"expected --profile: no statement names the profile of {self.path.name}, and {advice}"
                raise PackageError(what, where=str(self.path))
            return profile
        if profile not in (None, self.profile):
            what = f"expected --profile {self.profile}, as {self.path.name} was built: {advice}"
            raise PackageError(what, got=profile, where=str(self.path))
        if self.tuned != tuned:
            was = "without --no-tuned" if self.tuned else "--no-tuned"
            what = f"expected {was}, as {self.path.name} was built: {advice}"
            raise PackageError(what, where=str(self.path))
        if self.toolchains != tuple(toolchains):
            was = " ".join(f"--toolchain {name}" for name in self.toolchains) or "one toolchain"
            what = f"expected {was}, as {self.path.name} was built: {advice}"
            raise PackageError(what, got=", ".join(toolchains) or "one", where=str(self.path))
        return self.profile
