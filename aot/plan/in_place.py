"""An existing bundle in a build's output folder, whose kernels a narrower build keeps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nojit.runtime.errors import PackageError

__all__ = ["InPlace"]


@dataclass(frozen=True, slots=True)
class InPlace:
    """A bundle in the output folder."""

    path: Path
    name: str
    version: str
    arch: str
    kernels: frozenset[str]
    profile: str | None
    """The profile that it was built with; None without a statement for it."""
    tuned: bool
    """Whether it was built with tuned tables; False without a statement."""

    def check_alike(self, profile: str | None, *, tuned: bool, kept: Sequence[str]) -> str:
        """Return the profile for a build that also rebuilds this bundle's other kernels.

        Args:
            profile: the requested profile, if any.
            tuned: whether the build uses tuned tables.
            kept: names of kernels that the bundle holds and the command did not select.

        Raises:
            PackageError: the bundle was built with another profile, or with tuned tables where this build has none (or
                the reverse), or its profile is unknown and none is requested.
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
        return self.profile
