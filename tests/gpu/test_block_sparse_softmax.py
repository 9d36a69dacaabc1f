"""The block-sparse softmax on a device past 2^31 elements; its variants are those of `test_operators`."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.block_sparse import BlockLayout, block_sparse_softmax  # noqa: E402
from torch import Tensor  # noqa: E402

from tests.gpu.call import view  # noqa: E402
from tests.kernels.accuracy import assert_accurate  # noqa: E402

pytestmark = pytest.mark.usefixtures("operators")

BLOCK = 128


def rows_of(sparse: Tensor, cols: int) -> Tensor:
    """Return the last row of blocks of a layout that has them all, as a matrix of its own."""
    return sparse[0, -cols:].transpose(0, 1).reshape(BLOCK, cols * BLOCK)


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize(("rows", "cols"), [(520, 256), (8_320, 16)], ids=["read twice", "read once"])
def test_past_two_to_the_31_elements(rows, cols, offset):
    """Sparse tensors and a dense bias of that size, and their gradients: the last rows, where 32 bits would wrap."""
    layout = BlockLayout(torch.ones(1, rows, cols, dtype=torch.bool), BLOCK)
    x, grad = (view((1, layout.nnz, BLOCK, BLOCK), torch.bfloat16, seed, offset=offset) for seed in (1, 2))
    bias = view((1, 1, *layout.shape), torch.bfloat16, 3, offset=offset)
    last = [rows_of(x, cols), bias[0, 0, -BLOCK:].clone(), rows_of(grad, cols)]
    out = block_sparse_softmax(x.requires_grad_(), layout, scale=0.5, relative_position=bias.requires_grad_())
    found = [rows_of(out.detach(), cols)]
    dx, dbias = torch.autograd.grad(out, (x, bias), grad)
    found += [rows_of(dx, cols), dbias[0, 0, -BLOCK:].clone()]
    del out, dx, dbias, grad

    def softmax(dtype: torch.dtype) -> tuple[Tensor, ...]:
        scores, own, weights = (value.to(dtype, copy=True) for value in last)
        result = torch.softmax(scores.requires_grad_() * 0.5 + own.requires_grad_(), -1)
        return (result.detach(), *torch.autograd.grad(result, (scores, own), weights))

    exact, torchs = softmax(torch.float64), softmax(torch.bfloat16)
    for value, right, own, factor in zip(found, exact, torchs, (2.0, 3.0, 3.0), strict=True):
        assert_accurate(value, right, own, factor)
    with torch.no_grad():
        x, bias = x.detach(), bias.detach()
        assert block_sparse_softmax(x, layout, scale=0.5, relative_position=bias, inplace=True) is x
    assert_accurate(rows_of(x, cols), exact[0], torchs[0])
    torch.cuda.empty_cache()
