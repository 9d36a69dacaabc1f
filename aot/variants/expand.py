"""Expansion of a kernel's manifest entry into its variants for one arch, in a stable order. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from nojit.aot.manifest import expression_tree
from nojit.aot.manifest.archs import arch_number, check_arch
from nojit.aot.manifest.matrix import axes_of, plain_value, read_value, typed_params
from nojit.aot.manifest.mistakes import Mistakes
from nojit.aot.manifest.spec import DerivedSpec, KernelSpec
from nojit.aot.manifest.types import NONE, fill, is_hintable, is_open, types_of
from nojit.aot.variants.cases_to_build import Point, Settings, points_of
from nojit.aot.variants.configs import BuildConfig, check_distinct, config_of
from nojit.aot.variants.counting import MAX_VARIANTS, check_count, check_size
from nojit.aot.variants.hints import HintSet, WrittenHints, hint_sets
from nojit.aot.variants.repeated_variants import SeenVariants
from nojit.aot.variants.requirements import always_holds, never_holds, parse_rule, required
from nojit.aot.variants.variant import Variant
from nojit.runtime.errors import ManifestError
from nojit.runtime.expr import expression as expr
from nojit.runtime.table.parts import Derived
from nojit.runtime.values import Value, identity

__all__ = ["Expander", "Expansion", "Names", "derived_of", "expand_kernel", "settings_of"]

Names = Mapping[str, Any]
# placeholder for a present pointer: at build time, only `has` reads it
_PRESENT = expr.Pointer(0)


@dataclass(frozen=True, slots=True)
class Expansion:
    """The variants of one kernel's manifest entry for one arch."""

    variants: tuple[Variant, ...]
    excluded: int
    """Number of variants that the entry's `exclude` rules removed."""


def expand_kernel(
    spec: KernelSpec, arch: str, where: str, profile: str = "full", most: int | None = MAX_VARIANTS
) -> Expansion:
    """Return the variants of one kernel for `arch`, in the order of matrix, configs, derived values and hints.

    Args:
        spec: the manifest entry of the kernel.
        arch: an arch that `nojit.aot.manifest.archs.check_arch` accepts.
        where: place of the entry, for messages.
        profile: ``core`` keeps the variants for which the entry's `core` expression holds; ``full`` keeps all.
        most: maximum number of variants before `exclude`; None for no limit.

    Raises:
        ManifestError: the entry contradicts itself, has too many variants, lists one variant twice, or has a case
            without a variant that serves every call.
    """
    check_arch(arch, where)
    expander = Expander(spec, arch, where)
    expander.check_count(most)
    return expander.run(profile)


def derived_of(spec: KernelSpec) -> tuple[Derived, ...]:
    """Return the derived constexprs of a kernel's manifest entry: constexprs that an expression computes.

    `spec`: the kernel's manifest entry.
    """
    return tuple(Derived(name, _derived_text(derived)) for name, derived in spec.derived.items())


def _derived_text(derived: str | DerivedSpec) -> str:
    return derived.expr if isinstance(derived, DerivedSpec) else derived


class Expander:
    """Lists the variants of one kernel for one arch.

    Subclasses use other configs and hints, for tuning. An instance caches what its variants share.
    """

    def __init__(self, spec: KernelSpec, arch: str, where: str) -> None:
        self.spec = spec
        self.arch = arch
        self.where = where
        self.params = tuple(typed_params(spec))
        mistakes = Mistakes()
        with mistakes.caught():
            self.axes = axes_of(spec, where)
        self.configs = []
        for number, raw in enumerate(spec.configs):
            with mistakes.caught():
                self.configs.append(config_of(spec, number, raw, arch, f"{where}.configs[{number}]"))
        with mistakes.caught():
            check_distinct(self.configs, where)
        self.exclude = [self._parsed(rule.when, f"exclude[{i}].when", mistakes) for i, rule in enumerate(spec.exclude)]
        self.core = self._parsed(spec.core, "core", mistakes)
        self.derived = {
            name: self._parsed(_derived_text(derived), f"derived.{name}", mistakes)
            for name, derived in spec.derived.items()
        }
        with mistakes.caught():
            self._check_overlap()
        mistakes.raise_found()
        self._known_hints: dict[tuple[object, ...], list[HintSet]] = {}
        self._known_settings: dict[int, dict[str, Any]] = {}
        self._dropped_config = False
        """True if a config was dropped for the current case because its `requires` holds for no call of these types."""
        self._partly_derived = False
        """True if only some values of the derived constexprs are built for the current case."""

    def _parsed(self, text: str, key: str, mistakes: Mistakes) -> expression_tree.Expression:
        with mistakes.caught():
            return parse_rule(text, f"{self.where}.{key}")
        return expression_tree.parse("true")

    def check_count(self, most: int | None) -> None:
        """Raise if the kernel may have more than `most` variants before `exclude`; None means no limit."""
        check_count(self.spec, self.arch, self.where, most, self._configs)

    @property
    def _configs(self) -> int:
        return sum(self.arch in config.archs for config in self.configs)

    def run(self, profile: str) -> Expansion:
        """Return the variants of the kernel that belong to `profile` (``core`` or ``full``)."""
        variants: list[Variant] = []
        seen = SeenVariants(self.spec, self.where)
        excluded = 0
        for point in self.points():
            built, left_out = 0, excluded
            self._dropped_config = self._partly_derived = False
            # For each config, the number of excluded variants that have no hints and whose `requires` always holds. A
            # call has one set of derived values, so a config serves every call only if none of these variants is
            # missing.
            missing: dict[int, int] = {}
            for variant, names in self.variants_of(point):
                kept = not any(self.truth(rule, names) for rule in self.exclude)
                if not variant.hints and always_holds(variant.config.requires, names, self.where):
                    missing[variant.config_number] = missing.get(variant.config_number, 0) + (not kept)
                if not kept:
                    excluded += 1
                    continue
                built += 1
                if seen.is_new(variant, point) and (profile == "full" or self.in_core(variant, names)):
                    variants.append(variant)
                    check_size(len(variants), self.spec, self.where, self._configs)
            must_be_complete = built or (self._dropped_config and left_out == excluded)
            if must_be_complete and not point.reason and (self._partly_derived or 0 not in missing.values()):
                self._refuse_incomplete(point)
            if self.spec.point and not built and left_out == excluded:
                self._check_built(point)
        return Expansion(tuple(variants), excluded)

    def points(self) -> Iterator[Point]:
        """Yield the cases (types and matrix constexprs) to build."""
        return points_of(self.spec, self.axes, self.arch, self.where)

    def names_of(self, point: Point) -> dict[str, Any]:
        """Return the values by name that build-time rules see for a case, before a config is chosen.

        Of a param, rules see only whether it is None.

        `point`: types, constexprs and rules of the case.
        """
        names: dict[str, Any] = {
            "arch": arch_number(self.arch),
            **{name: plain_value(value) for name, value in point.axes},
        }
        names.update({name: _as_known(kind) for name, kind in point.signature})
        return names

    def variants_of(self, point: Point) -> Iterator[tuple[Variant, Names]]:
        """Yield the variants of one case, each with the values by name that build-time rules see for it.

        `point`: types, constexprs and rules of the case.
        """
        matrix = tuple(pair for pair, axis in zip(point.axes, self.axes, strict=True) if not axis.is_type)
        base = self.names_of(point)
        opened = any(is_open(kind) for _, kind in point.signature)
        for config in self.configs_for(point):
            if self.arch not in config.archs:
                continue
            names = base | self._settings_of(config)
            if not self.fits(config, names):
                continue
            if never_holds(config.stored.requires, names, self.where):
                # no call of these types can run the config; that matters unless `exclude` removes it anyway
                self._dropped_config |= not any(
                    self.truth(rule, names) for rule in self.exclude if rule.names <= names.keys()
                )
                continue
            closed = self._closed(point.signature, config) if opened else point.signature
            for derived in self._derived_values(config, names, dict(point.derived)):
                known = names | dict(derived)
                for hints in self.hint_sets_of(config, point.hints, dict(closed)):
                    yield (
                        Variant(
                            kernel=self.spec.name,
                            arch=self.arch,
                            axes=point.axes,
                            signature=closed,
                            constexprs=matrix + config.stored.constexprs + derived,
                            hints=hints,
                            options=config.options,
                            config=config.stored,
                            config_number=config.number,
                            derived=derived,
                        ),
                        known,
                    )

    def in_core(self, variant: Variant, names: Names) -> bool:  # noqa: ARG002 - subclasses use it
        """Return whether a variant belongs to the profile `core`, by the entry's `core` expression."""
        return self.truth(self.core, names)

    def _closed(self, signature: tuple[tuple[str, str], ...], config: BuildConfig) -> tuple[tuple[str, str], ...]:
        """Return a signature in which the config's constexprs replace the open block dimensions of descriptors."""
        sizes = {name: str(value) for name, value in config.stored.constexprs}
        types = [(name, types_of(fill(kind, sizes), f"{self.where}.params.{name}")[0]) for name, kind in signature]
        for name, kind in types:
            if is_open(kind):
                what = f"expected every config to set the block dimensions in {kind}"
                raise ManifestError(what, got="a config that does not", where=f"{self.where}.params.{name}")
        return tuple(types)

    def configs_for(self, point: Point) -> Sequence[BuildConfig]:
        """Return the configs to build for a case, in order of preference.

        `point`: types, constexprs and rules of the case.
        """
        return [config for config in self.configs if _has(config, point.settings)] if point.settings else self.configs

    def fits(self, config: BuildConfig, names: Names) -> bool:
        """Return whether the `when` rule of a config holds for the values in `names`."""
        return self.truth(config.when, names)

    def _derived_values(self, config: BuildConfig, names: Names, wanted: Mapping[str, Value]) -> Iterator[Settings]:
        conditions = required(config.stored.requires, self.where)
        choices = [
            (True,) if expression in conditions else self._values_of(name, expression, names)
            for name, expression in self.derived.items()
        ]
        for place, name in enumerate(self.derived):
            if name in wanted:
                kept = tuple(value for value in choices[place] if identity(value) == identity(wanted[name]))
                # a call with another value would find no variant
                self._partly_derived |= len(kept) < len(choices[place])
                choices[place] = kept
        for values in product(*choices):
            yield tuple(zip(self.derived, values, strict=True))

    def _values_of(self, name: str, expression: expression_tree.Expression, names: Names) -> tuple[Value, ...]:
        """Return the values of a derived constexpr to build: one value if types and config determine it."""
        spec = self.spec.derived[name]
        where = f"{self.where}.derived.{name}"
        folded = expression_tree.substitute(expression, names)
        if not folded.names & set(self.params):
            return (_evaluate(folded, names, where),)
        if (value := expression_tree.settled(folded)) is not expression_tree.NOT_CONSTANT:
            return (value,)  # type: ignore[return-value] # only bools are settled while names are left
        if isinstance(spec, DerivedSpec):
            return tuple(read_value(value, where) for value in spec.values)
        if expression.is_boolean:
            return (True, False)
        raise ManifestError(
            "expected a boolean expression, or { expr = ..., values = [...] } with the values to build",
            got=repr(expression.text),
            where=where,
        )

    def hint_sets_of(
        self, config: BuildConfig, written: Sequence[WrittenHints], types: Mapping[str, str]
    ) -> list[HintSet]:
        """Return the hint sets to build for a config, the largest first; each includes the hints of `requires`.

        `written`: the hints as the manifest lists them; `types`: type of each param.
        """
        # cached, because many configs have the same hint sets
        key = config.implied, written, *types.items()
        known = self._known_hints.get(key)
        if known is None:
            implied = {param: hint for param, hint in config.implied if is_hintable(types[param], hint)}
            known = hint_sets(written, implied, types)
            self._known_hints[key] = known
        return known

    def _settings_of(self, config: BuildConfig) -> dict[str, Any]:
        known = self._known_settings.get(config.number)
        if known is None:
            known = self._known_settings[config.number] = settings_of(config)
        return known

    def _check_overlap(self) -> None:
        places = {"params": self.params, "matrix": tuple(self.spec.matrix), "derived": tuple(self.spec.derived)}
        places |= {
            f"configs[{config.number}]": tuple(name for name, _ in config.stored.constexprs) for config in self.configs
        }
        owners: dict[str, str] = {}
        for place, names in places.items():
            for name in names:
                owner = owners.setdefault(name, place)
                if owner != place and not (owner.startswith("configs") and place.startswith("configs")):
                    raise ManifestError(
                        f"expected {name!r} in one place, got it in {owner} and {place}", where=self.where
                    )

    def _refuse_incomplete(self, point: Point) -> None:
        case = ", ".join(f"{name} = {value!r}" for name, value in point.axes) or "the kernel"
        raise ManifestError(
            f"expected a config without `requires`, built for every value of its derived constexprs, for {case} on {self.arch}, "
            "so that every call is served; add one, or state why some calls may fail: aligned_only = 'reason'",
            where=point.where,
        )

    def _check_built(self, point: Point) -> None:
        """Raise if a case that the manifest lists has no variant, although the entry has configs for the arch.

        `point`: types, constexprs and rules of the case.
        """
        if any(self.arch in config.archs for config in self.configs):
            what = (
                f"expected a config for the point on {self.arch}: one with the point's settings, whose `when` and `requires` "
                "can hold, and which allows the point's values of derived constexprs"
            )
            raise ManifestError(what, got="none", where=point.where)

    def truth(self, rule: expression_tree.Expression, names: Names) -> bool:
        """Return whether a build-time rule holds for the values in `names`.

        Raises:
            ManifestError: the value of the rule is not a bool.
        """
        value = _evaluate(rule, names, self.where)
        if not isinstance(value, bool):
            raise ManifestError(
                "expected a rule that is true or false", got=f"{rule.text!r}, which is {value!r}", where=self.where
            )
        return value


def settings_of(config: BuildConfig) -> dict[str, Any]:
    """Return the constexprs and options of a config, as rules see them."""
    return {name: plain_value(value) for name, value in config.stored.constexprs + config.options}


def _has(config: BuildConfig, settings: Settings) -> bool:
    """Return whether a config has each of these constexprs and options with the given value."""
    given = dict(config.stored.constexprs + config.options)
    return all(name in given and identity(given[name]) == identity(value) for name, value in settings)


def _as_known(kind: str) -> Any:
    """Return the placeholder that build-time rules see for a param of a type: None, a pointer, or an unknown value."""
    if kind == NONE:
        return None
    return _PRESENT if kind.startswith("*") else expr.UNSEEN


def _evaluate(expression: expression_tree.Expression, names: Names, where: str) -> Any:
    try:
        return expression.evaluate(names)
    except expr.ExpressionError as error:
        unseen = sorted(name for name in expression.names if names.get(name) is expr.UNSEEN)
        if not unseen:
            raise ManifestError(str(error), where=where) from None
        what = "expected a rule that the build can evaluate: over axes, constexprs, options, arch and has(...)"
        got = f"{expression.text!r}, where only a call knows the value of {unseen[0]!r}"
        raise ManifestError(what, got=got, where=where) from None
