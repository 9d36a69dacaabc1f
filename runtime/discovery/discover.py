"""Find bundles in the environment, in installed wheels and in a checkout's build output, in this order.

nojit imports no installed package, and opens a bundle only to read its name. An opened bundle stays open for its user, so the
loaded file is the one that was found.

Operators use the bundles of the environment, of the library and of the checkout. Wheels of other names are *foreign* to them:
operators take only kernels from such a wheel that no other bundle holds, and skip a broken one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from nojit.runtime.base.environment import BUNDLES
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.base.wording import worded
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.discovery.installed import Provider, folder_of, normalized, provided_name, providers
from nojit.runtime.errors import BundleError
from nojit.runtime.target import by_arch

if TYPE_CHECKING:
    from nojit.runtime.bundle.file import BundleFile

__all__ = [
    "LIBRARY",
    "Found",
    "asked_names",
    "bundles_of_kernels",
    "environment_places",
    "named",
    "names",
    "operators_ask",
    "remedy",
    "serving",
    "survey",
]

T = TypeVar("T")

LIBRARY: Final = "nojit-kernels"
"""Name of the bundles of nojit's own operators."""


class Found(Record):
    """A bundle file, and how it was found."""

    path: Path
    origin: str
    """``NOJIT_BUNDLES``, ``wheel <distribution>`` or ``checkout``."""
    foreign: bool = False
    """Whether operators take only kernels from it that no other bundle holds."""
    file: BundleFile | None = None
    """The bundle, if it was opened to read its name; the caller closes it."""

    def opened(self) -> BundleFile:
        """Return the open bundle; no policy has checked it.

        Raises:
            BundleError: the file is not an intact bundle.
            OSError: the file cannot be read.
        """
        return self.file or _open(self.path)


class _Place(Record):
    """A place that may contain bundles."""

    look: Callable[[], list[Found]]
    """Function that lists the bundles, or raises `BundleError`."""
    names: tuple[str, ...] = ()
    """Names of all its bundles; empty if each bundle has its own name."""
    foreign: bool = False
    """Whether its bundles are foreign."""


def survey(
    environment: Mapping[str, str], checkout: Path | None = None
) -> tuple[list[Found], list[BundleError], list[BundleError]]:
    """List every bundle file once, in order of precedence, and the problems of places; a problem does not end the search.

    Args:
        environment: contains `BUNDLES`.
        checkout: folder that holds ``artifacts/``; by default the checkout that this module runs from, if any.

    Returns:
        The files; problems of places that operators use (missing, without bundles, unreadable); problems of foreign wheels.
    """
    files: list[Found] = []
    problems: dict[bool, list[BundleError]] = {False: [], True: []}
    for place in _places(environment, checkout):
        try:
            files += place.look()
        except BundleError as error:
            problems[place.foreign].append(error)
    return _each_once(files), problems[False], problems[True]


def environment_places(environment: Mapping[str, str]) -> list[str]:
    """Return the files and folders that `BUNDLES` names, in order; they may not exist."""
    return [place for place in environment.get(BUNDLES, "").split(os.pathsep) if place]


def bundles_of_kernels(bundles: Iterable[tuple[T, bool, str, Iterable[str]]]) -> dict[str, dict[str, T]]:
    """Return for each kernel and image arch the bundle from which operators take it: the first that holds it.

    Args:
        bundles: foreign or not, image arch and kernels of each bundle, in order of precedence. A foreign bundle counts only if no
            other one holds the kernel, for any arch.
    """
    asked: dict[str, dict[str, T]] = {}
    foreign: dict[str, dict[str, T]] = {}
    for bundle, is_foreign, image_arch, kernels in bundles:
        held = foreign if is_foreign else asked
        for kernel in kernels:
            held.setdefault(kernel, {}).setdefault(image_arch, bundle)
    return foreign | asked


def operators_ask(kernel: str, called: Iterable[str]) -> tuple[str, ...]:
    """Return the names under which operators ask for the bundles of a kernel: the library's, if the library has the kernel.

    Operators of other packages, made from their own specs, may use bundles of any name; for them the result is empty.

    Args:
        kernel: name of the kernel.
        called: own names of the bundles that hold it.
    """
    # reading the library's manifests takes a while; needed only for a bundle of another name
    unclear = any(normalized(name) != LIBRARY for name in called)
    return () if unclear and not _is_the_librarys(kernel) else (LIBRARY,)


def _is_the_librarys(kernel: str) -> bool:
    from importlib import import_module

    try:
        # no import statement: the runtime must not depend on the kernels, and works without them
        manifest_kernels = import_module("nojit.kernels.manifest_kernels")
    except ModuleNotFoundError:
        return False
    return manifest_kernels.manifest_kernel_of(kernel) is not None


def serving(file: BundleFile) -> tuple[list[str], list[BundleError]]:
    """Return the kernels that a checked bundle may serve to operators, and each reason why it may not serve the others."""
    kernels: list[str] = []
    refused: dict[str, BundleError] = {}
    for kernel in file.kernels:
        try:
            file.expect(operators_ask(kernel, [file.index.name]))
        except BundleError as error:
            refused.setdefault(str(error), error)
        else:
            kernels.append(kernel)
    return kernels, list(refused.values())


def names(environment: Mapping[str, str], checkout: Path | None = None) -> list[str]:
    """List every name that `named` can find, each once in one spelling.

    Places and bundles with problems are skipped. Arguments as for `survey`.
    """
    known: dict[str, str] = {}
    for place in _places(environment, checkout):
        for name in place.names or _own_names(place):
            known.setdefault(normalized(name), name)
    return list(known.values())


def _own_names(place: _Place) -> Iterator[str]:
    try:
        files = place.look()
    except BundleError:
        return
    for found in files:
        try:
            with _open(found.path) as bundle:
                yield bundle.index.name
        except (BundleError, OSError):
            continue


def named(name: str, environment: Mapping[str, str], checkout: Path | None = None) -> list[Found]:
    """List the bundle files of a name, each once, in order of precedence.

    From the environment and a checkout, these are the bundles with this name; from installed wheels, all bundles of wheels whose
    entry point or distribution has it. Case is ignored, and ``-``, ``_`` and ``.`` are equal.

    Args:
        name: such as ``acme-kernels``.
        environment: as for `survey`.
        checkout: as for `survey`.

    Returns:
        The files; those whose name was read are open.

    Raises:
        BundleError: a place in the environment, or a wheel of that name, is missing or contains no bundles.
        FileNotFoundError: no bundle has the name; the message lists the existing names.
    """
    files: list[Found] = []
    known: list[str] = []
    try:
        for place in _places(environment, checkout):
            _look_for(name, place, files, known)
    except BaseException:
        _close(files)
        raise
    if not files:
        raise FileNotFoundError(_none_such(name, known))
    unique = _each_once(files)
    _close(found for found in files if all(found is not one for one in unique))
    return unique


def _look_for(name: str, place: _Place, files: list[Found], known: list[str]) -> None:
    """Add the bundles of a place that have a name, and every name in that place."""
    wanted = normalized(name)
    if place.names:
        # do not read a wheel of another name: it may be broken
        if wanted in map(normalized, place.names):
            files += place.look()
        known += place.names
        return
    for found in place.look():
        bundle = _open(found.path)
        known.append(bundle.index.name)
        if normalized(bundle.index.name) == wanted:
            files.append(Found(found.path, found.origin, found.foreign, bundle))
        else:
            bundle.close()


def _close(files: Iterable[Found]) -> None:
    for found in files:
        if found.file is not None:
            found.file.close()


def asked_names(name: str) -> tuple[str, ...]:
    """Return the names of bundles that a program may mean by a name: the name itself, and ``acme-kernels`` for ``acme-kernels-sm90``.

    Entry points only locate bundles, because anybody can write one. The requested name alone decides which bundles may be used.
    """
    provided = provided_name(name)
    return (name, provided) if provided else (name,)


def _none_such(name: str, known: Iterable[str]) -> str:
    names = sorted(set(known), key=by_arch)
    there = f"; found: {', '.join(names)}" if names else ""
    return (
        f"expected a bundle file, a folder of bundles, or the name of a bundle that is installed or in {BUNDLES}, "
        f"got {name!r}{did_you_mean(name, names)}{there}{remedy(name)}"
    )


def remedy(name: str) -> str:
    """Return the end of a message that tells the user of a thin wheel which extra to install."""
    from importlib.metadata import PackageNotFoundError, metadata  # slow to import

    try:
        extras = metadata(name).get_all("Provides-Extra") or []
    except (PackageNotFoundError, ValueError):
        return ""
    brings = f"; its extras {', '.join(extras)} bring bundles: pip install '{name}[{extras[-1]}]'" if extras else ""
    return f"; the distribution {name} is installed without a bundle{brings}"


def _open(path: Path) -> BundleFile:
    from nojit.runtime.bundle.file import BundleFile

    return BundleFile(path)


def _each_once(files: Iterable[Found]) -> list[Found]:
    unique: dict[Path, Found] = {}
    for found in files:
        unique.setdefault(found.path.resolve(), found)
    return list(unique.values())


def _places(environment: Mapping[str, str], checkout: Path | None) -> Iterator[_Place]:
    """Yield the places in order of precedence."""
    for place in environment_places(environment):
        yield _Place(partial(_in_environment, Path(place)))
    for provider in providers():
        called = provider.name, provider.distribution
        foreign = LIBRARY not in map(normalized, called)
        yield _Place(partial(_in_wheel, provider, foreign), called, foreign)
    root = _own_checkout() if checkout is None else checkout
    if root is not None:
        yield _Place(partial(_in_checkout, root))


def _in_environment(path: Path) -> list[Found]:
    where, what = f"{BUNDLES}: {path}", "expected a bundle file or a folder of them"
    try:
        if path.is_dir():
            # searching another place would hide the mistake
            return [Found(file, BUNDLES) for file in _expect_bundles(path, where)]
        if not path.is_file():
            raise BundleError(what, got="none", where=where)
    except OSError as error:
        raise BundleError(what, got=worded(error), where=where) from None
    return [Found(path, BUNDLES)]


def _in_wheel(provider: Provider, foreign: bool) -> list[Found]:
    files = _expect_bundles(folder_of(provider), provider.where)
    return [Found(file, provider.origin, foreign) for file in files]


def _in_checkout(root: Path) -> list[Found]:
    folder = root / "artifacts"
    return [Found(file, "checkout") for file in _bundles_of(folder, str(folder))]


def _own_checkout() -> Path | None:
    root = Path(__file__).resolve().parents[2]
    # in a wheel, the folder above is a package without either
    return root if (root / "pyproject.toml").is_file() and (root / "aot").is_dir() else None


def _expect_bundles(folder: Path, where: str) -> list[Path]:
    files = _bundles_of(folder, where)
    if not files:
        raise BundleError(f"expected *{SUFFIX} files", got="none", where=where)
    return files


def _bundles_of(folder: Path, where: str) -> list[Path]:
    try:
        # a glob treats an unreadable folder as an empty one
        files = folder.iterdir() if folder.is_dir() else ()
        return sorted(
            (file for file in files if file.name.endswith(SUFFIX) and file.is_file()),
            key=lambda file: by_arch(file.name),
        )
    except OSError as error:
        raise BundleError("expected a folder of bundle files", got=worded(error), where=where) from None
