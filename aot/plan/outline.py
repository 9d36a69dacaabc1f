"""Facts of a kernel's source about its calls, for a first manifest. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from nojit.aot.plan.function_facts import KernelSource
from nojit.runtime.values import Value

__all__ = ["Heuristic", "Outline", "OutlinedConfig", "Unspelled", "Use"]


class Use(Enum):
    """Kind of a param, if its uses in the kernel allow only one."""

    POINTER = "pointer"
    INT = "int"
    DESCRIPTOR = "descriptor"
    TUPLE = "tuple"


@dataclass(frozen=True, slots=True)
class Unspelled:
    """A value that manifests cannot hold, as Python shows it."""

    shown: str


@dataclass(frozen=True, slots=True)
class OutlinedConfig:
    """One ``triton.Config``."""

    constexprs: tuple[tuple[str, Value | Unspelled], ...]
    options: tuple[tuple[str, Value], ...]
    """Options that the config sets, without those that have Triton's default."""


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A param or option that ``@triton.heuristics`` computes."""

    name: str
    text: str
    """The function as the source writes it; empty if the source does not write it in the decorator."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The facts of a kernel's source that decide what a manifest has to say."""

    source: KernelSource
    uses: tuple[tuple[str, Use], ...]
    """Runtime params whose use in the kernel tells what they are."""
    optional: tuple[str, ...]
    """Runtime params that the kernel or a heuristic compares with None."""
    configs: tuple[OutlinedConfig, ...]
    """Configs of ``@triton.autotune``, in its order."""
    key: tuple[str, ...]
    """Params in the autotuner's key."""
    prune: tuple[str, ...]
    """Names of the autotuner's functions that drop or rank configs at run time."""
    heuristics: tuple[Heuristic, ...]
