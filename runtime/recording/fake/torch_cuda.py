"""torch.cuda beside tensors and streams: its state, random state and memory statistics, and the functions that it refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import torch
from nojit.runtime.recording.fake.answers import Gpu, index_of
from nojit.runtime.recording.fake.collectives import patch_collectives
from nojit.runtime.recording.fake.patches import Patches
from nojit.runtime.recording.fake.problems import Problems
from nojit.runtime.recording.fake.streams import kind_of, new_handle, patch_streams

__all__ = ["patch_torch"]

_TAKEN_BYTES: Final = 0


def patch_torch(gpu: Gpu, problems: Problems, patches: Patches) -> None:
    """Make torch.cuda work on simulated GPUs.

    Args:
        gpu: the simulated GPUs; `answers` already answers which there are.
        problems: what stops programs at features that a simulated GPU lacks.
        patches: what keeps torch's own functions until the simulation ends.
    """
    # a build of torch without CUDA lacks many of these names, and programs for GPUs use them all the same
    for name, value in _state().items():
        patches.put(torch.cuda, name, value)
    patch_streams(gpu, problems, patches)
    _patch_memory(gpu, patches)
    _patch_random(gpu, patches)
    _patch_refusals(problems, patches)
    _patch_inner(gpu, patches)
    patch_collectives(patches)


def _state() -> dict[str, Any]:
    return {
        "_lazy_init": lambda: None,
        "init": lambda: None,
        "is_initialized": lambda: True,
        "_is_compiled": lambda: True,
        "_initialized": True,
        "synchronize": lambda device=None: None,  # noqa: ARG005 - torch's signature
        "ipc_collect": lambda: None,
        "can_device_access_peer": lambda device, peer: device != peer,
        "is_current_stream_capturing": lambda: False,
        "_sleep": lambda cycles: None,  # noqa: ARG005 - torch's signature
    }


def _patch_memory(gpu: Gpu, patches: Patches) -> None:
    def mem_get_info(device: Any = None) -> tuple[int, int]:
        index_of(device, gpu)
        return gpu.common.memory_bytes - _TAKEN_BYTES, gpu.common.memory_bytes

    def nothing(*_args: Any, **_kwargs: Any) -> None:
        return None

    def zero(*_args: Any, **_kwargs: Any) -> int:
        return _TAKEN_BYTES

    answers: dict[str, Callable[..., Any]] = {
        "mem_get_info": mem_get_info,
        "memory_stats": lambda device=None: _Zeros(),  # noqa: ARG005 - torch's signature
        "memory_summary": lambda *_args, **_kwargs: "",
        "memory_snapshot": lambda *_args, **_kwargs: [],
    }
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        answers[name] = zero
    for name in (
        "empty_cache",
        "reset_peak_memory_stats",
        "reset_max_memory_allocated",
        "reset_accumulated_memory_stats",
        "set_per_process_memory_fraction",
    ):
        answers[name] = nothing
    for owner in (torch.cuda, torch.cuda.memory, getattr(torch, "accelerator", None)):
        patches.answer(owner, answers)


class _Zeros(dict[str, int]):
    """Statistics of an allocator that has allocated nothing."""

    def __missing__(self, key: str) -> int:
        return 0

    def get(self, key: str, default: Any = 0) -> Any:  # noqa: ARG002 - of dict
        return 0


class Generator(torch.Generator):  # type: ignore[misc] # a class of torch's
    """A random generator of a simulated GPU; what it draws is never read."""

    _index = 0

    @property
    def device(self) -> torch.device:
        """The GPU that the generator belongs to."""
        return torch.device("cuda", self._index)


class _Random:
    """The default generators of the simulated GPUs."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._own = torch.Generator
        self.generators = tuple(self.new(index) for index in range(gpu.count))

    def new(self, device: Any = "cpu") -> torch.Generator:
        """Return a generator of a device."""
        if str(device).partition(":")[0] != "cuda" and not isinstance(device, int):
            return self._own(device)
        generator = Generator()
        generator._index = index_of(device, self._gpu)  # noqa: SLF001 - a torch.Generator takes no other arguments
        return generator

    def of(self, device: Any = None) -> torch.Generator:
        """Return the default generator of a device."""
        return self.generators[index_of(device, self._gpu)]

    def manual_seed(self, seed: int) -> None:
        """Seed the generator of the current device."""
        self.of().manual_seed(int(seed))

    def manual_seed_all(self, seed: int) -> None:
        """Seed the generators of all devices."""
        for generator in self.generators:
            generator.manual_seed(int(seed))

    def seed_all(self) -> None:
        """Seed the generators of all devices with a random number."""
        self.manual_seed_all(self.of().seed())

    def state(self, device: Any = "cuda") -> torch.Tensor:
        """Return seed and offset of a Philox generator, 16 bytes."""
        seed = self.of(device).initial_seed()
        return torch.tensor([*seed.to_bytes(8, "little"), *bytes(8)], dtype=torch.uint8, device="cpu")

    def set_state(self, new_state: torch.Tensor, device: Any = "cuda") -> None:
        """Seed a device's generator with a state."""
        self.of(device).manual_seed(int.from_bytes(bytes(new_state[:8].tolist()), "little"))

    def states(self) -> list[torch.Tensor]:
        """Return the states of all devices."""
        return [self.state(index) for index in range(self._gpu.count)]

    def set_states(self, new_states: Sequence[torch.Tensor]) -> None:
        """Seed the generators of all devices with states."""
        for index, state in enumerate(new_states):
            self.set_state(state, index)


def _patch_random(gpu: Gpu, patches: Patches) -> None:
    random = _Random(gpu)
    answers: dict[str, Callable[..., Any]] = {
        "manual_seed": random.manual_seed,
        "manual_seed_all": random.manual_seed_all,
        "seed": lambda: random.manual_seed(random.of().seed()),
        "seed_all": random.seed_all,
        "initial_seed": lambda: random.of().initial_seed(),
        "get_rng_state": random.state,
        "set_rng_state": random.set_state,
        "get_rng_state_all": random.states,
        "set_rng_state_all": random.set_states,
    }
    for owner in (torch.cuda, torch.cuda.random):
        patches.answer(owner, answers)
    patches.put(torch.cuda, "default_generators", random.generators)
    patches.put(torch, "Generator", kind_of(torch.Generator, random.new))


def _patch_refusals(problems: Problems, patches: Patches) -> None:
    def refused(name: str, why: str) -> Callable[..., Any]:
        def stop(*_args: Any, **_kwargs: Any) -> NoReturn:
            problems.stop(f"{name}, {why}")

        return stop

    class Graph:
        """Refuses to exist."""

        def __init__(self, *_args: Any, **_kwargs: Any) -> None:
            problems.stop("torch.cuda.CUDAGraph, a capture of launches on the GPU")

    why = "a capture of launches on the GPU"
    patches.put(torch.cuda, "CUDAGraph", Graph)
    patches.put(torch.cuda, "graph", refused("torch.cuda.graph", why))
    patches.put(torch.cuda, "make_graphed_callables", refused("torch.cuda.make_graphed_callables", why))
    patches.put(torch.cuda, "graph_pool_handle", lambda: (0, new_handle()))
    # ranges are marks for a profiler
    nvtx: dict[str, Callable[..., Any]] = {
        "range_push": lambda *_args: 0,
        "range_pop": lambda: 0,
        "mark": lambda *_args: None,
    }
    patches.answer(torch.cuda.nvtx, {**nvtx, "range_start": lambda *_args: 0, "range_end": lambda *_args: None})


def _patch_inner(gpu: Gpu, patches: Patches) -> None:
    """Answer the functions of torch._C that other packages call directly."""
    inner: Any = torch._C  # noqa: SLF001 - they call it so

    def exchange(device: int) -> int:
        previous = gpu.current
        if device >= 0:
            gpu.current = index_of(device, gpu)
        return previous

    answers: dict[str, Callable[..., Any]] = {
        "_cuda_getDevice": lambda: gpu.current,
        "_cuda_setDevice": exchange,
        "_cuda_exchangeDevice": exchange,
        "_cuda_maybeExchangeDevice": exchange,
        "_cuda_getDeviceCount": lambda: gpu.count,
        "_cuda_isCurrentStreamCapturing": lambda: False,
        "_cuda_synchronize": lambda: None,
        "_cuda_isInBadFork": lambda: False,
        "_get_accelerator": lambda *_args: torch.device("cuda"),
    }
    for name, answer in answers.items():
        patches.put(inner, name, answer)
