"""Holders of a kernel: bundle files with its images, and the one that fits a device best."""

from __future__ import annotations

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.errors import NoMatchingVariantError
from nojit.runtime.first_call.images import Images
from nojit.runtime.target import ImageArch, arch_number, parse_image_arch, spell_arch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nojit.runtime.table.table import KernelTable

__all__ = ["Holder", "best_holder", "closest_holder"]


class Holder(Record):
    """A bundle file that holds the kernel for one arch."""

    images: Images
    image_arch: ImageArch
    arch: int
    """The value of ``arch`` in expressions: 90."""
    name: str
    """Its path and arch, for errors."""

    @staticmethod
    def of(images: Images) -> Holder:
        """Describe a file by its target."""
        target = images.file.index.target
        image_arch = parse_image_arch(target.image_arch)
        return Holder(images, image_arch, arch_number(target.arch), f"{images.file.path} ({image_arch})")

    def table(self, kernel: str) -> KernelTable:
        """Read the variants of a kernel."""
        return self.images.file.table(kernel)

    def where(self, kernel: str) -> str:
        """Name a kernel in it, for errors."""
        return f"{self.name} kernel {kernel}"

    def __str__(self) -> str:
        return self.name


def best_holder(holders: Sequence[Holder], capability: int) -> Holder | None:
    """Return the holder whose images fit a device best, the first of equals; None if none runs there."""
    best, most = None, 0
    for holder in holders:
        fit = _core.image_fit(holder.image_arch.number, holder.image_arch.suffix, capability)
        if fit > most:
            best, most = holder, fit
    return best


def closest_holder(holders: tuple[Holder, ...], capability: int, kernel: str) -> Holder:
    """Return the holder whose images fit a device best.

    Args:
        holders: of one kernel.
        capability: of the device, 90 for 9.0.
        kernel: its name, for errors.

    Raises:
        NoMatchingVariantError: none runs there.
    """
    best = best_holder(holders, capability)
    if best is not None:
        return best
    if not holders:
        raise NoMatchingVariantError("no bundle at hand holds this kernel", where=f"kernel {kernel}")
    device = spell_arch(capability)
    built = sorted(holders, key=lambda holder: holder.image_arch.number)
    raise NoMatchingVariantError(
        f"bundle has {', '.join(str(holder.image_arch) for holder in built)}; device is {device}: nojit build --arch {device} builds for it",
        where=f"kernel {kernel}",
        reasons=tuple((str(holder), f"does not run on {device}") for holder in built),
    )
