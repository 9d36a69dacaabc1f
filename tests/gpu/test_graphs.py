"""Graphs, streams, bound kernels, hooks and allocators on a real device."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit import runtime  # noqa: E402
from nojit.runtime.observe import hooks  # noqa: E402
from torch import Tensor  # noqa: E402

from tests.gpu.replay import same_bits  # noqa: E402

CAPABILITY = torch.cuda.get_device_capability()
BLOCK = 1024
# long enough that work on another stream would overtake it
CYCLES = 50_000_000


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def grid(n: int) -> tuple[int]:
    return (-(-n // BLOCK),)


def copy(kernels: Any, x: Tensor, out: Tensor, **named: Any) -> None:
    kernels("copy")[grid(x.numel())](x, out, x.numel(), BLOCK=BLOCK, **named)


def test_a_captured_launch_replays_with_what_memory_holds_then(kernels) -> None:
    x, out = random(100_000), torch.zeros(100_000, device="cuda")
    kernels("copy").preload()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        copy(kernels, x, out)
    assert not out.any(), "a capture runs nothing"
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert same_bits(out, x)


def test_a_first_launch_inside_a_capture_loads_and_is_captured(kernels) -> None:
    graph = torch.cuda.CUDAGraph()
    x, y = random(5000, dtype=torch.bfloat16), torch.zeros(5000, dtype=torch.bfloat16, device="cuda")
    with torch.cuda.graph(graph):
        copy(kernels, x, y)
    graph.replay()
    torch.cuda.synchronize()
    assert same_bits(x, y)


@pytest.mark.skipif(
    CAPABILITY < (9, 0), reason="needs scratch memory, which device-side descriptors take from sm_90 on"
)
def test_scratch_memory_lives_as_long_as_the_graph(kernels) -> None:
    rows, cols = 256, 512
    x, out = random(rows, cols), torch.zeros(rows, cols, device="cuda")
    kernel = kernels("device_descriptors")
    kernel.preload()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(4):
            kernel(x, out, rows, cols)
    hoard = []
    for round_ in range(5):
        # what would be handed the scratch memory, if it were not the graph's
        hoard.append(torch.full((1 << 20,), float("nan"), device="cuda"))
        x.fill_(round_)
        out.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert same_bits(out, x)


@pytest.mark.skipif(CAPABILITY < (9, 0), reason="needs tensor maps")
def test_descriptors_in_a_graph(kernels) -> None:
    x, out = random(128, 128, dtype=torch.float16), torch.zeros(128, 128, dtype=torch.float16, device="cuda")
    a, b = (runtime.TensorDescriptor.from_tensor(tensor, [64, 64]) for tensor in (x, out))
    kernels("copy_2d").preload()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels("copy_2d")[2, 2](a, b)
    del a, b
    gc.collect()
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert same_bits(out, x)


@pytest.mark.parametrize("how", ["current", "object", "handle"])
def test_streams(kernels, how) -> None:
    stream = torch.cuda.Stream()
    x, out = torch.zeros(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        x.fill_(3)
        if how == "current":
            copy(kernels, x, out)
    if how == "object":
        copy(kernels, x, out, stream=stream)
    elif how == "handle":
        copy(kernels, x, out, stream=stream.cuda_stream)
    stream.synchronize()
    assert (out == 3).all(), "it ran before what its stream had to do first"


def test_a_stream_that_is_not_torchs(kernels) -> None:
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    x, out = random(10_000), torch.zeros(10_000, device="cuda")
    torch.cuda.synchronize()
    copy(kernels, x, out, stream=stream.ptr)
    stream.synchronize()
    assert same_bits(x, out)


def test_arrays_of_another_framework(kernels) -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.random.standard_normal(10_000, dtype=cupy.float32)
    out = cupy.zeros_like(x)
    cupy.cuda.runtime.deviceSynchronize()
    copy_of = kernels("copy")[grid(10_000)]
    copy_of(x, out, 10_000, BLOCK=BLOCK)
    cupy.cuda.runtime.deviceSynchronize()
    assert (x == out).all()


def test_a_bound_kernel_makes_no_python_object(kernels) -> None:
    x, out = random(100_000), torch.zeros(100_000, device="cuda")
    launch = kernels("copy").bind(grid(100_000), BLOCK=BLOCK)
    n = x.numel()
    launch(x, out, n)
    gc.disable()
    try:
        before = sys.getallocatedblocks()
        for _ in range(1000):
            launch(x, out, n)
        after = sys.getallocatedblocks()
    finally:
        gc.enable()
    assert after - before <= 2, "the loop's own number apart"
    assert same_bits(out, x)


def test_parameters_and_subclasses(kernels) -> None:
    class Mine(torch.Tensor):
        pass

    x = torch.nn.Parameter(random(5000))
    out = torch.zeros(5000, device="cuda").as_subclass(Mine)
    copy(kernels, x, out)
    assert same_bits(out.as_subclass(torch.Tensor), x.detach())


@pytest.mark.skipif(
    CAPABILITY < (9, 0), reason="needs scratch memory, which device-side descriptors take from sm_90 on"
)
def test_an_allocator_of_ones_own_serves_any_stream(kernels) -> None:
    asked, kept = [], []

    def allocate(size: int, alignment: int, stream: int) -> Tensor:
        asked.append((size, alignment, stream))
        kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        return kept[-1]

    x, out = random(64, 128), torch.zeros(64, 128, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with pytest.raises(runtime.ArgumentError, match="current stream"):
        kernels("device_descriptors")(x, out, 64, 128, stream=stream)
    runtime.set_allocator(allocate)
    try:
        kernels("device_descriptors")(x, out, 64, 128, stream=stream)
    finally:
        runtime.set_allocator(None)
    stream.synchronize()
    assert same_bits(out, x)
    assert [(size % 128, alignment, at) for size, alignment, at in asked] == [(0, 128, stream.cuda_stream)]


def test_hooks_see_each_launch(kernels) -> None:
    seen: list[Any] = []
    x, out = random(5000), torch.zeros(5000, device="cuda")
    handle = hooks.add(seen.append, seen.append)
    ranges = hooks.add_ranges(torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop)
    try:
        copy(kernels, x, out)
    finally:
        hooks.remove(handle)
        hooks.remove(ranges)
    copy(kernels, x, out)
    assert [(info.kernel, info.grid, info.device) for info in seen] == [("copy", (5, 1, 1), x.device.index)] * 2
    assert seen[0].stream == torch.cuda.current_stream().cuda_stream


def test_proton_counts_launches(kernels, tmp_path) -> None:
    proton = pytest.importorskip("triton.profiler")
    triton = pytest.importorskip("triton")
    x, out = random(5000), torch.zeros(5000, device="cuda")
    copy(kernels, x, out)
    session = proton.start(str(tmp_path / "profile"), hook="triton")
    handle = hooks.add_triton(triton.knobs.runtime.launch_enter_hook, triton.knobs.runtime.launch_exit_hook)
    try:
        for _ in range(3):
            copy(kernels, x, out)
        torch.cuda.synchronize()
    finally:
        hooks.remove(handle)
        proton.finalize(session)
    assert '"copy"' in (tmp_path / "profile.hatchet").read_text()


def test_warmup_leaves_nothing_to_load(kernels) -> None:
    warmed = kernels("copy").warmup(torch.float64, torch.float64, 1000, BLOCK=BLOCK, grid=(1,))
    assert "copy" in warmed.variant
    x, out = random(5000, dtype=torch.float64), torch.zeros(5000, dtype=torch.float64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        copy(kernels, x, out)
    graph.replay()
    torch.cuda.synchronize()
    assert same_bits(out, x)
