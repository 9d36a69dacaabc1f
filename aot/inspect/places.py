"""Resolution of a user's bundle arguments: files, folders, wheels, and names of installed bundles."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nojit.aot.inspect.contents import open_bundle
from nojit.aot.inspect.wheel_file import WheelFile
from nojit.runtime.base.file_kinds import files_in
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.discovery.discover import asked_names, named
from nojit.runtime.errors import BundleError
from nojit.runtime.target import by_arch
from nojit.runtime.trust.envelope import signed_path

__all__ = ["Found", "Place", "bundles_at", "find_bundles", "report_path"]


@dataclass(frozen=True, slots=True)
class Place:
    """A bundle that a user's argument stands for."""

    path: Path
    name: str
    """Display name: for a bundle in a wheel, the wheel's path and the path inside it."""
    file: BundleFile | None = None
    """The open bundle; None if the search did not open it."""
    asked: tuple[str, ...] = ()
    """Bundle names that the user's argument may mean; empty if it is a path."""

    def opened(self) -> BundleFile:
        """Return the open bundle. The caller must close it.

        Raises:
            BundleError: the file is missing or damaged.
        """
        return self.file or open_bundle(self.path)

    def rename_in(self, error: Exception) -> None:
        """Replace the bundle's temporary path in an error by its display name."""
        for words in ("got", "where"):
            said = getattr(error, words, "").replace(str(self.path.parent), str(Path(self.name).parent))
            setattr(error, words, said)


@dataclass(frozen=True, slots=True)
class Found:
    """The bundles that one argument (a file, folder, wheel or name) stands for."""

    places: tuple[Place, ...]
    """The bundles, one place for each."""
    wheel: WheelFile | None = None
    """The wheel that contains them, if the user gave one."""


def find_bundles(places: Iterable[Path]) -> list[Path]:
    """Return the paths of bundle files without duplicates; a folder stands for all bundles in it.

    Raises:
        BundleError: a folder has no bundle.
        OSError: a folder cannot be read.
    """
    found: dict[str, Path] = {}
    for place in places:
        inside = sorted(files_in(place, SUFFIX), key=lambda path: by_arch(path.name)) if place.is_dir() else [place]
        if not inside:
            got = "only wheels" if files_in(place, ".whl") else "none"
            what = f"expected a folder with *{SUFFIX} files: build some with nojit build"
            raise BundleError(what, got=got, where=str(place))
        # keyed by real path, since places can overlap
        found |= {os.path.realpath(path): path for path in inside}
    return list(found.values())


@contextmanager
def bundles_at(place: Path, *, thin: bool = False) -> Iterator[Found]:
    """Yield the bundles that a file, a folder, a wheel or the name of an installed bundle stands for.

    Bundles in a wheel are unpacked to a temporary folder that exists until the ``with`` block ends.

    Args:
        place: the user's argument.
        thin: whether a thin wheel, which holds no bundle, stands for none; otherwise it is an error.

    Raises:
        BundleError: a folder or wheel has no bundle, or the wheel is damaged or ambiguous to readers.
        FileNotFoundError: no installed bundle has this name.
    """
    if place.suffix == ".whl" and place.is_file():
        with WheelFile(place) as wheel, tempfile.TemporaryDirectory(prefix="nojit-wheel-") as folder:
            places = () if thin and wheel.is_thin else tuple(_unpack(wheel, Path(folder)))
            yield Found(places, wheel)
        return
    if place.exists() or place.suffix in {SUFFIX, ".whl"} or os.sep in str(place):
        yield Found(tuple(Place(path, str(path)) for path in find_bundles([place])))
        return
    asked = asked_names(str(place))
    yield Found(tuple(Place(one.path, str(one.path), one.file, asked) for one in named(str(place), os.environ)))


def _unpack(wheel: WheelFile, folder: Path) -> Iterator[Place]:
    """Write the bundles of a wheel to a folder, each with its signed statement; yield their places."""
    if not wheel.bundles:
        got = (
            "a thin wheel, whose extras require the wheels that hold them: name one of those"
            if wheel.is_thin
            else "none"
        )
        raise BundleError(f"expected a wheel with *{SUFFIX} files", got=got, where=str(wheel.path))
    for number, name in enumerate(wheel.bundles):
        # one folder per bundle: paths inside a wheel are untrusted and only displayed
        own = folder / str(number)
        own.mkdir()
        if signed_path(name) in wheel.names:
            wheel.extract(signed_path(name), own)
        yield Place(wheel.extract(name, own), f"{wheel.path}/{name}")


def report_path(bundle: Path) -> Path:
    """Return the path of the build report that belongs to a bundle file."""
    return bundle.with_suffix(".report.json")
