"""Properties of wheel variants for AMD's GPUs: none yet. Pure.

Implements `nojit.aot.backends.interface.WheelVariants`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nojit.runtime.errors import PackageError

__all__ = ["NAMESPACE", "PROVIDER", "misled", "properties"]

NAMESPACE: Final = "amd"
PROVIDER: Final[Mapping[str, object]] = {}


def properties(arch: str, min_driver: int) -> dict[str, list[str]]:  # noqa: ARG001 - the interface's
    """Refuse: no released provider tells installers the properties of AMD's GPUs.

    Args:
        arch: the arch of the images.
        min_driver: the oldest ROCm that loads them, as a number: 6040 for 6.4.

    Raises:
        PackageError: always.
    """
    what = (
        "expected bundles for NVIDIA's GPUs: installers have no provider of variants for AMD's, so make a plain wheel"
    )
    raise PackageError(what, got=arch)


def misled(images: Mapping[str, str]) -> dict[str, list[str]]:  # noqa: ARG001 - the interface's
    """Return, by the arch of a wheel variant, the archs of GPUs that get this variant but cannot run it: none.

    Args:
        images: archs of the variants' images, by arch.
    """
    return {}
