"""Variants that a manifest's entry lists twice: the build refuses them, or drops the second one. Pure."""

from __future__ import annotations

from typing import Any

from nojit.aot.manifest.matrix import typed_params
from nojit.aot.manifest.spec import KernelSpec
from nojit.aot.manifest.types import NONE, axes_in, dims_in, plain
from nojit.aot.variants.cases_to_build import Axes, Point
from nojit.aot.variants.variant import Variant
from nojit.runtime.errors import ManifestError
from nojit.runtime.values import identity

__all__ = ["SeenVariants"]


class SeenVariants:
    """The variants of one entry so far.

    Args:
        spec: the manifest entry of the kernel.
        where: place of the entry, for messages.
    """

    def __init__(self, spec: KernelSpec, where: str) -> None:
        self._spec = spec
        self._where = where
        self._seen: dict[tuple[Any, ...], tuple[str, Axes]] = {}

    def is_new(self, variant: Variant, point: Point) -> bool:
        """Return whether no earlier case has this variant, and note it.

        An axis may set only types of params that are None in this case. All its values then give the same variant,
        which is allowed.

        `point`: types, constexprs and rules of the case.

        Raises:
            ManifestError: the same case has the variant twice.
        """
        # a call can only distinguish these properties; the options are those that the entry or every kernel names
        key = (
            tuple(plain(kind) for _, kind in variant.signature),
            tuple((name, identity(value)) for name, value in variant.constexprs),
            variant.hints,
            variant.config.options,
            variant.config.requires,
        )
        known = self._seen.get(key)
        if known is not None and known[0] == point.where and not self._differ_in_vain(variant, known[1]):
            raise ManifestError(
                f"expected each variant once, got twice: {variant.label()}; remove the repeated value or config",
                where=self._where,
            )
        self._seen.setdefault(key, (point.where, variant.axes))
        return known is None

    def _differ_in_vain(self, variant: Variant, axes: Axes) -> bool:
        """Return whether a variant's axes differ from `axes`, and only in axes that type params that are None."""
        types = dict(variant.signature)
        typed = [
            (axis, types.get(name))
            for name, spellings in typed_params(self._spec).items()
            for spelling in spellings
            for axis in (*axes_in(spelling), *dims_in(spelling))
        ]
        differing = {name for (name, value), (_, other) in zip(variant.axes, axes, strict=True) if value != other}
        return bool(differing) and all(kind == NONE for axis, kind in typed if axis in differing)
