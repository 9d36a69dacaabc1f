"""Origins of the kernels of a recording's bundle, from the recording. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nojit.aot.recorded_builds.specializations import RecordedKernel, option_default
from nojit.runtime.base.strict_json import Json, canonical_json
from nojit.runtime.errors import RecordingError
from nojit.runtime.recording.drift import fingerprint
from nojit.runtime.recording.file import Recording
from nojit.runtime.recording.origins import Distribution, InductorFacts, Origin, Origins, Winner
from nojit.runtime.values import encode_value

__all__ = ["origins_of", "recorded_triton"]


def recorded_triton(recording: Recording) -> str:
    """Return the Triton version of a recording.

    Raises:
        RecordingError: its processes had several.
    """
    # what follows a plus sign names a build of the same version
    found = sorted({str(each.get("triton") or "").partition("+")[0] for each in recording.processes.values()} - {""})
    if len(found) > 1:
        what = "expected recordings with one version of Triton: build one bundle for each"
        raise RecordingError(what, got=", ".join(found))
    return found[0] if found else ""


def origins_of(recording: Recording, kernels: Iterable[RecordedKernel]) -> Origins:
    """Return the origins of kernels.

    Args:
        recording: the recording.
        kernels: the kernels of the bundle.

    Raises:
        RecordingError: the processes of the recording had several versions of Triton.
    """
    torches = {str(each.get("torch") or "") for each in recording.processes.values()} - {""}
    return Origins(
        triton=recorded_triton(recording),
        torch=",".join(sorted(torches)),
        kernels=tuple(_origin(recording, kernel) for kernel in kernels),
        distributions=tuple(
            Distribution(name, str(each.get("version") or ""), str(each.get("license") or ""))
            for name, each in sorted(recording.distributions.items())
        ),
        inductor=tuple(
            InductorFacts(**each) for each in sorted(recording.inductor, key=lambda each: sorted(each.items()))
        ),
    )


def _origin(recording: Recording, kernel: RecordedKernel) -> Origin:
    functions = {name: closure for spec in reversed(kernel.specs) for name, closure in spec.functions}
    own = {name for spec in kernel.specs for name in spec.params}
    return Origin(
        kernel=kernel.name,
        module=kernel.module,
        qualname=kernel.qualname,
        closure=kernel.closure,
        fingerprint=fingerprint(recording.closures[kernel.closure]),
        functions={name: fingerprint(recording.closures[closure]) for name, closure in functions.items()},
        options={
            name: encode_value(option_default(name, debug=kernel.debug))
            for name in kernel.option_names()
            if name not in own
        },
        winners=tuple(_winners(recording, kernel)),
    )


def _winners(recording: Recording, kernel: RecordedKernel) -> Iterator[Winner]:
    """Yield the winners of a kernel's autotuners, one for each key: the fastest that was recorded."""
    place = (kernel.module, kernel.qualname, kernel.closure)
    found: dict[bytes, tuple[tuple[float, bytes], Winner]] = {}
    for each in recording.winners:
        if (each.get("module"), each.get("qualname"), each.get("closure")) != place:
            continue
        winner = _winner(each)
        time_ns = each.get("time_ns")
        rank = float("inf") if time_ns is None else time_ns, canonical_json({**winner.config})
        key = canonical_json([[*winner.names], [*winner.key]])
        if key not in found or rank < found[key][0]:
            found[key] = rank, winner
    yield from (winner for _, (_, winner) in sorted(found.items()))


def _winner(line: Mapping[str, Any]) -> Winner:
    """Read a winner line: the key is an array of pairs, or one digest of torch.compile."""
    try:
        key, config = line["key"], line["config"]
        settings: dict[str, Json] = dict([*config["kwargs"], *config["options"]])
        if isinstance(key, str):
            return Winner((), (key,), settings)
        return Winner(tuple(str(name) for name, _ in key), tuple(value for _, value in key), settings)
    except (LookupError, TypeError, ValueError) as error:
        what = "expected winners of autotuners as this nojit records them: record again"
        raise RecordingError(what, got=f"{type(error).__name__}: {error}") from error
