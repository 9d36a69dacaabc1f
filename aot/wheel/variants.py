"""Metadata of wheel variants: it tells installers that know variants which GPUs a wheel supports. Pure.

Sources: PEP 825 (variant wheels, ``variant.json``, the index's file) and PEP 850 (providers), both drafts; NVIDIA's provider
of variant properties. For a GPU, the provider lists ``<arch>_real`` for its arch and every lower minor version of the same
major, and accepts a wheel if ``cuda_version_lower_bound`` is at most the driver's CUDA version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nojit.aot.manifest.archs import ARCHS
from nojit.aot.wheel.content import BundleContent
from nojit.aot.wheel.names import arch_label, escaped
from nojit.runtime.target import arch_number, parse_image_arch, spell_cuda

__all__ = ["index_file", "index_file_name", "label_of", "misled", "variant_file"]

# the draft that defines providers; a final version will have another address
_SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
_NAMESPACE = "nvidia"
_PROVIDER = {
    "requires": ["nvidia-variant-provider>=0.0.1"],
    "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
}


def label_of(arch: str) -> str:
    """Return the label of an arch's wheel variant, which is part of the wheel's file name."""
    return arch_label(arch)


def variant_file(arch: str, bundles: Sequence[BundleContent]) -> bytes:
    """Return a variant wheel's ``variant.json``: the GPUs and drivers that it supports.

    Args:
        arch: the arch of the bundles in the wheel.
        bundles: the bundles in the wheel.
    """
    return _encode({label_of(arch): _properties(arch, bundles)})


def index_file_name(name: str, version: str) -> str:
    """Return the name of the index file for the variant wheels of one version."""
    return f"{escaped(name)}-{version}-variants.json"


def index_file(by_arch: Mapping[str, Sequence[BundleContent]]) -> bytes:
    """Return the content of the index file: the properties of every wheel variant.

    Args:
        by_arch: the bundles of each variant wheel, by arch.
    """
    return _encode({label_of(arch): _properties(arch, bundles) for arch, bundles in by_arch.items()})


def misled(bundles: Sequence[BundleContent]) -> dict[str, list[str]]:
    """Return, by the arch of a wheel variant, the archs of GPUs that get this variant but cannot run it.

    Variant properties cannot restrict an image to exactly one chip.

    Args:
        bundles: the bundles of all variants.
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
