"""Triton on simulated GPUs: launches are bound and specialized as always, then reported; nothing is compiled or run."""

from __future__ import annotations

import functools
import inspect
import operator
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import triton
from nojit.runtime.recording.fake.answers import DriverProperties, Gpu, index_of
from nojit.runtime.recording.fake.patches import Patches
from nojit.runtime.recording.fake.writes import forget_written
from nojit.runtime.target import arch_number
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaDriver
from triton.compiler import compiler
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

__all__ = ["Launch", "Launches", "OnLaunch", "Trials"]

_WARP: Final = 32
_DIMENSIONS: Final = 3
# CompiledKernel has them once it is loaded
_LOADED: Final = frozenset({"n_regs", "n_spills", "n_max_threads"})

Trials: TypeAlias = Literal["first", "all"]
"""The choice of autotuners, which time nothing: ``first`` takes the first config, ``all`` also launches each as a trial."""


class Launch(NamedTuple):
    """One launch, or one compile for a later launch."""

    function: Any
    """The `triton.JITFunction`."""
    arguments: Mapping[str, Any]
    """Value of each param by name, constexprs and defaults included."""
    specialization: tuple[Any, ...]
    """Triton's type and hint of each param, in order."""
    options: Mapping[str, Any]
    """Arguments that are no params, such as ``num_warps``, by name."""
    grid: tuple[int, int, int] | None
    """Programs in each dimension; None for a compile."""
    warmup: bool
    """Whether the program asked for a compile and no launch."""
    trial: bool
    """Whether an autotuner tries a config."""
    device: int
    """Number of the current device."""


OnLaunch: TypeAlias = Callable[[Launch], object]


class _Call:
    """A call of `JITFunction.run`, and what its binder returned."""

    bound: tuple[dict[str, Any], list[Any], dict[str, Any]] | None = None


class _Calls(threading.local):
    """The calls that this thread is in, the innermost last, and whether an autotuner tries a config."""

    def __init__(self) -> None:
        self.stack: list[_Call] = []
        self.trial = False


class Launches:
    """Triton's launches in this process, on simulated GPUs.

    Args:
        gpu: the simulated GPUs.
        on_launch: called for each launch and each warmup.
        trials: what autotuners do instead of timing.
        patches: what keeps Triton's own functions until the simulation ends.
    """

    def __init__(self, gpu: Gpu, on_launch: OnLaunch, trials: Trials, patches: Patches) -> None:
        self._gpu = gpu
        self._on_launch = on_launch
        self._trials = trials
        self._patches = patches
        self._calls = _Calls()
        self._isolated: set[Any] = set()

    def start(self) -> None:
        """Report launches from now on."""
        self._patch_driver()
        self._patch_jit()
        self._patch_autotuner()

    def stop(self) -> None:
        """Forget what the simulation cached. The caller undoes the patches."""
        self._isolated.clear()
        compiler.max_shared_mem.cache_clear()

    def _patch_driver(self) -> None:
        compiler.max_shared_mem.cache_clear()
        config = triton.runtime.driver
        fake = _driver(self._gpu, self)
        # set_active cannot put back that no driver was active yet
        self._patches.put(config, "_active", fake)
        self._patches.put(config, "_default", fake)

    # -- JIT functions -----------------------------------------------------------------------------------------------

    def _patch_jit(self) -> None:
        own_run, own_binder = JITFunction.run, JITFunction.create_binder

        @functools.wraps(own_run)
        def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            self._isolate(function, "device_caches", lambda: defaultdict(function.create_binder))
            call = _Call()
            self._calls.stack.append(call)
            try:
                kernel = own_run(function, *args, grid=grid, warmup=warmup, **kwargs)
            finally:
                self._calls.stack.pop()
            if warmup and kernel is not None and call.bound is not None:
                self.report(function, call.bound, None)
            return kernel

        @functools.wraps(own_binder)
        def create_binder(function: Any) -> Any:
            *rest, binder = own_binder(function)

            def bind(*args: Any, **kwargs: Any) -> Any:
                bound = binder(*args, **kwargs)
                if self._calls.stack:
                    self._calls.stack[-1].bound = bound
                return bound

            return (*rest, bind)

        hooked = set(inspect.signature(JITFunction._call_hook).parameters)  # noqa: SLF001 - as Triton's own compile does

        def compile_(  # noqa: PLR0917 - Triton's signature
            function: Any, key: Any, signature: Any, device: Any, constexprs: Any, options: Any, attrs: Any, warmup: Any
        ) -> Any:
            kernels, _, target, _, _ = function.device_caches[device]
            given = {
                "hook": knobs.runtime.jit_cache_hook,
                "key": key,
                "signature": signature,
                "target": target,
                "device": device,
                "constants": constexprs,
                "options": options,
                "configs": [attrs],
                "is_warmup": warmup,
            }
            # Triton 3.6 passes no target
            if function._call_hook(**{name: value for name, value in given.items() if name in hooked}):  # noqa: SLF001 - as above
                return None
            source = signature, constexprs, attrs
            kernels[key] = FakeKernel(self, function, source=source, target=target, options=options, bound=self.bound())
            return kernels[key]

        self._patches.put(JITFunction, "run", run)
        self._patches.put(JITFunction, "create_binder", create_binder)
        self._patches.put(JITFunction, "_do_compile", compile_)

    def _isolate(self, owner: Any, name: str, make: Callable[[], Any]) -> None:
        """Give an object a cache of its own for the time of the simulation."""
        if id(owner) not in self._isolated:
            self._isolated.add(id(owner))
            self._patches.put(owner, name, make())

    def bound(self) -> Any:
        """Return what the binder returned for the launch that this thread is in."""
        return self._calls.stack[-1].bound if self._calls.stack else None

    def report(self, function: Any, bound: tuple[Any, Any, Any], grid: Any) -> None:
        """Report a launch.

        Args:
            function: the JIT function.
            bound: its arguments by name, specialization and options, as its binder returns them.
            grid: programs in up to three dimensions; None for a warmup.
        """
        arguments, specialization, options = bound
        if grid is not None:
            forget_written(function, arguments)
        self._on_launch(
            Launch(
                function=function,
                arguments=dict(arguments),
                specialization=tuple(specialization),
                options=dict(options),
                grid=None if grid is None else _three(grid),
                warmup=grid is None,
                trial=self._calls.trial,
                device=self._gpu.current,
            )
        )

    # -- autotuners --------------------------------------------------------------------------------------------------

    def _patch_autotuner(self) -> None:
        own_run, own_bench = Autotuner.run, Autotuner._bench  # noqa: SLF001 - what times a config

        @functools.wraps(own_run)
        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            self._isolate(tuner, "cache", dict)
            return own_run(tuner, *args, **kwargs)

        def bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
            return own_bench(tuner, *args, config=config, **meta) if self._trials == "all" else _TIMES

        self._patches.put(Autotuner, "run", run)
        self._patches.put(Autotuner, "_bench", bench)
        self._patches.put(Autotuner, "do_bench", property(lambda _tuner: self.try_once))
        # cached times are another GPU's, and these times are none
        self._patches.put(Autotuner, "check_disk_cache", lambda _tuner, _key, _configs, bench_all: bench_all() or False)
        # a listener learns measured winners
        self._patches.put(knobs.autotuning, "listener", None)

    def try_once(self, kernel_call: Callable[[], Any], *_args: Any, **_kwargs: Any) -> list[float]:
        """Launch a config as a trial. Returns the same time for every config, so that the first one wins."""
        outer, self._calls.trial = self._calls.trial, True
        try:
            kernel_call()
        finally:
            self._calls.trial = outer
        return _TIMES


_TIMES: Final = [1.0, 1.0, 1.0]


def _three(grid: Any) -> tuple[int, int, int]:
    x, y, z = (*(operator.index(size) for size in grid), 1, 1)[:_DIMENSIONS]
    return x, y, z


class FakeKernel:
    """Stand-in for Triton's CompiledKernel. It compiles only when a program asks for what a compile finds out."""

    # a launch passes them on
    function = None
    packed_metadata = None

    def __init__(
        self, launches: Launches, function: Any, *, source: Any, target: Any, options: Any, bound: Any
    ) -> None:
        self._launches = launches
        self._function = function
        self._source = source
        self._target = target
        self._options = options
        self._bound = bound
        self._compiled: Any = None

    def result(self) -> FakeKernel:
        """Return itself, as a kernel that was compiled in another thread does."""
        return self

    @property
    def src(self) -> Any:
        """The source that a compile would take."""
        return self._function.ASTSource(self._function, *self._source)

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> None:
        """Return None: no hook of Triton sees the launch. A recorder replaces this function."""

    def run(self, *args: Any) -> None:
        """Report a launch; called by `JITFunction.run` with the grid's sizes first."""
        self._launches.report(self._function, self._launches.bound(), args[:_DIMENSIONS])

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, stream: Any = None) -> None:
            self.launch_metadata(grid, stream, *args)
            arguments, specialization, options = self._bound
            self._launches.report(
                self._function, (dict(zip(arguments, args, strict=False)), specialization, options), grid
            )

        return launch

    def _init_handles(self) -> None:
        self._kernel()._init_handles()  # noqa: SLF001 - programs call it for the registers

    def _kernel(self) -> Any:
        if self._compiled is None:
            self._compiled = self._function.compile(self.src, target=self._target, options=self._options.__dict__)
        return self._compiled

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        kernel = self._kernel()
        if name in _LOADED:
            kernel._init_handles()  # noqa: SLF001 - they are known once it is loaded
        return getattr(kernel, name)


# -- the driver ------------------------------------------------------------------------------------------------------


class _Utils:
    """Replacement for the C part of Triton's driver."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def get_device_properties(self, device: int) -> DriverProperties:
        """Return the properties of a simulated GPU, in Triton's format."""
        index_of(device, self._gpu)
        return DriverProperties(self._gpu)

    @staticmethod
    def load_binary(name: str, image: bytes, _shared_bytes: int, _device: int) -> tuple[Any, Any, int, int, int]:
        """Return module, function, registers, spilled registers and maximum threads of a kernel, read from its cubin."""
        from nojit.runtime.bundle.cubin import read_cubin

        (kernel,) = (each for each in read_cubin(image).kernels if each.symbol == name)
        limit = kernel.reqntid or kernel.max_threads
        threads = limit[0] * limit[1] * limit[2] if limit else 1024
        # without a module, Triton unloads nothing later
        return None, name, kernel.registers, kernel.stack_bytes // 4, threads

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"expected a function of Triton's driver that needs no GPU, got {name}")


def _driver(gpu: Gpu, launches: Launches) -> Any:
    import torch  # streams are torch's

    class Launcher:
        """Reports the launches of a kernel that the program compiled itself."""

        def __init__(self, source: Any, metadata: Any) -> None:
            self._source = source
            self._options = {name: getattr(metadata, name) for name in ("num_warps", "num_stages", "num_ctas")}

        def __call__(self, *args: Any) -> None:
            sizes, values = args[:_DIMENSIONS], args[9:]
            names = self._source.fn.arg_names
            bound = dict(zip(names, values, strict=False)), specialization_of(self._source), self._options
            launches.report(self._source.fn, bound, sizes)

    class FakeDriver(CudaDriver):  # type: ignore[misc] # a class of Triton's
        def __init__(self) -> None:
            # without super().__init__(), which looks for a GPU
            self.utils = _Utils(gpu)
            self.launcher_cls = Launcher
            self.get_device_capability = lambda _device=0: gpu.capability
            self.get_current_device = lambda: gpu.current
            self.get_current_stream = lambda device=None: torch.cuda.current_stream(device).cuda_stream
            self.set_current_device = torch.cuda.set_device

        @staticmethod
        def is_active() -> bool:
            return True

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", arch_number(gpu.arch), _WARP)

        def get_active_torch_device(self) -> Any:
            return torch.device("cuda", gpu.current)

        def get_device_interface(self) -> Any:
            return torch.cuda

        def get_benchmarker(self) -> Any:
            return launches.try_once

    return FakeDriver()


def specialization_of(source: Any) -> list[Any]:
    """Return type and hint of each param of a kernel that the program compiled itself, as a binder returns them."""
    found: list[Any] = []
    for place, (name, type_) in enumerate(source.signature.items()):
        if type_ == "constexpr":
            constants = {**source.constants}
            found.append((type_, constants.get((place,), constants.get(name))))
        else:
            attributes = dict(source.attrs.get((place,), ()))
            found.append((type_, "D" if attributes.get("tt.divisibility") == 16 else None))
    return found
