"""Differences between two bundles: kernels and variants that were added, removed or changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from nojit.aot.inspect.contents import VariantFacts, definition, variant_facts
from nojit.runtime.base.launch_options import TOOLCHAIN
from nojit.runtime.base.strict_json import Json
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.table.parts import Config
from nojit.runtime.table.table import KernelTable

__all__ = ["BundleDiff", "Change", "KernelDiff", "VariantChange", "diff_bundles"]

# facts to compare; the number and position of an image are left out, because they depend on the rest of the file
_COMPARED = (
    "toolchain",
    "registers",
    "spill_bytes",
    "shared_bytes",
    "num_warps",
    "num_ctas",
    "image_bytes",
    "image_sha256",
)


@dataclass(frozen=True, slots=True)
class Change:
    """One fact that differs; `before` or `after` is None if that bundle lacks it."""

    name: str
    before: Json
    after: Json


@dataclass(frozen=True, slots=True)
class VariantChange:
    """One variant of both bundles whose facts differ."""

    id: str
    label: str
    changes: tuple[Change, ...]

    @property
    def image_only(self) -> bool:
        """Whether only the machine code differs."""
        return all(change.name.startswith("image_") for change in self.changes)


@dataclass(frozen=True, slots=True)
class KernelDiff:
    """Differences of one kernel between two bundles; the kernel may be in only one of them."""

    name: str
    status: str
    """``added``, ``removed``, ``changed`` or ``same``."""
    definition: tuple[Change, ...]
    """Differences in the kernel's definition: params, grid, axes, configs and the rest of `nojit.aot.inspect.contents.definition`."""
    added: tuple[VariantFacts, ...]
    removed: tuple[VariantFacts, ...]
    changed: tuple[VariantChange, ...]
    same: int
    """Number of identical variants, images included."""


@dataclass(frozen=True, slots=True)
class BundleDiff:
    """Comparison of two bundles."""

    identical: bool
    """Whether the two are the same, byte for byte."""
    facts: tuple[Change, ...]
    """Differences in name, version, arch, driver and tools."""
    kernels: tuple[KernelDiff, ...]
    """All kernels of both, sorted by name."""
    attachments: tuple[Change, ...]
    """Attachments that differ, with the SHA-256 of their bytes, sorted by name."""

    @property
    def alike(self) -> bool:
        """Whether all compared facts are equal; the files' bytes may still differ."""
        return not self.facts and not self.attachments and all(kernel.status == "same" for kernel in self.kernels)


def diff_bundles(before: BundleFile, after: BundleFile) -> BundleDiff:
    """Compare two bundles. Variants are matched by id, which a rebuild keeps, or else by all that the id depends on but the toolchain.

    Raises:
        BundleError: one of them is damaged.
    """
    names = sorted({*before.kernels, *after.kernels})
    return BundleDiff(
        identical=before.digest == after.digest,
        facts=_changes(_facts(before), _facts(after)),
        kernels=tuple(_diff_kernel(before, after, name) for name in names),
        attachments=tuple(sorted(_changes(_attachments(before), _attachments(after)), key=lambda change: change.name)),
    )


def _attachments(bundle: BundleFile) -> dict[str, Json]:
    # of the bytes themselves: another zstd stores equal ones differently
    return {name: hashlib.sha256(bundle.attachment(name)).hexdigest() for name in bundle.attachments}


def _facts(bundle: BundleFile) -> dict[str, Json]:
    index = bundle.index
    facts: dict[str, Json] = {
        "name": index.name,
        "version": index.version,
        "arch": index.target.arch,
        "image_arch": index.target.image_arch,
        "min_driver": index.min_driver,
    }
    return facts | {f"toolchain.{tool}": version for tool, version in index.toolchain}


def _changes(before: dict[str, Json], after: dict[str, Json]) -> tuple[Change, ...]:
    return tuple(
        Change(name, before.get(name), after.get(name))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    )


def _diff_kernel(before: BundleFile, after: BundleFile, name: str) -> KernelDiff:
    old = _variants(before, name)
    new = _variants(after, name)
    pairs = [(old.pop(key), new.pop(key)) for key in [*old] if key in new]
    if name in before.kernels and name in after.kernels:
        pairs += _pair_toolchains(old, new, (before.table(name), after.table(name)))
    changed = [change for change in (_diff_variant(*pair) for pair in pairs) if change.changes]
    changed = sorted(changed, key=lambda change: change.label)
    added, removed = tuple(new.values()), tuple(old.values())
    redefined: tuple[Change, ...] = ()
    if name not in before.kernels or name not in after.kernels:
        status = "added" if name in after.kernels else "removed"
    else:
        redefined = _changes(definition(before.table(name)), definition(after.table(name)))
        status = "changed" if added or removed or changed or redefined else "same"
    return KernelDiff(name, status, redefined, added, removed, tuple(changed), len(pairs) - len(changed))


def _variants(bundle: BundleFile, kernel: str) -> dict[str, VariantFacts]:
    if kernel not in bundle.kernels:
        return {}
    return {variant.id: variant for variant in variant_facts(bundle, kernel)}


def _pair_toolchains(
    old: dict[str, VariantFacts], new: dict[str, VariantFacts], tables: Sequence[KernelTable]
) -> Iterator[tuple[VariantFacts, VariantFacts]]:
    """Take the variants that differ only in their toolchain out of both dicts, and yield the pairs."""
    if not old or not new:
        return
    plain_before, plain_after = map(_plain_ids, tables)
    by_plain: dict[str, list[str]] = {}
    for key in new:
        by_plain.setdefault(plain_after[key], []).append(key)
    # a variant that names no toolchain may be of any: first those with the same code
    for same_code in (True, False):
        for key, variant in [*old.items()]:
            matching = by_plain.get(plain_before[key], [])
            fits = (each for each in matching if not same_code or new[each].image_sha256 == variant.image_sha256)
            if chosen := next(fits, None):
                matching.remove(chosen)
                yield old.pop(key), new.pop(chosen)


def _plain_ids(table: KernelTable) -> dict[str, str]:
    """Return the id that each variant would have without a toolchain, by its id."""
    configs = (
        Config(config.constexprs, tuple(option for option in config.options if option[0] != TOOLCHAIN), config.requires)
        for config in table.configs
    )
    plain = replace(table, configs=tuple(configs))
    return {table.variant_id(row): plain.variant_id(row) for row in range(len(table))}


def _diff_variant(before: VariantFacts, after: VariantFacts) -> VariantChange:
    changes = tuple(
        Change(field.name, getattr(before, field.name), getattr(after, field.name))
        for field in fields(before)
        if field.name in _COMPARED and getattr(before, field.name) != getattr(after, field.name)
    )
    return VariantChange(after.id, after.label, changes)
