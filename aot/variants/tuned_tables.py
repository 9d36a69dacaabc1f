"""Tuned tables at build time: reading, checks against the manifests, and expansion into variants.

A case that a tuned table covers is built only with the configs that the table uses for it. Every other case keeps the
manifest's configs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nojit.aot.manifest.archs import check_arch
from nojit.aot.manifest.config_rules import constexprs_in, told_options
from nojit.aot.manifest.matrix import plain_value, read_value
from nojit.aot.manifest.options import OPTIONS
from nojit.aot.manifest.spec import KernelSpec
from nojit.aot.manifest.type_checker import kind_of
from nojit.aot.variants.cases_to_build import Point
from nojit.aot.variants.configs import BuildConfig, make_config
from nojit.aot.variants.counting import MAX_VARIANTS
from nojit.aot.variants.expand import Expander, Expansion, Names, settings_of
from nojit.aot.variants.hints import HintSet, WrittenHints
from nojit.aot.variants.requirements import parse_rule
from nojit.aot.variants.variant import Variant
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import ManifestError, TuningError
from nojit.runtime.expr import expression as expr
from nojit.runtime.tuning.tuned_tables import TunedConfig, TunedEntry, TunedTable, read_tuned
from nojit.runtime.values import Value, identity

__all__ = ["FOLDER", "check_tuned", "expand_tuned", "read_folder"]

FOLDER = "tuned"
"""Subfolder of the manifests' folder that holds tuned tables."""


def read_folder(folder: Path) -> tuple[TunedTable, ...]:
    """Return the tuned tables of a folder of manifests, sorted by file name.

    Raises:
        TuningError: a file is not a tuned table, or two tables are for the same kernel and device.
    """
    tables: dict[tuple[str, str], TunedTable] = {}
    for path in sorted((folder / FOLDER).glob("*.toml")):
        try:
            table = read_tuned(path)
        except OSError as error:
            raise TuningError("expected a readable file", got=worded(error), where=str(path)) from None
        other = tables.setdefault((table.kernel, repr(table.device)), table)
        if other is not table:
            raise TuningError(
                f"expected one table of kernel {table.kernel!r} for {table.device.name}: delete or move the other",
                got=f"{other.path} too",
                where=str(path),
            )
    return tuple(tables.values())


def check_tuned(table: TunedTable, spec: KernelSpec) -> TunedTable:
    """Return a tuned table with complete configs, after checking it against the manifest entry of its kernel.

    `spec`: the kernel's manifest entry.

    Returns:
        The table. Each of its configs sets every constexpr and every option that distinguishes configs.

    Raises:
        TuningError: the tuning key differs from the entry's, the arch is unknown, or the entry lacks an axis, a value
            or a setting of the table.
    """
    key = tuple(spec.tuning.key) if spec.tuning else ()
    if tuple(map(expr.parse, table.key)) != tuple(map(expr.parse, key)):
        what = f"expected the key that the manifest has for {spec.name}, {', '.join(key) or 'none'}: select again with nojit tune select"
        raise TuningError(what, got=", ".join(table.key), where=f"{table.path} $.key")
    _check_device(table)
    for number, entry in enumerate(table.entries):
        _check_axes(entry, spec, f"{table.path} $.entry[{number}].where")
    configs = [
        _spelled_out(config, spec, f"{table.path} $.config[{number}]") for number, config in enumerate(table.configs)
    ]
    return replace(table, configs=tuple(configs))


def _check_device(table: TunedTable) -> None:
    """Raise if nojit cannot build for the table's arch, since no bundle would use the table."""
    try:
        check_arch(table.device.arch, f"{table.path} $.device.arch")
    except ManifestError as error:
        raise TuningError(error.what, got=error.got, where=error.where) from None


def _check_axes(entry: TunedEntry, spec: KernelSpec, where: str) -> None:
    for axis, values in entry.where:
        if axis not in spec.matrix:
            near = did_you_mean(axis, tuple(spec.matrix))
            raise TuningError(f"expected an axis of kernel {spec.name}", got=f"{axis!r}{near}", where=where)
        known = [identity(read_value(raw, where)) for raw in spec.matrix[axis]]
        for value in values:
            if identity(value) not in known:
                what = f"expected a value of axis {axis!r} of kernel {spec.name}, {spec.matrix[axis]}"
                raise TuningError(what, got=repr(value), where=f"{where}.{axis}")


def _spelled_out(config: TunedConfig, spec: KernelSpec, where: str) -> TunedConfig:
    known = dict.fromkeys(name for raw in spec.configs for name in constexprs_in(raw))
    given, told = dict(config.settings), told_options(spec)
    for name in given:
        if name not in known and name not in told:
            near = did_you_mean(name, (*known, *told))
            raise TuningError(
                f"expected a tunable of kernel {spec.name}", got=f"{name!r}{near}", where=f"{where}.{name}"
            )
    for name in known:
        if name not in given:
            raise TuningError(f"expected a value for {name!r}, as the manifest's configs have", got="none", where=where)
        _check_kind(name, given[name], spec, f"{where}.{name}")
    try:
        for name, value in given.items():
            if name in OPTIONS and value is not None:
                OPTIONS[name].check(value, f"{where}.{name}")
        built = _build_config(spec, 0, config, "", where).stored
    except ManifestError as error:
        raise TuningError(error.what, got=error.got, where=error.where) from None
    return TunedConfig(built.constexprs + built.options, config.requires)


def _check_kind(name: str, value: Value, spec: KernelSpec, where: str) -> None:
    """Raise if a constexpr's value has a type that no config or tuning space of the manifest gives to it.

    `spec`: the kernel's manifest entry.
    """
    spaces = spec.tuning.space if spec.tuning else ()
    tried = [each if isinstance(each, list) else [each] for each in (space.get(name, []) for space in spaces)]
    raws = [raw[name] for raw in spec.configs if name in raw] + [raw for values in tried for raw in values]
    kinds = dict.fromkeys(kind_of(plain_value(read_value(raw, where))).value for raw in raws)
    kind = kind_of(plain_value(value)).value
    if kind not in kinds:
        raise TuningError(f"expected {' or '.join(kinds)}, as the manifest gives {name!r}", got=kind, where=where)


def _build_config(spec: KernelSpec, number: int, config: TunedConfig, arch: str, where: str) -> BuildConfig:
    return make_config(
        spec,
        number,
        dict(config.settings),
        requires=config.requires,
        archs=(arch,),
        when=parse_rule("true", where),
        where=where,
    )


def expand_tuned(
    spec: KernelSpec,
    arch: str,
    where: str,
    profile: str,
    tables: Sequence[TunedTable],
    *,
    most: int | None = MAX_VARIANTS,
) -> Expansion:
    """Return the variants of one kernel for `arch`, with the configs of tuned tables where a table covers a case.

    Args:
        spec: the manifest's entry.
        arch: an arch that `nojit.aot.manifest.archs.check_arch` accepts.
        where: manifest and kernel, for messages.
        profile: ``core`` keeps one config of each case in a tuned table; ``full`` keeps all.
        tables: the checked tables of the kernel and the arch; at least one.
        most: maximum number of variants before `exclude`; None for no limit.

    Raises:
        ManifestError: as `expand_kernel`.
    """
    expander = _TunedExpander(spec, arch, where, profile, tables)
    expander.check_count(most)
    return expander.run(profile)


class _TunedExpander(Expander):
    """Expander that uses the configs of tuned tables for the cases that a table covers."""

    def __init__(self, spec: KernelSpec, arch: str, where: str, profile: str, tables: Sequence[TunedTable]) -> None:
        super().__init__(spec, arch, where)
        self._tables = tables
        self._profile = profile
        self._tuned: dict[str, BuildConfig] = {}
        self._serving: frozenset[int] | None = None
        """Numbers of the configs that serve every call of the current case; None if no tuned table covers it."""
        self._by_hand = spec.tuning is not None and spec.tuning.unaligned == "by_hand"
        for config in (config for table in tables for config in table.configs):
            number = len(self.configs) + len(self._tuned)
            self._tuned.setdefault(repr(config), _build_config(spec, number, config, arch, f"{where} {FOLDER}"))

    def configs_for(self, point: Point) -> Sequence[BuildConfig]:
        """Return the configs to build for a case: the tuned ones if a table covers it, else the manifest's.

        The tuned config that is most often best comes first. If the manifest lists the case with settings of its own,
        the manifest's configs apply.

        `point`: types, constexprs and rules of the case.
        """
        tuned = [] if point.settings else [self._tuned[facts] for facts in _by_merit(self._tables, dict(point.axes))]
        if not tuned:
            self._serving = None
            return super().configs_for(point)
        free = [config for config in tuned if not config.stored.requires and not self._by_hand]
        serving = free[:1] or [config for config in self.configs if not config.stored.requires]
        self._serving = frozenset(config.number for config in serving)
        kept = tuned[:1] if self._profile == "core" else tuned
        return kept + [config for config in serving if config not in kept]

    def fits(self, config: BuildConfig, names: Names) -> bool:
        """Return whether to build a config for a case; True for every tuned config, since a table uses it."""
        return config.number >= len(self.configs) or super().fits(config, names)

    def in_core(self, variant: Variant, names: Names) -> bool:
        """Return whether a variant belongs to the profile `core`.

        A variant with a tuned config does if the variant with one of the manifest's configs instead would.
        """
        if variant.config_number < len(self.configs):
            return super().in_core(variant, names)
        return any(
            super(_TunedExpander, self).in_core(variant, {**names, **settings_of(config)}) for config in self.configs
        )

    def hint_sets_of(
        self, config: BuildConfig, written: Sequence[WrittenHints], types: Mapping[str, str]
    ) -> list[HintSet]:
        """Return the hint sets to build for a config.

        In a tuned case, only configs that serve every call are built without hints. With `unaligned = "by_hand"`, these
        are built only without hints.

        `written`: the hints as the manifest lists them; `types`: type of each param.
        """
        sets = super().hint_sets_of(config, written, types)
        least = min(sets, key=len)
        if self._serving is None:
            return sets
        if config.number in self._serving:
            return [least] if self._by_hand else sets
        return [hints for hints in sets if hints != least] or sets


def _by_merit(tables: Iterable[TunedTable], axes: Mapping[str, Value]) -> list[str]:
    """Return the tuned configs of a case, sorted by how often they are best, then in order of appearance."""
    best: dict[str, int] = {}
    for table in tables:
        entry = next((entry for entry in table.entries if entry.covers(axes)), None)
        for row in entry.rows if entry else ():
            for place, number in enumerate(row.use):
                facts = repr(table.configs[number])
                best[facts] = best.get(facts, 0) + (place == 0)
    return sorted(best, key=lambda facts: -best[facts])
