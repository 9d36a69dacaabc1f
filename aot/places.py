"""Where the bundles lie that a user names: files, folders of them, wheels, and what is installed under a name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nojit.aot.inspection import open_bundle
from nojit.aot.wheel.reading import WheelFile
from nojit.runtime.bundle import BundleFile
from nojit.runtime.discover import asked_names, named
from nojit.runtime.errors import BundleError
from nojit.runtime.format import SUFFIX
from nojit.runtime.target import by_arch
from nojit.runtime.trust import signed_path

__all__ = ["Found", "Place", "bundles_at", "find_bundles", "report_path"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a bundle can be read."""

    path: Path
    name: str
    """What to call that: in a wheel, the wheel's path and the one in it."""
    file: BundleFile | None = None
    """The bundle, if it was opened to find it."""
    asked: tuple[str, ...] = ()
    """One of these names is what it was asked for by; empty if it was by its place."""

    def opened(self) -> BundleFile:
        """Return the bundle, as it was found; it is the caller's to close.

        Raises:
            BundleError: it is not there, or not whole.
        """
        return self.file or open_bundle(self.path)

    def rename_in(self, error: Exception) -> None:
        """Have an error call the place by its name."""
        for words in ("got", "where"):
            said = getattr(error, words, "").replace(str(self.path.parent), str(Path(self.name).parent))
            setattr(error, words, said)


@dataclass(frozen=True, slots=True)
class Found:
    """What a user means by a file, a folder, a wheel or a name."""

    places: tuple[Place, ...]
    """Of bundles."""
    wheel: WheelFile | None = None
    """That they lie in."""


def find_bundles(places: Iterable[Path]) -> list[Path]:
    """List bundle files, each once: a folder stands for every bundle in it.

    Raises:
        BundleError: a folder holds none.
    """
    found: dict[str, Path] = {}
    for place in places:
        inside = sorted(place.glob(f"*{SUFFIX}"), key=lambda path: by_arch(path.name)) if place.is_dir() else [place]
        if not inside:
            raise BundleError(f"expected a folder with *{SUFFIX} files", got="none", where=str(place))
        # by the path it leads to, since places overlap
        found |= {os.path.realpath(path): path for path in inside}
    return list(found.values())


@contextmanager
def bundles_at(place: Path) -> Iterator[Found]:
    """List the bundles that a user means by a file, a folder, a wheel or a name; those of a wheel lie there until the block ends.

    Raises:
        BundleError: a folder or a wheel holds none, or it is no wheel, or one that readers would not read alike.
        FileNotFoundError: no bundle has this name.
    """
    if place.suffix == ".whl" and place.is_file():
        with WheelFile(place) as wheel, tempfile.TemporaryDirectory(prefix="nojit-wheel-") as folder:
            yield Found(tuple(_unpack(wheel, Path(folder))), wheel)
        return
    if place.exists() or place.suffix in {SUFFIX, ".whl"} or os.sep in str(place):
        yield Found(tuple(Place(path, str(path)) for path in find_bundles([place])))
        return
    asked = asked_names(str(place))
    yield Found(tuple(Place(one.path, str(one.path), one.file, asked) for one in named(str(place), os.environ)))


def _unpack(wheel: WheelFile, folder: Path) -> Iterator[Place]:
    """Write the bundles of a wheel into a folder, each with its signed statement beside it."""
    if not wheel.bundles:
        raise BundleError(f"expected a wheel with *{SUFFIX} files", got="none", where=str(wheel.path))
    for number, name in enumerate(wheel.bundles):
        # in a folder of its own: paths of a wheel are names here, and never paths
        own = folder / str(number)
        own.mkdir()
        if signed_path(name) in wheel.names:
            wheel.extract(signed_path(name), own)
        yield Place(wheel.extract(name, own), f"{wheel.path}/{name}")


def report_path(bundle: Path) -> Path:
    """Name the report that lies beside a bundle."""
    return bundle.with_suffix(".report.json")
