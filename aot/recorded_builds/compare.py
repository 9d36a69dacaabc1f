"""Differences between two recordings, each with its kernel: a live run and one without a GPU, or a program before and after a change."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from nojit.aot.recorded_builds.specializations import RecordedKernel, Spec, kernels_of
from nojit.runtime.base.strict_json import canonical_json
from nojit.runtime.base.wording import few
from nojit.runtime.recording.file import Recording
from nojit.runtime.values import decode_value, spell

__all__ = ["Difference", "compare_recordings"]

_ABSENT = "not recorded"
# a line names at most this many closures
_FEW = 4


@dataclass(frozen=True, slots=True)
class Difference:
    """Something in which two recordings differ."""

    kind: str
    """``version``, ``kernel``, ``source``, ``specialization``, ``winner``, ``launches`` or ``problem``."""
    kernel: str
    """The function, as ``module:qualname``; empty for `version`, and the place for `problem`."""
    what: str
    """The name of the part that differs; for two specializations, the types, hints, constexprs and options that they share."""
    before: str
    after: str
    tuned: bool = False
    """Whether an autotuner's choice explains it: two runs may choose differently, and a simulated GPU chooses the first config."""


def compare_recordings(before: Recording, after: Recording) -> tuple[Difference, ...]:
    """Return every difference between two recordings: specializations to build, winners, launches and problems.

    Processes, devices' names, samples and times are not compared.

    Args:
        before: the first recording.
        after: the second recording.

    Raises:
        RecordingError: a recording is damaged.
    """
    sides = _Side(before), _Side(after)
    names = sorted({*sides[0].kernels, *sides[1].kernels})
    lost = [{*before.problems}, {*after.problems}]
    return (
        *_versions(before, after),
        *chain.from_iterable(_of_kernel(name, *sides) for name in names),
        *(Difference("problem", where, what, "recorded", "none") for what, where in sorted(lost[0] - lost[1])),
        *(Difference("problem", where, what, "none", "recorded") for what, where in sorted(lost[1] - lost[0])),
    )


class _Side:
    """One recording, by kernel.

    Args:
        recording: the recording.
    """

    def __init__(self, recording: Recording) -> None:
        self.kernels: dict[str, list[RecordedKernel]] = defaultdict(list)
        for kernel in kernels_of(recording, trials=True):
            self.kernels[f"{kernel.module}:{kernel.qualname}"].append(kernel)
        self.winners: dict[str, dict[bytes, Mapping[str, Any]]] = defaultdict(dict)
        for winner in recording.winners:
            key = canonical_json(winner["key"])
            self.winners[f"{winner['module']}:{winner['qualname']}"][key] = winner
        self._recording = recording

    def specs(self, name: str) -> list[Spec]:
        """Return the specializations of a kernel in the order of their labels, of any source: sources are compared once."""
        found = (spec for kernel in self.kernels.get(name, ()) for spec in kernel.specs)
        return sorted(found, key=lambda spec: (_label(spec), spec.closure))

    def is_built(self, spec: Spec) -> bool:
        """Return whether a build compiles a specialization: an autotuner did not merely try it."""
        return spec.digest not in self._recording.trials

    def launches(self, spec: Spec) -> int:
        """Return the number of launches of a specialization."""
        return self._recording.launches(spec.digest)


def _versions(before: Recording, after: Recording) -> Iterator[Difference]:
    for name in ("triton", "torch"):
        mine, other = (
            ", ".join(sorted({str(process.get(name, "")) for process in each.processes.values()}))
            for each in (before, after)
        )
        if mine != other:
            yield Difference("version", "", name, mine or _ABSENT, other or _ABSENT)


def _of_kernel(name: str, before: _Side, after: _Side) -> Iterator[Difference]:
    sides = before, after
    there = ["recorded" if name in side.kernels else _ABSENT for side in sides]
    if _ABSENT in there:
        yield Difference("kernel", name, "kernel", there[0], there[1])
        return
    closures = [few(sorted({kernel.closure[:12] for kernel in side.kernels[name]}), _FEW) for side in sides]
    if closures[0] != closures[1]:
        yield Difference("source", name, "digest of the source", closures[0], closures[1])
    tunable = {each for side in sides for winner in side.winners[name].values() for each in _config(winner)}
    yield from _of_specs(name, before, after, tunable)
    for key in sorted({*before.winners[name], *after.winners[name]}):
        winners = [side.winners[name].get(key) for side in sides]
        spelled = [_ABSENT if winner is None else _spell_config(winner) for winner in winners]
        if spelled[0] != spelled[1]:
            what = f"config for {_spell_key(next(filter(None, winners)))}"
            yield Difference("winner", name, what, spelled[0], spelled[1], tuned=_ABSENT not in spelled)


def _of_specs(name: str, before: _Side, after: _Side, tunable: Collection[str]) -> Iterator[Difference]:
    mine, others = before.specs(name), after.specs(name)
    pairs, lone, left = _matched(mine, others)
    several = {label for label, count in Counter(map(_label, (*mine, *others))).items() if count > 2}
    for one, other in pairs:
        label = _label(one)
        # functions of one name, such as torch.compile's, differ in their sources alone
        label += f" source {one.closure[:12]}" * (label in several)
        built = before.is_built(one), after.is_built(other)
        counts = before.launches(one), after.launches(other)
        if built[0] != built[1]:
            words = ["launched" if each else "only tried by an autotuner" for each in built]
            yield Difference("specialization", name, label, words[0], words[1], tuned=bool(tunable))
        elif built[0] and counts[0] != counts[1]:
            yield Difference("launches", name, label, f"{counts[0]:,}", f"{counts[1]:,}", tuned=bool(tunable))
    lone = [spec for spec in lone if before.is_built(spec)]
    left = [spec for spec in left if after.is_built(spec)]
    ends = (lone, others, "recorded", _ABSENT), (left, mine, _ABSENT, "recorded")
    # an autotuner's choice is paired first: afterwards it cannot be the nearest of a call that differs otherwise
    yield from _pairs(name, lone, left, tunable, tuned=True)
    for specs, among, at_first, then in ends:
        for spec in [each for each in specs if _is_tuned(each, among, tunable)]:
            specs.remove(spec)
            yield Difference("specialization", name, _label(spec), at_first, then, tuned=True)
    yield from _pairs(name, lone, left, tunable, tuned=False)
    for specs, _, at_first, then in ends:
        yield from (Difference("specialization", name, _label(spec), at_first, then) for spec in specs)


def _pairs(
    name: str, lone: list[Spec], left: list[Spec], tunable: Collection[str], *, tuned: bool
) -> Iterator[Difference]:
    """Take pairs of near specializations out of both lists; with `tuned`, only those that a config tells apart."""
    for one in [*lone]:
        nearest = _nearest(one, [each for each in left if not tuned or _differing(one, each) <= {*tunable}])
        if nearest is not None:
            lone.remove(one)
            left.remove(nearest)
            yield _pair(name, one, nearest, tunable)


def _matched(mine: list[Spec], others: list[Spec]) -> tuple[list[tuple[Spec, Spec]], list[Spec], list[Spec]]:
    """Pair specializations of one label, those of one source first; return the pairs, and the rest of both sides."""
    pairs: list[tuple[Spec, Spec]] = []
    for by_source in (True, False):
        found: dict[tuple[str, str], list[Spec]] = defaultdict(list)
        for other in others:
            found[_label(other), other.closure * by_source].append(other)
        rest: list[Spec] = []
        for one in mine:
            same = found[_label(one), one.closure * by_source]
            if same:
                pairs.append((one, same.pop(0)))
            else:
                rest.append(one)
        mine, others = rest, [*chain.from_iterable(found.values())]
    return sorted(pairs, key=lambda pair: (_label(pair[0]), pair[0].closure)), mine, others


def _pair(name: str, one: Spec, other: Spec, tunable: Collection[str]) -> Difference:
    """Return the difference between two specializations, in parts that differ."""
    differing, sides = _differing(one, other), (_words(one), _words(other))
    shared = " ".join(word for part, word in sides[0].items() if part not in differing)
    shown = [" ".join(side[part] for part in sorted(differing) if part in side) or "none" for side in sides]
    return Difference("specialization", name, shared, shown[0], shown[1], tuned=differing <= {*tunable})


def _is_tuned(spec: Spec, among: Iterable[Spec], tunable: Collection[str]) -> bool:
    """Return whether a specialization is another one with another config."""
    return any(set() < _differing(spec, each) <= {*tunable} for each in among)


def _words(spec: Spec) -> dict[str, str]:
    """Return the parts of a specialization but its kernel's source, each spelled, by the param, member or option that it is of."""
    words = {"arch": spec.arch, **{name: f"{name}:{kind}" for name, kind in spec.types}}
    words |= {f"{leaf} hint": f"{leaf}:{hint}" for leaf, hint in spec.hints}
    words |= {name: f"{name}={spell(value)}" for name, value in (*spec.constexprs, *spec.options)}
    return words | {f"function {name}": f"{name} {closure[:12]}" for name, closure in spec.functions}


def _label(spec: Spec) -> str:
    return " ".join(_words(spec).values())


def _differing(one: Spec, other: Spec) -> set[str]:
    mine, others = _words(one), _words(other)
    return {name for name in {*mine, *others} if mine.get(name) != others.get(name)}


def _nearest(spec: Spec, among: Iterable[Spec]) -> Spec | None:
    """Return the specialization that differs in the fewest parts."""
    return min(among, key=lambda each: (len(_differing(spec, each)), each.digest), default=None)


def _config(winner: Mapping[str, Any]) -> dict[str, Any]:
    """Return an autotuner's config, or Inductor's, whose options are beside its list of constexprs."""
    found: dict[str, Any] = {}
    for name, value in winner["config"].items():
        found |= dict(value) if isinstance(value, list) else {name: value}
    return found


def _spell_config(winner: Mapping[str, Any]) -> str:
    pairs = _config(winner).items()
    return " ".join(f"{name}={spell(decode_value(value, name))}" for name, value in pairs) or "no config"


def _spell_key(winner: Mapping[str, Any]) -> str:
    key = winner["key"]
    return ", ".join(f"{name}={value}" for name, value in key) if isinstance(key, list) else str(key)[:12]
