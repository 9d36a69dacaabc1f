"""The existing bundles in a build's output folder, whose kernels a narrower build keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nojit.aot.inspect.statement import Recipe, read_statement, statement_path
from nojit.runtime.bundle import BundleFile
from nojit.runtime.errors import BundleError, PackageError
from nojit.runtime.format import SUFFIX
from nojit.runtime.versions import version_key

__all__ = ["InPlace", "read_folder"]


@dataclass(frozen=True, slots=True)
class InPlace:
    """A bundle in the output folder."""

    path: Path
    name: str
    version: str
    arch: str
    kernels: frozenset[str]
    recipe: Recipe | None
    """How it was built; None without a statement for it."""

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
        if self.recipe is None:
            if profile is None:
                what = f"expected --profile: no statement names the profile of {self.path.name}, and {advice}"
                raise PackageError(what, where=str(self.path))
            return profile
        if profile not in (None, self.recipe.profile):
            what = f"expected --profile {self.recipe.profile}, as {self.path.name} was built: {advice}"
            raise PackageError(what, got=profile, where=str(self.path))
        if self.recipe.tuned != tuned:
            was = "without --no-tuned" if self.recipe.tuned else "--no-tuned"
            what = f"expected {was}, as {self.path.name} was built: {advice}"
            raise PackageError(what, where=str(self.path))
        return self.recipe.profile


def read_folder(folder: Path) -> dict[tuple[str, str], InPlace]:
    """Return the newest bundle of each name and arch in a folder. Damaged files are skipped."""
    found: dict[tuple[str, str], InPlace] = {}
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX) and path.is_file())
    except OSError:
        # `check_folder` refuses an unusable folder before the build writes
        return found
    for path in paths:
        try:
            bundle = _read(path)
        except (BundleError, OSError):
            continue
        other = found.get((bundle.name, bundle.arch))
        if other is None or version_key(other.version) < version_key(bundle.version):
            found[bundle.name, bundle.arch] = bundle
    return found


def _read(path: Path) -> InPlace:
    with BundleFile(path) as bundle:
        index, digest, kernels = bundle.index, bundle.digest, frozenset(bundle.kernels)
    recipe = None
    try:
        said = read_statement(statement_path(path)).recipe()
        # ignore a statement for other bytes than these
        recipe = said if said.digest == digest else None
    except PackageError:
        pass
    return InPlace(path, index.name, index.version, index.target.arch, kernels, recipe)
