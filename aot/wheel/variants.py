"""Wheel variants: how a wheel says which GPUs it is for, so that installers that know variants pick it. Pure.

Sources: PEP 825 (variant wheels, ``variant.json``, the index's file) and PEP 850 (providers), both drafts; NVIDIA's provider
of variant properties, which names a GPU's arch and every lower minor of its major version ``<arch>_real``, and calls
a wheel fit whose ``cuda_version_lower_bound`` is not above the driver's CUDA version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nojit.aot.target import ARCHS
from nojit.aot.wheel.content import BundleContent
from nojit.aot.wheel.names import arch_label, escaped
from nojit.runtime.target import arch_number, parse_image_arch, spell_cuda

__all__ = ["index_file", "index_file_name", "label_of", "misled", "variant_file"]

# the draft that knows providers; a final one will have another place
_SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
_NAMESPACE = "nvidia"
_PROVIDER = {
    "requires": ["nvidia-variant-provider>=0.0.1"],
    "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
}


def label_of(arch: str) -> str:
    """Name the variant for an arch."""
    return arch_label(arch)


def variant_file(arch: str, bundles: Sequence[BundleContent]) -> bytes:
    """Write a variant wheel's ``variant.json``: which GPUs and drivers it is for.

    Args:
        arch: of its bundles.
        bundles: what it holds.
    """
    return _encode({label_of(arch): _properties(arch, bundles)})


def index_file_name(name: str, version: str) -> str:
    """Name the file that an index keeps beside the variant wheels of one version."""
    return f"{escaped(name)}-{version}-variants.json"


def index_file(by_arch: Mapping[str, Sequence[BundleContent]]) -> bytes:
    """Write the index's file: the properties of every variant.

    Args:
        by_arch: the bundles of each variant wheel.
    """
    return _encode({label_of(arch): _properties(arch, bundles) for arch, bundles in by_arch.items()})


def misled(bundles: Sequence[BundleContent]) -> dict[str, list[str]]:
    """List archs whose GPUs would be given a variant that does not run there, by the variant's arch.

    Properties cannot say that an image is for exactly one chip, or that a chip takes no other's.

    Args:
        bundles: of all variants.
    """
    images = {arch_number(bundle.arch): parse_image_arch(bundle.index.target.image_arch) for bundle in bundles}
    found: dict[str, list[str]] = {}
    for device in map(arch_number, ARCHS):
        offered = [number for number in images if number // 10 == device // 10 and number <= device]
        if offered and not images[max(offered)].runs_on(device):
            found.setdefault(f"sm_{max(offered)}", []).append(f"sm_{device}")
    return found


def _properties(arch: str, bundles: Sequence[BundleContent]) -> dict[str, Any]:
    needed = max(bundle.index.min_driver for bundle in bundles)
    return {
        _NAMESPACE: {
            "cuda_version_lower_bound": [spell_cuda(needed)],
            "sm_arch": [f"{arch_number(arch)}_real"],
        }
    }


def _encode(variants: Mapping[str, Any]) -> bytes:
    document = {
        "$schema": _SCHEMA,
        "default-priorities": {"namespace": [_NAMESPACE]},
        "providers": {_NAMESPACE: _PROVIDER},
        "variants": dict(variants),
    }
    return json.dumps(document, indent=2).encode() + b"\n"
