"""What the process that tunes and the process that measures say to one another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from nojit.aot.tune.halving import Timing
from nojit.aot.tune.records import Device, Size, Status
from nojit.runtime.strict import canonical_json
from nojit.runtime.values import Value, encode_value

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
    "identity_of",
]


@dataclass(frozen=True, slots=True)
class Listed:
    """A problem before it is set up."""

    kernel: str
    name: str
    use: str
    shape_class: str
    dtype: str
    sizes: Mapping[str, Size]
    weight: float = 1.0


def identity_of(settings: Mapping[str, Value]) -> str:
    """Write a config's settings as one text."""
    return canonical_json({name: encode_value(value) for name, value in settings.items()}).decode("ascii")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A config that can serve a problem, or several that differ in nothing but their rules: they launch the same."""

    settings: Mapping[str, Value]
    rules: tuple[str, ...]
    """What each of the configs requires, all of which holds."""
    image: str
    """SHA-256 of the machine code."""

    @property
    def identity(self) -> str:
        """One text for the same settings of a kernel."""
        return identity_of(self.settings)


@dataclass(frozen=True, slots=True)
class Task:
    """Measure one problem."""

    problem: int
    """Of those listed."""
    skip: frozenset[str]
    """Candidates, by identity, known to be wrong or to fail."""
    exhaustive: bool
    """Measure every candidate to the end."""
    careful: bool
    """Say which candidate is timed, one by one: the process died the last time, and nobody knows of which."""
    allowance_s: float
    """After this, only the few best go on."""
    limit_s: float
    """After this, nothing new begins."""
    seed: int
    only: frozenset[str] | None = None
    """Candidates, by identity, that are measured, and no others; None: all."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The worker is up."""

    device: Device
    torch: str
    problems: tuple[Listed, ...]
    missing: tuple[str, ...]
    """Kernels that problems are for and the bundle lacks."""


@dataclass(frozen=True, slots=True)
class Refused:
    """What was asked for cannot be done at all; or, for a task, this problem cannot be set up."""

    reason: str


@dataclass(frozen=True, slots=True)
class Opened:
    """A problem is set up."""

    key_names: tuple[str, ...]
    key: tuple[int, ...]
    meaning: Mapping[str, Value]
    moved_bytes: int
    flops: int
    roles: Mapping[str, tuple[str, ...]]
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Trying:
    """Launches are about to begin."""

    candidate: int | None
    """Whose they are, so that whatever happens next is its doing; None if they are of several."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A candidate must not serve this problem."""

    candidate: int
    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class Measured:
    """One rung is done."""

    rung: int
    timings: Mapping[int, Timing]
    """By candidate."""
    clock_mhz: int | None


@dataclass(frozen=True, slots=True)
class Done:
    """A problem is done."""

    complete: bool
    """Whether its last rung was reached."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The context is beyond repair, and the worker ends."""

    reason: str


Event: TypeAlias = "Hello | Refused | Opened | Trying | Fault | Measured | Done | Lost"
