"""Pure: a kernel's manifest entry and an architecture to the variants to build, in a stable order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from nojit.aot.axes import axes_of, read_value
from nojit.aot.hints import hint_sets
from nojit.aot.manifest import DerivedSpec, KernelSpec
from nojit.aot.target import check_arch
from nojit.aot.types import NONE, fill, is_hintable, is_open, plain, types_of
from nojit.aot.variant import Variant
from nojit.aot.ways import Way, check_ways, parse_rule, way_of
from nojit.runtime import expr
from nojit.runtime.errors import ManifestError
from nojit.runtime.table import Derived
from nojit.runtime.target import arch_number
from nojit.runtime.values import DType, FunctionRef, Value, identity

__all__ = ["Axes", "Expander", "Expansion", "HintSet", "Names", "derived_of", "expand_kernel", "settings_of"]

Axes = tuple[tuple[str, Value], ...]
HintSet = tuple[tuple[str, int], ...]
Names = Mapping[str, Any]
# stands for a pointer that is there: only `has` may look at it before the call
_PRESENT = expr.Pointer(0)


@dataclass(frozen=True, slots=True)
class Expansion:
    """What one kernel of a manifest comes to for one architecture."""

    variants: tuple[Variant, ...]
    excluded: int
    """How many variants `exclude` left out."""


def expand_kernel(spec: KernelSpec, arch: str, where: str, profile: str = "full") -> Expansion:
    """List the variants of one kernel for `arch`, in the order of matrix, configs, derived values and hints.

    Args:
        spec: the manifest's entry.
        arch: one of `nojit.aot.target.ARCHS`.
        where: manifest and kernel, for messages.
        profile: ``core`` keeps what the entry's `core` expression keeps; ``full`` keeps everything.

    Raises:
        ManifestError: the entry contradicts itself, repeats a variant, or leaves a meaning without a variant that
            serves every call.
    """
    check_arch(arch, where)
    return Expander(spec, arch, where).run(profile)


def derived_of(spec: KernelSpec) -> tuple[Derived, ...]:
    """List the derived constexprs of an entry."""
    return tuple(Derived(name, _derived_text(derived)) for name, derived in spec.derived.items())


def _derived_text(derived: str | DerivedSpec) -> str:
    return derived.expr if isinstance(derived, DerivedSpec) else derived


class Expander:
    """Holds what is worked out once for all variants of one kernel and arch; others choose other configs and hints."""

    def __init__(self, spec: KernelSpec, arch: str, where: str) -> None:
        self.spec = spec
        self.arch = arch
        self.where = where
        self.axes = axes_of(spec, where)
        self.params = tuple(spec.params)
        self.ways = [
            way_of(spec, number, raw, arch, f"{where}.configs[{number}]") for number, raw in enumerate(spec.configs)
        ]
        check_ways(self.ways, where)
        self.exclude = [
            parse_rule(exclude.when, f"{where}.exclude[{i}].when") for i, exclude in enumerate(spec.exclude)
        ]
        self.core = parse_rule(spec.core, f"{where}.core")
        self.derived = {
            name: parse_rule(_derived_text(derived), f"{where}.derived.{name}")
            for name, derived in spec.derived.items()
        }
        self._known_hints: dict[tuple[object, ...], list[HintSet]] = {}
        self._known_settings: dict[int, dict[str, Any]] = {}
        self._never = False
        """Whether a config was left out of the meaning at hand, since its `requires` holds for no call of these types."""
        self._check_overlap()

    def run(self, profile: str) -> Expansion:
        """List the variants of a profile."""
        variants: list[Variant] = []
        seen: set[tuple[Any, ...]] = set()
        excluded = 0
        for axes, signature in self.meanings():
            built, left_out, self._never = 0, excluded, False
            # of each config, how many of its variants that ask for nothing are missing: a call has one set of derived
            # values, so only a config that has all of them serves every call
            missing: dict[int, int] = {}
            for variant, names in self.variants_of(axes, signature):
                kept = not any(self.truth(rule, names) for rule in self.exclude)
                if not variant.hints and self._always_runs(variant, names):
                    missing[variant.config_number] = missing.get(variant.config_number, 0) + (not kept)
                if not kept:
                    excluded += 1
                    continue
                self._check_new(variant, seen)
                built += 1
                if profile == "full" or self.in_core(variant, names):
                    variants.append(variant)
            unserved = built or (self._never and left_out == excluded)
            if unserved and not self.spec.aligned_only and 0 not in missing.values():
                self._refuse_incomplete(axes)
        return Expansion(tuple(variants), excluded)

    def meanings(self) -> Iterator[tuple[Axes, tuple[tuple[str, str], ...]]]:
        """List points of the matrix, each with every choice of types that it comes to."""
        names = [axis.name for axis in self.axes]
        for values in product(*(axis.values for axis in self.axes)):
            axes = tuple(zip(names, values, strict=True))
            spelled = {axis.name: str(value) for axis, value in zip(self.axes, values, strict=True)}
            choices = [
                types_of(fill(spelling, spelled), f"{self.where}.params.{name}")
                for name, spelling in self.spec.params.items()
            ]
            for types in product(*choices):
                yield axes, tuple(zip(self.params, types, strict=True))

    def names_of(self, axes: Axes, signature: tuple[tuple[str, str], ...]) -> dict[str, Any]:
        """Return what rules at build time see of a meaning, before there is a config: of a param, whether it is there."""
        names: dict[str, Any] = {"arch": arch_number(self.arch), **{name: _plain(value) for name, value in axes}}
        names.update({name: _as_known(kind) for name, kind in signature})
        return names

    def variants_of(self, axes: Axes, signature: tuple[tuple[str, str], ...]) -> Iterator[tuple[Variant, Names]]:
        """List the variants of one meaning, each with what rules at build time see of it."""
        matrix = tuple(pair for pair, axis in zip(axes, self.axes, strict=True) if not axis.is_type)
        base = self.names_of(axes, signature)
        opened = any(is_open(kind) for _, kind in signature)
        for way in self.ways_for(axes):
            if self.arch not in way.archs:
                continue
            names = base | self._settings_of(way)
            if not self.fits(way, names):
                continue
            if self._known(way.config.requires, names) is False:
                # no call of these types runs it; that is a lack, unless it is excluded anyway
                self._never |= not any(self.truth(rule, names) for rule in self.exclude if rule.names <= names.keys())
                continue
            closed = self._closed(signature, way) if opened else signature
            for derived in self._derived_values(way, names):
                known = names | dict(derived)
                for hints in self.hint_sets_of(way, dict(closed)):
                    yield (
                        Variant(
                            kernel=self.spec.name,
                            arch=self.arch,
                            axes=axes,
                            signature=closed,
                            constexprs=matrix + way.config.constexprs + derived,
                            hints=hints,
                            options=way.options,
                            config=way.config,
                            config_number=way.number,
                            derived=derived,
                        ),
                        known,
                    )

    def in_core(self, variant: Variant, names: Names) -> bool:  # noqa: ARG002 - for those who go by its config
        """Say whether a variant belongs to the profile `core`."""
        return self.truth(self.core, names)

    def _closed(self, signature: tuple[tuple[str, str], ...], way: Way) -> tuple[tuple[str, str], ...]:
        """Give the descriptors whose block a config chooses that block."""
        sizes = {name: str(value) for name, value in way.config.constexprs}
        types = [(name, types_of(fill(kind, sizes), f"{self.where}.params.{name}")[0]) for name, kind in signature]
        for name, kind in types:
            if is_open(kind):
                what = f"expected every config to set the dimensions of {kind}"
                raise ManifestError(what, got="one that does not", where=f"{self.where}.params.{name}")
        return tuple(types)

    def ways_for(self, axes: Axes) -> Sequence[Way]:  # noqa: ARG002 - for those who choose by it
        """List the configs to build a meaning with, in order of preference."""
        return self.ways

    def fits(self, way: Way, names: Names) -> bool:
        """Say whether a config's `when` holds."""
        return self.truth(way.when, names)

    def _derived_values(self, way: Way, names: Names) -> Iterator[tuple[tuple[str, Value], ...]]:
        required = parse_rule(way.config.requires or "true", self.where).conjuncts()
        choices = [
            (True,) if expression in required else self._values_of(name, expression, names)
            for name, expression in self.derived.items()
        ]
        for values in product(*choices):
            yield tuple(zip(self.derived, values, strict=True))

    def _values_of(self, name: str, expression: expr.Expression, names: Names) -> tuple[Value, ...]:
        """List the values that a derived constexpr can have: one, where the types of a call and its config decide it."""
        spec = self.spec.derived[name]
        where = f"{self.where}.derived.{name}"
        folded = expr.substitute(expression, names)
        if not folded.names & set(self.params):
            return (_evaluate(folded, names, where),)
        if (value := expr.settled(folded)) is not expr.NOT_CONSTANT:
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

    def _known(self, requires: str, names: Names) -> Any:
        """Return what a `requires` comes to whatever the call's numbers are: a bool, or `expr.NOT_CONSTANT`."""
        return expr.settled(expr.substitute(parse_rule(requires or "true", self.where), names))

    def _always_runs(self, variant: Variant, names: Names) -> bool:
        return self._known(variant.config.requires, names) is True

    def hint_sets_of(self, way: Way, types: Mapping[str, str]) -> list[HintSet]:
        """List hint sets, the fullest first, each with what `requires` guarantees."""
        # many configs share them
        key = way.implied, *types.items()
        known = self._known_hints.get(key)
        if known is None:
            implied = {param: hint for param, hint in way.implied if is_hintable(types[param], hint)}
            known = hint_sets([*self.spec.hints, {}], implied, types, f"{self.where}.hints")
            self._known_hints[key] = known
        return known

    def _settings_of(self, way: Way) -> dict[str, Any]:
        known = self._known_settings.get(way.number)
        if known is None:
            known = self._known_settings[way.number] = settings_of(way)
        return known

    def _check_overlap(self) -> None:
        places = {"params": self.params, "matrix": tuple(self.spec.matrix), "derived": tuple(self.spec.derived)}
        places |= {f"configs[{way.number}]": tuple(name for name, _ in way.config.constexprs) for way in self.ways}
        owners: dict[str, str] = {}
        for place, names in places.items():
            for name in names:
                owner = owners.setdefault(name, place)
                if owner != place and not (owner.startswith("configs") and place.startswith("configs")):
                    raise ManifestError(
                        f"expected {name!r} in one place, got it in {owner} and {place}", where=self.where
                    )

    def _check_new(self, variant: Variant, seen: set[tuple[Any, ...]]) -> None:
        # what a call can tell apart: of the options, those that the entry names and those of every kernel
        key = (
            tuple(plain(kind) for _, kind in variant.signature),
            tuple((name, identity(value)) for name, value in variant.constexprs),
            variant.hints,
            variant.config.options,
            variant.config.requires,
        )
        if key in seen:
            raise ManifestError(f"expected each variant once, got twice: {variant.label()}", where=self.where)
        seen.add(key)

    def _refuse_incomplete(self, axes: Axes) -> None:
        meaning = ", ".join(f"{name} = {value!r}" for name, value in axes) or "the kernel"
        raise ManifestError(
            f"expected a config without `requires`, all of whose derived values are built, for {meaning} on {self.arch}, "
            "so that every call is served; add one, or say why not in `aligned_only`",
            where=self.where,
        )

    def truth(self, rule: expr.Expression, names: Names) -> bool:
        """Evaluate a rule.

        Raises:
            ManifestError: it is neither true nor false.
        """
        value = _evaluate(rule, names, self.where)
        if not isinstance(value, bool):
            raise ManifestError(
                "expected a true or false expression", got=f"{rule.text!r} = {value!r}", where=self.where
            )
        return value


def settings_of(way: Way) -> dict[str, Any]:
    """Return what rules see of a config."""
    return {name: _plain(value) for name, value in way.config.constexprs + way.options}


def _plain(value: Value) -> Any:
    """Make a constexpr comparable in the expression language, which knows no dtypes and functions."""
    return value.name if isinstance(value, DType | FunctionRef) else value


def _as_known(kind: str) -> Any:
    """Return what is known of a param by its type."""
    if kind == NONE:
        return None
    return _PRESENT if kind.startswith("*") else expr.UNSEEN


def _evaluate(expression: expr.Expression, names: Names, where: str) -> Any:
    try:
        return expression.evaluate(names)
    except expr.ExpressionError as error:
        unseen = sorted(name for name in expression.names if names.get(name) is expr.UNSEEN)
        if not unseen:
            raise ManifestError(str(error), where=where) from None
        what = "expected a rule over axes, constexprs, options, arch and has(...), which the build knows"
        got = f"{expression.text!r}, with {unseen[0]!r}, whose value only a call has"
        raise ManifestError(what, got=got, where=where) from None
