"""Properties of wheel variants for NVIDIA's GPUs, as NVIDIA's provider of variant properties defines them. Pure.

For a GPU, the provider lists ``<arch>_real`` for its arch and every lower minor version of the same major, and accepts a
wheel if ``cuda_version_lower_bound`` is at most the driver's CUDA version.

Implements `nojit.aot.backends.interface.WheelVariants`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nojit.aot.backends.cuda.archs import arch_number
from nojit.runtime.target import ARCHS, parse_image_arch, spell_cuda

__all__ = ["NAMESPACE", "PROVIDER", "misled", "properties"]

NAMESPACE: Final = "nvidia"
PROVIDER: Final[Mapping[str, object]] = {
    "requires": ["nvidia-variant-provider>=0.0.1"],
    "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
}


def properties(arch: str, min_driver: int) -> dict[str, list[str]]:
    """Return the properties that a machine needs for images of an arch.

    Args:
        arch: the arch of the images.
        min_driver: the oldest CUDA version whose driver loads them, as a number.
    """
    return {"cuda_version_lower_bound": [spell_cuda(min_driver)], "sm_arch": [f"{arch_number(arch)}_real"]}


def misled(images: Mapping[str, str]) -> dict[str, list[str]]:
    """Return, by the arch of a wheel variant, the archs of GPUs that get this variant but cannot run it.

    Variant properties cannot restrict an image to exactly one chip.

    Args:
        images: archs of the variants' images, by arch.
    """
    known = {arch_number(arch): arch for arch in images}
    found: dict[str, list[str]] = {}
    for device in map(arch_number, ARCHS):
        offered = [number for number in known if number // 10 == device // 10 and number <= device]
        if offered and not parse_image_arch(images[known[max(offered)]]).runs_on(device):
            found.setdefault(known[max(offered)], []).append(f"sm_{device}")
    return found
