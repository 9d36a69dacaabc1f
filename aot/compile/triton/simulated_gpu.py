"""The GPU that a kernel source sees while the build imports and compiles it: the target, in a process dedicated to that source."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

from nojit.aot.backends.interface import StandIn
from nojit.aot.backends.registry import vendor_of
from nojit.aot.compile.sources import reads, source_import
from nojit.aot.compile.triton.own_toolchain import backend_of
from nojit.aot.compile.triton.patches import Baseline
from nojit.aot.plan.function_facts import SourcePlace
from triton.backends import backends
from triton.runtime.driver import driver as active_driver

__all__ = ["Dedicated", "begin", "current_target", "dedicated", "simulate", "target_answers"]


@dataclasses.dataclass(frozen=True, slots=True)
class Dedicated:
    """State of a process that is dedicated to one kernel source."""

    device: StandIn
    driver: Any
    baseline: Baseline


_dedicated: list[Dedicated] = []


def dedicated() -> Dedicated | None:
    """Return the state of this process; None if it is not dedicated to one kernel source."""
    return _dedicated[-1] if _dedicated else None


def simulate(arch: str) -> None:
    """Make the simulated GPU, if this process has one, the chip of an arch; empty for the one that it is."""
    if arch and (state := dedicated()):
        state.device.arch = vendor_of(arch).chip_of(arch)


def begin(place: SourcePlace, arch: str) -> None:
    """Dedicate this process to one kernel source, which then sees the target as its GPU. Call before importing it.

    Args:
        place: where the source is.
        arch: the first arch to simulate. Later calls pass their own arch.
    """
    source_import.begin(place)
    vendor = vendor_of(arch)
    device, driver = vendor.backend().begin(arch)
    for name, backend in backends.items():
        backend.driver.is_active = staticmethod(lambda active=name == vendor.TRITON: active)
    vars(sys.modules["triton.runtime.driver"])["_create_driver"] = lambda: driver
    active_driver.set_active(driver)
    _dedicated.append(Dedicated(device, driver, Baseline()))
    reads.source_begins()


def target_answers() -> str:
    """Return the queries about the GPU that the import made, as text for an error: they can explain a missing name."""
    state = dedicated()
    answers = state.device.answers() if state else ()
    return f"; its import queried the target: {', '.join(answers)}" if answers else ""


@contextlib.contextmanager
def current_target(arch: str) -> Iterator[None]:
    """Make Triton report the build's target as the current GPU, until the ``with`` block ends."""
    simulate(arch)
    state = dedicated()
    driver = state.driver if state else backend_of(arch).driver(arch)
    # the property would look for a GPU
    before = vars(active_driver)["_active"]
    active_driver.set_active(driver)
    try:
        yield
    finally:
        active_driver.set_active(before)
