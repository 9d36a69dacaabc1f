"""The problems of every family: spread, apart from what is held out, and right about what a launch must write."""

from __future__ import annotations

import importlib
import math
import random
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import torch
from nojit.aot.manifest.reader import load_manifest
from nojit.kernels import library
from nojit.kernels.b2b_gemm import reference as b2b_reference
from nojit.kernels.b2b_gemm.problems import PairProblem as B2bProblem
from nojit.kernels.block_sparse import reference as sparse_reference
from nojit.kernels.block_sparse.problems import SoftmaxProblem, SparseShape
from nojit.kernels.block_sparse.softmax.op import block_sparse_softmax, softmax_bwd
from nojit.kernels.bmm.problems import GemmProblem
from nojit.kernels.flash_attention.problems import (
    AttentionProblem,
    AttentionShape,
    GradientProblem,
    MappedGradientProblem,
    WideGradientProblem,
)
from nojit.kernels.flash_attention.reference import flash_attention
from nojit.kernels.flex.problems import FlexProblem
from nojit.kernels.flex.problems import Shape as FlexShape
from nojit.kernels.flex.reference import flex_attention
from nojit.kernels.mixed_mm import reference as mixed_reference
from nojit.kernels.mixed_mm.problems import MixedProblem
from nojit.kernels.mm_plus_mm.problems import PairProblem
from nojit.kernels.pointwise.problems import PointwiseProblem
from nojit.kernels.problem import requested, spread
from nojit.kernels.products.problem_shapes import Shape
from nojit.kernels.scaled_mm import reference as scaled_reference
from nojit.kernels.scaled_mm.problems import ScaledProblem

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = sorted(path.parent.name for path in (ROOT / "kernels").glob("*/problems.py"))
MODULES = {family: importlib.import_module(f"nojit.kernels.{family}.problems") for family in FAMILIES}


@cache
def listed(family, use):
    return MODULES[family].problems(use)


# what has neither a tuning space nor a problem runs as its manifest says
KERNELS = [
    (family, spec.name)
    for family, module in MODULES.items()
    for spec in load_manifest(ROOT / f"manifests/{family}.toml").kernel
    if spec.tuning or any(problem.kernel == spec.name for problem in listed(family, "tune"))
]


def key(problem) -> tuple[object, ...]:
    return problem.kernel, problem.dtype, *(value for value in problem.sizes.values())


@pytest.mark.parametrize(("family", "kernel"), KERNELS)
def test_there_are_enough_and_none_is_held_out_and_tuned_for(family, kernel):
    tuned, held_out = (
        [problem for problem in listed(family, use) if problem.kernel == kernel] for use in ("tune", "held_out")
    )
    assert len(tuned) >= 16
    assert len(held_out) >= 8
    assert {key(problem) for problem in tuned}.isdisjoint(key(problem) for problem in held_out)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("use", ["tune", "held_out", "fresh", "bars"])
def test_names_are_keys_and_draws_repeat(family, use):
    problems = MODULES[family].problems(use)
    assert len({(problem.kernel, problem.name, problem.dtype) for problem in problems}) == len(problems)
    assert MODULES[family].problems(use) == problems
    assert all(problem.shape_class for problem in problems)


def test_each_class_of_flex_attention_has_enough_to_fit_its_own_costs():
    bitmap, interval = ("dilated",), ("documents", "prefix")
    classes = Counter(
        (
            "bitmap" if one.sizes["mask"] in bitmap else "interval" if one.sizes["mask"] in interval else "band",
            one.sizes["mod"] != "none",
            one.sizes["dim"],
        )
        for one in listed("flex", "tune")
        if one.kernel == "flex_attention_bwd_dq"
    )
    assert len(classes) == 3 * 2 * 2
    # four terms and a constant, two problems for each, a fifth of which is left out
    assert min(classes.values()) >= 2 * 5 * 5 // 4


def test_what_fills_gaps_lies_farther_from_all_than_what_is_drawn():
    def nearest(points):
        return min(abs(one - other) for place, one in enumerate(points) for other in points[:place])

    def drawn():
        return random.Random(0).random

    filled = spread([0.5], drawn(), lambda one, other: abs(one - other), 20)
    draw = drawn()
    assert filled == spread([0.5], drawn(), lambda one, other: abs(one - other), 20)
    assert nearest([0.5, *filled]) > 4 * nearest([0.5, *(draw() for _ in range(20))])
    assert spread([], drawn(), lambda one, other: abs(one - other), 1) == (drawn()(),)


@pytest.mark.parametrize("family", FAMILIES)
def test_another_use_is_refused(family):
    with pytest.raises(ValueError, match="expected tune, held_out, fresh or bars, got 'tuning'"):
        MODULES[family].problems("tuning")


@pytest.mark.parametrize("family", FAMILIES)
def test_roles_are_the_manifests(family):
    specs = {spec.name: spec for spec in load_manifest(ROOT / f"manifests/{family}.toml").kernel}
    assert MODULES[family].ROLES.keys() == specs.keys()
    for name, roles in MODULES[family].ROLES.items():
        spec = specs[name]
        configs = {key for config in spec.configs for key in config if key.isupper()}
        types = " ".join(str(kind) for kind in spec.params.values())
        # an axis of ints that spells a block is a constexpr too
        axes = {axis for axis, values in spec.matrix.items() if f"{{{axis}}}" not in types or type(values[0]) is int}
        assert set(roles.tunables) == configs
        assert {*roles.semantics, *roles.numerics} == axes | set(spec.derived)


def check(problem, results) -> None:
    """Hold what a problem expects to `results`, which are written where a launch would write."""
    work = problem.prepare("cpu")
    assert work.kernel == problem.kernel
    assert work.moved_bytes > 0
    assert work.flops > 0
    results(work)
    for output, expected, tolerance in zip(work.outputs, work.expected, work.tolerances, strict=True):
        assert output.shape == expected.shape
        assert tolerance < 0.1
        assert (output.float() - expected).abs().max() <= tolerance


@pytest.mark.parametrize(
    ("kernel", "approximate"), [("vector_add", ""), ("gelu", "none"), ("gelu", "tanh"), ("silu", ""), ("swiglu", "")]
)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_pointwise(kernel, approximate, dtype):
    def write(work):
        torchs = {
            "vector_add": torch.add,
            "gelu": lambda x: torch.nn.functional.gelu(x, approximate=approximate),
            "silu": torch.nn.functional.silu,
            "swiglu": lambda gate, up: (torch.nn.functional.silu(gate.float()) * up).to(gate.dtype),
        }
        *operands, out, _ = work.args
        out.copy_(torchs[kernel](*operands))

    check(PointwiseProblem("some", kernel, dtype, (8, 128), approximate), write)


@pytest.mark.parametrize(
    "shape",
    [
        AttentionShape("causal", 2, 4, 2, 300, 300, 64, 64, is_causal=True),
        AttentionShape("chunk", 1, 2, 2, 70, 200, 64, 64, is_causal=True, causal_alignment="bottom_right"),
        AttentionShape("decode", 3, 4, 1, 1, 90, 128, 128),
    ],
    ids=lambda shape: shape.name,
)
def test_attention(shape):
    def write(work):
        q, k, v, out, *_ = work.args
        words = {"is_causal": shape.is_causal, "causal_alignment": shape.causal_alignment}
        out.copy_(flash_attention(q.double(), k.double(), v.double(), **words)[0])

    check(AttentionProblem(shape, "bf16"), write)
    check(AttentionProblem(shape, "fp8e4nv", "flash_attention_fwd_fp8"), write)


@pytest.mark.parametrize("kernel", ["flash_attention_bwd_delta", "flash_attention_bwd_dkdv", "flash_attention_bwd_dq"])
@pytest.mark.parametrize(
    "shape",
    [
        AttentionShape("causal", 2, 4, 2, 300, 300, 64, 64, is_causal=True),
        AttentionShape("full", 1, 2, 1, 130, 70, 64, 64),
    ],
    ids=lambda shape: shape.name,
)
def test_attention_gradients(shape, kernel):
    def write(work):
        if kernel == "flash_attention_bwd_delta":
            out, dout, _, _, delta, *_ = work.args
            delta.copy_((out.double() * dout.double()).sum(-1))
            return
        q, k, v, dout, *_ = work.args
        operands = [value.double().requires_grad_() for value in (q, k, v)]
        out, _ = flash_attention(*operands, is_causal=shape.is_causal)
        gradients = torch.autograd.grad(out, operands, dout.double())
        for written, right in zip(work.args[6:], gradients[1:] if "dkdv" in kernel else gradients[:1], strict=False):
            written.copy_(right)

    check(GradientProblem(shape, "bf16", kernel), write)


@pytest.mark.parametrize("part", ["_prepare", "", "_finish"])
@pytest.mark.parametrize("dim", [64, 72])
def test_attention_gradients_over_maps(dim, part):
    shape = AttentionShape("causal", 2, 4, 2, 300, 300, dim, dim, is_causal=True)

    def write(work):
        if part == "_prepare":
            out, dout, lse, _, statistics, *_ = work.args
            statistics[0, ..., :300] = lse * 1.4426950408889634
            statistics[1, ..., :300] = (out.double() * dout.double()).sum(-1)
        elif part == "_finish":
            sums, _, dq, scale, *_ = work.args
            dq.copy_(sums * scale)
        else:
            operands = [each.base.double().requires_grad_() for each in work.args[:3]]
            out, lse = flash_attention(*operands, is_causal=True)
            dout = work.args[3].base.double()
            gradients = torch.autograd.grad(out, operands, dout)
            for written, right in zip(work.args[6:8], gradients[1:], strict=True):
                written.base.copy_(right)
            # the heads that are looked at have statistics of their own
            statistics = torch.stack([lse.detach() / math.log(2), (out.detach() * dout).sum(-1)])
            for place in ((0, 0), (-1, -1)):
                given = work.args[4].base[:, *place]
                torch.testing.assert_close(given[:, :300].double(), statistics[:, *place], rtol=1e-2, atol=0.1)
                assert (given[0, 300:] == math.inf).all()

    check(MappedGradientProblem(shape, "bf16", f"flash_attention_bwd_sm90{part}"), write)


@pytest.mark.parametrize("kernel", ["flash_attention_bwd_dkdv_sm90", "flash_attention_bwd_dq_sm90"])
@pytest.mark.parametrize("v_dim", [128, 192])
def test_attention_gradients_of_wide_heads(v_dim, kernel):
    shape = AttentionShape("causal", 2, 4, 4, 200, 200, 192, v_dim, is_causal=True)

    def write(work):
        if kernel == "flash_attention_bwd_dq_sm90":
            scores, k, dq, scale, *_ = work.args
            seen = scores.base[..., :200].double().mT.tril()
            dq.base.copy_(seen @ k.base.double() * scale)
            return
        operands = [each.base.double().requires_grad_() for each in work.args[:3]]
        out, _ = flash_attention(*operands, is_causal=True)
        gradients = torch.autograd.grad(out, operands, work.args[3].base.double())
        for written, right in zip(work.args[5:7], gradients[1:], strict=True):
            written.base.copy_(right)

    check(WideGradientProblem(shape, "bf16", kernel), write)


@pytest.mark.parametrize("kernel", ["flex_attention_fwd", "flex_attention_bwd_dkdv", "flex_attention_bwd_dq"])
@pytest.mark.parametrize(
    ("mask", "mod"),
    [("none", "none"), ("documents", "none"), ("dilated", "none"), ("causal", "alibi"), ("dilated", "cap")],
)
def test_flex_attention(kernel, mask, mod):
    shape = FlexShape("some", mask, 2, 4, 2, 300, 64, mod)

    def write(work):
        operands = [value.double().requires_grad_() for value in work.args[:3]]
        out, _ = flex_attention(*operands, shape.score_mod, shape.mask_mod)
        if kernel.endswith("fwd"):
            work.args[3].copy_(out)
            return
        gradients = torch.autograd.grad(out, operands, work.args[3].double())
        wanted = gradients[1:] if "dkdv" in kernel else gradients[:1]
        for written, right in zip(work.args[6:], wanted, strict=False):
            written.copy_(right)

    check(FlexProblem(shape, kernel), write)


@pytest.mark.parametrize(
    ("kernel", "is_causal"),
    [("block_sparse_softmax_fwd", False), ("block_sparse_softmax_fwd", True), ("block_sparse_softmax_bwd", False)],
)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_softmax(kernel, is_causal, dtype):
    shape = SparseShape("some", 2, 3, 4, 5, 16, "random", 0.5)
    layout = shape.layout()

    def write(work):
        if kernel.endswith("fwd"):
            x, out, *_ = work.args
            out.copy_(sparse_reference.block_sparse_softmax(x.double(), layout, scale=0.125, is_causal=is_causal))
            return
        y, dy, dx, *_ = work.args
        wide = sparse_reference.to_dense(y.double(), layout)
        grad = sparse_reference.to_dense(dy.double(), layout)
        dx.copy_(sparse_reference.to_sparse(wide * (grad - (wide * grad).sum(-1, keepdim=True)) * 0.125, layout))

    check(SoftmaxProblem(shape, kernel, dtype, is_causal), write)


@pytest.mark.parametrize("kernel", ["bmm", "bmm_merge", "bmm_sm90"])
@pytest.mark.parametrize("trans_b", [False, True])
def test_gemm(kernel, trans_b):
    deep = kernel == "bmm_merge"
    shape = Shape("some", 1 if deep else 8, 72, 128, 4096 if deep else 256, trans_b)

    def write(work):
        if deep:
            parts, out, *_ = work.args
            out.copy_(parts.sum(0)[:, :, :128])
            return
        a, b, out = (value.base if kernel == "bmm_sm90" else value for value in work.args[:3])
        out.copy_(a.double() @ b.double())

    check(GemmProblem(shape, kernel, "bf16"), write)


@pytest.mark.parametrize("trans_b", [False, True])
def test_pairs(trans_b):
    def write(work):
        a, b, c, d, out = work.args[:5]
        out.copy_(a.double() @ b.double() + c.double() @ d.double())

    check(PairProblem(Shape("some", 1, 72, 128, 256, trans_b), 64, "mm_plus_mm", "bf16"), write)


@pytest.mark.parametrize("kernel", ["scaled_mm", "scaled_mm_sm90"])
@pytest.mark.parametrize("blocks", [False, True])
def test_scaled_products(kernel, blocks):
    def write(work):
        a, b, out, scale_a, scale_b = (work.args[place] for place in (0, 1, 5, 2, 3))
        if kernel.endswith("_sm90"):
            a, b, out, scale_a, scale_b = (getattr(value, "base", value) for value in work.args[:5])
        out.copy_(scaled_reference.scaled_mm(a, b, scale_a, scale_b))

    check(ScaledProblem(Shape("some", 1, 1072, 512, 256, trans_b=True), kernel, blocks=blocks), write)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("kernel", ["mixed_mm", "mixed_mm_few", "mixed_mm_sm90"])
def test_weights_of_4_bits(kernel, scaled):
    def write(work):
        a, b, *rest = (getattr(value, "base", value) for value in work.args)
        scales, out = (rest[place] for place in ((1, 0) if kernel.endswith("_sm90") else (0, 2)))
        weights = mixed_reference.unpack(b, a.dtype, scales if scaled else None, None, 128 if scaled else None)
        out.copy_(a.double() @ weights.double())

    check(MixedProblem((9, 4224, 256), kernel, "bf16", scaled), write)


@pytest.mark.parametrize(("kernel", "dtype"), [("b2b_gemm", "bf16"), ("b2b_gemm", "fp32")])
def test_pairs_with_a_function_in_between(kernel, dtype):
    def write(work):
        *factors, out = (getattr(value, "base", value) for value in work.args[:4])
        out.copy_(b2b_reference.b2b_gemm(*(value.double() for value in factors), activation="gelu"))

    check(B2bProblem((300, 32, 64, 48), kernel, dtype), write)


def test_one_launch_or_that_of_a_kernel_is_requested():
    x = torch.ones(1, 1, 16, 16)
    layout = SparseShape("some", 1, 1, 1, 1, 16, "dense", 0).layout()
    with pytest.raises(ValueError, match="expected one launch, got 0"):
        requested(lambda: None)
    with pytest.raises(ValueError, match="expected one launch, got 2"):
        requested(lambda: (block_sparse_softmax(x, layout), softmax_bwd(x, x, 1.0, layout)))
    launch, _ = requested(
        lambda: (block_sparse_softmax(x, layout), softmax_bwd(x, x, 1.0, layout)), "block_sparse_softmax_bwd"
    )
    assert launch.kernel == "block_sparse_softmax_bwd"
    with pytest.raises(ValueError, match="expected a launch of gelu, got 0"):
        requested(lambda: softmax_bwd(x, x, 1.0, layout), "gelu")
    with pytest.raises(TypeError, match="launched with its own grid"):
        requested(lambda: library.get("gelu")[1,](x))
