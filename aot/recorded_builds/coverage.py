"""Coverage: which recorded specializations bundles serve, and why they miss the others. Launches nothing and needs no GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nojit.aot.manifest.archs import arch_number, arch_order
from nojit.aot.manifest.types import plain, types_of
from nojit.aot.recorded_builds.specializations import RecordedKernel, Spec, kernels_of, option_default
from nojit.runtime.base.launch_options import BUILT_WITH, is_as_built
from nojit.runtime.base.strict_json import Json
from nojit.runtime.base.wording import few
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.call.call_facts import Argument, CallFacts, pointee, slot_kind
from nojit.runtime.errors import NojitError
from nojit.runtime.explain.explanation import explain
from nojit.runtime.recording.drift import fingerprint
from nojit.runtime.recording.file import Recording
from nojit.runtime.recording.origins import ATTACHMENT, Origin, read_origins
from nojit.runtime.table.table import KernelTable
from nojit.runtime.target import parse_image_arch
from nojit.runtime.types.constants import constant_of, is_constant
from nojit.runtime.types.names import NONE, descriptor_parts, is_descriptor, members
from nojit.runtime.values import spell

__all__ = ["Checked", "Coverage", "KernelCoverage", "coverage_of"]

# a line names at most this many archs
_FEW = 8


@dataclass(frozen=True, slots=True)
class Checked:
    """One recorded specialization that the bundles serve or miss."""

    kernel: str
    """Its function, as ``module:qualname``."""
    specialization: str
    """Its digest in the recording."""
    arch: str
    label: str
    """Its types, hints, constexprs and options."""
    launches: int
    """Number of recorded launches."""
    bundle: str
    """Path of the bundle that serves it; empty if none does."""
    fewer_hints: bool
    """Whether the variant that serves it was built with fewer hints."""
    reason: str
    """Why every bundle misses it; empty if one serves it."""


@dataclass(frozen=True, slots=True)
class KernelCoverage:
    """How much of one recorded kernel the bundles serve."""

    kernel: str
    """Its function, as ``module:qualname``."""
    closure: str
    """Digest of its source closure."""
    specializations: int
    """Number of recorded specializations to serve."""
    served: int
    """Number of these that a bundle serves."""
    launches: int
    """Number of recorded launches."""
    launches_served: int
    """Number of these that a bundle serves."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a recording the bundles serve."""

    kernels: tuple[KernelCoverage, ...]
    checked: tuple[Checked, ...]

    @property
    def missed(self) -> tuple[Checked, ...]:
        """The specializations that no bundle serves."""
        return tuple(each for each in self.checked if each.reason)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A kernel of a bundle that was built from a function of the recording's name."""

    file: BundleFile
    origin: Origin


def coverage_of(recording: Recording, bundles: Sequence[BundleFile], archs: Sequence[str] = ()) -> Coverage:
    """Return which recorded specializations bundles serve.

    Args:
        recording: the recording.
        bundles: the bundles, in order of precedence. Those of manifests serve nothing.
        archs: the archs to check; empty for the recorded ones.

    Raises:
        RecordingError: the recording is damaged.
        BundleError: a bundle is damaged.
    """
    known: dict[tuple[str, str], list[_Candidate]] = {}
    for file in bundles:
        if ATTACHMENT in file.attachments:
            for origin in read_origins(file.attachment(ATTACHMENT), file.path).kernels:
                # a kernel whose variants all failed to compile is in no bundle
                if origin.kernel in file.kernels:
                    known.setdefault((origin.module, origin.qualname), []).append(_Candidate(file, origin))
    prints = {digest: fingerprint(closure) for digest, closure in recording.closures.items()}
    recorded = kernels_of(recording)
    seen = sorted({spec.arch for kernel in recorded for spec in kernel.specs}, key=arch_order)
    kernels, checked = [], []
    for kernel in recorded:
        check = _Check(kernel, known.get((kernel.module, kernel.qualname), []), prints)
        found = [
            check.run(spec, arch, recording.launches(spec.digest))
            for arch in archs or seen
            for spec in kernel.on(arch, seen)
        ]
        checked += found
        kernels.append(check.total(found))
    return Coverage(tuple(kernels), tuple(checked))


class _Check:
    """Checks the specializations of one recorded kernel.

    Args:
        kernel: the recorded kernel.
        named: kernels of bundles that were built from a function of the same name.
        prints: fingerprint of each recorded source closure, by digest.
    """

    def __init__(self, kernel: RecordedKernel, named: Sequence[_Candidate], prints: Mapping[str, Json]) -> None:
        self._kernel = kernel
        self._named = named
        self._alike = [each for each in named if each.origin.fingerprint == prints[kernel.closure]]
        self._prints = prints
        self._spelled = f"{kernel.module}:{kernel.qualname}"

    def run(self, spec: Spec, arch: str, launches: int) -> Checked:
        """Check one specialization on a device of an arch."""
        fitting = [each for each in self._alike if _runs_on(each.file, arch)]
        bundle, fewer, reasons = "", False, list[str]()
        for each in fitting:
            hints, reason = _served(each, self._kernel, spec, each.file.table(each.origin.kernel), self._prints)
            if hints is not None:
                bundle, fewer, reasons = each.file.path, hints < len(spec.hints), []
                break
            reasons.append(reason)
        else:
            reasons = reasons or [self._unbuilt(arch)]
        return Checked(
            kernel=self._spelled,
            specialization=spec.digest,
            arch=arch,
            label=_label(spec),
            launches=launches,
            bundle=bundle,
            fewer_hints=fewer,
            reason="; ".join(dict.fromkeys(reasons)),
        )

    def total(self, found: Sequence[Checked]) -> KernelCoverage:
        """Return the counts of the kernel."""
        served = [each for each in found if not each.reason]
        return KernelCoverage(
            kernel=self._spelled,
            closure=self._kernel.closure,
            specializations=len(found),
            served=len(served),
            launches=sum(each.launches for each in found),
            launches_served=sum(each.launches for each in served),
        )

    def _unbuilt(self, arch: str) -> str:
        if not self._named:
            return "no bundle has the kernel"
        if not self._alike:
            closures = few(sorted({each.origin.closure[:12] for each in self._named}), _FEW)
            return f"source drifted: recorded closure {self._kernel.closure[:12]}, the bundles have {closures}"
        archs = few(sorted({each.file.index.target.image_arch for each in self._alike}), _FEW)
        return f"not built for {arch}: the bundles have images for {archs}"


def _runs_on(file: BundleFile, arch: str) -> bool:
    return parse_image_arch(file.index.target.image_arch).runs_on(arch_number(arch))


def _served(
    candidate: _Candidate, kernel: RecordedKernel, spec: Spec, table: KernelTable, prints: Mapping[str, Json]
) -> tuple[int | None, str]:
    """Return the number of hints of the variant that serves a specialization, or why none does.

    `prints`: fingerprint of each recorded source closure, by digest.
    """
    for name, closure in spec.functions:
        known = candidate.origin.functions.get(name)
        if known != prints[closure]:
            return (
                None,
                f"the function {name} drifted"
                if known
                else f"no call of the bundle's recording passed the function {name}",
            )
    params = {param.name for param in table.params}
    options = {name: option_default(name, debug=kernel.debug) for name in candidate.origin.options} | dict(spec.options)
    other = [
        f"no variant has other values of {name} than {spell(BUILT_WITH.get(name))}, got {spell(value)}"
        for name, value in options.items()
        if name not in params and not (name in BUILT_WITH and is_as_built(name, value))
    ]
    if other:
        return None, "; ".join(other)
    given = {**{name: value for name, value in options.items() if name in params}, **dict(spec.constexprs)}
    try:
        facts = CallFacts(_arguments(spec), given, {}, arch_number(candidate.file.index.target.arch))
        explanation = explain(table, facts)
    except NojitError as error:
        return None, error.finding()
    if explanation.row is None:
        return None, explanation.rejected[0][1]
    return len(table.hint_sets[table.key(explanation.row)[2]]), ""


def _label(spec: Spec) -> str:
    words = [f"{name}={spell(value)}" for name, value in (*spec.constexprs, *spec.options)]
    words += [f"{name}:{kind}" for name, kind in spec.types]
    return " ".join([*words, *(f"{leaf}:{hint}" for leaf, hint in spec.hints)])


def _arguments(spec: Spec) -> Mapping[str, Argument]:
    hints = dict(spec.hints)
    return {name: _argument(plain(types_of(kind, spec.label())[0]), name, hints) for name, kind in spec.types}


def _argument(kind: str, path: str, hints: Mapping[str, int]) -> Argument:
    """Return an argument for which Triton finds a type and exactly the given hints."""
    hint = hints.get(path)
    if kind == NONE or is_constant(kind):
        return Argument(slot_kind(kind), None if kind == NONE else constant_of(kind))  # type: ignore[arg-type] # a kind of argument
    if kind.startswith("*"):
        return Argument("pointer", 4096 if hint == 16 else 4100, pointee(kind))
    if kind.startswith("("):
        items = enumerate(members(kind))
        return Argument("tuple", items=tuple(_argument(member, f"{path}.{place}", hints) for place, member in items))
    if is_descriptor(kind):
        element, block = descriptor_parts(kind)
        return Argument("descriptor", block, element)
    return _number(kind, hint)


def _number(kind: str, hint: int | None) -> Argument:
    slot = slot_kind(kind)
    if slot != "int":
        return Argument(slot, True if slot == "bool" else 1.5)  # type: ignore[arg-type] # as above
    # the least value for which Triton finds the type
    least = {"i64": 1 << 32, "u64": 1 << 63}.get(kind, 0)
    return Argument("int", 1 if hint == 1 else least + (16 if hint == 16 else 3))
