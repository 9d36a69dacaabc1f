"""Messages between the tuning process and the measuring process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from nojit.aot.tune.measure.timing import Timing
from nojit.aot.tune.store.records import Device, Size, Status, identity_of
from nojit.runtime.values import Value

__all__ = [
    "Candidate",
    "Done",
    "Event",
    "Fault",
    "Hello",
    "Listed",
    "Lost",
    "Measured",
    "Opened",
    "Refused",
    "Task",
    "Trying",
]


@dataclass(frozen=True, slots=True)
class Listed:
    """A problem as listed, before its tensors exist."""

    kernel: str
    name: str
    use: str
    shape_class: str
    dtype: str
    sizes: Mapping[str, Size]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A config that can serve a problem, or several configs that differ only in rules and share an image."""

    settings: Mapping[str, Value]
    rules: tuple[str, ...]
    """The ``requires`` of each config; the problem satisfies all."""
    image: str
    """SHA-256 of the machine code."""

    @property
    def identity(self) -> str:
        """The settings as canonical JSON."""
        return identity_of(self.settings)


@dataclass(frozen=True, slots=True)
class Task:
    """A request to the measuring process: one problem, the candidates to skip and the time limits."""

    problem: int
    """Index in the listed problems."""
    skip: frozenset[str]
    """Candidates known to be wrong or to fail, by identity."""
    exhaustive: bool
    """Whether every candidate is measured up to the last rung."""
    careful: bool
    """Whether the worker launches and announces candidates one by one, to find the one that killed the previous process."""
    allowance_s: float
    """Seconds after which only the few best candidates continue."""
    limit_s: float
    """Seconds after which no new check or rung starts."""
    seed: int
    only: frozenset[str] | None = None
    """Candidates to measure, by identity; all if None."""


@dataclass(frozen=True, slots=True)
class Hello:
    """First event of a worker that is ready."""

    device: Device
    torch: str
    """The version of torch."""
    problems: tuple[Listed, ...]
    missing: tuple[str, ...]
    """Kernels of problems that the bundle lacks."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Event of a worker that cannot start, or that cannot prepare the problem of a task."""

    reason: str


@dataclass(frozen=True, slots=True)
class Opened:
    """Event of a worker that has prepared a problem."""

    key_names: tuple[str, ...]
    """The key's expressions."""
    key: tuple[int, ...]
    """The key's values."""
    case: Mapping[str, Value]
    """The problem's case: the value of each axis."""
    moved_bytes: int
    flops: int
    roles: Mapping[str, tuple[str, ...]]
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Trying:
    """Announcement of the next launch, so that the parent knows which candidate killed the process."""

    candidate: int | None
    """Index of the candidate; None if the worker launches several at once."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A candidate is wrong or failed for this problem."""

    candidate: int
    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class Measured:
    """Event with the timings of one rung (one round of successive halving)."""

    rung: int
    timings: Mapping[int, Timing]
    """Timings by candidate."""
    clock_mhz: int | None


@dataclass(frozen=True, slots=True)
class Done:
    """Last event of a problem."""

    complete: bool
    """Whether the last rung was reached."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Event of a worker that ends because its CUDA context is lost."""

    reason: str


Event: TypeAlias = "Hello | Refused | Opened | Trying | Fault | Measured | Done | Lost"
