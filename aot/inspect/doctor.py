"""Checks of ``nojit doctor``: package versions, driver, bundles, settings, tuned tables and cache."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import NoReturn

from nojit.aot.cache.entry import entry_key
from nojit.aot.inspect.device_choice import BundleState, driver_for, taken
from nojit.aot.inspect.wheel_file import PROVENANCE
from nojit.aot.provenance.statement import expiry_of
from nojit.runtime import _core
from nojit.runtime.base.environment import DEBUG_INFO
from nojit.runtime.base.wording import few, told, worded
from nojit.runtime.bundle.file import Accept, BundleFile
from nojit.runtime.discovery.debug_twins import with_twins
from nojit.runtime.discovery.discover import Found, asked_names, named, names, operators_ask, serving
from nojit.runtime.discovery.installed import normalized
from nojit.runtime.errors import BundleError, BundleTrustError, NojitError, TuningError
from nojit.runtime.fallback.policy import policy_of
from nojit.runtime.loader import Bundle, load, process_policy
from nojit.runtime.target import spell_arch, spell_driver
from nojit.runtime.tuning.batch_invariance import is_batch_invariant
from nojit.runtime.tuning.overrides import read_overrides

__all__ = [
    "CacheState",
    "DriverState",
    "Failure",
    "TuningState",
    "describe",
    "examine_bundle",
    "examine_cache",
    "examine_loads",
    "examine_names",
    "examine_operators",
    "examine_settings",
    "examine_thin_wheels",
    "examine_tuning",
    "nearly_expired",
    "probe_driver",
    "trust_policy",
    "versions",
]


# maximum number of kernels that a message names
_NAMED_MAX = 5
# report a signature that expires within this time
_SOON_DAYS = 30


@dataclass(frozen=True, slots=True)
class DriverState:
    """The GPU driver, NVIDIA's or AMD's, and its devices."""

    version: int | None
    """CUDA or ROCm version, 13000 for 13.0; None without a driver."""
    devices: tuple[int, ...]
    """Number of each device's arch: 90 for ``sm_90``, 942 for ``gfx942``."""
    problem: str
    """Why there is no driver or no device; empty if there is one."""


@dataclass(frozen=True, slots=True)
class TuningState:
    """The tuned tables in ``NOJIT_TUNING``."""

    places: str
    """Value of the variable; empty if unset."""
    tables: tuple[str, ...]
    """Each tuned table: kernel, device and file."""
    problems: tuple[str, ...]
    """Why a table, or a bundle with it, cannot be used."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A load that raises in this environment."""

    way: str
    """The call that raises, as text: ``runtime.load('acme') raises``."""
    error: Exception
    bundles: tuple[str, ...] = ()
    """Paths of the bundles, if loading a name raises."""
    kernels: tuple[str, ...] = ()
    """Names of the kernels, if operators raise."""

    def __str__(self) -> str:
        return f"{self.way}: {told(self.error)}"


@dataclass(frozen=True, slots=True)
class CacheState:
    """The cache of compiled variants."""

    path: str
    exists: bool
    entries: int
    size_bytes: int
    problem: str
    """Why a build cannot use the cache; empty if it can."""


def versions() -> dict[str, str | None]:
    """Return the versions of nojit and the packages it works with; None if not installed. The packages are not imported."""
    packaged_zstd = "standard library" if sys.version_info >= (3, 14) else _version("zstandard")
    return {
        "python": platform.python_version(),
        "nojit": _version("nojit"),
        "zstd": "libzstd" if _core.finds_zstd() else packaged_zstd,
        "triton": _version("triton"),
        "torch": _version("torch"),
    }


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def probe_driver() -> DriverState:
    """Ask the engine for the driver and its devices; this initializes the driver, but creates no context."""
    try:
        number = _core.driver_version()
    except NojitError as error:
        return DriverState(None, (), f"no GPU driver: {error}")
    try:
        devices = tuple(_core.device_capability(device) for device in range(_core.device_count()))
    except NojitError as error:
        return DriverState(number, (), f"no device: {error}")
    return DriverState(number, devices, "" if devices else "no device")


def trust_policy() -> Accept | None:
    """Return the trust check that the environment asks for; if its settings are invalid, a check that refuses every bundle."""
    try:
        return process_policy()
    except BundleTrustError as error:
        problem = error

    def refuse(_path: str, _digest: str) -> NoReturn:
        raise problem

    return refuse


def examine_bundle(found: Found, accept: Accept | None = None) -> BundleState:
    """Read a bundle's index and return its state; the images are not checked.

    Args:
        found: the bundle.
        accept: raises for a bundle that this environment does not trust; the state then has a problem, but still name and kernels.
    """
    path = str(found.path)
    try:
        with BundleFile(found.path) as bundle:
            index = bundle.index
            state = BundleState(
                path=path,
                origin=found.origin,
                problem="",
                name=index.name,
                version=index.version,
                id=bundle.id,
                image_arch=index.target.image_arch,
                min_driver=index.min_driver,
                driver=driver_for(index.min_driver),
                variants=sum(entry.variants for entry in index.kernels),
                kernels=bundle.kernels,
                foreign=found.foreign,
            )
            if accept is not None:
                bundle.authorize(accept)
                state = replace(state, expires=expiry_of(bundle))
                if found.foreign:
                    # operators skip its other kernels
                    state = replace(state, kernels=tuple(serving(bundle)[0]))
    except BundleTrustError as error:
        return replace(state, problem=str(error), untrusted=True)
    except (BundleError, OSError) as error:
        return BundleState(path, found.origin, worded(error), foreign=found.foreign)
    return state


def nearly_expired(bundles: Sequence[BundleState]) -> list[tuple[str, int]]:
    """Return the paths of bundles whose signature expires soon, each with the days left."""
    now, soon = datetime.now(UTC), []
    for bundle in bundles:
        # an expired signature is already the bundle's problem
        if bundle.expires and not bundle.problem:
            days = (datetime.fromisoformat(bundle.expires) - now).days
            if days < _SOON_DAYS:
                soon.append((bundle.path, days))
    return soon


def examine_thin_wheels() -> dict[str, list[str]]:
    """Return the archs that the extras of each installed thin wheel offer, by the wheel's name."""
    found: dict[str, dict[str, None]] = {}
    ours = [one for one in distributions() if one.read_text(PROVENANCE)]
    for requirement in (text for one in ours for text in one.requires or ()):
        provider = re.fullmatch(r"(.+)-(sm|gfx)(\d+f?)==.*extra == .\2\3.", requirement)
        if provider:
            arch = f"{'sm_' if provider[2] == 'sm' else 'gfx'}{provider[3]}"
            found.setdefault(normalized(provider[1]), {})[arch] = None
    return {name: list(archs) for name, archs in found.items()}


def examine_settings(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the errors of environment variables that make every load or launch fail."""
    twins = environment.get(DEBUG_INFO, "")
    readers: tuple[Callable[[], object], ...] = (
        process_policy,
        lambda: with_twins((), twins, trust_policy()),
        lambda: is_batch_invariant(environment),
        lambda: policy_of(environment),
    )
    problems = []
    for read in readers:
        try:
            read()
        except (NojitError, OSError) as error:
            problems.append(told(error))
    return tuple(dict.fromkeys(problems))


def examine_loads(bundles: Sequence[BundleState]) -> dict[str, Exception]:
    """Load each bundle as a program in this environment would; return the errors by path.

    Args:
        bundles: the bundles found; those that already have a problem are skipped.
    """
    refused: dict[str, Exception] = {}
    for bundle in bundles:
        try:
            if not bundle.problem:
                load(bundle.path).close()
        except (NojitError, OSError) as error:
            refused[bundle.path] = error
    return refused


def examine_names(environment: Mapping[str, str]) -> tuple[Failure, ...]:
    """Load each bundle name as `nojit.runtime.load` does; return the loads that raise."""
    return tuple(_failing_names(environment))


def _failing_names(environment: Mapping[str, str]) -> Iterator[Failure]:
    for name in names(environment):
        paths: tuple[str, ...] = ()
        try:
            found = named(name, environment)
            paths = tuple([str(one.path) for one in found])
            Bundle([one.file or one.path for one in found], first_wins=True, names=asked_names(name)).close()
        except (NojitError, OSError) as error:
            yield Failure(f"runtime.load({name!r}) raises", error, bundles=paths)


def examine_operators(bundles: Sequence[BundleState]) -> tuple[Failure, ...]:
    """Load each kernel as operators do, from its chosen bundles; return the loads that raise.

    Args:
        bundles: the bundles found, in order of precedence.
    """
    policy = trust_policy()
    kernels: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for kernel, held in taken(bundles).items():
        names = () if policy is None else operators_ask(kernel, [one.name for one in held.values()])
        kernels.setdefault((tuple(one.path for one in held.values()), names), []).append(kernel)
    failing = (_failing_operators(paths, names, alike) for (paths, names), alike in kernels.items())
    return tuple(failure for failures in failing for failure in failures)


def _failing_operators(paths: Sequence[str], names: Sequence[str], kernels: Sequence[str]) -> Iterator[Failure]:
    try:
        Bundle(paths, names=names).close()
    except (NojitError, OSError) as error:
        yield Failure(f"operators that launch {few(kernels, _NAMED_MAX)} raise", error, kernels=tuple(kernels))


def examine_tuning(places: str, refused: Mapping[str, Exception]) -> TuningState:
    """Read the tuned tables that replace those of the bundles; return them with their problems.

    Args:
        places: value of ``NOJIT_TUNING``.
        refused: errors of bundles that do not load, by path.
    """
    if not places:
        return TuningState("", (), ())
    try:
        tables = [table for tables in read_overrides(places).values() for table in tables]
    except TuningError as error:
        return TuningState(places, (), (str(error),))
    words = tuple(f"{table.kernel} on {table.device.name}: {table.path}" for table in tables)
    misfits = tuple(f"{path}: {error}" for path, error in refused.items() if isinstance(error, TuningError))
    return TuningState(places, words, misfits)


def examine_cache(folder: Path) -> CacheState:
    """Return the state of a cache folder, without creating or changing it."""
    if not folder.exists():
        return CacheState(str(folder), exists=False, entries=0, size_bytes=0, problem="")
    problem = ""
    if folder.is_symlink():
        problem = "it is a symbolic link"
    elif not folder.is_dir():
        problem = "it is not a folder"
    elif folder.stat().st_uid != os.geteuid():
        problem = f"it belongs to user {folder.stat().st_uid}"
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        problem = "no permission to read and write it"
    if problem:
        return CacheState(str(folder), exists=True, entries=0, size_bytes=0, problem=problem)
    sizes = list(_entry_sizes(folder))
    return CacheState(str(folder), exists=True, entries=len(sizes), size_bytes=sum(sizes), problem="")


def _entry_sizes(folder: Path) -> Iterator[int]:
    for entry in folder.glob("??/*"):
        if entry_key(f"{entry.parent.name}/{entry.name}") is not None:
            try:
                yield entry.stat().st_size
            except OSError:
                # deleted by a build meanwhile, or a dangling link
                continue


def describe() -> dict[str, str]:
    """Return GPU, driver, host and package versions, to print with measurements; import none of the packages."""
    driver = probe_driver()
    found = {name: number or "not installed" for name, number in versions().items()}
    first = driver.devices[0] if driver.devices else 0
    cuda = "none" if driver.version is None else spell_driver(first, driver.version)
    gpu = f"{_first_name()}, {spell_arch(first)}" if driver.devices else "none"
    return {"gpu": gpu, "driver": cuda, "host": f"{platform.system()} {platform.machine()}", **found}


def _first_name() -> str:
    try:
        return str(_core.device_facts(0)[0])
    except NojitError:
        return "unnamed"
