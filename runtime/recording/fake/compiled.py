"""torch.compile on simulated GPUs: Dynamo and Inductor run as always, but nothing is compiled to machine code, timed or cached.

A function is compiled outside of the simulation's dispatch mode, since Inductor infers shapes with modes of its own. The
generated code runs inside of it, on tensors without memory. Inductor's autotuners take their first config.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import sys
import threading
from collections.abc import Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import torch
import triton
from nojit.runtime.base.wording import told
from nojit.runtime.errors import RecordingError
from nojit.runtime.recording.fake.addresses import address_of
from nojit.runtime.recording.fake.answers import Gpu
from nojit.runtime.recording.fake.attention import choose_attention
from nojit.runtime.recording.fake.fused_operators import keep_fused
from nojit.runtime.recording.fake.inference import INNER
from nojit.runtime.recording.fake.launches import Launches, specialization_of
from nojit.runtime.recording.fake.patches import Patches
from nojit.runtime.recording.fake.problems import Problems
from nojit.runtime.recording.forced_settings import SEEN, force_settings
from torch._dynamo import convert_frame
from torch._dynamo.device_interface import CudaInterface
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils import _triton
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

__all__ = ["Compiles"]

_DIMENSIONS: Final = 3
# of the addresses that generated kernels assume, in bytes
_ALIGNMENT: Final = 16
_TIME_MS: Final = 1.0
# what torch says of a tensor of a GPU outside of the simulation
_NO_KERNEL: Final = "from the 'CUDA' backend"
_GRAPHS: Final = "torch._inductor.cudagraph_trees"


class Compiles:
    """torch.compile in this process, on simulated GPUs.

    Args:
        gpu: the simulated GPUs.
        launches: is told of the launches of generated kernels.
        problems: what reports that a graph is another one than a GPU's.
        patches: what keeps torch's own functions until the simulation ends.
        mode: the dispatch mode that creates tensors on the simulated GPUs.
    """

    def __init__(
        self,
        gpu: Gpu,
        launches: Launches,
        problems: Problems,
        patches: Patches,
        mode: TorchDispatchMode,
    ) -> None:
        self._gpu = gpu
        self._mode = mode
        self._problems = problems
        self._launches = launches
        self._patches = patches
        self._settings = contextlib.ExitStack()
        self._local = threading.local()
        self._follows = False

    def start(self) -> None:
        """Let torch.compile compile for the simulated GPUs from now on."""
        # stop resets torch.compile, which imports this module
        self._settings.enter_context(_without_graphs())
        self._forget()
        self._patch_interface()
        self._patch_triton()
        # a graph of CUDA asks whether memory is pooled
        self._patches.put(torch._C, "_cuda_cudaCachingAllocator_is_enabled", lambda: True)  # noqa: SLF001 - Inductor calls it so
        self._settings.callback(choose_attention(self._gpu, self._problems.report))
        self._settings.callback(keep_fused("cuda", INNER))
        own, problems = convert_frame.CatchErrorsWrapper.__call__, self._problems

        def call(wrapper: Any, frame: Any, *rest: Any) -> Any:
            self._follow_inductor()
            try:
                with _disable_current_modes():
                    return own(wrapper, frame, *rest)
            except Exception as error:
                if _NO_KERNEL not in str(error):
                    raise
                problems.stop(f"a compile of {frame.f_code.co_qualname}, which makes tensors of a GPU")

        self._patches.put(convert_frame.CatchErrorsWrapper, "__call__", call)

    def stop(self) -> None:
        """Forget what the simulation cached. The caller undoes the patches."""
        try:
            torch.compiler.reset()
            if self._follows:
                from torch._inductor.async_compile import CompiledTritonKernels
                from torch._inductor.utils import clear_caches

                CompiledTritonKernels.cache_clear()
                clear_caches()
        finally:
            self._settings.close()
            self._forget()

    @staticmethod
    def _forget() -> None:
        """Let torch ask again which GPU there is."""
        for value in vars(_triton).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()

    def _patch_interface(self) -> None:
        """Give Inductor's names of functions of torch.cuda their answers: it may have kept torch's own."""
        for name in [*vars(CudaInterface)]:
            found = next((each for each in (name, f"_{name}") if hasattr(torch.cuda, each)), None)
            if not name.startswith("_") and found is not None:
                answer = getattr(torch.cuda, found)
                self._patches.put(CudaInterface, name, answer if isinstance(answer, type) else staticmethod(answer))
        raw = torch._C._cuda_getCurrentRawStream  # noqa: SLF001 - Inductor calls it so
        self._patches.put(CudaInterface, "get_raw_stream", staticmethod(raw))

    def _patch_triton(self) -> None:
        own = triton.compile

        def compile_(source: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(self._local, "generated", False):
                return GeneratedKernel(self._launches, source, kwargs.get("options") or {})
            return own(source, *args, **kwargs)

        self._patches.put(triton, "compile", compile_)

    def _follow_inductor(self) -> None:
        """Import Inductor at the first compile, and patch what compiles, times and caches.

        Raises:
            RecordingError: this torch lacks something that the simulation replaces.
        """
        if self._follows:
            return
        try:
            self._patch_inductor()
        except (AttributeError, ImportError, KeyError) as error:
            what = "expected torch 2.11 to 2.13, whose torch.compile nojit can simulate"
            raise RecordingError(what, got=f"torch {torch.__version__}, {told(error)}") from error
        self._follows = True

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        """Replace what torch must have."""
        getattr(owner, name)
        self._patches.put(owner, name, value)

    def _patch_inductor(self) -> None:
        import torch._functorch.config as functorch  # slow to import
        import torch._inductor.config as settings
        from torch._dynamo.variables.optimizer import OptimizerVariable
        from torch._inductor import scheduler, select_algorithm
        from torch._inductor.fx_passes import joint_graph, pad_mm
        from torch._inductor.runtime import benchmarking, hints, triton_heuristics

        hints.DeviceProperties.create.cache_clear()
        own = {**SEEN, "use_static_triton_launcher": False, **dict.fromkeys(_CACHES, False)}
        self._settings.callback(force_settings(settings, own))
        eager = {"enable_autograd_cache": False, "force_non_lazy_backward_lowering": True}
        self._settings.callback(force_settings(functorch, eager))
        self._patch_autotuner(triton_heuristics.CachingAutotuner)
        for name in ("benchmark", "benchmark_gpu", "benchmark_gpu_with_cuda_graph"):
            for owner in (benchmarking.Benchmarker, *benchmarking.Benchmarker.__subclasses__()):
                if name in vars(owner):
                    self._patches.put(owner, name, lambda *_args, **_kwargs: _TIME_MS)
        self._replace(select_algorithm.AlgorithmSelectorCache, "benchmark", _equal_times)
        # a template that no time favours is not fused either
        for name, time_ms in (("benchmark_fused_nodes", _TIME_MS), ("benchmark_codegened_module", math.inf)):
            self._replace(scheduler.Scheduler, name, functools.partial(_timed, time_ms))
        # whether padded matrices are faster
        self._replace(pad_mm, "get_cached_should_pad", lambda _key: False)
        self._patch_memory()
        self._patch_folding(joint_graph.UniformValueConstantFolder)
        self._patch_optimizers(OptimizerVariable)

    def _patch_optimizers(self, variable: Any) -> None:
        """Let Dynamo, which creates an optimizer's state while it traces, create it on the simulated GPUs."""
        own, mode = variable.call_method, self._mode

        def call_method(self: Any, tx: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            make = getattr(self.value, name, None) if name == "_init_group" else None
            if make is None:
                return own(self, tx, name, *args, **kwargs)

            def init_group(*args: Any, **kwargs: Any) -> Any:
                with mode:
                    return make(*args, **kwargs)

            replaced = Patches()
            replaced.put(self.value, name, init_group)
            try:
                return own(self, tx, name, *args, **kwargs)
            finally:
                replaced.undo()

        self._patches.put(variable, "call_method", call_method)

    def _patch_folding(self, folder: Any) -> None:
        """Compute constants of a graph on the CPU: a GPU would compute them at compile time."""
        own_init, own_deduce = folder.__init__, folder._deduce_value  # noqa: SLF001 - what computes them

        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            with _OnCpu():
                own_init(self, *args, **kwargs)

        def deduce(self: Any, node: Any) -> Any:
            with _OnCpu():
                value = own_deduce(self, node)
            return self.unknown_value if isinstance(value, FakeTensor) else value

        self._patches.put(folder, "__init__", init)
        self._patches.put(folder, "_deduce_value", deduce)

    def _patch_autotuner(self, tuner: Any) -> None:
        own = tuner._precompile_config  # noqa: SLF001 - no public function compiles a config

        def precompile(autotuner: Any, config: Any) -> Any:
            self._local.generated = autotuner.device_props.type == "cuda"
            try:
                return own(autotuner, config)
            finally:
                self._local.generated = False

        def take_first(autotuner: Any, *_args: Any, **_kwargs: Any) -> None:
            autotuner.launchers = autotuner.launchers[:1]
            autotuner.compile_results = autotuner.compile_results[:1]

        self._patches.put(tuner, "_precompile_config", precompile)
        self._replace(tuner, "autotune_to_one_config", take_first)
        for name in ("coordinate_descent_tuning", "_combo_sequential_autotune"):
            if hasattr(tuner, name):
                self._patches.put(tuner, name, lambda _autotuner, launcher, *_args, **_kwargs: launcher)

    def _patch_memory(self) -> None:
        """Replace what generated code calls of torch._C, which would ask for memory."""
        guards = torch._C._dynamo.guards  # noqa: SLF001 - generated code calls it so
        own_view = guards._reinterpret_tensor  # noqa: SLF001 - as above
        # torch 2.11 lacks some of them, and generates no call of those
        own_copy, own_check = (getattr(guards, name, None) for name in ("copy_if_misaligned", "assert_alignment"))

        def empty(size: Any, stride: Any, dtype: Any) -> Any:
            return torch.empty_strided(size, stride, dtype=dtype, device=torch.device("cuda", self._gpu.current))

        def view(base: Any, size: Any, stride: Any, offset: int = 0) -> Any:
            if not isinstance(base, FakeTensor):
                return own_view(base, size, stride, offset)
            return torch.as_strided(base, size, stride, base.storage_offset() + offset)

        def copy(tensor: Any) -> Any:
            if not isinstance(tensor, FakeTensor):
                return tensor if own_copy is None else own_copy(tensor)
            return tensor if address_of(tensor) % _ALIGNMENT == 0 else tensor.clone()

        def check(tensor: Any, *args: Any) -> Any:
            return True if own_check is None or isinstance(tensor, FakeTensor) else own_check(tensor, *args)

        for name, value in (
            ("_empty_strided_cuda", empty),
            ("_reinterpret_tensor", view),
            ("copy_if_misaligned", copy),
            ("assert_alignment", check),
        ):
            if hasattr(guards, name):
                self._patches.put(guards, name, value)


@contextlib.contextmanager
def _without_graphs() -> Iterator[None]:
    """Replace Inductor's module for CUDA graphs: a graph launches the same kernels, and nothing captures them."""
    stub, own = ModuleType(_GRAPHS), sys.modules.get(_GRAPHS)
    vars(stub).update(
        cudagraphify_impl=lambda model, *_args, **_kwargs: model,
        reset_cudagraph_trees=lambda: None,
        mark_step_begin=lambda: None,
        get_manager=lambda *_args, **_kwargs: None,
    )
    sys.modules[_GRAPHS] = stub
    try:
        yield
    finally:
        if own is None:
            sys.modules.pop(_GRAPHS, None)
        else:
            sys.modules[_GRAPHS] = own


def _timed(time_ms: float, *_args: Any, **_kwargs: Any) -> tuple[float, str]:
    """Return a time, and no path, of a kernel that Inductor would time."""
    return time_ms, ""


def _equal_times(_selector: Any, choices: Sequence[Any], *_args: Any, **_kwargs: Any) -> dict[Any, float]:
    """Return times with which Inductor takes the first choice, which is the library's in most cases."""
    return dict.fromkeys(choices, _TIME_MS)


class _OnCpu(TorchDispatchMode):  # type: ignore[misc] # a class of torch's
    """Runs operators of GPUs on the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = pytree.tree_map_only(torch.device, lambda _: torch.device("cpu"), (args, kwargs or {}))
        return func(*args, **kwargs)


_CACHES: Final = (
    "fx_graph_cache",
    "fx_graph_remote_cache",
    "autotune_local_cache",
    "autotune_remote_cache",
    "bundled_autotune_remote_cache",
)
"""Settings of caches that a machine with a GPU may share: a simulated GPU has no times."""


class GeneratedKernel:
    """Stand-in for Triton's CompiledKernel of a kernel that Inductor generated."""

    # a launch passes them on
    function = None
    packed_metadata = None
    shared = 0

    def __init__(self, launches: Launches, source: Any, options: Any) -> None:
        self._launches = launches
        self._options = {**options}
        self.src = source
        self.hash = hashlib.sha256(repr((source.hash(), sorted(options.items()))).encode()).hexdigest()
        self.num_warps = options.get("num_warps")
        self.metadata = SimpleNamespace(shared=0, num_warps=self.num_warps)

    def _init_handles(self) -> None:
        """Load nothing."""

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> None:
        """Return None: no hook of Triton sees the launch."""

    def run(self, *args: Any) -> None:
        """Report a launch; called by Inductor's launcher with the grid's sizes first, and all params at the end."""
        names = self.src.fn.arg_names
        bound = dict(zip(names, args[-len(names) :], strict=True)), specialization_of(self.src), self._options
        self._launches.report(self.src.fn, bound, args[:_DIMENSIONS])
