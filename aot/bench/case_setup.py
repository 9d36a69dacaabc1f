"""Setup of one case for all contenders: tensors, integers, and the image that nojit launches for them."""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from nojit.aot.bench.cases import Case
from nojit.runtime.loader import Bundle
from nojit.runtime.table.parts import Launch

__all__ = ["LaunchedImage", "Param", "Stage", "Timer", "Unavailable", "timed"]

Timer: TypeAlias = Callable[[int], float]
"""Function that launches the given number of times and returns the microseconds of one launch."""

Param: TypeAlias = tuple[str, int]
"""Type and value of one parameter of the machine code."""


class Unavailable(Exception):  # noqa: N818 - an expected outcome, not an error
    """A contender cannot be measured on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class LaunchedImage:
    """The machine code of a case, and its launch parameters."""

    code: bytes
    launch: Launch

    @property
    def threads(self) -> int:
        """Threads per block."""
        return 32 * self.launch.num_warps


@dataclass(frozen=True, slots=True)
class Stage:
    """One case of a launch benchmark, ready to launch: bundle, tensors, device and check of the result."""

    case: Case
    bundle: Bundle
    """The benchmark bundle: one file, for this device."""
    values: Mapping[str, Any]
    """Arguments by name: tensors and integers."""
    addresses: Mapping[str, int]
    """Device addresses of the tensors, by name."""
    device: int
    """Ordinal of the device."""
    stream: int
    """Handle of the framework's current stream."""
    folder: Path
    """Folder for files that contenders read."""
    clear: Callable[[], None]
    """Function that zeroes the output."""
    synchronize: Callable[[], None]
    """Function that waits for all launches."""
    correct: Callable[[], bool]
    """Function that returns whether the output is correct."""

    @property
    def names(self) -> dict[str, Any]:
        """Global variables of the timed statements."""
        return {**self.values, "kernel": self.bundle.kernel(self.case.kernel), "grid": (1,)}

    def image(self) -> LaunchedImage:
        """Return the image of the variant that nojit selects for the call."""
        (file,) = self.bundle.files
        row = self.bundle.kernel(self.case.kernel).explain(*self.values.values()).row
        if row is None:
            raise Unavailable(f"no variant of {file.path} matches the call: leave out --bundle to build one")
        table = file.table(self.case.kernel)
        image = file.image(self.case.kernel, table.columns["image"][row])
        return LaunchedImage(image, table.launches[table.columns["launch"][row]])

    def params(self, launch: Launch) -> Iterator[Param]:
        """Yield the parameters of the machine code; scratch pointers are null, because these kernels use no scratch."""
        known = {**self.case.numbers, **self.addresses}
        for slot in launch.layout:
            yield slot.type, known.get(slot.source, 0)


def timed(statement: str, names: Mapping[str, Any]) -> Timer:
    """Return a timer that runs a statement in a bare loop, without a function call around it and without garbage collection.

    Args:
        statement: the Python statement.
        names: its global variables.
    """
    timer = timeit.Timer(statement, globals=dict(names))
    return lambda launches: timer.timeit(launches) * 1e6 / launches
