"""What the tuner knows, as plain records: the rows of its database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from nojit.runtime.tuning_table import TunedDevice
from nojit.runtime.values import Value

__all__ = ["Config", "Device", "KernelFacts", "Measurement", "Problem", "Pruned", "Run", "Size", "Status"]

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
        """Return what measurements of devices like it count as."""
        return TunedDevice(self.name, self.arch, self.multiprocessors, self.memory_bytes)


@dataclass(frozen=True, slots=True)
class Run:
    """One call of ``nojit tune run``."""

    device: int
    """Its number in the database, as all such fields are."""
    started: str
    """ISO 8601, UTC."""
    bundle: str
    """The file's name."""
    bundle_digest: str
    nojit: str
    """Its version."""
    torch: str
    budget_s: float | None
    """None: as long as it takes."""
    seed: int
    ended: str | None = None
    """None if it was killed, or is still running."""


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """A kernel as the tuner sees it."""

    name: str
    key: tuple[str, ...]
    """Expressions over its parameters that the best config depends on."""
    alike: Mapping[str, tuple[tuple[Value, ...], ...]]
    """By axis, the values whose measurements stand for one another."""
    roles: Mapping[str, tuple[str, ...]]
    """Which constexprs are ``tunables``, ``numerics`` and ``semantics``."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One call shape of a kernel."""

    kernel: int
    name: str
    use: str
    """``tune``, ``held_out`` or another word of the family's."""
    shape_class: str
    dtype: str
    meaning: Mapping[str, Value]
    """The value of each axis."""
    key: tuple[int, ...]
    """The value of each key expression, not bucketed."""
    sizes: Mapping[str, Size]
    moved_bytes: int
    """What has to be read and written at least."""
    flops: int
    weight: float = 1.0
    """How much it counts beside others, whatever time it takes: more for a shape that is known to matter."""


@dataclass(frozen=True, slots=True)
class Config:
    """One way to run a kernel."""

    kernel: int
    settings: Mapping[str, Value]
    """Constexprs and options by name, as the bundle has them."""
    requires: str
    """When it may run at all; empty if always."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one config did for one problem, in one rung of one run."""

    run: int
    problem: int
    config: int
    image: str
    """SHA-256 of the machine code."""
    status: Status
    rung: int
    """0 for the first and shortest; a higher one has more samples and says more."""
    samples: int
    median_us: float | None
    """None unless `status` is ``ok``, as the two below."""
    noise: float | None
    """Half the width of the median's 95 % interval, as a share of the median."""
    best_us: float | None
    clock_mhz: int | None
    """Of the multiprocessors, right after the samples; None if it is not known."""
    taken: str
    """ISO 8601, UTC."""
    detail: str = ""
    """What was wrong, or how it failed."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """A config of the space that was never built or never measured."""

    run: int
    kernel: int
    label: str
    reason: str
