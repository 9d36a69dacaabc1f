"""torch.autocast("cuda") on a simulated GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from nojit.runtime.recording.fake.machine import gpu  # noqa: E402 - after the check for torch


@pytest.fixture(autouse=True)
def _machine():
    with gpu("sm_90"):
        yield


def wide():
    return torch.ones(4, 4, device="cuda")


def half():
    return torch.ones(4, 4, device="cuda", dtype=torch.float16)


# https://docs.pytorch.org/docs/stable/amp.html, "CUDA Op-Specific Behavior"
@pytest.mark.parametrize(
    ("compute", "dtype"),
    [
        (lambda: wide() @ wide(), torch.float16),
        (lambda: torch.nn.functional.linear(wide(), wide()), torch.float16),
        (
            lambda: torch.nn.functional.scaled_dot_product_attention(wide()[None], wide()[None], wide()[None]),
            torch.float16,
        ),
        (lambda: torch.einsum("ij,jk->ik", wide(), wide()), torch.float16),
        (lambda: half().exp(), torch.float32),
        (lambda: half().softmax(-1), torch.float32),
        (lambda: half().softmax(-1, dtype=torch.float16), torch.float16),
        (lambda: torch.nn.functional.layer_norm(half(), [4]), torch.float32),
        (lambda: half().sum(), torch.float32),
        (lambda: half().norm(), torch.float32),
        (lambda: torch.nn.functional.mse_loss(half(), half()), torch.float32),
        (lambda: torch.addcmul(half(), wide(), half()), torch.float32),
        (lambda: half() + half(), torch.float16),
        (lambda: wide().double() @ wide().double(), torch.float64),
    ],
)
def test_operators_cast_as_on_a_gpu(compute, dtype):
    with torch.autocast("cuda", dtype=torch.float16):
        assert compute().dtype == dtype


def test_tensors_of_the_cpu_are_not_cast():
    with torch.autocast("cuda", dtype=torch.float16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_gradients_have_the_dtype_of_the_parameters():
    layer = torch.nn.Linear(4, 4).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = layer(wide()).sum()
    loss.backward()
    assert layer.weight.grad.dtype == torch.float32


def test_custom_functions_get_cast_inputs():
    found = []

    class Look(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, x):
            found.append((x.dtype, torch.is_autocast_enabled("cuda")))
            return x.clone()

    with torch.autocast("cuda", dtype=torch.bfloat16):
        Look.apply(half())
    assert found == [(torch.float32, False)]


def test_a_loss_that_is_unsafe_is_refused_as_on_a_gpu():
    with torch.autocast("cuda", dtype=torch.float16), pytest.raises(RuntimeError, match="unsafe to autocast"):
        torch.nn.functional.binary_cross_entropy(wide(), wide())
