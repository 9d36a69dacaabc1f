"""Where bundles are found: the environment, installed wheels, a checkout's build output; in this order.

No installed package is imported. Bundles are opened only to read what they are called, where a name is looked for, and stay open
for whoever uses them: what is loaded is what was found.

Operators ask for the environment's bundles, the library's and the checkout's. Wheels of other names are *foreign* to them:
what such a wheel holds serves kernels that none of the others holds, and one that is broken is passed over.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from nojit.runtime.discovery.installed import Provider, normalized, providers
from nojit.runtime.errors import BundleError, did_you_mean, worded
from nojit.runtime.format import SUFFIX
from nojit.runtime.record import Record
from nojit.runtime.target import by_arch

if TYPE_CHECKING:
    from nojit.runtime.bundle import BundleFile

__all__ = [
    "LIBRARY",
    "VARIABLE",
    "Found",
    "asked_names",
    "holders",
    "named",
    "names",
    "operators_ask",
    "remedy",
    "serving",
    "survey",
]

T = TypeVar("T")

# files and folders, separated as in PATH
VARIABLE = "NOJIT_BUNDLES"
LIBRARY: Final = "nojit-kernels"
"""What the bundles of nojit's own operators are called."""


class Found(Record):
    """A bundle file and who said that it is there."""

    path: Path
    origin: str
    """``NOJIT_BUNDLES``, ``wheel <distribution>`` or ``checkout``."""
    foreign: bool = False
    """Whether operators take from it only what no other bundle holds."""
    file: BundleFile | None = None
    """The bundle, if it was opened to read its name; it is the caller's to close."""

    def opened(self) -> BundleFile:
        """Return the bundle, opened now or to find it; no policy has judged it.

        Raises:
            BundleError: it is no whole bundle.
            OSError: it cannot be read.
        """
        return self.file or _open(self.path)


class _Place(Record):
    """Somewhere that bundles can be."""

    look: Callable[[], list[Found]]
    """Lists them, or raises `BundleError`."""
    names: tuple[str, ...] = ()
    """What all of them are called; empty if each is called what it calls itself."""
    foreign: bool = False
    """Whether its bundles are."""


def survey(
    environment: Mapping[str, str], checkout: Path | None = None
) -> tuple[list[Found], list[BundleError], list[BundleError]]:
    """List the bundle files, first come first, each once, and what is wrong with places: it goes on after each.

    Args:
        environment: where `VARIABLE` is looked up.
        checkout: the folder that holds ``artifacts/``; by default the one that this module runs from, if any.

    Returns:
        The files; what is wrong with places that operators ask for, which are missing, without bundles, or cannot be read;
        and what is wrong with wheels that are foreign to them.
    """
    files: list[Found] = []
    problems: dict[bool, list[BundleError]] = {False: [], True: []}
    for place in _places(environment, checkout):
        try:
            files += place.look()
        except BundleError as error:
            problems[place.foreign].append(error)
    return _each_once(files), problems[False], problems[True]


def holders(bundles: Iterable[tuple[T, bool, str, Iterable[str]]]) -> dict[str, dict[str, T]]:
    """Say for each kernel which bundle operators take it from for each image arch: the first that holds it.

    Args:
        bundles: each with whether it is foreign, its image arch and its kernels; first come first. A foreign one counts where no
            other one holds the kernel, for whichever arch.
    """
    asked: dict[str, dict[str, T]] = {}
    foreign: dict[str, dict[str, T]] = {}
    for bundle, is_foreign, image_arch, kernels in bundles:
        held = foreign if is_foreign else asked
        for kernel in kernels:
            held.setdefault(kernel, {}).setdefault(image_arch, bundle)
    return foreign | asked


def operators_ask(kernel: str, called: Iterable[str]) -> tuple[str, ...]:
    """Return the name that operators ask for when they take a kernel from bundles: the library's, if the kernel is.

    Operators of other packages, made of specs of their own, have kernels in bundles of any name: they ask for none.

    Args:
        kernel: its name.
        called: what the bundles call themselves that hold it.
    """
    # the library's manifests take a while to read: only where a bundle of another name would serve
    unclear = any(normalized(name) != LIBRARY for name in called)
    return () if unclear and not _is_the_librarys(kernel) else (LIBRARY,)


def _is_the_librarys(kernel: str) -> bool:
    from importlib import import_module  # noqa: PLC0415 - as said

    try:
        # not by an import statement: the runtime stands below the library, and works without it
        manifests = import_module("nojit.kernels.manifests")
    except ModuleNotFoundError:
        return False
    return manifests.entry_of(kernel) is not None


def serving(file: BundleFile) -> tuple[list[str], list[BundleError]]:
    """Say which of its kernels a bundle that a policy has judged may serve to operators, and why not the others, each reason once."""
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
    """List what can be looked for by `named`, each once however it is spelled.

    Places and bundles with something wrong about them are passed over; arguments are as for `survey`.
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
    """List the bundle files that a name stands for, first come first, each once.

    In the environment and in a checkout these are the bundles that are called so. Of installed wheels these are all
    bundles of those whose entry point, or whose distribution, is called so. Case counts for nothing, and ``-``, ``_`` and ``.``
    are one.

    Args:
        name: ``acme-kernels``, say.
        environment: as for `survey`.
        checkout: likewise.

    Returns:
        The files; those whose own name was read are open.

    Raises:
        BundleError: a place that the environment names, or a wheel of that name, is missing or without bundles.
        FileNotFoundError: there is no bundle of that name; the message says which there are.
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
    """Add the bundles of a place that have a name, and every name there."""
    wanted = normalized(name)
    if place.names:
        # a wheel of another name may be broken: it is not asked for
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
    """Return the names of bundles that a program may mean by a name: itself, and what ``acme-kernels-sm90`` provides.

    Entry points say what is found, and anybody's can say anything: what may be used follows from what was asked for alone.
    """
    provided = re.fullmatch(r"(.+)-sm[0-9]+[a-z]?", normalized(name))
    return (name, provided[1]) if provided else (name,)


def _none_such(name: str, known: Iterable[str]) -> str:
    names = sorted(set(known), key=by_arch)
    there = f"; found: {', '.join(names)}" if names else ""
    return (
        f"expected a bundle file, a folder of bundles, or the name of a bundle that is installed or in {VARIABLE}, "
        f"got {name!r}{did_you_mean(name, names)}{there}{remedy(name)}"
    )


def remedy(name: str) -> str:
    """Say what a thin wheel that is installed alone lacks, as the end of a message."""
    from importlib.metadata import PackageNotFoundError, metadata  # noqa: PLC0415 - slow to import

    try:
        extras = metadata(name).get_all("Provides-Extra") or []
    except (PackageNotFoundError, ValueError):
        return ""
    brings = f"; its extras {', '.join(extras)} bring bundles: pip install '{name}[{extras[-1]}]'" if extras else ""
    return f"; the distribution {name} is installed without a bundle{brings}"


def _open(path: Path) -> BundleFile:
    from nojit.runtime.bundle import BundleFile  # noqa: PLC0415 - to list files needs none

    return BundleFile(path)


def _each_once(files: Iterable[Found]) -> list[Found]:
    unique: dict[Path, Found] = {}
    for found in files:
        unique.setdefault(found.path.resolve(), found)
    return list(unique.values())


def _places(environment: Mapping[str, str], checkout: Path | None) -> Iterator[_Place]:
    """Yield the places in order."""
    for place in environment.get(VARIABLE, "").split(os.pathsep):
        if place:
            yield _Place(partial(_in_environment, Path(place)))
    for provider in providers():
        called = provider.name, provider.distribution
        foreign = LIBRARY not in map(normalized, called)
        yield _Place(partial(_in_wheel, provider, foreign), called, foreign)
    root = _own_checkout() if checkout is None else checkout
    if root is not None:
        yield _Place(partial(_in_checkout, root))


def _in_environment(path: Path) -> list[Found]:
    where, what = f"{VARIABLE}: {path}", "expected a bundle file or a folder of them"
    try:
        if path.is_dir():
            # falling back to another place would hide the mistake
            return [Found(file, VARIABLE) for file in _expect_bundles(path, where)]
        if not path.is_file():
            raise BundleError(what, got="none", where=where)
    except OSError as error:
        raise BundleError(what, got=worded(error), where=where) from None
    return [Found(path, VARIABLE)]


def _in_wheel(provider: Provider, foreign: bool) -> list[Found]:
    origin = f"wheel {provider.distribution}"
    where, what = f"{origin}, package {provider.package}", "expected the package that holds the bundles"
    parts = provider.package.split(".")
    # a path would lead out of the folder that the wheel is installed in
    if not all(map(str.isidentifier, parts)):
        raise BundleError(f"{what}, named as in `import`", got=repr(provider.package), where=where)
    # beside the entry point, as a wheel is installed, or wherever an editable install has it
    beside = Path(provider.place, *parts)
    try:
        folder = beside if beside.is_dir() else _package_folder(parts)
    except Exception as error:
        # what finds modules is not ours
        raise BundleError(what, got=worded(error) or type(error).__name__, where=where) from error
    if folder is None:
        raise BundleError(what, got="none", where=where)
    return [Found(file, origin, foreign) for file in _expect_bundles(folder, where)]


def _in_checkout(root: Path) -> list[Found]:
    folder = root / "artifacts"
    return [Found(file, "checkout") for file in _bundles_of(folder, str(folder))]


def _package_folder(parts: Sequence[str]) -> Path | None:
    """Find a package's folder without importing it or a package above it.

    `importlib.util.find_spec` imports the packages above. The finders themselves do not.
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


def _own_checkout() -> Path | None:
    root = Path(__file__).resolve().parents[2]
    # installed from a wheel, the folder above is a package without either
    return root if (root / "pyproject.toml").is_file() and (root / "aot").is_dir() else None


def _expect_bundles(folder: Path, where: str) -> list[Path]:
    files = _bundles_of(folder, where)
    if not files:
        raise BundleError(f"expected *{SUFFIX} files", got="none", where=where)
    return files


def _bundles_of(folder: Path, where: str) -> list[Path]:
    try:
        # a pattern takes a folder that cannot be read for one without files
        files = folder.iterdir() if folder.is_dir() else ()
        return sorted(
            (file for file in files if file.name.endswith(SUFFIX) and file.is_file()),
            key=lambda file: by_arch(file.name),
        )
    except OSError as error:
        raise BundleError("expected a folder of bundle files", got=worded(error), where=where) from None
