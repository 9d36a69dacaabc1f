"""Pinned host memory is passed as Triton passes it, whichever thread calls."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit import runtime  # noqa: E402

from tests.gpu.launch import kernel as source  # noqa: E402


def pinned(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32).pin_memory()


def test_kernels_read_and_write_pinned_memory(kernels):
    for launch in (kernels("constant"), source.constant_kernel):
        x, out = pinned(3.5), pinned(0.0)
        launch[1,](x, out)
        torch.cuda.synchronize()
        assert out.tolist() == [3.5]


def test_a_thread_without_a_context_may_pass_pinned_memory(kernels):
    x, out = pinned(4.5), pinned(0.0)
    thread = threading.Thread(target=lambda: kernels("constant")[1,](x, out))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert out.tolist() == [4.5]


def test_pinned_memory_lies_beside_tensors_of_a_device(kernels):
    x, out = pinned(5.5), torch.zeros(1, device="cuda")
    kernels("constant")[1,](x, out)
    assert out.tolist() == [5.5]


def test_host_memory_that_is_not_pinned_is_refused(kernels):
    with pytest.raises(runtime.ArgumentError, match="in host memory that is not pinned - at argument x_ptr"):
        kernels("constant")[1,](torch.zeros(1), torch.zeros(1, device="cuda"))
