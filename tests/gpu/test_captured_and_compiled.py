"""Operators over blocks, sums of products and pointwise ones as programs use them: captured in graphs, and compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from nojit.kernels.block_sparse import BlockLayout, BlockSparseAttention, block_sparse_softmax, softmax_bwd  # noqa: E402
from nojit.kernels.compat import deepspeed  # noqa: E402
from nojit.kernels.gated_mm import gated_mm  # noqa: E402
from nojit.kernels.mm_plus_mm import mm_plus_mm  # noqa: E402
from nojit.kernels.pointwise import addcmul, gelu, mul, swiglu  # noqa: E402
from torch import Tensor  # noqa: E402

from tests.gpu.call import view  # noqa: E402
from tests.gpu.replay import same_bits  # noqa: E402

pytestmark = pytest.mark.usefixtures("operators")

BATCH, HEADS, SIDE, BLOCK = 2, 4, 12, 64


def some_blocks() -> BlockLayout:
    """Make a layout with an empty row and an empty column."""
    active = torch.rand(HEADS, SIDE, SIDE, generator=torch.Generator().manual_seed(5)) < 0.4
    active[0, 0], active[:, :, -1] = False, False
    return BlockLayout(active, BLOCK)


LAYOUT = some_blocks()
SPARSE = (BATCH, LAYOUT.nnz, BLOCK, BLOCK)
HEAD = (BATCH, HEADS, SIDE * BLOCK, 64)
ATTENTION = BlockSparseAttention(LAYOUT, is_causal=True)
DEEPSPEED = deepspeed.SparseSelfAttention(deepspeed.BigBirdSparsityConfig(HEADS, BLOCK), max_seq_length=1024)


@dataclass(frozen=True)
class Case:
    """A call."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    run: Callable[..., Tensor]
    differentiable: bool = True
    exact: bool = True
    """Whether a compiled call has the same bits: torch sums gradients of what broadcasts, and places what lies between operators."""

    def operands(self, *, gradients: bool) -> list[Tensor]:
        made = [view(shape, torch.bfloat16, seed) for seed, shape in enumerate(self.shapes)]
        return [value.requires_grad_(gradients) for value in made]


CASES = [
    Case(
        "softmax",
        (SPARSE, (BATCH, HEADS, *LAYOUT.shape)),
        lambda x, bias: block_sparse_softmax(x, LAYOUT, scale=0.5, relative_position=bias, is_causal=True),
    ),
    Case(
        "softmax, masked",
        (SPARSE,),
        lambda x: block_sparse_softmax(
            x,
            LAYOUT,
            key_padding_mask=x.new_zeros(BATCH, LAYOUT.shape[1]),
            attention_mask=torch.ones(LAYOUT.shape, dtype=torch.bool, device=x.device).tril(40),
            attention_mask_mode="mul",
        ),
    ),
    Case("softmax in place", (SPARSE,), lambda x: block_sparse_softmax(x * 2, LAYOUT, is_causal=True, inplace=True)),
    Case("softmax_bwd", (SPARSE, SPARSE), lambda y, dy: softmax_bwd(y, dy, 0.5, LAYOUT), differentiable=False),
    Case("BlockSparseAttention", (HEAD, HEAD, HEAD), ATTENTION, exact=False),
    Case("SparseSelfAttention", (HEAD, HEAD, HEAD), DEEPSPEED, exact=False),
    Case("mm_plus_mm", ((1040, 144), (144, 784), (1040, 80), (80, 784)), mm_plus_mm),
    Case("gated_mm", ((1040, 144), (144, 784)), gated_mm, exact=False),
    Case("gelu", ((1000, 4096),), gelu),
    Case("swiglu of chunks", ((1000, 4096),), lambda x: swiglu(*x.chunk(2, -1)), exact=False),
    Case("addcmul", ((1000, 256), (1000, 256), (256,)), lambda x, y, z: addcmul(x, y, z, value=0.5), exact=False),
    Case("mul by a column", ((1000, 4096), (1000, 1)), mul, exact=False),
]
DIFFERENTIABLE = [case for case in CASES if case.differentiable]


def named(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


def refill(values: list[Tensor]) -> None:
    """Write other numbers into what a graph reads."""
    with torch.no_grad():
        for value in values:
            value.normal_()


@named(CASES)
def test_a_captured_call_replays_with_what_memory_holds_then(case):
    given = case.operands(gradients=False)
    case.run(*given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = case.run(*given)
    for _ in range(2):
        refill(given)
        result.fill_(float("nan"))
        graph.replay()
        assert same_bits(result, case.run(*given))


@named(DIFFERENTIABLE)
def test_a_captured_pass_and_its_gradients_replay(case):
    given = case.operands(gradients=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    # one stream for both: autograd remembers that of the first use
    with torch.cuda.stream(side):
        grad = torch.randn_like(case.run(*given))
        torch.autograd.grad(case.run(*given), given, grad)
        with torch.cuda.graph(graph, stream=side):
            out = case.run(*given)
            gradients = torch.autograd.grad(out, given, grad)
    torch.cuda.current_stream().wait_stream(side)
    refill([*given, grad])
    graph.replay()
    anew = [value.detach().clone().requires_grad_() for value in given]
    expected = case.run(*anew)
    rights = (expected, *torch.autograd.grad(expected, anew, grad))
    for value, right in zip((out, *gradients), rights, strict=True):
        assert same_bits(value.detach(), right.detach())


def test_a_captured_softmax_writes_over_its_operand():
    (x,) = CASES[0].operands(gradients=False)[:1]
    block_sparse_softmax(x.clone(), LAYOUT, is_causal=True, inplace=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert block_sparse_softmax(x, LAYOUT, is_causal=True, inplace=True) is x
    for _ in range(2):
        x.normal_()
        expected = block_sparse_softmax(x, LAYOUT, is_causal=True)
        graph.replay()
        assert same_bits(x, expected)


# torch's own, where it traces an autograd function that writes in place
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@named(CASES)
def test_compiled_with_inductor(case):
    given = case.operands(gradients=case.differentiable)
    expected = case.run(*given)
    result = torch.compile(case.run, fullgraph=True)(*given)
    found, rights = [result], [expected]
    if case.differentiable:
        grad = torch.randn_like(expected)
        found += torch.autograd.grad(result, given, grad)
        rights += torch.autograd.grad(expected, given, grad)
    for value, right in zip(found, rights, strict=True):
        if case.exact:
            assert same_bits(value.detach(), right.detach())
        else:
            torch.testing.assert_close(value, right)


# kernels of one's own


@pytest.fixture(scope="module")
def copied(kernels) -> Callable[..., None]:
    from nojit.torch import custom_op

    return custom_op("nojit_gpu_tests::copy", kernels("copy"), mutates_args=["out_ptr"])


def test_a_kernel_of_ones_own_is_compiled_whole(copied):
    def layer(x: Tensor) -> Tensor:
        doubled = x * 2
        out = torch.empty_like(doubled)
        copied(doubled, out, doubled.numel())
        copied(out, doubled, out.numel())
        return out + doubled

    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for count in (1000, 4096, 100_003):
        x = torch.randn(count, device="cuda")
        assert same_bits(compiled(x), 4 * x)
        assert same_bits(layer(x), 4 * x)


# torch captures nothing once, to set up its pool
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
def test_a_kernel_of_ones_own_is_compiled_into_a_graph(copied):
    def layer(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        copied(x, out, x.numel())
        return out + 1

    compiled = torch.compile(layer, fullgraph=True, mode="reduce-overhead")
    for seed in range(4):
        x = torch.full((4096,), float(seed), device="cuda")
        assert (compiled(x) == seed + 1).all()


def test_torch_finds_a_kernel_of_ones_own_sound(copied):
    x = torch.randn(4096, device="cuda")
    torch.library.opcheck(copied.overload, (x, torch.empty_like(x), 4096))
