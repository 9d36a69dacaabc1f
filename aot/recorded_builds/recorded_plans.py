"""Plans of bundles from recordings: exactly the recorded specializations, without the program or its packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from nojit.aot.manifest.archs import arch_order, check_assembled, check_target
from nojit.aot.manifest.options import FIXED, OPTIONS
from nojit.aot.manifest.spec import BundleSpec, KernelSpec
from nojit.aot.manifest.types import plain, types_of
from nojit.aot.plan.compiler_interface import Compiler
from nojit.aot.plan.function_facts import KernelSource, SourcePlace
from nojit.aot.plan.plan import Plan, Planned, PlannedKernel
from nojit.aot.recorded_builds.inputs import Recorded
from nojit.aot.recorded_builds.origins import origins_of
from nojit.aot.recorded_builds.specializations import RecordedKernel, Spec, kernels_of, option_default
from nojit.aot.variants.left_out import Refused
from nojit.aot.variants.variant import Variant
from nojit.runtime.base.launch_options import BUILT_WITH
from nojit.runtime.base.strict_json import canonical_json
from nojit.runtime.base.suggestions import nearest_or_few
from nojit.runtime.errors import BundleFormatError, ManifestError, NojitError, RecordingError
from nojit.runtime.recording.origins import ATTACHMENT, encode_origins
from nojit.runtime.table.parts import Axis, Config, Missing, Param
from nojit.runtime.values import Value, decode_value, encode_value, identity

__all__ = ["AXES_MAX", "TRIALS", "VERSION", "make_plans", "table_params"]

AXES_MAX = 64
"""Limit of the bundle format on the axes of a kernel."""
TRIALS = "trials"
"""Profile of a bundle that includes the mere trials of autotuners."""
VERSION = "1.0"
"""Version of the bundle of a recording."""


def make_plans(
    recorded: Recorded,
    archs: Sequence[str],
    compiler: Compiler,
    *,
    name: str,
    kernels: Sequence[str] = (),
    trials: bool = False,
    on_planned: Callable[[Planned], None] = lambda _: None,
) -> list[Plan]:
    """Return one plan for each arch: a bundle with exactly the recorded specializations.

    Args:
        recorded: the recordings.
        archs: the archs to build for; empty for those that were recorded. An arch that was not recorded gets the
            specializations of all that were.
        compiler: rebuilds the kernels' functions.
        name: name of the bundle.
        kernels: names or qualified names of the kernels to build; empty for all.
        trials: whether to build what only an autotuner's trials launched, too.
        on_planned: called after each kernel and arch is planned.

    Raises:
        RecordingError: the recording is incomplete, or has no kernel to build.
        ManifestError: an arch cannot be built, or no kernel has a requested name.
    """
    found = kernels_of(recorded.recording, trials=trials)
    where = ", ".join(map(str, recorded.paths))
    if not found:
        what = "expected launches of kernels in the recording: run more of the program, or pass --trials"
        raise RecordingError(what, got="none", where=where)
    chosen = _chosen(found, kernels)
    seen = sorted({spec.arch for kernel in found for spec in kernel.specs}, key=arch_order)
    wanted = sorted(dict.fromkeys(archs or seen), key=arch_order)
    for arch in wanted:
        check_assembled(check_target(arch, "--arch"), compiler.archs(), "--arch" if archs else where)
    places = {kernel.name: _place(kernel, recorded) for kernel in chosen}
    compiler.prepare((place, arch) for place in places.values() for arch in wanted)
    plans: list[Plan] = []
    for arch in wanted:
        planned: list[PlannedKernel] = []
        refused: list[Refused] = []
        for kernel in chosen:
            work = _Kernel(kernel, places[kernel.name], recorded, compiler)
            made, left_out = work.plan(arch, kernel.on(arch, seen))
            planned += made
            refused += left_out
            number = (len(plans)) * len(chosen) + chosen.index(kernel) + 1
            variants = sum(len(each.variants) for each in made)
            on_planned(Planned(kernel.name, arch, variants, number, len(chosen) * len(wanted)))
        plans.append(
            Plan(
                bundle=BundleSpec(name=name, version=VERSION, archs=wanted),
                arch=arch,
                kernels=tuple(planned),
                manifests=recorded.files(),
                absent=tuple(
                    kernel.name for kernel in chosen if kernel.name not in {each.spec.name for each in planned}
                ),
                profile=TRIALS if trials else "full",
                only=tuple(kernel.name for kernel in chosen) if kernels else (),
                refused=tuple(refused),
                attachments=((ATTACHMENT, _origins(recorded, chosen, planned)),),
            )
        )
    return plans


def _origins(recorded: Recorded, chosen: Sequence[RecordedKernel], planned: Sequence[PlannedKernel]) -> bytes:
    names = {each.spec.name for each in planned}
    return encode_origins(origins_of(recorded.recording, [kernel for kernel in chosen if kernel.name in names]))


def _chosen(found: Sequence[RecordedKernel], names: Sequence[str]) -> list[RecordedKernel]:
    for name in names:
        if not any(name in (kernel.name, kernel.qualname) for kernel in found):
            near = nearest_or_few(name, tuple(kernel.name for kernel in found))
            raise ManifestError("expected a kernel of the recording", got=f"{name!r}{near}")
    return [kernel for kernel in found if not names or {kernel.name, kernel.qualname} & {*names}]


def _place(kernel: RecordedKernel, recorded: Recorded) -> SourcePlace:
    functions = dict(pair for spec in reversed(kernel.specs) for pair in spec.functions)
    missing = [digest for digest in (kernel.closure, *functions.values()) if digest not in recorded.homes]
    if missing:
        what = "expected the recording to hold each source closure: pass the files of all processes"
        raise RecordingError(what, got=f"none of {missing[0][:12]}", where=f"{kernel.module}:{kernel.qualname}")
    return SourcePlace(
        spelling=_spelling(kernel.closure, recorded),
        folder=Path().absolute(),
        where=f"{recorded.homes[kernel.closure]} {kernel.module}:{kernel.qualname}",
        project=Path().absolute(),
        together=tuple(map(str, recorded.paths)),
        recorded=True,
        functions=tuple((each, _spelling(digest, recorded)) for each, digest in sorted(functions.items())),
    )


def _spelling(digest: str, recorded: Recorded) -> str:
    return f"{recorded.homes[digest]}:{digest}"


class _Kernel:
    """Plans one recorded kernel."""

    def __init__(self, kernel: RecordedKernel, place: SourcePlace, recorded: Recorded, compiler: Compiler) -> None:
        self._kernel = kernel
        self._place = place
        self._closure = recorded.recording.closures[kernel.closure]
        self._compiler = compiler
        self._functions = {name: spelling.rpartition(":")[2] for name, spelling in place.functions}

    def plan(self, arch: str, specs: Sequence[Spec]) -> tuple[list[PlannedKernel], list[Refused]]:
        """Return the planned kernel, if it has variants, and the specializations that cannot be built for the arch."""
        if not specs:
            return [], []
        try:
            source = self._compiler.describe(self._place, arch)
        except ManifestError as error:
            return [], [self._refused(spec, error) for spec in specs]
        variants: list[Variant] = []
        refused: list[Refused] = []
        known: dict[object, Spec] = {}
        for spec in specs:
            try:
                variant = self._variant(spec, arch, source)
                _check_new(variant, spec, known)
            except (NojitError, ValueError) as error:
                refused.append(self._refused(spec, error))
            else:
                variants.append(variant)
        params, variants = _within_limit(table_params(self._kernel, source, self._closure), variants)
        refusals = self._refusals(variants, source)
        refused += [Refused(self._kernel.name, each.label(), self._place.where, why) for each, why in refusals]
        unfit = {id(variant) for variant, _ in refusals}
        kept = tuple(variant for variant in variants if id(variant) not in unfit)
        if not kept:
            return [], refused
        planned = PlannedKernel(
            spec=KernelSpec(name=self._kernel.name, source=f"{self._kernel.module}:{self._kernel.qualname}"),
            source=replace(source, params=params),
            place=self._place,
            axes=_axes(kept),
            derived=(),
            variants=kept,
            excluded=0,
            reached=frozenset(source.reached),
        )
        return [planned], refused

    def _refused(self, spec: Spec, error: Exception) -> Refused:
        message = error.finding() if isinstance(error, NojitError) else str(error)
        return Refused(self._kernel.name, spec.label(), self._place.where, f"{message} - at {spec.label()}")

    def _variant(self, spec: Spec, arch: str, source: KernelSource) -> Variant:
        where = spec.label()
        own = {param.name for param in source.params}
        if tuple(param.name for param in source.params) != spec.params:
            what = "expected the params of the recorded function: record again"
            raise RecordingError(what, got=", ".join(spec.params), where=where)
        self._check_functions(spec)
        options = self._options(spec, source)
        constexprs = dict(spec.constexprs)
        axes = {**constexprs, **{name: options[name] for name in self._kernel.option_names() if name not in own}}
        return Variant(
            kernel=self._kernel.name,
            arch=arch,
            axes=tuple(axes.items()),
            signature=tuple((name, types_of(kind, where)[0]) for name, kind in spec.types),
            constexprs=spec.constexprs,
            hints=spec.hints,
            options=tuple((name, options[name]) for name in BUILT_WITH),
            config=Config((), (), ""),
            config_number=0,
            derived=(),
        )

    def _check_functions(self, spec: Spec) -> None:
        for name, digest in spec.functions:
            if self._functions[name] != digest:
                what = f"expected one function named {name} among the arguments of a kernel, since calls pass its name"
                raise RecordingError(what, got="two with other sources", where=spec.label())

    def _options(self, spec: Spec, source: KernelSource) -> dict[str, Value]:
        """Return every option of a compile: what the call passed, else the default.

        Triton passes a keyword with the name of an option to a constexpr of that name, too.
        """
        options: dict[str, Value] = {name: option_default(name, debug=False) for name in BUILT_WITH}
        constexprs = dict(spec.constexprs)
        for param in source.params:
            if param.name in OPTIONS and not param.constexpr:
                what = f"expected {param.name!r}, the name of an option, to be a constexpr of {source.name}: rename the param"
                raise RecordingError(what, got="a runtime param", where=spec.label())
            if param.name in OPTIONS:
                options[param.name] = constexprs[param.name]
        for name, value in spec.options:
            if name not in OPTIONS:
                why = FIXED.get(name, "this nojit does not know it")
                what = f"expected options that a build can set ({', '.join(OPTIONS)})"
                raise RecordingError(what, got=f"{name} = {value!r}: {why}", where=spec.label())
            options[name] = value
        return options

    def _refusals(self, variants: Sequence[Variant], source: KernelSource) -> list[tuple[Variant, str]]:
        """Return the variants whose options or functions the toolchain does not take for the arch, with the reason."""
        alike: dict[str, list[Variant]] = {}
        for variant in variants:
            alike.setdefault(repr((variant.options, variant.constexprs)), []).append(variant)
        samples = [group[0] for group in alike.values()]
        if not samples or self._reason(samples, source) is None:
            return []
        found = ((group, self._reason(group[:1], source)) for group in alike.values())
        return [(variant, why) for group, why in found if why is not None for variant in group]

    def _reason(self, variants: Sequence[Variant], source: KernelSource) -> str | None:
        try:
            self._compiler.variant_keys(variants, source, self._place)
        except ManifestError as error:
            return str(error)
        return None


def _check_new(variant: Variant, spec: Spec, known: dict[object, Spec]) -> None:
    """Check that a call can tell a specialization from every other one of the kernel."""
    key = (
        tuple(plain(kind) for _, kind in variant.signature),
        tuple((name, identity(value)) for name, value in variant.axes),
        variant.hints,
    )
    other = known.setdefault(key, spec)
    if other is not spec:
        what = "expected specializations that differ in more than names of tuple members or layouts of descriptors"
        raise RecordingError(what, got=f"one like {other.digest[:12]}", where=spec.label())


def table_params(kernel: RecordedKernel, source: KernelSource, closure: dict[str, object]) -> tuple[Param, ...]:
    """Return the params of a recorded kernel's table: the function's own, then the options with their defaults.

    Args:
        kernel: the recorded kernel.
        source: the facts of its function.
        closure: its source closure, which also has defaults that are dtypes.
    """
    own = {param.name for param in source.params}
    options = (name for name in kernel.option_names() if name not in own)
    return (
        *(_with_default(param, closure) for param in source.params),
        *(Param(name, constexpr=True, default=option_default(name, debug=kernel.debug)) for name in options),
    )


def _with_default(param: Param, closure: dict[str, object]) -> Param:
    if not param.constexpr or not isinstance(param.default, Missing):
        return param
    definitions: list[dict[str, dict[str, dict[str, object]]]] = closure["definitions"]  # type: ignore[assignment] # JSON
    node = definitions[0].get("defaults", {}).get(param.name, {})
    node = node.get("constexpr", node)  # type: ignore[assignment] # as above
    try:
        return replace(param, default=decode_value(node["value"], param.name)) if "value" in node else param  # type: ignore[arg-type] # as above
    except BundleFormatError:
        return param


def _axes(variants: Sequence[Variant]) -> tuple[Axis, ...]:
    columns = zip(*[variant.axes for variant in variants], strict=True)
    axes = []
    for column in columns:
        values = {identity(value): value for _, value in column}
        ordered = sorted(values.values(), key=lambda value: canonical_json(encode_value(value)))
        axes.append(Axis(column[0][0], is_type=False, values=tuple(ordered)))
    return tuple(axes)


def _within_limit(params: tuple[Param, ...], variants: Sequence[Variant]) -> tuple[tuple[Param, ...], list[Variant]]:
    """Move constexprs that never vary from the axes to the config, as far as a kernel has more axes than a bundle can hold.

    A call that omits such a constexpr must mean the value that was built: it is the default, or there is none.
    """
    if not variants or len(variants[0].axes) <= AXES_MAX:
        return params, list(variants)
    defaults = {param.name: param.default for param in params}
    moved: list[str] = []
    for (name, value), *others in zip(*[variant.axes for variant in variants], strict=True):
        invariant = all(identity(other) == identity(value) for _, other in others)
        default = defaults[name]
        if invariant and (isinstance(default, Missing) or identity(default) == identity(value)):
            moved.append(name)
    moved = moved[: len(variants[0].axes) - AXES_MAX]
    if len(variants[0].axes) - len(moved) > AXES_MAX:
        what = f"expected a kernel with at most {AXES_MAX} constexprs and options that vary"
        raise RecordingError(what, got=str(len(variants[0].axes)), where=variants[0].kernel)
    return params, [_with_moved(variant, moved) for variant in variants]


def _with_moved(variant: Variant, names: Iterable[str]) -> Variant:
    there = {*names}
    config = Config(tuple(pair for pair in variant.axes if pair[0] in there), (), "")
    return replace(variant, axes=tuple(pair for pair in variant.axes if pair[0] not in there), config=config)
