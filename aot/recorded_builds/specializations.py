"""Recorded specializations by kernel, with the axes that their bundle has. Pure.

In a bundle of a recording, every constexpr is an axis, and so is each option that matters: ``num_warps``, ``num_stages``,
``num_ctas``, ``maxnreg``, and every option that a recorded call passed. Options are constexpr params after the function's own, with
Triton's default, so that a call without an option is a call with its default.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nojit.aot.manifest.archs import chip_of
from nojit.aot.manifest.options import OPTIONS
from nojit.runtime.base.launch_options import TUNABLE
from nojit.runtime.base.strict_json import canonical_json
from nojit.runtime.errors import BundleFormatError, RecordingError
from nojit.runtime.recording.file import Recording
from nojit.runtime.values import Value, decode_value

__all__ = ["RecordedKernel", "Spec", "kernels_of", "option_default"]

_NAME_MAX = 200
_DIGEST_CHARS = 8


@dataclass(frozen=True, slots=True)
class Spec:
    """One recorded specialization, with decoded values."""

    digest: str
    """Its digest in the recording."""
    identity: str
    """Digest of everything but the arch: equal for the same specialization on two archs."""
    module: str
    qualname: str
    closure: str
    params: tuple[str, ...]
    types: tuple[tuple[str, str], ...]
    hints: tuple[tuple[str, int], ...]
    constexprs: tuple[tuple[str, Value], ...]
    options: tuple[tuple[str, Value], ...]
    """The options that the call passed, sorted by name."""
    functions: tuple[tuple[str, str], ...]
    """Digest of the closure of each function among the constexprs, by ``module:name``."""
    arch: str

    def label(self) -> str:
        """Return a short description, for messages: module, function, arch and digest."""
        return f"{self.module}:{self.qualname} {self.arch} {self.digest[:12]}"


@dataclass(frozen=True, slots=True)
class RecordedKernel:
    """One kernel of a recording: a function with one source closure, and its specializations."""

    name: str
    """Its name in the bundle."""
    module: str
    qualname: str
    closure: str
    """Digest of the source closure."""
    debug: bool
    """Value of `debug` in the function's decorator."""
    specs: tuple[Spec, ...]
    """Sorted by what identifies them on every arch."""

    def option_names(self) -> tuple[str, ...]:
        """Return the options that are axes, in order: those of any kernel, then all others that a call passed."""
        # a specialization with an option that no build can set is refused
        own = {name for spec in self.specs for name, _ in spec.options if name in OPTIONS and name not in TUNABLE}
        if self.debug:
            own.add("debug")
        return (*TUNABLE, *sorted(own))

    def on(self, arch: str, recorded: Collection[str]) -> tuple[Spec, ...]:
        """Return the specializations to build for an arch, each once.

        Args:
            arch: the arch.
            recorded: the archs of the recording. Another arch gets the specializations of all of them.
        """
        chip = chip_of(arch)
        there = [spec for spec in self.specs if spec.arch == chip or chip not in recorded]
        return tuple({spec.identity: spec for spec in there}.values())


def option_default(name: str, *, debug: bool) -> Value:
    """Return the value that an option has in a call that does not pass it.

    Args:
        name: the option.
        debug: value of `debug` in the function's decorator.
    """
    if name == "debug":
        return debug
    return OPTIONS[name].default if name in OPTIONS else None


def kernels_of(recording: Recording, *, trials: bool = False) -> tuple[RecordedKernel, ...]:
    """Return the kernels of a recording with their specializations, sorted by name.

    Args:
        recording: the recording.
        trials: whether to include what only an autotuner's trials launched.

    Raises:
        RecordingError: a specialization has another form, or its source closure is missing.
    """
    wanted = sorted(recording.specializations) if trials else recording.to_build()
    found: dict[tuple[str, str, str], list[Spec]] = {}
    for digest in wanted:
        spec = _spec(recording.specializations[digest], digest)
        if spec.closure not in recording.closures:
            what = "expected the recording to hold each source closure: pass the files of all processes"
            raise RecordingError(what, got=f"none of {spec.closure[:12]}", where=spec.label())
        found.setdefault((spec.module, spec.qualname, spec.closure), []).append(spec)
    names = _names(found)
    kernels = [
        RecordedKernel(
            names[key],
            *key,
            debug=_debug_of(recording.closures[key[2]]),
            specs=tuple(sorted(specs, key=lambda spec: (spec.identity, spec.arch))),
        )
        for key, specs in found.items()
    ]
    return tuple(sorted(kernels, key=lambda kernel: kernel.name))


def _debug_of(closure: Mapping[str, Any]) -> bool:
    kernel: dict[str, Any] = next(iter(closure["definitions"]), {})
    return bool(kernel.get("settings", {}).get("debug"))


def _spec(found: Mapping[str, Any], digest: str) -> Spec:
    where = f"specialization {digest[:12]}"
    try:
        everywhere = {name: value for name, value in found.items() if name != "arch"}
        return Spec(
            digest=digest,
            identity=hashlib.sha256(canonical_json(everywhere)).hexdigest(),
            module=str(found["module"]),
            qualname=str(found["qualname"]),
            closure=str(found["closure"]),
            params=tuple(map(str, found["params"])),
            types=tuple((str(name), str(kind)) for name, kind in found["types"]),
            hints=tuple(sorted((str(leaf), int(hint)) for leaf, hint in found["hints"])),
            constexprs=tuple(_decoded(found["constexprs"], where)),
            options=tuple(_decoded(found["options"], where)),
            functions=tuple((str(name), str(closure)) for name, closure in found["functions"]),
            arch=str(found["arch"]),
        )
    except (LookupError, TypeError, ValueError, BundleFormatError) as error:
        what = "expected a specialization as this nojit records it: record again"
        raise RecordingError(what, got=f"{type(error).__name__}: {error}", where=where) from error


def _decoded(pairs: Iterable[Any], where: str) -> Iterator[tuple[str, Value]]:
    for name, value in pairs:
        yield str(name), decode_value(value, where)


def _names(keys: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    """Return a name for each kernel: its qualified name, with a digest where names would be equal."""
    plain = {key: _named(key[1]) for key in keys}
    counts = Counter(plain.values())
    return {key: name if counts[name] == 1 else _apart(name, key) for key, name in plain.items()}


def _named(qualname: str) -> str:
    name = re.sub(r"\W", "_", qualname.replace(".<locals>.", "."), flags=re.ASCII)[:_NAME_MAX]
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"[:_NAME_MAX]


def _apart(name: str, key: tuple[str, str, str]) -> str:
    digest = hashlib.sha256("\n".join(key).encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: _NAME_MAX - _DIGEST_CHARS - 1]}_{digest}"
