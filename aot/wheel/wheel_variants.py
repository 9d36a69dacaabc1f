"""Metadata of wheel variants: it tells installers that know variants which GPUs a wheel supports. Pure.

Sources: PEP 825 (variant wheels, ``variant.json``, the index's file) and PEP 850 (providers), both drafts. The properties
are those of the vendor's provider: `nojit.aot.backends.interface.WheelVariants`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nojit.aot.backends.registry import vendor_of
from nojit.aot.signing.shipped_bundles import VerifiedBundle
from nojit.aot.wheel.names import arch_label, escaped
from nojit.runtime.errors import PackageError

__all__ = ["index_file", "index_file_name", "label_of", "misled", "variant_file"]

# the draft that defines providers; a final version will have another address
_SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"


def label_of(arch: str) -> str:
    """Return the label of an arch's wheel variant, which is part of the wheel's file name."""
    return arch_label(arch)


def variant_file(arch: str, bundles: Sequence[VerifiedBundle]) -> bytes:
    """Return a variant wheel's ``variant.json``: the GPUs and drivers that it supports.

    Args:
        arch: the arch of the bundles in the wheel.
        bundles: the bundles in the wheel.
    """
    return _encode({arch: bundles})


def index_file_name(name: str, version: str) -> str:
    """Return the name of the index file for the variant wheels of one version."""
    return f"{escaped(name)}-{version}-variants.json"


def index_file(by_arch: Mapping[str, Sequence[VerifiedBundle]]) -> bytes:
    """Return the content of the index file: the properties of every wheel variant.

    Args:
        by_arch: the bundles of each variant wheel, by arch.

    Raises:
        PackageError: two variants are for the same GPUs.
    """
    return _encode(by_arch)


def misled(bundles: Sequence[VerifiedBundle]) -> dict[str, list[str]]:
    """Return, by the arch of a wheel variant, the archs of GPUs that get this variant but cannot run it.

    Args:
        bundles: the bundles of all variants.
    """
    images: dict[str, dict[str, str]] = {}
    for bundle in bundles:
        images.setdefault(vendor_of(bundle.arch).NAME, {})[bundle.arch] = bundle.index.target.image_arch
    found: dict[str, list[str]] = {}
    for known in images.values():
        found |= vendor_of(next(iter(known))).WHEEL_VARIANTS.misled(known)
    return found


def _encode(by_arch: Mapping[str, Sequence[VerifiedBundle]]) -> bytes:
    providers: dict[str, Any] = {}
    variants: dict[str, Any] = {}
    homes: dict[str, str] = {}
    for arch, bundles in by_arch.items():
        vendor = vendor_of(arch).WHEEL_VARIANTS
        providers[vendor.NAMESPACE] = vendor.PROVIDER
        needed = max(bundle.index.min_driver for bundle in bundles)
        # regardless of their drivers
        gpus = f"{vendor.NAMESPACE} {vendor.properties(arch, 0)}"
        other = homes.setdefault(gpus, arch)
        if other != arch:
            what = "expected variants that installers can tell apart: leave out the bundle of the chip, or that of its family"
            raise PackageError(what, got=f"{other} and {arch}")
        variants[label_of(arch)] = {vendor.NAMESPACE: vendor.properties(arch, needed)}
    document = {
        "$schema": _SCHEMA,
        "default-priorities": {"namespace": [*providers]},
        "providers": providers,
        "variants": variants,
    }
    return json.dumps(document, indent=2).encode() + b"\n"
