"""Read all that a bundle holds, as far as can be without a device; and a small golden bundle to be damaged."""

from __future__ import annotations

import functools
from pathlib import Path

from nojit.runtime import _core
from nojit.runtime.bundle.cubin import check_launch
from nojit.runtime.bundle.file import BundleFile

from tests.support.bundles import Parts, kernel

__all__ = ["golden_parts", "read_everything", "small_parts", "use_everything"]

ATTACHMENTS = (("notes.txt", b"of a build " * 9), ("origins.json", b"{}"))


def read_everything(path: Path) -> int:
    """Open and verify a bundle, read every attachment, table, row and image, check each row against its image; count the rows.

    Raises:
        BundleError: as it must be for anything that is not a whole, right bundle.
    """
    rows = 0
    with BundleFile(path) as bundle:
        bundle.verify()
        for name in bundle.attachments:
            bundle.attachment(name)
        images = bundle.images()
        for name in bundle.kernels:
            table = bundle.table(name)
            contents = [next(images) for _ in range(bundle.entry(name).images)]
            for row in range(len(table)):
                table.constexprs(row)
                table.label(row)
                table.variant_id(row)
                launch, image = table.launches[table.columns["launch"][row]], contents[table.columns["image"][row]]
                check_launch(image, launch, bundle.index.target.image_arch, f"{path} row {row}")
                rows += 1
    return rows


def use_everything(path: Path) -> int:
    """Use every row of a bundle as a launch would, and its attachments, without verifying the bundle first; count the rows.

    Raises:
        BundleError: as it must be for anything that cannot be used.
    """
    rows = 0
    with BundleFile(path) as bundle:
        for name in bundle.attachments:
            bundle.attachment(name)
        for name in bundle.kernels:
            table = bundle.table(name)
            _core.Spec(table.handle(), 0, _core.Ids(), 90, None, f"{path} kernel {name}")
            for row in range(len(table)):
                where = f"{path} kernel {name}"
                table.check_row(row, where)
                table.label(row)
                table.variant_id(row)
                image = bundle.image(name, table.columns["image"][row])
                launch = table.launches[table.columns["launch"][row]]
                check_launch(image, launch, bundle.index.target.image_arch, where)
                rows += 1
    return rows


@functools.cache
def golden_parts() -> Parts:
    """A bundle of two kernels with everything that a table can say, three groups of images and two attachments."""
    scale = kernel(
        "scale",
        {"x_ptr": "*{dtype}", "n": "i32", "factor": "fp32", "BLOCK": "constexpr", "EVEN": "constexpr"},
        matrix={"dtype": ["fp16", "fp32"]},
        configs=[{"BLOCK": 1024, "requires": "aligned(x_ptr, 16)"}, {"BLOCK": 128, "num_warps": 1}],
        hints=[{"x_ptr": 16, "n": 1}],
        derived={"EVEN": "n % BLOCK == 0"},
        defaults={"factor": 1.5},
        grid=["cdiv(n, BLOCK)"],
    )
    fill = kernel("fill", {"out_ptr": "*i8", "MODE": "constexpr"}, matrix={"MODE": ["zero", None, True, 3, (1, 2.0)]})
    return Parts.of(scale, fill, group_images=12, attachments=ATTACHMENTS)


@functools.cache
def small_parts() -> Parts:
    """A bundle of two variants in two groups, with some of everything: quick to read, for fuzzing."""
    scale = kernel(
        "scale",
        {"x_ptr": "*{dtype}", "n": "i32", "BLOCK": "constexpr", "EVEN": "constexpr"},
        matrix={"dtype": ["fp16"]},
        configs=[{"BLOCK": 1024, "requires": "aligned(x_ptr, 16)"}],
        derived={"EVEN": "n % BLOCK == 0"},
        defaults={"n": 1},
        grid=["cdiv(n, BLOCK)"],
    )
    return Parts.of(scale, group_images=1, attachments=ATTACHMENTS[:1])
