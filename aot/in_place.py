"""The bundles that lie where a build writes: what of them a narrower build would lose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nojit.aot.statement import Recipe, read_statement, statement_path
from nojit.runtime.bundle import BundleFile
from nojit.runtime.errors import BundleError, PackageError
from nojit.runtime.format import SUFFIX
from nojit.runtime.versions import version_key

__all__ = ["InPlace", "read_folder"]


@dataclass(frozen=True, slots=True)
class InPlace:
    """A bundle that is there."""

    path: Path
    name: str
    version: str
    arch: str
    kernels: frozenset[str]
    recipe: Recipe | None
    """How it was built; None if no statement beside it says so."""

    def check_alike(self, profile: str | None, *, tuned: bool, kept: Sequence[str]) -> str:
        """Return the profile to build its kernels by, with others.

        Args:
            profile: the one that is asked for, if any.
            tuned: whether tuned tables count.
            kept: what is to be built although it is not asked for.

        Raises:
            PackageError: it was built by another profile, or nothing says by which and none is asked for; or with tuned tables, and
                now without, or the other way.
        """
        advice = f"it holds {kept[0]} as well; ask for the same, or for another --out folder"
        if self.recipe is None:
            if profile is None:
                what = f"expected --profile: nothing beside {self.path.name} says by which it was built, and {advice}"
                raise PackageError(what, where=str(self.path))
            return profile
        if profile not in (None, self.recipe.profile):
            what = f"expected --profile {self.recipe.profile}, by which {self.path.name} was built: {advice}"
            raise PackageError(what, got=profile, where=str(self.path))
        if self.recipe.tuned != tuned:
            was = "without --no-tuned" if self.recipe.tuned else "--no-tuned"
            what = f"expected {was}, as {self.path.name} was built: {advice}"
            raise PackageError(what, where=str(self.path))
        return self.recipe.profile


def read_folder(folder: Path) -> dict[tuple[str, str], InPlace]:
    """Return the newest bundle of each name and arch in a folder; what is no whole bundle is none."""
    found: dict[tuple[str, str], InPlace] = {}
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX) and path.is_file())
    except OSError:
        # a folder that a build cannot write is refused when it comes to that
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
        # a statement of another bundle says nothing of this one
        recipe = said if said.digest == digest else None
    except PackageError:
        pass
    return InPlace(path, index.name, index.version, index.target.arch, kernels, recipe)
