"""Every argument of every public operator, module and class, given what it is not: the package's own error names it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from nojit.kernels import library
from nojit.kernels.b2b_gemm import b2b_gemm
from nojit.kernels.block_sparse import (
    BlockLayout,
    BlockSparseAttention,
    block_sparse_matmul,
    block_sparse_softmax,
    softmax_bwd,
)
from nojit.kernels.bmm import baddbmm, bmm, mm
from nojit.kernels.calls.arguments import COUNTED
from nojit.kernels.compat import deepspeed
from nojit.kernels.flash_attention import FlashAttention, flash_attention
from nojit.kernels.flex_decoding import flex_decoding
from nojit.kernels.gated_mm import gated_mm
from nojit.kernels.grouped_mm import grouped_mm
from nojit.kernels.mixed_mm import uint4x2_mixed_mm
from nojit.kernels.mm_plus_mm import mm_plus_mm
from nojit.kernels.norm import add_rms_norm, rms_norm
from nojit.kernels.pointwise import gelu, lerp, silu, swiglu, vector_add
from nojit.kernels.rotary import rotary, rotary_qk, rotary_to_cache
from nojit.kernels.scaled_grouped_mm import scaled_grouped_mm
from nojit.kernels.scaled_mm import scaled_mm
from nojit.runtime.errors import ArgumentError

LAYOUT = BlockLayout(torch.ones(2, 2, 2, dtype=torch.bool), 16)
RAW = torch.ones(2, 2, 2, dtype=torch.int64)
X = torch.randn(1, 8, 16, 16)
Q = torch.randn(1, 2, 32, 16)
V = torch.randn(6)
A = torch.randn(1, 3, 4)
M = torch.randn(3, 3)
H = torch.randn(3, 4).half()
R = torch.randn(4, 2, 8)
F = torch.ones(16, 16).to(torch.float8_e4m3fn)
ONE = torch.ones(())
PATTERN = deepspeed.DenseSparsityConfig(2)
BERT = SimpleNamespace(hidden_size=32, num_attention_heads=2)

WRONG: Mapping[str, Any] = {
    "None": None,
    "3": 3,
    "2.5": 2.5,
    "text": "x",
    "list": [1, [2]],
    "dict": {},
    "array": np.ones((2, 2)),
    "tensor": torch.ones(2),
    "object": object(),
}
# in DeepSpeed's words
NAMED: Mapping[str, str] = {"mode": "supported modes|mode:"}
# what an argument's kind takes of these
TAKES: Mapping[str, set[str]] = {
    "tensor": {"tensor"},
    "tensor?": {"tensor", "None"},
    "number": {"3", "2.5"},
    "number?": {"3", "2.5", "None"},
    "share": {"3", "2.5", "tensor"},
    "flag": {"3"},
    "int": {"3"},
    "int?": {"3", "None"},
    "word": {"text"},
    "dtype?": {"None"},
    "window": {"3", "None"},
    "ints": set(),
    "ints?": {"None"},
    "layout": {"tensor"},
    "pattern": {"None"},
    "config": set(),
    "mapping?": {"dict", "None"},
}


@dataclass(frozen=True)
class Case:
    """A call that is right, and the kind of each argument."""

    call: Callable[..., Any]
    arguments: Mapping[str, Any]
    kinds: Mapping[str, str]


def case(call: Callable[..., Any], /, **arguments: tuple[str, Any]) -> Case:
    values = {name: value for name, (_, value) in arguments.items()}
    return Case(call, values, {name: kind for name, (kind, _) in arguments.items()})


WORDS = {
    "scale": ("number?", 0.5),
    "is_causal": ("flag", False),
    "causal_alignment": ("word", "top_left"),
    "window": ("window", (3, None)),
    "deterministic": ("flag", True),
}
MASKS = {
    "key_padding_mask": ("tensor?", torch.zeros(1, 32)),
    "attention_mask": ("tensor?", torch.zeros(32, 32)),
    "relative_position": ("tensor?", torch.zeros(32, 32)),
}
MODES = {"key_padding_mask_mode": ("word", "add"), "attention_mask_mode": ("word", "add")}
TRANSPOSES = {"trans_a": ("flag", False), "trans_b": ("flag", False)}
OPERANDS = {"q": ("tensor", Q), "k": ("tensor", Q), "v": ("tensor", Q)}
SEQUENCES = {"query": ("tensor", Q), "key": ("tensor", Q), "value": ("tensor", Q)}
HEADS = {"num_heads": ("int", 2), "block": ("int", 16)}
DIFFERENT = {"different_layout_per_head": ("flag", False)}
ATTENTION = {"attention": ("word", "bidirectional")}
GLOBAL = {"global_block_indices": ("ints", [0]), "global_block_end_indices": ("ints?", [1])}
WINDOW = {"num_sliding_window_blocks": ("int", 3)}
TABLES = {
    "cos": ("tensor", torch.ones(4, 4)),
    "sin": ("tensor", torch.ones(4, 4)),
    "positions": ("tensor?", torch.arange(4)),
}
ROTATED = {
    "query": ("tensor", R),
    "key": ("tensor", R),
    "query_weight": ("tensor?", R[0, 0].clone()),
    "key_weight": ("tensor?", R[0, 0].clone()),
    "eps": ("number?", 1e-6),
    "interleaved": ("flag", False),
    **TABLES,
}

CASES = {
    "vector_add": case(
        vector_add, input=("tensor", V), other=("tensor", V), alpha=("number", 0.5), out=("tensor?", V.clone())
    ),
    "lerp": case(lerp, input=("tensor", V), end=("tensor", V), weight=("share", 0.5), out=("tensor?", V.clone())),
    "gelu": case(gelu, input=("tensor", V), approximate=("word", "tanh")),
    "silu": case(silu, input=("tensor", V)),
    "swiglu": case(swiglu, gate=("tensor", V), up=("tensor", V)),
    "mm": case(
        mm,
        input=("tensor", A[0]),
        mat2=("tensor", A[0].mT),
        activation=("word", "relu"),
        out_dtype=("dtype?", torch.float32),
        out=("tensor?", M.clone()),
    ),
    "bmm": case(
        bmm, input=("tensor", A), mat2=("tensor", A.mT), activation=("word", "relu"), out=("tensor?", M[None].clone())
    ),
    "baddbmm": case(
        baddbmm,
        input=("tensor", M),
        batch1=("tensor", A),
        batch2=("tensor", A.mT),
        beta=("number", 0.5),
        alpha=("number", 2.0),
        activation=("word", "relu"),
        out=("tensor?", M[None].clone()),
    ),
    "gated_mm": case(
        gated_mm,
        input=("tensor", A[0]),
        mat2=("tensor", torch.randn(A.shape[2], 2 * len(M))),
        activation=("word", "relu"),
        out=("tensor?", M.clone()),
    ),
    "mm_plus_mm": case(
        mm_plus_mm,
        a=("tensor", A[0]),
        b=("tensor", A[0].mT),
        c=("tensor", A[0]),
        d=("tensor", A[0].mT),
        out=("tensor?", M.clone()),
    ),
    "uint4x2_mixed_mm": case(
        uint4x2_mixed_mm,
        a=("tensor", H),
        b=("tensor", H[:2, :3].byte()),
        scales=("tensor?", H[:1, :3]),
        zeros=("tensor?", H[:1, :3]),
        group_size=("int?", 4),
        out=("tensor?", H[:, :3].clone()),
    ),
    "b2b_gemm": case(
        b2b_gemm,
        a=("tensor", A[0]),
        b=("tensor", A[0].mT),
        c=("tensor", M.clone()),
        activation=("word", "relu"),
        alpha=("number", 0.5),
        assoc=("word", "right"),
        out=("tensor?", torch.empty(3, 3)),
    ),
    "rms_norm": case(rms_norm, input=("tensor", M), weight=("tensor?", M[0].clone()), eps=("number?", 1e-6)),
    "add_rms_norm": case(
        add_rms_norm,
        input=("tensor", M),
        residual=("tensor", M),
        weight=("tensor?", M[0].clone()),
        eps=("number?", 1e-6),
    ),
    "rotary": case(rotary, x=("tensor", R), interleaved=("flag", False), out=("tensor?", R.clone()), **TABLES),
    "rotary_qk": case(rotary_qk, **ROTATED, inplace=("flag", False)),
    "rotary_to_cache": case(
        rotary_to_cache,
        value=("tensor", R),
        slot_mapping=("tensor", torch.arange(4)),
        key_cache=("tensor", R.new_zeros(1, 2, 4, 8)),
        value_cache=("tensor", R.new_zeros(1, 2, 4, 8)),
        return_key=("flag", False),
        **ROTATED,
    ),
    "scaled_mm": case(
        scaled_mm,
        a=("tensor", F),
        b=("tensor", F.t()),
        scale_a=("tensor", ONE),
        scale_b=("tensor", ONE),
        bias=("tensor?", torch.ones(16).bfloat16()),
        out_dtype=("dtype?", torch.bfloat16),
        use_fast_accum=("flag", False),
        out=("tensor?", torch.empty(16, 16).bfloat16()),
    ),
    "grouped_mm": case(
        grouped_mm,
        mat_a=("tensor", M),
        mat_b=("tensor", torch.randn(2, 3, 4)),
        offs=("tensor", torch.tensor([1, 3], dtype=torch.int32)),
        bias=("tensor?", torch.randn(4)),
        out_dtype=("dtype?", torch.float32),
        out=("tensor?", torch.empty(3, 4)),
    ),
    "scaled_grouped_mm": case(
        scaled_grouped_mm,
        mat_a=("tensor", F),
        mat_b=("tensor", torch.stack([F, F]).mT),
        scale_a=("tensor", torch.ones(16)),
        scale_b=("tensor", torch.ones(2, 16)),
        offs=("tensor", torch.tensor([1, 3], dtype=torch.int32)),
        out_dtype=("dtype?", torch.bfloat16),
        use_fast_accum=("flag", False),
        out=("tensor?", torch.empty(16, 16).bfloat16()),
    ),
    "block_sparse_softmax": case(
        block_sparse_softmax,
        x=("tensor", X),
        layout=("config", LAYOUT),
        scale=("number", 0.5),
        is_causal=("flag", False),
        inplace=("flag", False),
        **MASKS,
        **MODES,
    ),
    "softmax_bwd": case(
        softmax_bwd, y=("tensor", X), dy=("tensor", X), scale=("number", 0.5), layout=("config", LAYOUT)
    ),
    "block_sparse_matmul": case(
        block_sparse_matmul,
        a=("tensor", Q),
        b=("tensor", Q.mT),
        layout=("config", LAYOUT),
        mode=("word", "sdd"),
        trans_c=("flag", False),
        out=("tensor?", X.clone()),
        deterministic=("flag", True),
        **TRANSPOSES,
    ),
    "flex_decoding": case(
        flex_decoding,
        score_mod=("pattern", None),
        block_mask=("pattern", None),
        scale=("number?", 0.5),
        enable_gqa=("flag", False),
        return_lse=("flag", False),
        kernel_options=("mapping?", None),
        kv_lens=("tensor?", torch.ones(1, dtype=torch.int32)),
        page_table=("tensor?", torch.zeros(1, 1, dtype=torch.int32)),
        is_causal=("flag", False),
        window=("window", (3, None)),
        splits=("int?", 2),
        **SEQUENCES,
    ),
    "flash_attention": case(flash_attention, return_lse=("flag", False), **OPERANDS, **WORDS),
    "BlockLayout": case(BlockLayout, layout=("tensor", RAW), block=("int", 16)),
    "FlashAttention": case(FlashAttention, **WORDS),
    "FlashAttention()": case(FlashAttention(), **OPERANDS),
    "BlockSparseAttention": case(
        BlockSparseAttention, layout=("config", LAYOUT), scale=("number?", None), is_causal=("flag", False), **MODES
    ),
    "BlockSparseAttention()": case(BlockSparseAttention(LAYOUT), **OPERANDS, **MASKS),
    "MatMul": case(deepspeed.MatMul, layout=("layout", RAW), block=("int", 16), mode=("word", "sdd"), **TRANSPOSES),
    "MatMul()": case(deepspeed.MatMul(RAW, 16, "sdd"), a=("tensor", Q), b=("tensor", Q.mT)),
    "Softmax": case(deepspeed.Softmax, layout=("layout", RAW), block=("int", 16)),
    "Softmax()": case(
        deepspeed.Softmax(RAW, 16),
        x=("tensor", X.clone()),
        scale=("number", 0.5),
        rpe=("tensor?", torch.zeros(32, 32)),
        key_padding_mask=("tensor?", torch.zeros(1, 32)),
        attn_mask=("tensor?", torch.zeros(32, 32)),
        key_padding_mask_mode=("word", "add"),
        attn_mask_mode=("word", "add"),
    ),
    "SparseSelfAttention": case(
        deepspeed.SparseSelfAttention,
        sparsity_config=("pattern", PATTERN),
        key_padding_mask_mode=("word", "add"),
        attn_mask_mode=("word", "add"),
        max_seq_length=("int", 32),
    ),
    "SparseSelfAttention()": case(
        deepspeed.SparseSelfAttention(PATTERN, max_seq_length=32),
        rpe=("tensor?", torch.zeros(32, 32)),
        key_padding_mask=("tensor?", torch.zeros(1, 32)),
        attn_mask=("tensor?", torch.zeros(32, 32)),
        **SEQUENCES,
    ),
    "get_layout": case(deepspeed.SparseSelfAttention(PATTERN, max_seq_length=32).get_layout, length=("int", 32)),
    "BertSparseSelfAttention": case(
        deepspeed.BertSparseSelfAttention, config=("config", BERT), sparsity_config=("pattern", PATTERN)
    ),
    "BertSparseSelfAttention()": case(
        deepspeed.BertSparseSelfAttention(BERT, PATTERN),
        hidden_states=("tensor", torch.randn(1, 32, 32)),
        attention_mask=("tensor?", torch.zeros(1, 32)),
    ),
    "triton_flash_attn()": case(deepspeed.triton_flash_attn(), sm_scale=("number", 0.5), **OPERANDS),
    "make_layout": case(PATTERN.make_layout, seq_len=("int", 32)),
    "DenseSparsityConfig": case(deepspeed.DenseSparsityConfig, **HEADS, **DIFFERENT),
    "FixedSparsityConfig": case(
        deepspeed.FixedSparsityConfig,
        num_local_blocks=("int", 4),
        num_global_blocks=("int", 1),
        horizontal_global_attention=("flag", False),
        num_different_global_patterns=("int", 1),
        **HEADS,
        **DIFFERENT,
        **ATTENTION,
    ),
    "VariableSparsityConfig": case(
        deepspeed.VariableSparsityConfig,
        num_random_blocks=("int", 0),
        local_window_blocks=("ints", [4]),
        horizontal_global_attention=("flag", False),
        **HEADS,
        **DIFFERENT,
        **ATTENTION,
        **GLOBAL,
    ),
    "BigBirdSparsityConfig": case(
        deepspeed.BigBirdSparsityConfig,
        num_random_blocks=("int", 1),
        num_global_blocks=("int", 1),
        **HEADS,
        **DIFFERENT,
        **ATTENTION,
        **WINDOW,
    ),
    "BSLongformerSparsityConfig": case(
        deepspeed.BSLongformerSparsityConfig, **HEADS, **DIFFERENT, **ATTENTION, **GLOBAL, **WINDOW
    ),
    "LocalSlidingWindowSparsityConfig": case(
        deepspeed.LocalSlidingWindowSparsityConfig, **HEADS, **ATTENTION, **WINDOW
    ),
}
# `out` has no gradient


def differentiable(one: Case, argument: str) -> list[str]:
    """List the tensors that a gradient can be wanted of, while this argument is wrong."""
    kinds = one.kinds.items()
    return [
        key
        for key, kind in kinds
        if kind == "tensor" and key != argument and one.arguments[key].dtype.is_floating_point
    ]


GRADIENTS = {
    name: [argument for argument in one.arguments if argument != "out" and differentiable(one, argument)]
    for name, one in CASES.items()
    if list(one.kinds.values()).count("tensor") > 1
}


LAYOUTS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "coo": torch.Tensor.to_sparse,
    "csr": torch.Tensor.to_sparse_csr,
    "mkldnn": torch.Tensor.to_mkldnn,
    "nested": lambda tensor: torch.nested.nested_tensor(list(tensor)),
    "jagged": lambda tensor: torch.nested.nested_tensor(list(tensor), layout=torch.jagged),
}
TENSORS = [
    (name, key)
    for name, one in CASES.items()
    for key, value in one.arguments.items()
    if isinstance(value, torch.Tensor)
]
READ = {"BlockLayout", "BertSparseSelfAttention()", "MatMul()", "SparseSelfAttention()"}
"""What reads values, has weights, or takes tensors on GPUs only, as in DeepSpeed."""
# what takes one tensor, has weights, or leaves this to its kernels
MIXED = {"gelu", "silu", "BertSparseSelfAttention()"}


class Nothing:
    """A kernel that does nothing."""

    def __call__(self, *args: Any, **constexprs: Any) -> None:
        return None

    def __getitem__(self, grid: Any) -> Nothing:
        return self


@pytest.fixture(autouse=True)
def _no_kernels() -> Iterator[None]:
    with library.override(lambda _: Nothing()):
        yield


@contextmanager
def errors_name(argument: str, is_wrong: bool) -> Iterator[None]:
    """Expect a documented error that names the argument; where its type is right, such an error or none."""
    if is_wrong:
        with pytest.raises(
            (ArgumentError, ValueError, NotImplementedError), match=rf"(?i){NAMED.get(argument, argument)}"
        ):
            yield
    else:
        with suppress(ArgumentError, ValueError, NotImplementedError):
            yield


@pytest.mark.parametrize("name", CASES)
def test_the_right_types_are_taken(name: str) -> None:
    one = CASES[name]
    one.call(**one.arguments)


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    ("name", "argument"), [(name, argument) for name, one in CASES.items() for argument in one.arguments]
)
def test_an_argument_of_another_type_is_named(name: str, argument: str, wrong: str) -> None:
    one = CASES[name]
    with errors_name(argument, wrong not in TAKES[one.kinds[argument]]):
        one.call(**{**one.arguments, argument: WRONG[wrong]})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("name", "argument"), TENSORS)
def test_a_tensor_that_does_not_lie_at_strides_is_named(name: str, argument: str, layout: str) -> None:
    one, value = CASES[name], CASES[name].arguments[argument]
    # others have no such layout
    matrix = value if value.dim() == 2 and value.dtype.is_floating_point and value.itemsize > 1 else torch.ones(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = {**one.arguments, argument: LAYOUTS[layout](matrix.detach())}
    with pytest.raises(ArgumentError, match=f"^{argument}: expected a tensor of torch.strided layout, got "):
        one.call(**given)


@pytest.mark.parametrize(("name", "argument"), [one for one in TENSORS if one[0] not in MIXED])
def test_a_tensor_on_meta_beside_others_is_refused(name: str, argument: str) -> None:
    one = CASES[name]
    with pytest.raises((ArgumentError, ValueError), match="meta"):
        one.call(**{**one.arguments, argument: one.arguments[argument].to("meta")})


@pytest.mark.parametrize("name", sorted({name for name, _ in TENSORS if "tensor" in CASES[name].kinds.values()} - READ))
def test_tensors_on_meta_give_results_there(name: str) -> None:
    one = CASES[name]
    given = {
        key: value.to("meta") if isinstance(value, torch.Tensor) else value for key, value in one.arguments.items()
    }
    results = one.call(**given)
    for result in results if isinstance(results, tuple) else (results,):
        assert result.is_meta


@pytest.mark.parametrize(
    "number", [-3.4028236e38, 1e39, 10**40, 10**400], ids=["negative", "float", "int", "large int"]
)
@pytest.mark.parametrize(
    ("name", "argument"),
    [(name, key) for name, one in CASES.items() for key, kind in one.kinds.items() if kind.startswith("number")],
)
def test_a_number_past_the_range_of_fp32_is_refused(name: str, argument: str, number: float) -> None:
    one = CASES[name]
    with pytest.raises(ValueError, match=f"{argument}: expected a number that fp32 holds, got "):
        one.call(**{**one.arguments, argument: number})


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("name", "argument"),
    [(name, key) for name, one in CASES.items() for key in ("scale", "sm_scale") if key in one.kinds and "softmax" not in name.lower()],
)  # fmt: skip
def test_attention_refuses_a_scale_that_is_not_finite(name: str, argument: str, scale: float) -> None:
    one = CASES[name]
    with pytest.raises(ValueError, match=f"{argument}: expected a finite number, got {scale}"):
        one.call(**{**one.arguments, argument: scale})


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    ("name", "argument"), [(name, argument) for name, arguments in GRADIENTS.items() for argument in arguments]
)
def test_so_it_is_where_gradients_are_required(name: str, argument: str, wrong: str) -> None:
    one = CASES[name]
    given = {key: value for key, value in one.arguments.items() if key != "out"} | {argument: WRONG[wrong]}
    first = differentiable(one, argument)[0]
    given[first] = given[first].clone().requires_grad_()
    with errors_name(argument, wrong not in TAKES[one.kinds[argument]]):
        one.call(**given)


@pytest.mark.parametrize("more", [0, 1])
def test_sizes_that_kernels_do_not_count_are_refused(more):
    def meta(rows, cols, dtype=torch.bfloat16):
        return torch.empty(rows, cols, dtype=dtype, device="meta")

    tall, fp8 = COUNTED + more, torch.float8_e4m3fn
    one = torch.empty((), device="meta")
    for call in (
        lambda: mm(meta(tall, 16), meta(16, 16)),
        lambda: mm(meta(16, 16), meta(16, tall)),
        lambda: gated_mm(meta(tall, 16), meta(16, 16)),
        lambda: mm_plus_mm(meta(tall, 16), meta(16, 16), meta(tall, 8), meta(8, 16)),
        lambda: scaled_mm(meta(tall, 16, fp8), meta(16, 16, fp8).t(), one, one),
        lambda: uint4x2_mixed_mm(meta(tall, 16), meta(8, 16, torch.uint8)),
        lambda: b2b_gemm(meta(tall, 16), meta(16, 16), meta(16, 16)),
        lambda: grouped_mm(meta(tall, 16), meta(16, 16)[None], meta(1, 1, torch.int32)[0]),
        lambda: scaled_grouped_mm(
            meta(tall, 16, fp8),
            meta(16, 16, fp8)[None].mT,
            meta(tall, 1, torch.float32),
            meta(1, 16, torch.float32),
            meta(1, 1, torch.int32)[0],
        ),
    ):
        if more:
            with pytest.raises(ValueError, match=f": expected sizes of at most {COUNTED}, got shape"):
                call()
        else:
            call()
    # nothing is counted of what is empty
    assert mm(meta(tall, 0), meta(0, 0)).shape == (tall, 0)
