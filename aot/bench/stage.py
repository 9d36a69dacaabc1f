"""What contenders launch with: one case's tensors and numbers, and the image that nojit would launch for them."""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from nojit.aot.bench.cases import Case
from nojit.runtime.loader import Bundle
from nojit.runtime.table import Launch

__all__ = ["LaunchedImage", "Param", "Stage", "Timer", "Unavailable", "timed"]

Timer: TypeAlias = Callable[[int], float]
"""Launches so many times and returns the microseconds that one took."""

Param: TypeAlias = tuple[str, int]
"""Type and value of one parameter of the machine code."""


class Unavailable(Exception):  # noqa: N818 - it is no mistake: a contender cannot be measured here, and says why
    """A contender cannot be measured on this machine."""


@dataclass(frozen=True, slots=True)
class LaunchedImage:
    """The machine code of a case, and how to launch it."""

    code: bytes
    launch: Launch

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.launch.num_warps


@dataclass(frozen=True, slots=True)
class Stage:
    """One case, set up."""

    case: Case
    bundle: Bundle
    """One file, for this device."""
    values: Mapping[str, Any]
    """Each argument by name: tensors and ints."""
    addresses: Mapping[str, int]
    """Where the tensors lie."""
    device: int
    stream: int
    """The framework's current stream: its handle."""
    folder: Path
    """For files that a contender wants to read."""
    clear: Callable[[], None]
    """Forgets what was written."""
    synchronize: Callable[[], None]
    """Waits until everything launched is done."""
    correct: Callable[[], bool]
    """Whether the kernel wrote what it is to write."""

    @property
    def names(self) -> dict[str, Any]:
        """What the measured statements see."""
        return {**self.values, "kernel": self.bundle.kernel(self.case.kernel), "grid": (1,)}

    def image(self) -> LaunchedImage:
        """Read the image of the variant that the call runs."""
        (file,) = self.bundle.files
        row = self.bundle.kernel(self.case.kernel).explain(*self.values.values()).row
        if row is None:
            raise Unavailable(f"no variant of {file.path} serves the call")
        table = file.table(self.case.kernel)
        image = file.image(self.case.kernel, table.columns["image"][row])
        return LaunchedImage(image, table.launches[table.columns["launch"][row]])

    def params(self, launch: Launch) -> Iterator[Param]:
        """List what the machine code takes; scratch memory, which it does not use, is null."""
        known = {**self.case.numbers, **self.addresses}
        for slot in launch.layout:
            yield slot.type, known.get(slot.source, 0)


def timed(statement: str, names: Mapping[str, Any]) -> Timer:
    """Time a statement in a loop of its own, garbage collection off, with no call around it."""
    timer = timeit.Timer(statement, globals=dict(names))
    return lambda launches: timer.timeit(launches) * 1e6 / launches
