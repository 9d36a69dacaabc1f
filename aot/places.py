"""Where the bundles lie that a user names: files, folders of them, wheels, and what is installed under a name."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nojit.runtime.discover import named
from nojit.runtime.errors import BundleError, worded
from nojit.runtime.format import SUFFIX
from nojit.runtime.trust import signed_path

__all__ = ["Place", "bundles_at", "find_bundles"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a bundle can be read."""

    path: Path
    name: str
    """What to call that: in a wheel, the wheel's path and the one in it."""

    def rename_in(self, error: Exception) -> None:
        """Have an error call the place by its name."""
        for words in ("got", "where"):
            said = getattr(error, words, "").replace(str(self.path.parent), str(Path(self.name).parent))
            setattr(error, words, said)


def find_bundles(places: Iterable[Path]) -> list[Path]:
    """List bundle files, each once: a folder stands for every bundle in it.

    Raises:
        BundleError: a folder holds none.
    """
    found: dict[str, Path] = {}
    for place in places:
        inside = sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else [place]
        if not inside:
            raise BundleError(f"expected a folder with *{SUFFIX} files", got="none", where=str(place))
        # by the path it leads to, since places overlap
        found |= {os.path.realpath(path): path for path in inside}
    return list(found.values())


@contextmanager
def bundles_at(place: Path) -> Iterator[list[Place]]:
    """List the bundles that a user means by a file, a folder, a wheel or a name; those of a wheel lie there until the block ends.

    Raises:
        BundleError: a folder or a wheel holds none, or it is no wheel.
        FileNotFoundError: no bundle has this name.
    """
    if place.suffix == ".whl" and place.is_file():
        with tempfile.TemporaryDirectory(prefix="nojit-wheel-") as folder:
            yield [Place(path, str(place / path.relative_to(folder))) for path in _unpack(place, folder)]
        return
    is_path = place.exists() or place.suffix in {SUFFIX, ".whl"} or os.sep in str(place)
    paths = find_bundles([place]) if is_path else [found.path for found in named(str(place), os.environ)]
    yield [Place(path, str(path)) for path in paths]


def _unpack(wheel: Path, folder: str) -> list[Path]:
    """Write the bundles of a wheel into a folder, each with its signed statement beside it."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            inside = archive.namelist()
            bundles = [name for name in inside if name.endswith(SUFFIX)]
            for name in {*map(signed_path, bundles)} & {*inside}:
                archive.extract(name, folder)
            # nothing is written outside of the folder, whatever it is called
            paths = [Path(archive.extract(name, folder)) for name in bundles]
    except (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise BundleError("expected a wheel", got=worded(error), where=str(wheel)) from None
    if not paths:
        raise BundleError(f"expected a wheel with *{SUFFIX} files", got="none", where=str(wheel))
    return paths
