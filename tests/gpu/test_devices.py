"""Several devices in one process: each call runs where its tensors lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if torch.cuda.device_count() < 2:
    pytest.skip("needs two CUDA devices", allow_module_level=True)

from nojit import runtime  # noqa: E402
from nojit.kernels.b2b_gemm import b2b_gemm  # noqa: E402
from nojit.kernels.b2b_gemm import reference as of_pairs  # noqa: E402
from nojit.kernels.block_sparse import BlockLayout, block_sparse_softmax  # noqa: E402
from nojit.kernels.block_sparse import reference as of_blocks  # noqa: E402
from nojit.kernels.bmm import bmm  # noqa: E402
from nojit.kernels.conv import conv2d  # noqa: E402
from nojit.kernels.flash_attention import flash_attention  # noqa: E402
from nojit.kernels.gated_mm import gated_mm  # noqa: E402
from nojit.kernels.gated_mm import reference as of_gates  # noqa: E402
from nojit.kernels.grouped_mm import grouped_mm  # noqa: E402
from nojit.kernels.grouped_mm import reference as of_groups  # noqa: E402
from nojit.kernels.mixed_mm import reference as of_bytes  # noqa: E402
from nojit.kernels.mixed_mm import uint4x2_mixed_mm  # noqa: E402
from nojit.kernels.mm_plus_mm import mm_plus_mm  # noqa: E402
from nojit.kernels.norm import reference as of_rows  # noqa: E402
from nojit.kernels.norm import rms_norm  # noqa: E402
from nojit.kernels.pointwise import swiglu  # noqa: E402
from nojit.kernels.rotary import reference as of_positions  # noqa: E402
from nojit.kernels.rotary import rotary  # noqa: E402
from nojit.kernels.scaled_grouped_mm import reference as of_scaled_groups  # noqa: E402
from nojit.kernels.scaled_grouped_mm import scaled_grouped_mm  # noqa: E402
from nojit.kernels.scaled_mm import reference as of_scales  # noqa: E402
from nojit.kernels.scaled_mm import scaled_mm  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from tests.gpu.replay import same_bits  # noqa: E402
from tests.kernels.accuracy import assert_accurate  # noqa: E402

DEVICES = [torch.device("cuda", 0), torch.device("cuda", 1)]
OTHER = DEVICES[1]
BLOCK = 1024


def copy(kernels: Any, x: Any, out: Any, **named: Any) -> None:
    kernels("copy")[(-(-x.numel() // BLOCK),)](x, out, x.numel(), BLOCK=BLOCK, **named)


@pytest.mark.parametrize("there", DEVICES, ids=str)
@pytest.mark.parametrize("current", DEVICES, ids=str)
def test_the_tensors_say_where(kernels, there, current) -> None:
    with torch.cuda.device(current):
        x = torch.randn(100_000, device=there)
        out = torch.zeros_like(x)
        copy(kernels, x, out)
        assert torch.cuda.current_device() == current.index, "the caller's device was left as it was"
        torch.cuda.synchronize(there)
        assert same_bits(out, x)


def test_mixed_devices_are_refused(kernels) -> None:
    x, out = torch.zeros(1024, device=DEVICES[0]), torch.zeros(1024, device=OTHER)
    with pytest.raises(runtime.ArgumentError, match="expected cuda:0, where x_ptr lies"):
        copy(kernels, x, out)


def test_the_stream_is_the_devices_own(kernels) -> None:
    stream = torch.cuda.Stream(OTHER)
    x, out = torch.zeros(1 << 20, device=OTHER), torch.zeros(1 << 20, device=OTHER)
    torch.cuda.synchronize(OTHER)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(3)
    with torch.cuda.device(DEVICES[0]):
        copy(kernels, x, out, stream=stream)
    stream.synchronize()
    assert (out == 3).all()


@pytest.mark.parametrize("there", DEVICES, ids=str)
def test_limits_are_raised_on_each_device(kernels, there) -> None:
    a, b = (torch.randn(128, 128, device=there, dtype=torch.float16) for _ in range(2))
    out = torch.zeros_like(a)
    # shared memory beyond 48 KiB
    kernels("matmul").bind((1,), num_warps=8, num_stages=3)(a, b, out, 128, BLOCK=128, BLOCK_K=64)
    torch.testing.assert_close(out, a @ b, rtol=1e-2, atol=1e-2)


@pytest.mark.skipif(torch.cuda.get_device_capability() < (9, 0), reason="needs tensor maps")
@pytest.mark.parametrize("there", DEVICES, ids=str)
def test_descriptors_and_scratch_on_each_device(kernels, there) -> None:
    x = torch.randn(128, 128, device=there, dtype=torch.float16)
    out, again = torch.zeros_like(x), torch.zeros_like(x)
    a, b = (runtime.TensorDescriptor.from_tensor(tensor, [64, 64]) for tensor in (x, out))
    kernels("copy_2d")[2, 2](a, b)
    kernels("device_descriptors")(x, again, 128, 128)
    torch.cuda.synchronize(there)
    assert same_bits(out, x)
    assert same_bits(again, x)


def test_a_graph_on_the_other_device(kernels) -> None:
    with torch.cuda.device(OTHER):
        x, out = torch.randn(5000, device=OTHER), torch.zeros(5000, device=OTHER)
        kernels("copy").preload()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            copy(kernels, x, out)
        for _ in range(2):
            x.normal_()
            graph.replay()
            torch.cuda.synchronize(OTHER)
            assert same_bits(out, x)


FP8 = torch.float8_e4m3fn
LAYOUT = BlockLayout(torch.rand(2, 8, 9, generator=torch.Generator().manual_seed(1)) < 0.5, 32)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16)


def images() -> tuple[Tensor, Tensor]:
    x, w = normal(2, 64, 19, 23), normal(48, 64, 3, 3)
    return x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last)


def eight_bits() -> tuple[Tensor, ...]:
    return normal(208, 144).to(FP8), normal(320, 144).to(FP8).t(), torch.tensor(0.5), torch.tensor(2.0)


def scaled(a: Tensor, b: Tensor, *scales: Tensor) -> Tensor:
    """Multiply in fp64, or by torch's operator."""
    if a.dtype == torch.float64:
        return of_scales.scaled_mm(a, b, *scales)
    return torch._scaled_mm(a, b, *scales, out_dtype=torch.bfloat16)


def scaled_groups(a: Tensor, *others: Tensor) -> Tensor:
    """Multiply in fp64, and round if the operands are fp8."""
    exact = of_scaled_groups.scaled_grouped_mm(a, *others)
    return exact if a.dtype == torch.float64 else exact.bfloat16()


def four_bits() -> tuple[Tensor, Tensor]:
    return normal(40, 512), torch.randint(0, 256, (256, 304), dtype=torch.uint8)


# operands on the CPU, the operator, and the same in torch
OPERATORS: dict[str, tuple[Callable[[], tuple[Tensor, ...]], Callable[..., Tensor], Callable[..., Tensor]]] = {
    "bmm": (lambda: (normal(2, 208, 144), normal(2, 144, 320)), bmm, torch.bmm),
    "flash_attention": (
        lambda: (normal(2, 4, 203, 64), normal(2, 4, 257, 64), normal(2, 4, 257, 64)),
        flash_attention,
        functional.scaled_dot_product_attention,
    ),
    "block_sparse_softmax": (
        lambda: (normal(2, LAYOUT.nnz, 32, 32),),
        lambda x: block_sparse_softmax(x, LAYOUT),
        lambda x: of_blocks.block_sparse_softmax(x, LAYOUT),
    ),
    "swiglu": (
        lambda: (normal(100, 304), normal(100, 304)),
        swiglu,
        lambda gate, up: functional.silu(gate) * up,
    ),
    "rms_norm": (lambda: (normal(100, 1024),), rms_norm, of_rows.rms_norm),
    "rotary": (lambda: (normal(100, 4, 64), normal(128, 32), normal(128, 32)), rotary, of_positions.rotary),
    "scaled_mm": (eight_bits, scaled_mm, scaled),
    "scaled_grouped_mm": (
        lambda: (
            normal(208, 144).to(FP8),
            normal(4, 320, 144).to(FP8).mT,
            torch.rand(208),
            torch.rand(4, 320),
            torch.tensor([5, 5, 150, 208], dtype=torch.int32),
        ),
        scaled_grouped_mm,
        scaled_groups,
    ),
    "grouped_mm": (
        lambda: (normal(208, 144), normal(4, 320, 144).mT, torch.tensor([5, 5, 150, 208], dtype=torch.int32)),
        grouped_mm,
        of_groups.grouped_mm,
    ),
    "uint4x2_mixed_mm": (four_bits, uint4x2_mixed_mm, of_bytes.uint4x2_mixed_mm),
    "b2b_gemm": (lambda: (normal(1168, 64), normal(64, 80), normal(80, 48)), b2b_gemm, of_pairs.b2b_gemm),
    "conv2d": (images, lambda x, w: conv2d(x, w, padding=1), lambda x, w: functional.conv2d(x, w, padding=1)),
    "gated_mm": (lambda: (normal(208, 144), normal(144, 640)), gated_mm, of_gates.gated_mm),
    "mm_plus_mm": (
        lambda: (normal(208, 144), normal(144, 320), normal(208, 80), normal(80, 320)),
        mm_plus_mm,
        lambda a, b, c, d: a @ b + c @ d,
    ),
}


def widened(value: Tensor) -> Tensor:
    return value.double() if value.is_floating_point() else value


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_runs_on_each_device_in_turn(operators, name) -> None:
    """What the first device left, in memos, tables and loaded images, serves no call on the other."""
    make, ours, torchs = OPERATORS[name]
    current = torch.cuda.current_device()
    for there in (*DEVICES, DEVICES[0]):
        given = [value.to(there) for value in make()]
        for _ in range(2):
            # the second call of its kind is one that was checked
            result = ours(*given)
            assert result.device == there
            assert_accurate(result, torchs(*map(widened, given)), torchs(*given))
    assert torch.cuda.current_device() == current, "the caller's device was left as it was"
