"""Several devices in one process: each call runs where its tensors lie."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
if torch.cuda.device_count() < 2:
    pytest.skip("needs two CUDA devices", allow_module_level=True)

from nojit import runtime  # noqa: E402

from tests.gpu.replay import same_bits  # noqa: E402

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
