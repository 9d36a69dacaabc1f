"""A simulated GPU's answers to torch.cuda, torch.accelerator and NVML.

torch and NVML need not be installed: an import hook patches them when a program imports them.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

from nojit.runtime.recording.fake.patches import Patches
from nojit.runtime.recording.fake.properties import (
    Common,
    capability_of,
    common_of,
    driver_properties,
    torch_properties,
)
from nojit.runtime.target import arch_number, is_gfx

__all__ = ["DriverProperties", "Gpu", "TorchProperties", "answer_imports", "index_of"]


class Gpu:
    """Simulated GPUs of one arch, numbered from 0.

    A subclass may override `always`, `of_arch` and `of_device` to record the queries.

    Args:
        arch: arch of the GPUs, ``sm_90``.
        cuda: CUDA version, ``13.0``, or ROCm version of AMD's GPUs. A torch that was built without it reports it.
        count: number of GPUs.
    """

    def __init__(self, arch: str, cuda: str, count: int = 1) -> None:
        self.arch = arch
        self.cuda = cuda
        self.count = count
        self.current = 0
        """Number of the current device."""

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, (9, 0)."""
        return capability_of(self.arch)

    @property
    def common(self) -> Common:
        """Properties of a common GPU of the current arch."""
        return common_of(self.arch)

    def always(self, question: str, answer: Any) -> Any:  # noqa: ARG002 - a subclass records it
        """Return an answer that is the same for every arch.

        `question`: the query that the program made.
        """
        return answer

    def of_arch(self, question: str, answer: Any) -> Any:
        """Return an answer that is the same for every GPU of the arch.

        `question`: the query that the program made.
        """
        return self.always(question, answer)

    def of_device(self, question: str, answer: Any) -> Any:
        """Return an answer of the common GPU.

        `question`: the query that the program made.
        """
        return self.of_arch(question, answer)


def index_of(device: Any, gpu: Gpu) -> int:
    """Return the number of a device that a program named: a number, a string, a torch.device, or None.

    Raises:
        AssertionError: no simulated GPU has this number. torch raises the same class.
    """
    if device is None or device == -1:
        return gpu.current
    kind, _, index = str(device).rpartition(":")
    if (kind or "cuda") == "cuda" and index == "cuda":
        return gpu.current
    if kind in {"", "cuda"} and index.isdecimal() and int(index) < gpu.count:
        return int(index)
    expected = "device 0, the only CUDA device" if gpu.count == 1 else f"one of the CUDA devices 0 to {gpu.count - 1}"
    raise AssertionError(f"expected {expected} of a target, got {device}")


# -- Triton ----------------------------------------------------------------------------------------------------------


class DriverProperties(dict[str, Any]):
    """Properties of a simulated GPU in the format of Triton's driver."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._of_arch, of_device = driver_properties(gpu.arch)
        super().__init__(**self._of_arch, **of_device)

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        told = self._gpu.of_arch if name in self._of_arch else self._gpu.of_device
        return told(f"driver.active.utils.get_device_properties()[{name!r}]", value)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a property, or the default if the driver does not report it."""
        try:
            return self[name]
        except KeyError:
            return default


# -- torch -----------------------------------------------------------------------------------------------------------


class TorchProperties:
    """Properties of a simulated GPU in torch's format."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._of_arch, self._of_device = torch_properties(gpu.arch)

    def __getattr__(self, name: str) -> Any:
        question = f"torch.cuda.get_device_properties().{name}"
        if name in self.__dict__.get("_of_arch", ()):
            return self._gpu.of_arch(question, self._of_arch[name])
        if name in self.__dict__.get("_of_device", ()):
            return self._gpu.of_device(question, self._of_device[name])
        raise AttributeError(f"a device of a target has no {name}")


def _answer_torch(torch: ModuleType, gpu: Gpu, patches: Patches) -> None:
    def of_arch(question: str, answer: Callable[[], Any], of: Any = None) -> Any:
        index_of(of, gpu)
        return gpu.of_arch(f"torch.cuda.{question}()", answer())

    def get_device_name(of: Any = None) -> Any:
        index_of(of, gpu)
        return gpu.of_device("torch.cuda.get_device_name()", gpu.common.name)

    def get_device_properties(of: Any = None) -> TorchProperties:
        index_of(of, gpu)
        return TorchProperties(gpu)

    def set_device(of: Any) -> None:
        gpu.current = index_of(of, gpu)

    def exchange(index: int) -> int:
        # a negative number keeps the current device
        if index < 0:
            return -1
        previous = gpu.current
        set_device(index)
        return previous

    patches.answer(
        torch.cuda,
        {
            "is_available": functools.partial(gpu.always, "torch.cuda.is_available()", True),
            "device_count": lambda: gpu.always("torch.cuda.device_count()", gpu.count),
            "current_device": lambda: gpu.always("torch.cuda.current_device()", gpu.current),
            "get_device_capability": functools.partial(of_arch, "get_device_capability", lambda: gpu.capability),
            "get_arch_list": functools.partial(of_arch, "get_arch_list", lambda: [gpu.arch]),
            "get_device_name": get_device_name,
            "get_device_properties": get_device_properties,
            "set_device": set_device,
            "_exchange_device": exchange,
            "_maybe_exchange_device": exchange,
        },
    )
    # older versions of torch lack it
    patches.answer(
        getattr(torch, "accelerator", None),
        {
            "is_available": functools.partial(gpu.always, "torch.accelerator.is_available()", True),
            "device_count": lambda: gpu.always("torch.accelerator.device_count()", gpu.count),
            "current_accelerator": lambda check_available=False: torch.device("cuda"),  # noqa: ARG005
            "current_device_index": lambda: gpu.current,
            "current_device_idx": lambda: gpu.current,
            "set_device_index": set_device,
            "set_device_idx": set_device,
        },
    )
    patches.answer(getattr(torch, "xpu", None), {"is_available": lambda: False, "device_count": lambda: 0})
    patches.answer(torch.backends.cuda, {"is_built": lambda: True})
    version = torch.version
    gfx = is_gfx(arch_number(gpu.arch))
    patches.put(version, "cuda", None if gfx else version.cuda or gpu.cuda)
    patches.put(version, "hip", version.hip or gpu.cuda if gfx else None)


# -- NVML ------------------------------------------------------------------------------------------------------------


def _answer_nvml(nvml: ModuleType, gpu: Gpu, patches: Patches) -> None:
    def by_index(index: int) -> Any:
        if not 0 <= index < gpu.count:
            raise nvml.NVMLError(2)
        return SimpleNamespace(index=index)

    def memory(_handle: Any, version: Any = None) -> Any:  # noqa: ARG001 - of the structure
        total = gpu.of_device("nvmlDeviceGetMemoryInfo().total", gpu.common.memory_bytes)
        return SimpleNamespace(total=total, free=total, used=0, reserved=0)

    numbers = [int(part) for part in re.findall(r"\d+", gpu.cuda)[:2]]
    answers: dict[str, Callable[..., Any]] = {
        "nvmlInit": lambda: None,
        "nvmlInitWithFlags": lambda flags: None,  # noqa: ARG005
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: gpu.always("nvmlDeviceGetCount()", gpu.count),
        "nvmlDeviceGetHandleByIndex": by_index,
        "nvmlDeviceGetIndex": lambda of: of.index,
        "nvmlDeviceGetName": lambda of: gpu.of_device("nvmlDeviceGetName()", gpu.common.name),  # noqa: ARG005
        "nvmlDeviceGetUUID": lambda of: f"GPU-00000000-0000-0000-0000-{of.index:012}",
        "nvmlDeviceGetCudaComputeCapability": lambda of: gpu.of_arch(  # noqa: ARG005
            "nvmlDeviceGetCudaComputeCapability()", gpu.capability
        ),
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlSystemGetCudaDriverVersion": lambda: sum(
            number * scale for number, scale in zip(numbers, (1000, 10), strict=False)
        ),
    }
    patches.answer(nvml, answers)


# -- hooks -----------------------------------------------------------------------------------------------------------


class _Hook(MetaPathFinder):
    """Import hook that patches torch and NVML when a program imports them, so that they report the simulated GPU."""

    def __init__(self, gpu: Gpu, patches: Patches) -> None:
        self._gpu = gpu
        self._patches = patches

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of torch or NVML with a loader that patches the module after it has run; None for others."""
        answer = _answer_of(name)
        if answer is None:
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            run = spec.loader.exec_module

            def run_and_answer(module: ModuleType) -> None:
                run(module)
                answer(module, self._gpu, self._patches)

            spec.loader.exec_module = run_and_answer  # type: ignore[method-assign]
        return spec


def _answer_of(name: str) -> Callable[[ModuleType, Gpu, Patches], None] | None:
    if name == "torch":
        return _answer_torch
    # packages may vendor pynvml under another parent
    return _answer_nvml if name.rpartition(".")[2] == "pynvml" else None


def answer_imports(gpu: Gpu, patches: Patches) -> MetaPathFinder:
    """Make torch and NVML report a simulated GPU in this process, whether they are imported already or later.

    Returns the installed import hook. To end the simulation, remove it from `sys.meta_path` and undo the patches.
    """
    hook = _Hook(gpu, patches)
    sys.meta_path.insert(0, hook)
    for name, module in list(sys.modules.items()):
        answer = _answer_of(name)
        if answer is not None:
            answer(module, gpu, patches)
    return hook
