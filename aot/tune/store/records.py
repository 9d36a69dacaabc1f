"""Records of the tuner: the rows of its database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from nojit.runtime.base.strict_json import canonical_json
from nojit.runtime.table.tuning import TunedDevice
from nojit.runtime.values import Value, encode_value

__all__ = [
    "Config",
    "Device",
    "KernelFacts",
    "Measurement",
    "Problem",
    "Pruned",
    "Run",
    "Size",
    "Status",
    "identity_of",
]

Status: TypeAlias = Literal["ok", "wrong", "failed"]
Size: TypeAlias = "int | bool | str"


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU that was measured."""

    name: str
    arch: str
    """Such as `sm_90`."""
    multiprocessors: int
    memory_bytes: int
    driver: str
    """Version of the driver, such as `580.82.07`; empty if unknown."""
    uuid: str
    """Empty if unknown."""

    def kind(self) -> TunedDevice:
        """Return the kind of this device. The tuner combines measurements on devices of one kind."""
        return TunedDevice(self.name, self.arch, self.multiprocessors, self.memory_bytes)


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of ``nojit tune run``."""

    device: int
    """Number of the device in the database. The fields `kernel`, `run`, `problem` and `config` of other records are such numbers."""
    started: str
    """Start time in ISO 8601, UTC."""
    bundle: str
    """The name of the bundle's file."""
    bundle_digest: str
    nojit: str
    """The version of nojit."""
    torch: str
    """The version of torch."""
    budget_s: float | None
    """Time limit in seconds; None for no limit."""
    seed: int
    ended: str | None = None
    """End time; None if the run is still going or was killed."""


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """Tuning key and roles of a kernel."""

    name: str
    key: tuple[str, ...]
    """Expressions over the params that determine the best config."""
    alike: Mapping[str, tuple[tuple[Value, ...], ...]]
    """By axis, groups of values that share measurements."""
    roles: Mapping[str, tuple[str, ...]]
    """Names of the constexprs by role: ``tunables``, ``numerics`` and ``semantics``."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One call shape of a kernel that tuning measures: its sizes, case and weight."""

    kernel: int
    name: str
    use: str
    """``tune``, ``held_out`` or another set of the family."""
    shape_class: str
    dtype: str
    case: Mapping[str, Value]
    """The case: the value of each axis."""
    key: tuple[int, ...]
    """The value of each key expression, not rounded."""
    sizes: Mapping[str, Size]
    moved_bytes: int
    """Minimum number of bytes to read and write."""
    flops: int
    weight: float = 1.0
    """Weight in means that the problem declares: above 1 for an important shape. Selection multiplies it by a weight from the time."""


@dataclass(frozen=True, slots=True)
class Config:
    """One config of a kernel."""

    kernel: int
    settings: Mapping[str, Value]
    """Constexprs and options by name, as in the bundle."""
    requires: str
    """The expression that a call must satisfy; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one config for one problem, in one rung of one run."""

    run: int
    problem: int
    config: int
    image: str
    """SHA-256 of the machine code."""
    status: Status
    rung: int
    """The number of the rung: 0 is the first; higher rungs have more samples."""
    samples: int
    median_us: float | None
    """Median time. Like `noise` and `best_us`, None unless `status` is ``ok``."""
    noise: float | None
    """Half the width of the median's 95% interval, as a share of the median."""
    best_us: float | None
    clock_mhz: int | None
    """Clock of the multiprocessors right after the samples; None if unknown."""
    taken: str
    """Time of the measurement in ISO 8601, UTC."""
    detail: str = ""
    """The error of a wrong or failed config."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """A config of the space that was not built."""

    run: int
    kernel: int
    label: str
    reason: str


def identity_of(settings: Mapping[str, Value]) -> str:
    """Return a config's settings as canonical JSON, to compare configs."""
    return canonical_json({name: encode_value(value) for name, value in settings.items()}).decode("ascii")
