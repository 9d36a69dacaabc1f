"""Debug twins: bundles with line info that replace the bundles that they were built beside.

Profilers and debuggers then show source lines. Nothing here is imported unless ``NOJIT_DEBUG_INFO`` is set.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from nojit.runtime.base.environment import DEBUG_INFO
from nojit.runtime.base.wording import worded
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.discovery.installed import normalized
from nojit.runtime.errors import BundleError

if TYPE_CHECKING:
    from nojit.runtime.bundle.file import Accept

__all__ = ["TWIN", "is_called", "twin_inputs", "with_twins"]

TWIN: Final = "-debug"
"""Suffix of a twin's name."""


def is_called(bundle: str, asked: str) -> bool:
    """Return whether a bundle has the requested name, in any spelling, or is the twin of a bundle that has it."""
    return normalized(bundle) in {normalized(asked), normalized(asked) + TWIN}


def twin_inputs(inputs: str) -> str:
    """Return the `inputs` of the twin of a bundle; they identify a twin."""
    return hashlib.sha256(f"line info {inputs}".encode()).hexdigest()


def with_twins(files: Sequence[BundleFile], places: str, accept: Accept | None) -> tuple[BundleFile, ...]:
    """Replace bundles by their twins; bundles without a twin stay.

    Args:
        files: the bundles; replaced ones are closed.
        places: files and folders with twins, separated as in ``PATH``.
        accept: as for `BundleFile`.

    Raises:
        BundleError: a place contains no bundle, a bundle that is not a twin, a twin of another build of one of `files`, or two
            twins of one bundle.
    """
    twins: dict[str, BundleFile] = {}
    try:
        for path in _paths(places):
            _add(twins, _open(path, accept))
        chosen = tuple([_stand_in(file, twins) for file in files])
    except BaseException:
        for twin in twins.values():
            twin.close()
        raise
    for file in {*files, *twins.values()} - {*chosen}:
        file.close()
    return chosen


def _open(path: str, accept: Accept | None) -> BundleFile:
    try:
        return BundleFile(path, accept)
    except OSError as error:
        raise BundleError(
            "expected the file of a debug twin: nojit build --debug-info=twin",
            got=worded(error),
            where=f"{DEBUG_INFO}: {path}",
        ) from None


def _add(twins: dict[str, BundleFile], twin: BundleFile) -> None:
    if not twin.index.name.endswith(TWIN):
        twin.close()
        what = "expected a debug twin: nojit build --debug-info=twin"
        raise BundleError(what, got=f"bundle {twin.index.name}", where=f"{DEBUG_INFO}: {twin.path}")
    other = twins.setdefault(twin.index.inputs, twin)
    if other is not twin:
        twin.close()
        raise BundleError(
            "expected one twin of each bundle; delete one", got=f"{other.path} and {twin.path}", where=DEBUG_INFO
        )


def _paths(places: str) -> Iterator[str]:
    for place in filter(None, places.split(os.pathsep)):
        try:
            names = sorted(name for name in os.listdir(place) if name.endswith(SUFFIX))  # noqa: PTH208 - as the loader
        except NotADirectoryError:
            yield place
            continue
        except OSError as error:
            raise BundleError(
                "expected a debug twin or a folder of them: nojit build --debug-info=twin",
                got=worded(error),
                where=f"{DEBUG_INFO}: {place}",
            ) from None
        if not names:
            raise BundleError(
                f"expected *{SUFFIX} files of debug twins: nojit build --debug-info=twin",
                got="none",
                where=f"{DEBUG_INFO}: {place}",
            )
        yield from [os.path.join(place, name) for name in names]  # noqa: PTH118 - as above


def _stand_in(file: BundleFile, twins: dict[str, BundleFile]) -> BundleFile:
    """Return the twin of a bundle, or the bundle if it has none."""
    twin = twins.get(twin_inputs(file.index.inputs))
    if twin is None:
        for other in twins.values():
            if (other.index.name, other.index.target) == (f"{file.index.name}{TWIN}", file.index.target):
                what = f"expected a debug twin of bundle {file.id}: nojit build --debug-info=twin"
                raise BundleError(what, got="that of another build", where=other.path)
        return file
    if (twin.index.name, twin.index.version) != (f"{file.index.name}{TWIN}", file.index.version):
        what = f"expected {file.index.name}{TWIN} {file.index.version}, the twin of {file.path}"
        raise BundleError(what, got=f"{twin.index.name} {twin.index.version}", where=twin.path)
    # a key that may not sign the bundle may not sign its replacement
    twin.expect((file.index.name,))
    held = [[(entry.name, entry.variants) for entry in one.index.kernels] for one in (file, twin)]
    if held[0] != held[1] or twin.index.target != file.index.target:
        what = f"expected the kernels of {file.path}: rebuild both with nojit build --debug-info=twin"
        raise BundleError(what, got="others", where=twin.path)
    return twin
