"""Bundles of installed wheels: the entry points that declare them, and the folder in which they lie."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import BundleError

__all__ = ["ENTRY_POINTS", "Provider", "folder_of", "normalized", "provided_name", "provider_name", "providers"]

# each entry point names a package whose folder contains bundles, and has the name that programs load
ENTRY_POINTS = "nojit.bundles"


class Provider(Record):
    """One entry point."""

    name: str
    """Name that programs load."""
    package: str
    """Package whose folder contains the bundles."""
    distribution: str
    """Distribution that declares the entry point."""
    place: str
    """Folder of the path in which the distribution is installed."""

    @property
    def origin(self) -> str:
        """The wheel, as messages and `Found.origin` name it."""
        return f"wheel {self.distribution}"

    @property
    def where(self) -> str:
        """The package in the wheel, as messages name it."""
        return f"{self.origin}, package {self.package}"


def normalized(name: str) -> str:
    """Return a name in the form in which names are compared: without case, with ``-``, ``_`` and ``.`` as one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def provider_name(name: str, label: str) -> str:
    """Return the name of the wheel that holds a name's bundles for one arch: ``acme-kernels-sm90``.

    `label`: the arch without ``_``.
    """
    return f"{name}-{label}"


def provided_name(distribution: str) -> str | None:
    """Return the name, in normalized form, whose bundles a wheel named by `provider_name` holds; None for any other wheel."""
    found = re.fullmatch(r"(.+)-(?:sm[0-9]+[a-z]?|gfx[0-9]+)", normalized(distribution))
    return found[1] if found else None


def providers() -> list[Provider]:
    """List the entry points of the distributions on ``sys.path``, by name, distribution and package.

    If the path has several distributions of one name, the first counts.

    Raises:
        BundleError: an entry point cannot be read.
    """
    from importlib.metadata import entry_points  # slow to import, and only loading by name needs it

    try:
        found = [
            # an object in the package, and extras, may follow its name
            Provider(
                point.name, re.split(r"[:\[]", point.value)[0].strip(), point.dist.name, str(point.dist.locate_file(""))
            )
            for point in entry_points(group=ENTRY_POINTS)
            if point.dist is not None
        ]
    except (TypeError, ValueError) as error:
        what = "expected installed distributions with readable entry points"
        raise BundleError(what, got=worded(error), where="entry_points.txt") from error
    return sorted(found, key=lambda one: (normalized(one.name), normalized(one.distribution), one.package))


def folder_of(provider: Provider) -> Path:
    """Return the folder of a wheel's bundles: that of the package, which is not imported.

    Raises:
        BundleError: the package is missing, or its name is no package's.
    """
    what = "expected the package that holds the bundles"
    parts = provider.package.split(".")
    # a path would lead out of the wheel's folder
    if not all(map(str.isidentifier, parts)):
        raise BundleError(f"{what}, named as in `import`", got=repr(provider.package), where=provider.where)
    # beside the entry point for a wheel, elsewhere for an editable install
    beside = Path(provider.place, *parts)
    try:
        folder = beside if beside.is_dir() else _package_folder(parts)
    except Exception as error:
        # finders are foreign code
        raise BundleError(what, got=worded(error) or type(error).__name__, where=provider.where) from error
    if folder is None:
        raise BundleError(what, got="none", where=provider.where)
    return folder


def _package_folder(parts: Sequence[str]) -> Path | None:
    """Find a package's folder without importing the package or its parents.

    `importlib.util.find_spec` would import the parents; the finders do not.
    """
    folders: list[str] | None = None
    for depth in range(len(parts)):
        folders = _below(folders, parts[depth]) or _found_by_finders(".".join(parts[: depth + 1]), folders)
        if not folders:
            return None
    return next((Path(folder) for folder in folders or () if Path(folder).is_dir()), None)


def _below(folders: Sequence[str] | None, part: str) -> list[str]:
    return [str(below) for below in (Path(folder, part) for folder in folders or ()) if below.is_dir()]


def _found_by_finders(package: str, folders: Sequence[str] | None) -> list[str]:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = None if find is None else find(package, folders)
        if spec is not None:
            return list(spec.submodule_search_locations or ())
    return []
