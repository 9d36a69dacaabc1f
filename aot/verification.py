"""Checks a bundle down to what its machine code says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nojit.runtime.bundle import BundleFile
from nojit.runtime.cubin import CubinInfo, check_launch, read_cubin
from nojit.runtime.errors import BundleFormatError, BundleIntegrityError
from nojit.runtime.table import KernelTable, Launch

__all__ = ["verify_bundle"]


@dataclass(frozen=True, slots=True)
class _Use:
    """One way in which the tables say that an image is launched."""

    launch: Launch
    registers: int
    where: str


def verify_bundle(bundle: BundleFile) -> None:
    """Check every byte of a bundle, and every image against each table row that would launch it.

    Raises:
        BundleError: the first thing that is wrong.
    """
    bundle.verify()
    for kernel in bundle.kernels:
        _verify_kernel(bundle, kernel)


def _verify_kernel(bundle: BundleFile, kernel: str) -> None:
    uses: dict[int, dict[tuple[int, int], _Use]] = {}
    for number, key, use in _uses(bundle.table(kernel)):
        uses.setdefault(number, {}).setdefault(key, use)
    image_arch = bundle.index.target.image_arch
    for number in range(bundle.entry(kernel).images):
        where = f"{bundle.path} kernel {kernel} image {number}"
        image = bundle.image(kernel, number)
        try:
            info = read_cubin(image)
        except BundleFormatError as error:
            error.where = f"{where} {error.where}".rstrip()
            raise
        for use in uses.get(number, {}).values():
            _check_use(info, use, image_arch, f"{bundle.path} {use.where}, image {number}")


def _uses(table: KernelTable) -> Iterator[tuple[int, tuple[int, int], _Use]]:
    columns = (table.columns[column] for column in ("image", "launch", "registers"))
    for row, (image, launch, registers) in enumerate(zip(*columns, strict=True)):
        yield image, (launch, registers), _Use(table.launches[launch], registers, f"kernel {table.kernel} row {row}")


def _check_use(info: CubinInfo, use: _Use, image_arch: str, where: str) -> None:
    launch = use.launch
    check_launch(info, launch, image_arch, where)
    kernel = info.kernel(launch.symbol)
    # a cubin need not say; where it does, the table repeats it
    if kernel is not None and kernel.registers and kernel.registers != use.registers:
        raise BundleIntegrityError(
            f"expected {launch.symbol!r} to take {use.registers} registers", got=str(kernel.registers), where=where
        )
