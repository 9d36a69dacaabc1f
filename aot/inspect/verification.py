"""Full verification of a bundle, including its machine code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nojit.aot.backends.interface import Vendor
from nojit.aot.backends.registry import vendor_named
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import BundleIntegrityError
from nojit.runtime.table.parts import Launch
from nojit.runtime.table.reading import Launches
from nojit.runtime.table.table import KernelTable

__all__ = ["verify_bundle"]

_LAUNCHES_KEPT = 64


def verify_bundle(bundle: BundleFile) -> None:
    """Check every byte of a bundle, and every image against each table row that would launch it.

    Raises:
        BundleError: the bundle is damaged or inconsistent; names the first problem.
    """
    target = bundle.index.target
    bundle.verify(partial(_verify_images, bundle.path, vendor_named(target.backend), target.image_arch))


def _verify_images(
    path: str, vendor: Vendor, image_arch: str, table: KernelTable, image: Callable[[int], bytes]
) -> None:
    """Check each image of a kernel against the table rows that launch it; equal rows are checked once."""
    columns = [table.columns[column] for column in ("image", "launch", "registers")]
    uses: dict[tuple[int, int, int], int] = {}
    for row, use in enumerate(zip(*columns, strict=True)):
        uses.setdefault(use, row)
    launches: dict[int, Launch] = {}
    for (number, launch, registers), row in sorted(uses.items()):
        if launch not in launches:
            # a small cache: all launch facts of a table, decoded, would be many times its size
            if len(launches) == _LAUNCHES_KEPT:
                launches.clear()
            held = table.launches
            launches[launch] = held.fresh(launch) if isinstance(held, Launches) else held[launch]
        where = f"{path} kernel {table.kernel} row {row}, image {number}"
        found = vendor.check_image(image(number), launches[launch], image_arch, where)
        # 0 if the image does not name its registers
        if found and found != registers:
            what = f"expected {launches[launch].symbol!r} to use {registers} registers, as the variant table says"
            raise BundleIntegrityError(what, got=str(found), where=where)
