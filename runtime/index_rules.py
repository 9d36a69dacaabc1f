"""Read the index of a bundle rule by rule, to name the one that it breaks.

`nojit.runtime.format` checks whole indices at once, which is faster, and cannot say what is wrong.
"""

from __future__ import annotations

from itertools import islice
from operator import ge

from nojit.runtime.format import (
    DRIVER_MAX,
    ENTRY_FIELDS,
    INDEX_FIELDS,
    KERNELS_MAX,
    PAYLOAD_BYTES_MAX,
    SECTION_FIELDS,
    SECTION_RAW_BYTES_MAX,
    TARGET_FIELDS,
    TOOLS_MAX,
    VARIANTS_MAX,
    WARP_THREADS,
    BundleIndex,
    KernelEntry,
    Section,
    TargetInfo,
)
from nojit.runtime.strict import (
    Json,
    are_digests,
    count,
    fields,
    items,
    line,
    name,
    name_list,
    object_rows,
    refuse,
    text,
)
from nojit.runtime.target import arch_number, parse_image_arch

__all__ = ["read_index"]


def read_index(value: Json, where: str) -> BundleIndex:
    """Read an index from its JSON, rule by rule; what keeps them all reads as `nojit.runtime.format` reads it.

    Raises:
        BundleFormatError: a broken rule, named by its ``rule`` attribute.
    """
    values = fields(value, INDEX_FIELDS, where)
    bundle, version, target, toolchain, min_driver, inputs, kernels = values
    entries = _decode_entries(kernels, f"{where} kernels")
    return BundleIndex(
        name=name(bundle, f"{where} name"),
        version=line(version, f"{where} version"),
        target=_decode_target(target, f"{where} target"),
        toolchain=_decode_toolchain(toolchain, f"{where} toolchain"),
        min_driver=count(min_driver, DRIVER_MAX, f"{where} min_driver"),
        inputs=_digest(inputs, f"{where} inputs"),
        kernels=entries,
    )


def _decode_section(value: Json, where: str) -> Section:
    stored, raw_bytes, digest = fields(value, SECTION_FIELDS, where)
    return Section(
        count(stored, SECTION_RAW_BYTES_MAX, where),
        count(raw_bytes, SECTION_RAW_BYTES_MAX, where),
        _digest(digest, where),
    )


def _decode_entries(value: Json, where: str) -> tuple[KernelEntry, ...]:
    rows = object_rows(value, ENTRY_FIELDS, KERNELS_MAX, where)
    known = name_list([kernel for kernel, *_ in rows], where)
    if any(map(ge, known, islice(known, 1, None))):
        raise refuse("order", "expected kernels sorted by name, each once", where=where)
    return tuple([_decode_entry(kernel, row[1:], where) for kernel, row in zip(known, rows, strict=True)])


def _decode_entry(kernel: str, row: tuple[Json, ...], where: str) -> KernelEntry:
    *amounts, payload_bytes, table = row
    variants, images, groups = [count(amount, VARIANTS_MAX, where) for amount in amounts]
    payload = count(payload_bytes, PAYLOAD_BYTES_MAX, where)
    return KernelEntry(kernel, variants, images, groups, payload, _decode_section(table, where))


def _decode_target(value: Json, where: str) -> TargetInfo:
    backend, arch, image_arch, warp_size = fields(value, TARGET_FIELDS, where)
    target = TargetInfo(
        name(backend, where),
        name(arch, where),
        name(image_arch, where),
        count(warp_size, WARP_THREADS, f"{where} warp_size"),
    )
    try:
        number, image = arch_number(target.arch), parse_image_arch(target.image_arch)
    except ValueError as error:
        raise refuse("target", str(error), where=where) from None
    if target.backend != "cuda" or target.warp_size != WARP_THREADS:
        got = f"{target.backend} and {target.warp_size}"
        what = f"expected backend cuda and warps of {WARP_THREADS} threads"
        raise refuse("target", what, got=got, where=where)
    if number != image.number:
        got = f"{target.arch} and {target.image_arch}"
        what = "expected arch and image_arch to name the same chip"
        raise refuse("target", what, got=got, where=where)
    return target


def _decode_toolchain(value: Json, where: str) -> tuple[tuple[str, str], ...]:
    tools = []
    for pair in items(value, TOOLS_MAX, where):
        tool, version = items(pair, 2, where) if isinstance(pair, list) and len(pair) == 2 else (None, None)
        tools.append((line(tool, where), line(version, where)))
    if sorted(dict(tools)) != [tool for tool, _ in tools]:
        raise refuse("order", "expected tools sorted by name, each once", where=where)
    return tuple(tools)


def _digest(value: Json, where: str) -> str:
    checked = text(value, where)
    if not are_digests([checked]):
        raise refuse("digest", "expected 64 lower-case hex digits", got=repr(checked), where=where)
    return checked
