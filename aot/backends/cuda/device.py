"""A simulated GPU, the *device*, that answers the queries of kernel sources during their import.

A source may choose its kernels by the current GPU. In the process that imports a source, the build's target replaces
the machine's GPU: Triton's driver, torch and NVML report the target. torch and NVML need not be installed: an import
hook patches them when a source imports them. Properties that differ between GPUs of an arch, for example the number of
multiprocessors, are those of a common GPU of the arch.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from nojit.aot.backends.cuda.limits import shared_bytes_max
from nojit.runtime.errors import shown
from nojit.runtime.target import arch_number

__all__ = ["Common", "Device", "common_of", "driver_of", "install"]

_MIB, _GIB = 1 << 20, 1 << 30
_WARP, _REGISTERS, _BLOCK_THREADS = 32, 65536, 1024
# shared memory of a block that does not opt in to more
_SHARED_BYTES = 48 * 1024
# maximum threads of a multiprocessor; 1536 for other archs. Source: CUDA programming guide, "technical specifications
# per compute capability"
_SM_THREADS = {75: 1024, 80: 2048, 90: 2048, 100: 2048, 103: 2048}


class Common(NamedTuple):
    """Properties of a common GPU of an arch, from NVIDIA's data sheets."""

    name: str
    multiprocessors: int
    memory_gib: int
    l2_mib: int
    clock_mhz: int
    memory_mhz: int
    bus_bits: int
    integrated: bool = False


_COMMON = {
    75: Common("Tesla T4", 40, 16, 4, 1590, 5001, 256),
    80: Common("NVIDIA A100-SXM4-80GB", 108, 80, 40, 1410, 1593, 5120),
    86: Common("NVIDIA A10", 72, 24, 6, 1695, 6251, 384),
    87: Common("Orin", 16, 64, 4, 1300, 3200, 256, integrated=True),
    89: Common("NVIDIA L40S", 142, 48, 96, 2520, 9001, 384),
    90: Common("NVIDIA H100 80GB HBM3", 132, 80, 50, 1980, 2619, 5120),
    100: Common("NVIDIA B200", 148, 180, 126, 1965, 3996, 8192),
    101: Common("NVIDIA Thor", 20, 128, 32, 1575, 4266, 256, integrated=True),
    103: Common("NVIDIA B300", 148, 270, 126, 1965, 3996, 8192),
    110: Common("NVIDIA Thor", 20, 128, 32, 1575, 4266, 256, integrated=True),
    120: Common("NVIDIA RTX PRO 6000 Blackwell Server Edition", 188, 96, 128, 2430, 14001, 512),
    121: Common("NVIDIA GB10", 48, 120, 24, 2418, 4266, 256, integrated=True),
}


def common_of(arch: str) -> Common:
    """Return the properties of a common GPU of an arch, or of the nearest older arch in this module's table."""
    number = arch_number(arch)
    return _COMMON[max((known for known in _COMMON if known <= number), default=min(_COMMON))]


class Device:
    """A simulated GPU of the build's target; it records the queries that sources make.

    Args:
        arch: arch of the target. Assign another arch to simulate the next target.
        cuda: CUDA version of the toolkit that assembles for it, ``13.1``. A torch that was built without CUDA reports
            it.

    Attributes:
        asked: each query with its last answer, in the order of the queries.
        by_arch: queries whose answer depends on the arch.
        by_device: queries whose answer differs between devices of one arch.
    """

    def __init__(self, arch: str, cuda: str) -> None:
        self.arch = arch
        self.cuda = cuda
        self.asked: dict[str, Any] = {}
        self.by_arch: set[str] = set()
        self.by_device: set[str] = set()

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, (9, 0)."""
        return divmod(arch_number(self.arch), 10)

    @property
    def common(self) -> Common:
        """Properties of a common GPU of the current arch."""
        return common_of(self.arch)

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


def _shared_bytes(arch: str) -> int:
    # 99 KiB: the least of every known arch from 8.0 on
    return shared_bytes_max(arch) or 99 * 1024


def _index(device: Any) -> None:
    """Raise for any device except device 0, the only one that is simulated."""
    kind, _, index = str(device).rpartition(":")
    if f"{kind}{index}" not in ("None", "0", "cuda", "cuda0") and device != 0:
        raise AssertionError(f"expected device 0, the only CUDA device of a target, got {device}")


# -- Triton ----------------------------------------------------------------------------------------------------------


class _DriverProperties(dict[str, Any]):
    """Properties of the simulated GPU in Triton's format; it records each property that is read."""

    def __init__(self, device: Device) -> None:
        self._device = device
        common, shared = device.common, _shared_bytes(device.arch)
        super().__init__(
            max_shared_mem=shared,
            max_num_regs=_REGISTERS,
            multiprocessor_count=common.multiprocessors,
            warpSize=_WARP,
            sm_clock_rate=common.clock_mhz * 1000,
            mem_clock_rate=common.memory_mhz * 1000,
            mem_bus_width=common.bus_bits,
        )

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        told = (
            self._device.of_arch if name in ("max_shared_mem", "max_num_regs", "warpSize") else self._device.of_device
        )
        return told(f"driver.active.utils.get_device_properties()[{name!r}]", value)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


class _Utils:
    """Replacement for the C part of Triton's driver."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def get_device_properties(self, device: int) -> dict[str, Any]:
        """Return the properties of the simulated GPU, in Triton's format."""
        _index(device)
        return _DriverProperties(self._device)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"expected no launch while a source is imported or compiled, got {name}")


def driver_of(device: Device, base: type[Any], target: Callable[[], Any]) -> Any:
    """Return a driver object for Triton that reports the simulated GPU.

    Args:
        device: the simulated GPU.
        base: Triton's driver class for CUDA.
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
            self.set_current_device = _index

        @staticmethod
        def get_current_stream(_device: int = 0) -> Any:
            raise RuntimeError("expected no launch while a source is imported or compiled")

        @staticmethod
        def is_active() -> bool:
            return True

        def get_current_target(self) -> Any:
            return device.of_arch("driver.active.get_current_target()", target())

        def get_active_torch_device(self) -> Any:
            import torch  # noqa: PLC0415 - as Triton's own driver does

            return torch.device("cuda", 0)

    return TargetDriver()


# -- torch -----------------------------------------------------------------------------------------------------------


class _TorchProperties:
    """Properties of the simulated GPU in torch's format; it records each property that is read."""

    def __init__(self, device: Device) -> None:
        common, (major, minor), shared = device.common, device.capability, _shared_bytes(device.arch)
        self._device = device
        self._of_arch = {
            "major": major,
            "minor": minor,
            "warp_size": _WARP,
            "regs_per_multiprocessor": _REGISTERS,
            "max_threads_per_block": _BLOCK_THREADS,
            "max_threads_per_multi_processor": _SM_THREADS.get(arch_number(device.arch), 1536),
            "shared_memory_per_block": _SHARED_BYTES,
            "shared_memory_per_block_optin": shared,
            # from 8.0 on, the system reserves 1 KiB for each block
            "shared_memory_per_multiprocessor": shared + (1024 if major > 7 else 0),
        }
        self._of_device = {
            "name": common.name,
            "gcnArchName": common.name,
            "multi_processor_count": common.multiprocessors,
            "total_memory": common.memory_gib * _GIB,
            "L2_cache_size": common.l2_mib * _MIB,
            "clock_rate": common.clock_mhz * 1000,
            "memory_clock_rate": common.memory_mhz * 1000,
            "memory_bus_width": common.bus_bits,
            "is_integrated": int(common.integrated),
            "is_multi_gpu_board": 0,
        }

    def __getattr__(self, name: str) -> Any:
        question = f"torch.cuda.get_device_properties().{name}"
        if name in self.__dict__.get("_of_arch", ()):
            return self._device.of_arch(question, self._of_arch[name])
        if name in self.__dict__.get("_of_device", ()):
            return self._device.of_device(question, self._of_device[name])
        raise AttributeError(f"a device of a target has no {name}")


def _answer_for_torch(torch: ModuleType, device: Device) -> None:
    def of_arch(question: str, answer: Callable[[], Any], of: Any = None) -> Any:
        _index(of)
        return device.of_arch(f"torch.cuda.{question}()", answer())

    def get_device_name(of: Any = None) -> Any:
        _index(of)
        return device.of_device("torch.cuda.get_device_name()", device.common.name)

    def get_device_properties(of: Any = None) -> _TorchProperties:
        _index(of)
        return _TorchProperties(device)

    _put_all(
        torch.cuda,
        {
            "is_available": functools.partial(device.always, "torch.cuda.is_available()", True),
            "device_count": functools.partial(device.always, "torch.cuda.device_count()", 1),
            "current_device": functools.partial(device.always, "torch.cuda.current_device()", 0),
            "get_device_capability": functools.partial(of_arch, "get_device_capability", lambda: device.capability),
            "get_arch_list": functools.partial(of_arch, "get_arch_list", lambda: [device.arch]),
            "get_device_name": get_device_name,
            "get_device_properties": get_device_properties,
            "set_device": _index,
            "_exchange_device": lambda index: min(index, 0),
            "_maybe_exchange_device": lambda index: min(index, 0),
        },
    )
    # older versions of torch lack it
    _put_all(
        getattr(torch, "accelerator", None),
        {
            "is_available": functools.partial(device.always, "torch.accelerator.is_available()", True),
            "device_count": functools.partial(device.always, "torch.accelerator.device_count()", 1),
            "current_accelerator": lambda check_available=False: torch.device("cuda"),  # noqa: ARG005
            "current_device_index": lambda: 0,
            "current_device_idx": lambda: 0,
        },
    )
    _put_all(getattr(torch, "xpu", None), {"is_available": lambda: False, "device_count": lambda: 0})
    _put_all(torch.backends.cuda, {"is_built": lambda: True})
    version: Any = torch.version
    version.cuda, version.hip = version.cuda or device.cuda, None


def _put_all(module: Any, functions: Mapping[str, Callable[..., Any]]) -> None:
    for name, function in functions.items():
        _put(module, name, function)


def _put(module: Any, name: str, function: Callable[..., Any]) -> None:
    """Replace a function of a module, if the module has it."""
    own = getattr(module, name, None)
    if own is not None:

        @functools.wraps(own)
        def told(*args: Any, **named: Any) -> Any:
            return function(*args, **named)

        setattr(module, name, told)


# -- NVML ------------------------------------------------------------------------------------------------------------


def _answer_for_nvml(nvml: ModuleType, device: Device) -> None:
    handle = SimpleNamespace(index=0)

    def by_index(index: int) -> Any:
        if index:
            raise nvml.NVMLError(2)
        return handle

    def memory(_handle: Any, version: Any = None) -> Any:  # noqa: ARG001 - of the structure
        total = device.of_device("nvmlDeviceGetMemoryInfo().total", device.common.memory_gib * _GIB)
        return SimpleNamespace(total=total, free=total, used=0, reserved=0)

    numbers = [int(part) for part in re.findall(r"\d+", device.cuda)[:2]]
    answers: dict[str, Callable[..., Any]] = {
        "nvmlInit": lambda: None,
        "nvmlInitWithFlags": lambda flags: None,  # noqa: ARG005
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: device.always("nvmlDeviceGetCount()", 1),
        "nvmlDeviceGetHandleByIndex": by_index,
        "nvmlDeviceGetIndex": lambda of: of.index,
        "nvmlDeviceGetName": lambda of: device.of_device("nvmlDeviceGetName()", device.common.name),  # noqa: ARG005
        "nvmlDeviceGetUUID": lambda of: "GPU-00000000-0000-0000-0000-000000000000",  # noqa: ARG005
        "nvmlDeviceGetCudaComputeCapability": lambda of: device.of_arch(  # noqa: ARG005
            "nvmlDeviceGetCudaComputeCapability()", device.capability
        ),
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlSystemGetCudaDriverVersion": lambda: sum(
            number * scale for number, scale in zip(numbers, (1000, 10), strict=False)
        ),
    }
    _put_all(nvml, answers)


# -- hooks -----------------------------------------------------------------------------------------------------------


class _Hook(MetaPathFinder):
    """Import hook that patches torch and NVML when a source imports them, so that they report the simulated GPU."""

    def __init__(self, device: Device) -> None:
        self._device = device

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
                answer(module, self._device)

            spec.loader.exec_module = run_and_answer  # type: ignore[method-assign]
        return spec


def _answer_of(name: str) -> Callable[[ModuleType, Device], None] | None:
    if name == "torch":
        return _answer_for_torch
    # packages may vendor pynvml under another parent
    return _answer_for_nvml if name.rpartition(".")[2] == "pynvml" else None


def install(device: Device) -> None:
    """Make torch and NVML report a simulated GPU in this process, whether they are imported already or later."""
    # the variable applies to the machine's GPUs, not to the target
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    sys.meta_path.insert(0, _Hook(device))
    for name, module in list(sys.modules.items()):
        answer = _answer_of(name)
        if answer is not None:
            answer(module, device)
