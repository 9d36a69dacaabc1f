"""A launch waits for the work that makes its data, whatever the arguments are, and is part of a graph that is captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit import runtime  # noqa: E402
from torch import Tensor  # noqa: E402


class WithPointer:
    """A tensor as torch before 2.10 offered it: no exchange API."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.dtype, self.device = tensor, tensor.dtype, tensor.device

    def data_ptr(self) -> int:
        return self.tensor.data_ptr()


class WithInterface:
    """An array whose interface says nothing of streams."""

    def __init__(self, tensor: Tensor, **more: Any) -> None:
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__ | more


def reinterpreted(tensor: Tensor) -> Any:
    triton = pytest.importorskip("triton")
    return triton.reinterpret(tensor.view(torch.int32), triton.language.float32)


KINDS: dict[str, Callable[[Tensor], Any]] = {
    "a tensor": lambda tensor: tensor,
    "a parameter": torch.nn.Parameter,
    "an address": lambda tensor: tensor.data_ptr(),
    "data_ptr": WithPointer,
    "an array interface": WithInterface,
    "an array interface that is ready": lambda tensor: WithInterface(tensor, version=3, stream=None),
    "Triton's wrapper": reinterpreted,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_launch_comes_after_the_work_of_the_current_stream(kernels, kind):
    side = torch.cuda.Stream()
    x, out = torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda")
    as_argument, copy = KINDS[kind], kernels("constant")
    copy[1,](as_argument(x), as_argument(out))
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        x.fill_(3)
        copy[1,](as_argument(x), as_argument(out))
        seen = out.clone()
    side.synchronize()
    assert seen.item() == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_launch_is_captured_with_the_current_stream(kernels, kind):
    x, out = torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda")
    as_argument, copy = KINDS[kind], kernels("constant")
    copy[1,](as_argument(x), as_argument(out))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        copy[1,](as_argument(x), as_argument(out))
    x.fill_(5)
    graph.replay()
    torch.cuda.synchronize()
    assert out.item() == 5


def test_an_array_is_launched_on_the_stream_that_it_names(kernels):
    side = torch.cuda.Stream()
    x, out = torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda")
    copy = kernels("constant")
    copy[1,](x, out)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        x.fill_(3)
    copy[1,](*(WithInterface(tensor, version=3, stream=side.cuda_stream) for tensor in (x, out)))
    side.synchronize()
    assert out.item() == 3


def test_tensors_that_the_driver_places_are_launched_where_they_lie(kernels):
    x = torch.ones(1, device="cuda")
    out = torch.zeros(1, device="cuda")
    kernels("constant")[1,](WithInterface(x), WithInterface(out), stream=torch.cuda.current_stream())
    assert out.item() == 1
    with pytest.raises(runtime.ArgumentError, match="expected a stream"):
        kernels("constant")[1,](x, out, stream="main")
