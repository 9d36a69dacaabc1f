"""Reader of the existing bundles in a build's output folder.

A build of only some kernels keeps the other kernels of these bundles.
"""

from __future__ import annotations

from pathlib import Path

from nojit.aot.backends.registry import arch_of
from nojit.aot.plan.existing_bundles import ExistingBundle
from nojit.aot.provenance.statement import read_statement, statement_path
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.discovery.versions import version_key
from nojit.runtime.errors import BundleError, PackageError

__all__ = ["read_in_place"]


def read_in_place(folder: Path) -> dict[tuple[str, str], ExistingBundle]:
    """Return the newest bundle in a folder for each (name, arch). Damaged files are skipped."""
    found: dict[tuple[str, str], ExistingBundle] = {}
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


def _read(path: Path) -> ExistingBundle:
    with BundleFile(path) as bundle:
        index, digest, kernels = bundle.index, bundle.digest, frozenset(bundle.kernels)
    recipe = None
    try:
        claimed = read_statement(statement_path(path)).recipe()
        # ignore a statement for other bytes than these
        recipe = claimed if claimed.digest == digest else None
    except PackageError:
        pass
    name, version, arch = index.name, index.version, arch_of(index.target)
    if recipe is None:
        return ExistingBundle(path, name, version, arch, kernels, profile=None, tuned=False)
    toolchains = recipe.toolchains if len(recipe.toolchains) > 1 else ()
    return ExistingBundle(path, name, version, arch, kernels, recipe.profile, recipe.tuned, toolchains)
