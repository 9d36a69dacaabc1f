"""Choice of the bundles that a GPU uses among those found, with a reason for each other bundle. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nojit.aot.backends.registry import vendor_of
from nojit.runtime.discovery.discover import bundles_of_kernels
from nojit.runtime.discovery.installed import normalized
from nojit.runtime.discovery.versions import BundleVersion, newer_lies_beside, superseded
from nojit.runtime.target import by_arch, parse_image_arch, spell_arch, spell_cuda, spell_driver

__all__ = [
    "BundleState",
    "DeviceChoice",
    "Raising",
    "bare",
    "choose",
    "driver_for",
    "old_driver",
    "taken",
    "without_older",
]


@dataclass(frozen=True, slots=True)
class BundleState:
    """A bundle that nojit found on this machine, and the reason if operators cannot use it."""

    path: str
    origin: str
    problem: str
    """Why it cannot be used; the fields below are then empty, unless `untrusted`."""
    name: str = ""
    version: str = ""
    id: str = ""
    image_arch: str = ""
    min_driver: int = 0
    driver: str = ""
    """Oldest version of the Linux driver that loads it; empty if unknown."""
    variants: int = 0
    kernels: tuple[str, ...] = ()
    untrusted: bool = False
    """Whether ``NOJIT_TRUST`` refuses it, and with it all bundles that load together with it."""
    foreign: bool = False
    """Whether operators use only kernels of it that no other bundle has, and skip it if it has a problem."""
    expires: str = ""
    """End of its signature's validity, in UTC, if ``NOJIT_TRUST`` requires one; empty if none."""

    newer: str = ""
    """A newer version beside it that is used instead."""

    @property
    def counts(self) -> bool:
        """Whether operators choose kernels from it, including kernels that are then refused."""
        return not self.newer and (not self.problem or (self.untrusted and not self.foreign))


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """The bundles that one device would use."""

    device: int
    capability: int
    """Compute capability: 90 for 9.0."""
    used: tuple[str, ...]
    """Paths of bundles with a kernel for which none fits better or comes first."""
    rejected: tuple[tuple[str, str], ...]
    """Path and reason of each other bundle."""
    missing: tuple[tuple[str, str], ...] = ()
    """Names of bundles that do not fit, and the remedy."""


@dataclass(frozen=True, slots=True)
class Raising:
    """The bundles and kernels that fail to load in this environment, with the reasons."""

    bundles: Mapping[str, str] = field(default_factory=dict)
    """Reasons by the path of the bundle."""
    kernels: Mapping[str, str] = field(default_factory=dict)
    """Reasons by the name under which operators load the kernel."""


def driver_for(cuda: int) -> str:
    """Return the oldest version of the Linux driver that loads images of a CUDA toolkit; empty if unknown.

    A driver loads the images of every toolkit of its major version. The versions are from "minor version compatibility"
    of NVIDIA's CUDA Compatibility guide.

    Args:
        cuda: version of the CUDA toolkit as a number, 13000 for 13.0.
    """
    return {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}.get(cuda // 1000, "")


def taken(bundles: Iterable[BundleState]) -> dict[str, dict[str, BundleState]]:
    """Return the bundle from which operators take a kernel, by kernel name and then by image arch.

    Args:
        bundles: the bundles found, in order of precedence.
    """
    return bundles_of_kernels((one, one.foreign, one.image_arch, one.kernels) for one in bundles if one.counts)


def without_older(bundles: Iterable[BundleState]) -> list[BundleState]:
    """Return the bundles; `newer` is set for those with a newer version in the same folder."""
    known = list(bundles)
    older = superseded([BundleVersion(one.path, one.name, one.version, one.image_arch) for one in known if one.name])
    return [replace(one, newer=older.get(one.path, "")) for one in known]


def bare(thin: Mapping[str, Sequence[str]], bundles: Iterable[BundleState]) -> list[str]:
    """Return the names of the thin wheels that are installed without any of their bundles.

    Args:
        thin: for each thin wheel, by its normalized name, the archs for which its extras install bundles.
        bundles: the bundles found.
    """
    here = {normalized(name) for one in bundles for name in (one.name, one.origin)}
    named = {name: {name, *(f"wheel {name}-{arch.replace('_', '')}" for arch in archs)} for name, archs in thin.items()}
    return [name for name, names in named.items() if here.isdisjoint(names)]


def choose(
    device: int,
    capability: int,
    driver: int,
    bundles: Sequence[BundleState],
    raising: Raising | None = None,
    *,
    thin: Mapping[str, Sequence[str]] | None = None,
) -> DeviceChoice:
    """Return the bundles that a device would use, and the reason against each other bundle. Pure.

    As at an operator's launch, each kernel comes from the best fitting of the bundles that have it. A bundle that fails
    to load has no fallback: it is chosen first, and then refused.

    Args:
        device: ordinal of the device.
        capability: compute capability, 90 for 9.0.
        driver: CUDA version of the driver, 13000 for 13.0.
        bundles: the bundles found, in order of precedence.
        raising: the bundles and kernels that fail to load; None for none.
        thin: for each thin wheel, by its normalized name, the archs for which its extras install bundles; None for
            none.
    """
    raising = raising or Raising()
    known = [bundle for bundle in bundles if bundle.counts]
    fit = [bundle for bundle in known if not _wrong_arch(bundle, capability)]
    winners: dict[str, BundleState] = {}
    won: dict[str, list[str]] = {}
    for kernel, held in taken(bundles).items():
        fitting = [bundle for bundle in held.values() if not _wrong_arch(bundle, capability)]
        best = winners[kernel] = min(fitting or held.values(), key=lambda bundle: _closeness(bundle, capability))
        if fitting:
            won.setdefault(best.path, []).append(kernel)
    # the runtime chooses an image before the driver loads it, so an old driver does not change the choice
    chosen = [bundle for bundle in fit if bundle.path in won and not _old_driver(bundle, driver)]
    refused = {bundle.path: _refusal(bundle, won[bundle.path], raising) for bundle in chosen}
    used = tuple(path for path, reason in refused.items() if not reason)
    reasons = {
        bundle.path: refused.get(bundle.path) or _reason(bundle, capability, driver, winners)
        for bundle in bundles
        if bundle.path not in used
    }
    missing = _missing(known, tuple(refused), capability, driver, thin or {})
    return DeviceChoice(device, capability, used, tuple(reasons.items()), missing)


def _refusal(bundle: BundleState, kernels: Sequence[str], raising: Raising) -> str:
    """Return the reason why a chosen bundle, or every kernel chosen from it, fails to load; empty if a kernel loads.

    `raising`: bundles and kernels that fail to load.
    """
    known = bundle.problem or raising.bundles.get(bundle.path, "")
    if known or not all(kernel in raising.kernels for kernel in kernels):
        return known
    return raising.kernels[kernels[0]]


def _reason(bundle: BundleState, capability: int, driver: int, winners: Mapping[str, BundleState]) -> str:
    """Return the reason why a device does not use a bundle.

    `driver`: the driver's CUDA version, 13000 for 13.0; `winners`: the chosen bundle of each kernel.
    """
    unfit = (
        bundle.problem or (newer_lies_beside(bundle.newer) if bundle.newer else "") or _wrong_arch(bundle, capability)
    )
    if unfit:
        return unfit
    others = {winners[kernel].path: winners[kernel] for kernel in bundle.kernels if winners[kernel] is not bundle}
    if len(others) == 0:
        return _old_driver(bundle, driver) or "has no kernels"
    how = {True: "comes first", False: "fits better"}
    words = [
        f"{path} {how[other.foreign != bundle.foreign or other.image_arch == bundle.image_arch]}"
        for path, other in others.items()
    ]
    return _old_driver(bundle, driver) or ", ".join(words)


def _missing(
    bundles: Sequence[BundleState],
    used: Sequence[str],
    capability: int,
    driver: int,
    thin: Mapping[str, Sequence[str]],
) -> tuple[tuple[str, str], ...]:
    """Return the names of bundles that a device needs but cannot use, each with the problem and its remedy.

    `driver`: the driver's CUDA version, 13000 for 13.0; `thin`: archs that the extras of each thin wheel install;
    `used`: paths of the chosen bundles.
    """
    missing = {
        name: f"is installed without a bundle: {_remedy(name, thin, capability)}" for name in bare(thin, bundles)
    }
    served = {kernel for bundle in bundles if bundle.path in used for kernel in bundle.kernels}
    for name in dict.fromkeys(bundle.name for bundle in bundles):
        alike = [bundle for bundle in bundles if bundle.name == name]
        if all(kernel in served for bundle in alike for kernel in bundle.kernels):
            continue
        fit = [bundle for bundle in alike if not _wrong_arch(bundle, capability)]
        archs = ", ".join(sorted({bundle.image_arch for bundle in alike}, key=by_arch))
        if not fit:
            missing[name] = f"has {archs}: {_remedy(name, thin, capability)}"
        elif (old := _old_driver(fit[0], driver)) and not any(bundle.path in used for bundle in fit):
            missing[name] = old
    return tuple(missing.items())


def _remedy(name: str, thin: Mapping[str, Sequence[str]], capability: int) -> str:
    """Return the instruction for getting the bundle `name` for a device: installing an extra of a thin wheel, if one fits.

    A thin wheel has no images; each of its extras installs the bundle for one arch. `thin` lists these archs by wheel.
    """
    archs = thin.get(normalized(name), ())
    images = {arch: parse_image_arch(vendor_of(arch).target_of(arch).image_arch) for arch in archs}
    fitting = [arch for arch, image in images.items() if image.runs_on(capability)]
    if not fitting:
        return f"install or build it for {spell_arch(capability)}"
    best = min(fitting, key=lambda arch: images[arch].closeness(capability))
    return f"pip install '{name}[{best.replace('_', '')}]'"


def _wrong_arch(bundle: BundleState, capability: int) -> str:
    if parse_image_arch(bundle.image_arch).runs_on(capability):
        return ""
    return f"has {bundle.image_arch}; the device is {spell_arch(capability)}"


def _old_driver(bundle: BundleState, driver: int) -> str:
    return old_driver(bundle.image_arch, bundle.min_driver, driver)


def old_driver(image_arch: str, min_driver: int, driver: int) -> str:
    """Return why a driver does not load a bundle; empty if it does.

    Args:
        image_arch: arch of the bundle's images.
        min_driver: oldest driver that loads them, as a CUDA or ROCm version: 13000 for 13.0.
        driver: version of the driver.
    """
    if min_driver <= driver:
        return ""
    least = driver_for(min_driver)
    words = f" ({least} or later)" if least else ""
    needed = spell_driver(parse_image_arch(image_arch).number, min_driver)
    return f"needs a driver for {needed}{words}; this one is for {spell_cuda(driver)}"


def _closeness(bundle: BundleState, capability: int) -> int:
    return parse_image_arch(bundle.image_arch).closeness(capability)
