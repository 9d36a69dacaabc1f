"""Where bundles are found: the environment, installed wheels, a checkout's build output; in this order.

Nothing is opened, and no installed package is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nojit.runtime.errors import BundleError
from nojit.runtime.format import SUFFIX
from nojit.runtime.record import Record

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["ENTRY_POINTS", "VARIABLE", "Found", "bundles", "find", "survey"]

# files and folders, separated as in PATH
VARIABLE = "NOJIT_BUNDLES"
# each entry point names a package whose folder holds bundles
ENTRY_POINTS = "nojit.bundles"


class Found(Record):
    """A bundle file and who said that it is there."""

    path: Path
    origin: str
    """``NOJIT_BUNDLES``, ``wheel <distribution>`` or ``checkout``."""


def bundles() -> list[Path]:
    """List the bundle files of this process, first come first, each once.

    Raises:
        BundleError: a place that was named, by the environment or by a wheel, is missing or without bundles.
    """
    return [found.path for found in find(os.environ)]


def find(environment: Mapping[str, str], checkout: Path | None = None) -> list[Found]:
    """List the bundle files with their origins, first come first, each once.

    Args:
        environment: where `VARIABLE` is looked up.
        checkout: the folder that holds ``artifacts/``; by default the one that this module runs from, if any.

    Raises:
        BundleError: a place that was named, by the environment or by a wheel, is missing or without bundles.
    """
    return _each_once([found for look in _places(environment, checkout) for found in look()])


def survey(environment: Mapping[str, str], checkout: Path | None = None) -> tuple[list[Found], list[BundleError]]:
    """List the bundle files as `find` does, and what is wrong with places that were named: it goes on after each."""
    files: list[Found] = []
    problems: list[BundleError] = []
    for look in _places(environment, checkout):
        try:
            files += look()
        except BundleError as error:
            problems.append(error)
    return _each_once(files), problems


def _each_once(files: Iterable[Found]) -> list[Found]:
    unique: dict[Path, Found] = {}
    for found in files:
        unique.setdefault(found.path.resolve(), found)
    return list(unique.values())


def _places(environment: Mapping[str, str], checkout: Path | None) -> Iterator[Callable[[], list[Found]]]:
    """Yield for each place, in order, what lists its bundles."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import

    for place in environment.get(VARIABLE, "").split(os.pathsep):
        if place:
            yield partial(_in_environment, Path(place))
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: (entry.name, entry.value)):
        yield partial(_in_wheel, entry)
    root = _own_checkout() if checkout is None else checkout
    if root is not None:
        yield partial(_in_checkout, root)


def _in_environment(path: Path) -> list[Found]:
    where = f"{VARIABLE}: {path}"
    if path.is_dir():
        # falling back to another place would hide the mistake
        return [Found(file, VARIABLE) for file in _expect_bundles(path, where)]
    if not path.is_file():
        raise BundleError("expected a bundle file or a folder of them", got="none", where=where)
    return [Found(path, VARIABLE)]


def _in_wheel(entry: EntryPoint) -> list[Found]:
    origin = f"wheel {entry.dist.name if entry.dist else entry.name}"
    folder = _package_folder(entry.module)
    where = f"{origin}, package {entry.module}"
    if folder is None:
        raise BundleError("expected the package that holds the bundles", got="none", where=where)
    return [Found(file, origin) for file in _expect_bundles(folder, where)]


def _in_checkout(root: Path) -> list[Found]:
    return [Found(file, "checkout") for file in _bundles_of(root / "artifacts")]


def _package_folder(package: str) -> Path | None:
    """Find a package's folder without importing it; its parents, if it has any, are imported."""
    from importlib.util import find_spec  # noqa: PLC0415 - slow to import

    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return None
    locations = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(locations))) if locations else None


def _own_checkout() -> Path | None:
    root = Path(__file__).resolve().parent.parent
    # installed from a wheel, the folder above is a package without either
    return root if (root / "pyproject.toml").is_file() and (root / "aot").is_dir() else None


def _expect_bundles(folder: Path, where: str) -> list[Path]:
    files = _bundles_of(folder)
    if not files:
        raise BundleError(f"expected *{SUFFIX} files", got="none", where=where)
    return files


def _bundles_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob(f"*{SUFFIX}") if file.is_file())
