"""Bundle files as kernels use them, each for one arch, and the one that fits a device best."""

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

__all__ = ["ArchBundle", "best_bundle", "serving_bundle"]


class ArchBundle(Record):
    """A bundle file, which is for one arch: its images in the driver, and where they run."""

    images: Images
    image_arch: ImageArch
    arch: int
    """The value of ``arch`` in expressions: 90."""
    name: str
    """Its path and arch, for errors."""

    @staticmethod
    def of(images: Images) -> ArchBundle:
        """Describe a file by its target."""
        target = images.file.index.target
        image_arch = parse_image_arch(target.image_arch)
        return ArchBundle(images, image_arch, arch_number(target.arch), f"{images.file.path} ({image_arch})")

    def table(self, kernel: str) -> KernelTable:
        """Read the variants of a kernel."""
        return self.images.file.table(kernel)

    def where(self, kernel: str) -> str:
        """Return the place of a kernel for errors: the file, its arch and the kernel."""
        return f"{self.name} kernel {kernel}"

    def __str__(self) -> str:
        return self.name


def best_bundle(bundles: Sequence[ArchBundle], capability: int) -> ArchBundle | None:
    """Return the bundle whose images fit a device best, the first of equals; None if none runs there."""
    best, most = None, 0
    for bundle in bundles:
        fit = _core.image_fit(bundle.image_arch.number, bundle.image_arch.suffix, capability)
        if fit > most:
            best, most = bundle, fit
    return best


def serving_bundle(bundles: tuple[ArchBundle, ...], capability: int, kernel: str) -> ArchBundle:
    """Return the bundle whose images fit a device best.

    Args:
        bundles: of one kernel.
        capability: of the device, 90 for 9.0.
        kernel: its name, for errors.

    Raises:
        NoMatchingVariantError: none runs there.
    """
    best = best_bundle(bundles, capability)
    if best is not None:
        return best
    if not bundles:
        raise NoMatchingVariantError("no bundle at hand holds this kernel", where=f"kernel {kernel}")
    device = spell_arch(capability)
    built = sorted(bundles, key=lambda bundle: bundle.image_arch.number)
    raise NoMatchingVariantError(
        f"bundle has {', '.join(str(bundle.image_arch) for bundle in built)}; device is {device}: nojit build --arch {device} builds for it",
        where=f"kernel {kernel}",
        reasons=tuple((str(bundle), f"does not run on {device}") for bundle in built),
    )
