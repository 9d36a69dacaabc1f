"""The fake driver as AMD's HIP runtime, in this process."""

from __future__ import annotations

import os
from pathlib import Path

from tests.fakecuda.driver import FakeCuda

__all__ = ["FakeHip"]

DEFAULT_RELEASE = 6040


class FakeHip(FakeCuda):
    """The fake ``libamdhip64.so``. A process has one driver, so tests run the runtime in a process of its own.

    Functions keep CUDA's names in `fail` and `calls`. Archs are numbers: 942 for gfx942; 9010 stands for gfx90a.

    Args:
        path: what `build.build_hip` built.
    """

    def environment(
        self,
        *capabilities: int,
        driver_version: int = DEFAULT_RELEASE,
        fail: tuple[tuple[str, int, int], ...] = (),
    ) -> dict[str, str]:
        """Make the environment of a subprocess that finds the fake instead of HIP.

        Args:
            capabilities: the arch of each device.
            driver_version: ROCm's release, 6040 for 6.4.
            fail: of (function, call number or -1, code).
        """
        found = super().environment(*(capabilities or (942, 942)), driver_version=driver_version, fail=fail)
        del found["NOJIT_LIBCUDA"]
        return found | {
            "NOJIT_LIBHIP": str(self.path),
            "PYTHONPATH": os.pathsep.join(("", str(Path(__file__).parents[2]))),
        }
