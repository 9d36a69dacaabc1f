"""``nojit extract``: Write a kernel's images, or an attachment, as files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from nojit.aot.backends.registry import vendor_named
from nojit.aot.base.files import write_file
from nojit.aot.cli.console import PLACE, Output, counted, output_options, size
from nojit.aot.inspect.contents import VariantFacts, open_bundle, variant_facts
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import KernelNotFoundError, PackageError
from nojit.runtime.table.table import KernelTable

__all__ = ["command"]


@dataclass(frozen=True, slots=True)
class _File:
    """One file to write."""

    path: Path
    data: bytes


@click.command("extract")
@click.argument("path", metavar="BUNDLE", type=PLACE)
@click.option("--kernel", metavar="K", help="Kernel whose images to extract.")
@click.option(
    "--variant", metavar="ID", help="Extract only the variant with this id, as `nojit inspect --kernel` shows it."
)
@click.option("--attachment", metavar="NAME", help="Attachment to extract, as `nojit inspect` lists it.")
@click.option("--out", "folder", required=True, type=PLACE, help="Output folder.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    path: Path,
    kernel: str | None,
    variant: str | None,
    attachment: str | None,
    folder: Path,
    force: bool,
) -> None:
    """Write a kernel's images as <id>.cubin, each with its launch description in <id>.json; or an attachment under its name.

    cuobjdump, nvdisasm and ncu read cubins. Images for AMD's GPUs are <id>.hsaco, which llvm-objdump reads.
    """
    if (kernel is None) == (attachment is None):
        raise click.UsageError(f"expected --kernel or --attachment, got {'neither' if kernel is None else 'both'}")
    if variant is not None and kernel is None:
        raise click.UsageError("expected --kernel with --variant: add --kernel")
    with open_bundle(path) as bundle:
        if kernel is not None:
            _extract_kernel(out, bundle, kernel, variant, folder, force=force)
        if attachment is not None:
            _extract_attachment(out, bundle, attachment, folder, force=force)


def _extract_attachment(out: Output, bundle: BundleFile, name: str, folder: Path, *, force: bool) -> None:
    # a name of the format is safe in a path: it holds neither slashes nor a leading dot
    file = _File(folder / name, bundle.attachment(name))
    _write([file], folder, force=force)
    out.emit("extract", {"attachment": name, "files": [{"path": str(file.path), "content_bytes": len(file.data)}]})
    out.line(f"{name}, {size(len(file.data))}, in {folder}")


def _extract_kernel(
    out: Output, bundle: BundleFile, kernel: str, variant: str | None, folder: Path, *, force: bool
) -> None:
    table, variants = bundle.table(kernel), variant_facts(bundle, kernel)
    rows = _chosen(variants, variant, bundle.path)
    files = [file for row in rows for file in _files(bundle, table, variants, row, folder)]
    _write(files, folder, force=force)
    written = [
        {"id": variants[row].id, "cubin": str(cubin.path), "facts": str(facts.path)}
        for row, cubin, facts in zip(rows, files[::2], files[1::2], strict=True)
    ]
    out.emit("extract", {"kernel": kernel, "files": written})
    total = sum(variants[row].image_bytes for row in rows)
    out.line(f"{counted(len(rows), 'image')} of {kernel}, {size(total)}, in {folder}")
    if out.verbosity > 0:
        for row in rows:
            out.line(f"{variants[row].id}  {variants[row].label}")


def _write(files: Sequence[_File], folder: Path, *, force: bool) -> None:
    """Write files; on a failure remove those that did not exist before.

    Raises:
        PackageError: one of them exists, and `force` is false.
    """
    there = [file.path for file in files if file.path.exists() or file.path.is_symlink()]
    if there and not force:
        raise PackageError(
            "expected a folder without these files: overwrite them with --force", got=there[0].name, where=str(folder)
        )
    made: list[Path] = []
    try:
        for file in files:
            fresh = not file.path.exists()
            write_file(file.path, file.data)
            made += [file.path] if fresh else []
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        raise


def _chosen(variants: Sequence[VariantFacts], wanted: str | None, where: str) -> list[int]:
    if wanted is None:
        return list(range(len(variants)))
    # ids are accepted with and without the kernel's name
    rows = [row for row, one in enumerate(variants) if wanted in {one.id, one.id.rpartition("-")[2]}]
    if not rows:
        near = did_you_mean(wanted, [one.id for one in variants])
        raise KernelNotFoundError(
            f"expected one of {counted(len(variants), 'variant')}; list them with nojit inspect --kernel",
            got=f"{wanted!r}{near}",
            where=where,
        )
    return rows


def _files(
    bundle: BundleFile, table: KernelTable, variants: Sequence[VariantFacts], row: int, folder: Path
) -> Iterator[_File]:
    facts = variants[row]
    # a kernel's name is safe in a path: the format allows neither slashes nor a leading dot
    ending = vendor_named(bundle.index.target.backend).IMAGE
    yield _File(folder / f"{facts.id}.{ending}", bundle.image(table.kernel, facts.image))
    there = table.launches[table.columns["launch"][row]]
    launch = {**asdict(there), "layout": [asdict(slot) for slot in there.layout]}
    document = {
        "bundle": bundle.digest,
        "arch": bundle.index.target.arch,
        "image_arch": bundle.index.target.image_arch,
        "kernel": table.kernel,
        **asdict(facts),
        "launch": launch,
    }
    yield _File(folder / f"{facts.id}.json", json.dumps(document, indent=2).encode() + b"\n")
