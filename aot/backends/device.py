"""A simulated GPU, the *device*, that answers the queries of kernel sources during their import.

A source may choose its kernels by the current GPU. In the process that imports a source, the build's target replaces
the machine's GPU: Triton's driver, torch and NVML report the target. Properties that differ between GPUs of an arch,
for example the number of multiprocessors, are those of a common GPU of the arch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any

from nojit.runtime.base.wording import shown
from nojit.runtime.recording.fake.answers import DriverProperties, Gpu, answer_imports, index_of
from nojit.runtime.recording.fake.patches import Patches

__all__ = ["Device", "driver_of", "install"]


class Device(Gpu):
    """A simulated GPU of the build's target; it records the queries that sources make.

    Args:
        arch: arch of the target. Assign another arch of the same vendor to simulate the next target.
        toolkit: version of CUDA or ROCm that assembles for it, ``13.1``. A torch that was built without it reports it.

    Attributes:
        asked: each query with its last answer, in the order of the queries.
        by_arch: queries whose answer depends on the arch.
        by_device: queries whose answer differs between devices of one arch.
    """

    def __init__(self, arch: str, toolkit: str) -> None:
        super().__init__(arch, toolkit)
        self.asked: dict[str, Any] = {}
        self.by_arch: set[str] = set()
        self.by_device: set[str] = set()

    def always(self, question: str, answer: Any) -> Any:
        """Record and return an answer that is the same for every target.

        `question`: the query that a kernel source made.
        """
        self.asked[question] = answer
        return answer

    def of_arch(self, question: str, answer: Any) -> Any:
        """Record and return an answer that is the same for every device of the arch.

        `question`: the query that a kernel source made.
        """
        self.by_arch.add(question)
        return self.always(question, answer)

    def of_device(self, question: str, answer: Any) -> Any:
        """Record and return an answer of the common device.

        `question`: the query that a kernel source made.
        """
        self.by_device.add(question)
        return self.of_arch(question, answer)

    def answers(self, questions: Collection[str] | None = None) -> list[str]:
        """Return recorded queries as ``query = answer``: all, or only those in `questions`."""
        asked = ((question, answer) for question, answer in self.asked.items())
        return [
            f"{question} = {shown(answer)}" for question, answer in asked if questions is None or question in questions
        ]


class _Utils:
    """Replacement for the C part of Triton's driver."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def get_device_properties(self, device: int) -> DriverProperties:
        """Return the properties of the simulated GPU, in Triton's format."""
        index_of(device, self._device)
        return DriverProperties(self._device)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"expected no launch while a source is imported or compiled, got {name}")


def driver_of(device: Device, base: type[Any], target: Callable[[], Any]) -> Any:
    """Return a driver object for Triton that reports the simulated GPU.

    Args:
        device: the simulated GPU.
        base: Triton's driver class of the vendor.
        target: function that returns Triton's target object for the current arch.
    """

    class TargetDriver(base):  # type: ignore[misc] # a class of Triton's
        def __init__(self) -> None:
            # without super().__init__(), which looks for a GPU
            self.utils = _Utils(device)
            self.get_device_capability = lambda _device=0: device.of_arch(
                "driver.active.get_device_capability()", device.capability
            )
            self.get_current_device = lambda: device.always("driver.active.get_current_device()", 0)
            self.set_current_device = lambda index: index_of(index, device)

        @staticmethod
        def get_current_stream(_device: int = 0) -> Any:
            raise RuntimeError("expected no launch while a source is imported or compiled")

        @staticmethod
        def is_active() -> bool:
            return True

        def get_current_target(self) -> Any:
            return device.of_arch("driver.active.get_current_target()", target())

        def get_active_torch_device(self) -> Any:
            import torch  # as Triton's own driver does

            return torch.device("cuda", 0)

    return TargetDriver()


def install(device: Device) -> None:
    """Make torch and NVML report a simulated GPU in this process, whether they are imported already or later."""
    # the variables apply to the machine's GPUs, not to the target
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        os.environ.pop(variable, None)
    answer_imports(device, Patches())
