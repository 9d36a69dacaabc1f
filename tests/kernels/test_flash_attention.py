from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own spelling
from nojit.kernels import library
from nojit.kernels.attention.band_masks import BandMask
from nojit.kernels.calls import tensor_maps
from nojit.kernels.flash_attention import flash_attention, reference
from nojit.kernels.flash_attention import launch_sm90 as flash_launch
from nojit.kernels.flash_attention.problems import PROBLEMS, AttentionShape
from nojit.kernels.problem import requested
from nojit.runtime.errors import ArgumentError
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.kernels.accuracy import assert_accurate

FLOATS = (torch.float16, torch.bfloat16, torch.float32)

pytestmark = pytest.mark.usefixtures("interpreted")


def make(problem: AttentionShape, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    q = torch.randn(problem.batch, problem.heads, problem.q_len, problem.head_dim)
    k = torch.randn(problem.batch, problem.kv_heads, problem.kv_len, problem.head_dim)
    v = torch.randn(problem.batch, problem.kv_heads, problem.kv_len, problem.v_dim)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def torchs(q: Tensor, k: Tensor, v: Tensor, *, scale=None, **words) -> Tensor:
    """torch's own operator; what it gives for rows that see nothing depends on its version, and is made 0."""
    mask = reference.visible(q.shape[2], k.shape[2], q.device, **words)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
    return torch.nan_to_num(out, nan=0.0)


def check(q: Tensor, k: Tensor, v: Tensor, **arguments) -> Tensor:
    """Hold output and log-sums to the exact ones; return the output."""
    out, lse = flash_attention(q, k, v, return_lse=True, **arguments)
    exact, exact_lse = reference.flash_attention(q.double(), k.double(), v.double(), **arguments)
    assert_accurate(out, exact, torchs(q, k, v, **arguments))
    assert lse.dtype == torch.float32
    # the scores are fp32 sums of D products: their rounding is all that separates the two
    torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-5, atol=1e-5)
    return out


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS["test"], ids=lambda problem: problem.name)
def test_is_as_accurate_as_torch(problem, dtype):
    if dtype == torch.float32 and max(problem.head_dim, problem.v_dim) > 128:
        pytest.skip("fp32 heads end at 128")
    q, k, v = make(problem, dtype)
    check(q, k, v, is_causal=problem.is_causal, causal_alignment=problem.causal_alignment)


@pytest.mark.parametrize("scale", [0.0, -0.7, 3.0])
@pytest.mark.parametrize("is_causal", [False, True])
def test_any_scale(scale, is_causal):
    q, k, v = make(AttentionShape("", 1, 2, 2, 40, 150, 32, 32), torch.float32)
    check(q, k, v, scale=scale, is_causal=is_causal)


@pytest.mark.parametrize("grad", [False, True])
def test_an_int_for_the_scale_or_the_flag_is_taken_at_its_value(grad):
    """Kernels tell 1 from True and from 1.0: the operator must not pass on what it was given."""
    q, k, v = make(AttentionShape("", 1, 1, 1, 9, 9, 16, 16), torch.float32)
    expected = flash_attention(q, k, v, scale=2.0, is_causal=True)
    assert torch.equal(flash_attention(q.requires_grad_(grad), k, v, scale=2, is_causal=1), expected)


def test_rows_that_see_nothing_give_zero_and_minus_infinity():
    q, k, v = make(AttentionShape("", 1, 2, 1, 140, 9, 32, 32), torch.float16)
    out, lse = flash_attention(q, k, v, is_causal=True, causal_alignment="bottom_right", return_lse=True)
    assert (out[:, :, :131] == 0).all()
    assert (lse[:, :, :131] == float("-inf")).all()
    assert torch.isfinite(lse[:, :, 131:]).all()


def test_large_scores_do_not_overflow():
    q, k, v = make(AttentionShape("", 1, 1, 1, 20, 40, 64, 64), torch.float16)
    check(q * 60, k * 60, v)


def test_one_call_does_not_depend_on_the_log_sums_being_asked_for():
    q, k, v = make(AttentionShape("", 1, 2, 1, 40, 40, 64, 64), torch.bfloat16)
    with_lse, _ = flash_attention(q, k, v, return_lse=True)
    assert torch.equal(flash_attention(q, k, v), with_lse)


@pytest.mark.parametrize("is_causal", [False, True])
def test_neither_padding_nor_neighbours_leak_in(is_causal):
    """Rows and columns beyond the operands hold NaN, as the memory of a larger tensor may."""
    q, k, v = make(AttentionShape("", 2, 2, 2, 37, 45, 40, 40), torch.float16)
    around = [torch.full((2, 2, x.shape[2] + 100, 64), float("nan"), dtype=x.dtype) for x in (q, k, v)]
    inside = [memory[:, :, : x.shape[2], : x.shape[3]] for memory, x in zip(around, (q, k, v), strict=True)]
    for view, x in zip(inside, (q, k, v), strict=True):
        view.copy_(x)
    assert torch.equal(flash_attention(*inside, is_causal=is_causal), flash_attention(q, k, v, is_causal=is_causal))


@pytest.mark.parametrize(
    "arrange",
    [
        pytest.param(lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), id="heads inside"),
        pytest.param(lambda x: x.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3), id="sequence first"),
        pytest.param(lambda x: torch.cat([x, x], -1)[..., x.shape[-1] :], id="half of wider rows"),
        pytest.param(lambda x: torch.cat([x, x], 2)[:, :, ::2], id="every other row"),
        pytest.param(lambda x: torch.cat([x.flatten()[:3], x.flatten()])[3:].view(x.shape), id="unaligned"),
        pytest.param(lambda x: x[:1, :1].expand_as(x), id="one head for all"),
    ],
)
def test_any_strides(arrange):
    q, k, v = (arrange(x) for x in make(AttentionShape("", 2, 4, 4, 19, 23, 48, 48), torch.float16))
    out = check(q, k, v, is_causal=True)
    assert out.stride(3) == 1


def test_the_output_lies_in_memory_as_the_queries_do():
    q, k, v = (torch.randn(2, 20, 3, 32, dtype=torch.float16).transpose(1, 2) for _ in range(3))
    assert flash_attention(q, k, v).stride() == q.stride()


@pytest.mark.parametrize("shape", [(0, 2, 5, 32), (2, 0, 5, 32), (2, 2, 0, 32)])
def test_empty_launches_nothing(shape):
    q = torch.empty(shape)
    with library.override(lambda name: pytest.fail(f"{name} was asked for")):
        out, lse = flash_attention(q, q, q, return_lse=True)
    assert out.shape == shape
    assert lse.shape == shape[:3]


def x_(*shape, dtype=torch.float16) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


REFUSED = pytest.mark.parametrize(
    ("q", "k", "v", "error", "message"),
    [
        (
            x_(1, 3, 4, 8),
            x_(1, 2, 4, 8),
            x_(1, 2, 4, 8),
            ValueError,
            "k: expected a number of heads that divides the 3",
        ),
        (
            x_(1, 3, 4, 8),
            x_(1, 0, 4, 8),
            x_(1, 0, 4, 8),
            ValueError,
            "k: expected a number of heads that divides the 3",
        ),
        (
            x_(1, 2, 4, 8),
            x_(1, 2, 4, 9),
            x_(1, 2, 4, 8),
            ValueError,
            r"k: expected shape \(1, 2, 4, 8\) \[B, Hkv, N, D\]",
        ),
        (x_(1, 2, 4, 8), x_(1, 2, 4, 8), x_(1, 2, 5, 8), ValueError, r"v: expected shape \(1, 2, 4, 8\)"),
        (x_(2, 2, 4, 8), x_(1, 2, 4, 8), x_(1, 2, 4, 8), ValueError, r"k: expected shape \(2, 2, 4, 8\)"),
        (x_(2, 4, 8), x_(2, 4, 8), x_(2, 4, 8), ValueError, r"q: expected 4 dimensions \[B, H, M, D\], got shape"),
        (x_(1, 1, 4, 257), x_(1, 1, 4, 257), x_(1, 1, 4, 8), ValueError, "q: expected 1 to 256 elements in a row"),
        (x_(1, 1, 4, 0), x_(1, 1, 4, 0), x_(1, 1, 4, 8), ValueError, "q: expected 1 to 256 elements in a row"),
        (x_(1, 1, 4, 8), x_(1, 1, 4, 8), x_(1, 1, 4, 257), ValueError, "v: expected 1 to 256 elements in a row"),
        (x_(1, 1, 8, 4).mT, x_(1, 1, 4, 8), x_(1, 1, 4, 8), ValueError, "q: expected a last stride of 1 .*, got 4"),
        (
            x_(1, 1, 4, 8),
            x_(1, 1, 4, 8, dtype=torch.bfloat16),
            x_(1, 1, 4, 8),
            ArgumentError,
            "k: expected torch.float16",
        ),
        (*[x_(1, 1, 4, 8, dtype=torch.float64)] * 3, ArgumentError, "q: expected torch.float16 or torch.bfloat16 or"),
        (
            *[x_(1, 1, 4, 129, dtype=torch.float32)] * 3,
            ValueError,
            "q: expected 1 to 128 elements in a row of torch.float32",
        ),
    ],
)


@REFUSED
def test_refuses(q, k, v, error, message):
    with pytest.raises(error, match=message):
        flash_attention(q, k, v)
    with pytest.raises(error, match=message):
        flash_attention(q.clone().requires_grad_(), k, v)


@REFUSED
def test_refuses_the_same_where_nothing_runs(q, k, v, error, message):
    with pytest.raises(error, match=message):
        flash_attention(q.to("meta"), k.to("meta"), v.to("meta"))
    with FakeTensorMode(allow_non_fake_inputs=True) as fakes:
        given = [fakes.from_tensor(value) for value in (q, k, v)]
        with pytest.raises(error, match=message):
            flash_attention(*given)
        with pytest.raises(error, match=message):
            torch.ops.nojit.flash_attention(*given, None, False, "top_left", None, None, False)
    with pytest.raises(error, match=message):
        torch.compile(flash_attention, backend="eager")(q, k, v)


@pytest.mark.parametrize("name", "qkv")
@pytest.mark.parametrize("grad", [False, True])
def test_refuses_an_operand_on_meta_beside_others(name, grad):
    given = {one: x_(1, 1, 4, 8) for one in "qkv"}
    given[name] = given[name].to("meta")
    given = {one: value.requires_grad_(grad) for one, value in given.items()}
    with pytest.raises(ArgumentError, match=f"{'k' if name == 'q' else name}: expected a tensor on "):
        flash_attention(**given)


def test_gradients_on_meta_are_held_to_the_forward():
    q = x_(1, 1, 4, 8).to("meta")
    out, lse = flash_attention(q, q, q, return_lse=True)
    words = (None, False, "top_left", None, None, [True] * 3)
    backward = torch.ops.nojit.flash_attention_backward
    assert [one.shape for one in backward(out, None, q, q, q, out, lse, *words)] == [q.shape] * 3
    with pytest.raises(ValueError, match="dout: expected shape"):
        backward(out[:, :, :3], None, q, q, q, out, lse, *words)


def test_refuses_another_alignment():
    q = x_(1, 1, 4, 8)
    with pytest.raises(ValueError, match="causal_alignment: expected 'top_left' or 'bottom_right', got 'bottom_left'"):
        flash_attention(q, q, q, is_causal=True, causal_alignment="bottom_left")


@pytest.mark.parametrize("return_lse", [False, True])
def test_operator_is_sound(return_lse):
    q, k, v = make(AttentionShape("", 1, 2, 1, 5, 6, 16, 24), torch.float32)
    arguments = (q, k, v, None, True, "bottom_right", 2, None, return_lse)
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.nojit.flash_attention.default, arguments, test_utils=checks)


def test_traces_without_a_graph_break():
    traced = torch.compile(
        lambda *x: flash_attention(*x, is_causal=True, return_lse=True), backend="eager", fullgraph=True
    )
    q, k, v = make(AttentionShape("", 1, 2, 1, 5, 6, 16, 16), torch.float32)
    for got, expected in zip(traced(q, k, v), flash_attention(q, k, v, is_causal=True, return_lse=True), strict=True):
        assert torch.equal(got, expected)


# -- over tensor maps ------------------------------------------------------------------------------------------------


def halves(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("value", "strides"),
    [
        (halves(2, 3, 4, 64), (768, 256, 64, 1)),
        (halves(2, 3, 4, 64)[..., :40], (768, 256, 64, 1)),
        (halves(2, 4, 3, 64).transpose(1, 2), (768, 64, 192, 1)),
        # of a dimension of one, the stride says nothing
        (halves(1, 1, 1, 33)[..., :24], (8, 8, 8, 1)),
        (halves(1, 3, 4, 64).as_strided((1, 3, 4, 64), (5, 256, 64, 1)), (8, 256, 64, 1)),
        (halves(2, 3, 4, 33), None),
        (halves(2, 3, 4, 64)[..., 1:], None),
        (halves(2, 1, 4, 64).expand(2, 3, 4, 64), None),
        (halves(2, 3, 64, 4).transpose(2, 3), None),
    ],
    ids=lambda value: str(value.stride()) if isinstance(value, torch.Tensor) else "",
)
def test_what_a_tensor_map_can_describe(value, strides):
    described = tensor_maps.described(value)
    assert (None if described is None else described.strides) == strides
    if described is not None:
        assert described.base is value
        assert described.shape == value.shape
        assert described.block_shape is None


def test_the_kernel_for_sm_90_is_asked_for_what_the_call_says(monkeypatch):
    monkeypatch.setattr(tensor_maps, "_facts", lambda _: SimpleNamespace(major=9, multi_processor_count=132))
    q, k, v, out = halves(2, 8, 33, 40), halves(2, 2, 70, 40), halves(2, 2, 70, 96), halves(2, 8, 33, 96)
    operands = flash_launch.Maps(*(tensor_maps.described(value) for value in (q, k, v, out)))
    launch, _ = requested(lambda: flash_launch.launch_over_maps(operands, None, 0.5, BandMask("causal", 0, 37)))
    assert launch.kernel == "flash_attention_fwd_sm90"
    assert launch.args == (*operands, None, 0.5, 37, 2, 8, 4, 33, 70, 132)
    assert launch.named == {"CAUSAL": True, "BLOCK_D": 128, "BLOCK_DV": 128, "DEPTH": 128}


@pytest.mark.parametrize(
    ("dims", "widths"),
    [
        ((64, 64), (64, 64, 64)),
        ((96, 64), (128, 128, 128)),
        ((129, 129), (256, 256, 192)),
        ((192, 128), (256, 128, 192)),
        ((193, 128), (256, 128, 256)),
        ((64, 192), (256, 256, 192)),
        ((160, 200), (256, 256, 256)),
        ((256, 256), (256, 256, 256)),
    ],
)
def test_of_heads_up_to_192_wide_the_kernel_for_sm_90_multiplies_192_columns(dims, widths):
    assert tuple(flash_launch.mapped_widths(*dims).values()) == widths


def test_elsewhere_and_for_other_operands_pointers_are_passed(monkeypatch):
    q = halves(1, 2, 16, 64)
    assert flash_launch.maps_of(q, q, q, q, 1.0) is None

    class Cuda(torch.Tensor):
        """Says that it lies on a device."""

        device = torch.device("cuda:0")

    def on_device(value: torch.Tensor) -> torch.Tensor:
        return value.as_subclass(Cuda)

    for major, taken in ((8, False), (9, True), (10, False)):
        monkeypatch.setattr(tensor_maps, "_facts", lambda _, major=major: SimpleNamespace(major=major))
        assert (flash_launch.maps_of(*[on_device(q)] * 4, 1.0) is not None) == taken
    monkeypatch.setattr(tensor_maps, "_facts", lambda _: SimpleNamespace(major=9))
    wide, single, empty = halves(1, 2, 16, 256), torch.empty(1, 2, 16, 64), halves(1, 2, 0, 64)
    assert flash_launch.maps_of(*map(on_device, (wide, wide, wide, wide)), 1.0) is not None
    assert flash_launch.maps_of(*map(on_device, (single, single, single, single)), 1.0) is None
    assert flash_launch.maps_of(*map(on_device, (q, empty, empty, q)), 1.0) is None
    for scale in (-1.0, 0.0, 1e-50):
        assert flash_launch.maps_of(*map(on_device, (q, q, q, q)), scale) is None
