"""Choice of the bundles of a release for an arch or for the devices of a machine. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nojit.aot.inspect.device_choice import old_driver
from nojit.aot.manifest.archs import arch_order
from nojit.aot.oci.error_reasons import refusal
from nojit.aot.oci.release import Offer
from nojit.runtime.target import arch_number, is_arch, parse_image_arch, spell_arch

__all__ = ["ALL", "NATIVE", "for_arch", "for_devices", "too_new"]

ALL = "all"
"""Every bundle."""
NATIVE = "native"
"""The bundles for the devices of this machine."""


def for_arch(offers: Sequence[Offer], arch: str, where: str) -> list[Offer]:
    """Return the bundles for an arch: of each name, the one that fits a device of the arch best.

    Args:
        offers: the bundles of the release.
        arch: the arch of a chip, such as ``sm_90``, or that of a bundle, such as ``sm_100f``.
        where: address of the release, for messages.

    Raises:
        RegistryError: no bundle fits.
    """
    found = _best(offers, arch_number(arch)) if is_arch(arch) else [one for one in offers if one.arch == arch]
    if not found:
        raise _none_for([arch], offers, where)
    return found


def for_devices(offers: Sequence[Offer], capabilities: Sequence[int], where: str) -> tuple[list[Offer], list[str]]:
    """Return the bundles for the devices of a machine, and the archs of the devices that none fits.

    Args:
        offers: the bundles of the release.
        capabilities: number of each device's arch, 90 for ``sm_90``, 942 for ``gfx942``; at least one.
        where: address of the release, for messages.

    Raises:
        RegistryError: no bundle fits any device.
    """
    best = {capability: _best(offers, capability) for capability in capabilities}
    unserved = [spell_arch(capability) for capability, found in best.items() if not found]
    if len(unserved) == len(best):
        raise _none_for(unserved, offers, where)
    chosen = {offer.file_name for found in best.values() for offer in found}
    return [offer for offer in offers if offer.file_name in chosen], unserved


def too_new(offers: Iterable[Offer], driver: int) -> list[str]:
    """Return what to say about bundles that need a newer driver.

    Args:
        offers: the chosen bundles.
        driver: CUDA or ROCm version of the driver, 13000 for 13.0.
    """
    reasons = ((offer, old_driver(offer.image_arch, offer.min_driver, driver)) for offer in offers)
    return [f"{offer.file_name} {reason}" for offer, reason in reasons if reason]


def _best(offers: Iterable[Offer], capability: int) -> list[Offer]:
    """Return, of each name and version, the bundle that fits a device best."""
    found: dict[tuple[str, str], tuple[int, Offer]] = {}
    for offer in offers:
        try:
            image = parse_image_arch(offer.image_arch)
        except ValueError:
            # of a newer nojit
            continue
        if image.runs_on(capability):
            closeness = image.closeness(capability)
            known = found.get((offer.name, offer.version))
            if known is None or closeness < known[0]:
                found[offer.name, offer.version] = closeness, offer
    return [offer for _, offer in found.values()]


def _none_for(archs: Sequence[str], offers: Iterable[Offer], where: str) -> Exception:
    there = {offer.arch for offer in offers}
    try:
        listed = sorted(there, key=arch_order)
    except ValueError:
        listed = sorted(there)
    what = f"expected a bundle that runs on {' or '.join(archs)}"
    advice = "build and push one for it, or pass another --arch"
    return refusal("arch", what, got=f"bundles for {', '.join(listed)}", where=where, advice=advice)
