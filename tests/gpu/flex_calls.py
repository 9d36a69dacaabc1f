"""Calls of flex attention and of its gradients: every dtype, width, mode, modification, alignment and kind of operand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from nojit.kernels.calls.memos import new_memo
from nojit.kernels.flex import (
    Alibi,
    BlockMask,
    Causal,
    Chain,
    DenseBias,
    Documents,
    Prefix,
    RelativeBias,
    SoftCap,
    Window,
    alibi_slopes,
    create_block_mask,
    flex_attention,
    launch_sm90_bwd,
    op,
    reference,
)
from nojit.kernels.flex import (
    launch as flex_launch,
)
from torch import Tensor

from tests.gpu.call import DTYPES, Call, Outputs, as_tuple, view

LENGTHS = (203, 257)
SQUARE = (512, 512)
# more tiles of keys than one program's, the last of them not full
LONG = (1100, 1000)
HEADS = 4
# each tile width full and not
WIDTHS = [(d, d) for d in (32, 64, 128, 256, 24, 40, 80, 111, 200)] + [(256, 128), (192, 128), (40, 64)]
Maker = Callable[[int, int, int], Any]


def _numbers(values: object) -> Tensor:
    return torch.tensor(values, device="cuda")


def _documents(q_len: int, kv_len: int, first: int = 40) -> Documents:
    ids = torch.arange(max(q_len, kv_len), device="cuda")
    return Documents((ids >= first).int() + (ids >= 170).int())


def _patches(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Let all of some blocks be seen, a third of others, and nothing of the rest; some queries see nothing at all."""
    kind = (q // 128 + k // 128) % 3
    return ((kind == 1) | ((kind == 2) & ((q - k) % 3 == 0))) & (q % 11 > 0)


def _by_batch(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Let every second key be seen in the first batch, and every third of a window in the second; some blocks are full."""
    return ((q - k) % (2 + b) == 0) & (k < q + 150 - 100 * b) | (k // 128 == b)


# by lengths: a mask function, and how many batches and heads differ
MASKS: Mapping[str, Callable[[int, int], tuple[Any, int | None, int | None]]] = {
    "none": lambda q_len, kv_len: (None, None, None),
    "causal": lambda q_len, kv_len: (Causal(kv_len - q_len), None, None),
    "window": lambda q_len, kv_len: (Window(37, 20, -90), None, None),
    "documents": lambda q_len, kv_len: (_documents(q_len, kv_len), None, None),
    "patches": lambda q_len, kv_len: (_patches, None, None),
    "dilated": lambda q_len, kv_len: ((lambda b, h, q, k: ((q - k) % 3 == h % 3) & (k < q + 150)), None, HEADS),
}
# masks with a prefix, and masks of each batch's own
OTHER_MASKS: Mapping[str, Callable[[int, int], tuple[Any, int | None, int | None]]] = {
    "prefix": lambda q_len, kv_len: (Prefix(_numbers(90)), None, None),
    "prefixes": lambda q_len, kv_len: (Prefix(_numbers([5, 190])), 2, None),
    "documents of batches": lambda q_len, kv_len: (
        Documents(torch.stack([each.ids for each in (_documents(q_len, kv_len), _documents(kv_len, q_len, 90))])),
        2,
        None,
    ),
    "windows of batches": lambda q_len, kv_len: ((lambda b, h, q, k: (q - k).abs() <= 40 + 60 * b), 2, None),
    "bitmaps of batches": lambda q_len, kv_len: (_by_batch, 2, None),
    "bitmaps of batches and heads": lambda q_len, kv_len: (
        (lambda b, h, q, k: ((q - k) % (2 + b) == h % 2) & (k < q + 150)),
        2,
        HEADS,
    ),
}
MODES = ("causal", "documents", "dilated")
# by dtype and lengths
MODS: Mapping[str, Callable[[torch.dtype, int, int], Any]] = {
    "none": lambda dtype, q_len, kv_len: None,
    "alibi": lambda dtype, q_len, kv_len: Alibi(alibi_slopes(HEADS, "cuda")),
    "relative": lambda dtype, q_len, kv_len: RelativeBias(view((HEADS, 65), torch.float32, 6)),
    "cap": lambda dtype, q_len, kv_len: SoftCap(1.5),
    "bias": lambda dtype, q_len, kv_len: DenseBias(view((1, HEADS, q_len, kv_len), dtype, 7)),
    "chain": lambda dtype, q_len, kv_len: Chain(SoftCap(2.0), Alibi(view((2, HEADS), torch.float32, 8, scale=0.05))),
}


@dataclass(frozen=True)
class Case:
    """One call."""

    dtype: torch.dtype
    widths: tuple[int, int]
    mask: str = "none"
    mod: str = "none"
    lengths: tuple[int, int] = LENGTHS
    offset: int = 0
    block: int = 128
    kv_heads: int = 2
    kv_batch: int = 2
    maps: bool = True
    """Whether the kernels over tensor maps may run where they can."""

    @contextmanager
    def steered(self) -> Iterator[None]:
        """Keep to pointers if maps are not to be; tables, and what they remember, are made anew."""
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(op, "_UNMASKED", new_memo(operands=6, limit=8)))
            if not self.maps:
                for module in (flex_launch, launch_sm90_bwd):
                    stack.enter_context(mock.patch.object(module, "maps_of", return_value=None))
            yield

    def inputs(self) -> list[Tensor]:
        q_len, kv_len = self.lengths
        dim, v_dim = self.widths
        q = view((2, HEADS, q_len, dim), self.dtype, 1, offset=self.offset)
        k = view((self.kv_batch, self.kv_heads, kv_len, dim), self.dtype, 2, offset=self.offset)
        # heads in the inner place: strides that are not those of a contiguous tensor
        v = view((self.kv_batch, kv_len, self.kv_heads, v_dim), self.dtype, 3, offset=self.offset).transpose(1, 2)
        return [q, k, v]

    def grads(self) -> list[Tensor]:
        """Make those of the output and of the log-sums."""
        shape = (2, HEADS, self.lengths[0])
        return [view((*shape, self.widths[1]), self.dtype, 4, offset=self.offset), view(shape, torch.float32, 5)]

    @property
    def mask_mod(self) -> Any:
        return self.mask_words()[0]

    def mask_words(self) -> tuple[Any, int | None, int | None]:
        return (MASKS.get(self.mask) or OTHER_MASKS[self.mask])(*self.lengths)

    def block_mask(self) -> BlockMask | None:
        function, batches, heads = self.mask_words()
        if function is None:
            return None
        return create_block_mask(function, batches, heads, *self.lengths, "cuda", self.block)

    def own_mod(self) -> Any:
        return MODS[self.mod](self.dtype, *self.lengths)

    def run(self, inputs: list[Tensor], mod: Any = None) -> Outputs:
        """Call the operator, with the case's modification or `mod`."""
        mod = self.own_mod() if mod is None else mod
        with self.steered():
            return as_tuple(flex_attention(*inputs, mod, self.block_mask(), enable_gqa=True, return_lse=True))

    def expected(self, inputs: list[Tensor], mod: Any = None) -> Outputs:
        """Attend in plain torch, in the precision of `inputs`; what a modification captured keeps its own."""
        return reference.flex_attention(*inputs, self.own_mod() if mod is None else mod, self.mask_mod)

    def torchs(self, inputs: list[Tensor], mod: Any = None) -> Outputs:
        """Attend by eager operators: products in the operands' precision, softmax in fp32."""
        q, k, v = inputs
        group = HEADS // self.kv_heads
        k, v = (each.expand(2, -1, -1, -1).repeat_interleave(group, 1) for each in (k, v))
        scores = (q @ k.mT).float() * self.widths[0] ** -0.5
        mod = self.own_mod() if mod is None else mod
        if mod is not None:
            places = [
                torch.arange(count, device="cuda").view([count if dim == own else 1 for dim in range(4)])
                for own, count in enumerate(scores.shape)
            ]
            scores = mod(scores, *places)
        if self.mask_mod is not None:
            seen = reference.seen(self.mask_mod, 2, HEADS, *self.lengths, "cuda")
            scores = scores.masked_fill(~seen, float("-inf"))
        blind = (scores == float("-inf")).all(-1)
        scores = scores.masked_fill(blind[..., None], 0.0)
        out = torch.softmax(scores, -1).masked_fill(blind[..., None], 0.0).to(q.dtype) @ v
        return out, torch.logsumexp(scores, -1).masked_fill(blind, float("-inf"))


def _fits(dtype: torch.dtype, widths: tuple[int, int]) -> bool:
    return dtype is not torch.float32 or max(widths) <= 128


def cases() -> Iterator[Case]:
    """List cases that reach every variant, both ways where there are two."""
    # of 16 bits, gradients of what looks scores up and of what does not are different kernels
    for dtype, widths, mask, mod in itertools.product(DTYPES, WIDTHS, MODES, ("none", "chain", "relative")):
        if not _fits(dtype, widths) or (mod == "relative" and dtype == torch.float32):
            continue
        one = Case(dtype, widths, mask, mod)
        yield one
        yield Case(dtype, widths, mask, mod, offset=1)
        mapped = (
            dtype.itemsize == 2 and max(widths) <= flex_launch.MAX_MAPPED_DIM and widths[0] % 8 == 0 == widths[1] % 8
        )
        if (mask, mod) == ("causal", "none"):
            # with keys of each batch's own, flash attention's kernels differentiate it
            yield Case(dtype, widths, mask, mod, kv_batch=1)
            yield Case(dtype, widths, mask, mod, kv_batch=1, offset=1)
            if mapped:
                yield Case(dtype, widths, mask, mod, kv_batch=1, maps=False)
        if mapped:
            yield Case(dtype, widths, mask, mod, maps=False)
        if mask == "dilated":
            yield Case(dtype, widths, mask, mod, block=64)
    for dtype, mask, mod in itertools.product(DTYPES, MASKS, MODS):
        yield Case(dtype, (64, 64), mask, mod, SQUARE)
        yield Case(dtype, (64, 64), mask, mod, (1, 700))
        yield Case(dtype, (64, 64), mask, mod, (700, 3), kv_batch=1, kv_heads=4)
        if dtype.itemsize == 2:
            yield Case(dtype, (128, 128), mask, mod, LONG)
            if mask == "dilated":
                # heads that differ, and share no keys
                yield Case(dtype, (64, 64), mask, mod, LONG, kv_heads=HEADS)
                yield Case(dtype, (128, 128), mask, mod, LONG, kv_heads=HEADS)
    yield from _other_cases()


def _other_cases() -> Iterator[Case]:
    """List cases of `OTHER_MASKS`: heads that share keys and that do not, and one batch of keys for all."""
    for dtype, mask, mod in itertools.product(DTYPES, OTHER_MASKS, ("none", "chain")):
        yield Case(dtype, (64, 64), mask, mod, LONG)
        yield Case(dtype, (64, 64), mask, mod, kv_batch=1, offset=1)
        if dtype.itemsize == 2:
            yield Case(dtype, (128, 128), mask, mod, LONG, kv_heads=HEADS)
            yield Case(dtype, (128, 128), mask, mod, LONG, maps=False)


def _label(what: str, case: Case) -> str:
    return f"{what} {str(case.dtype)[6:]} {case}"


def flex_calls() -> Iterator[Call]:
    for case in dict.fromkeys(cases()):
        yield attention_call(case)


def attention_call(case: Case, mod: Any = None) -> Call:
    """Attend with the case's modification, or with `mod`."""
    return Call(
        _label("flex_attention", case),
        lambda: case.run(case.inputs(), mod),
        lambda: case.expected([each.double() for each in case.inputs()], mod),
        lambda: case.torchs(case.inputs(), mod),
        (2.0, 2.0),
        # exp2 of the device is off by two units, which shows where a row sees few keys
        lambda exact: (
            4 * torch.finfo(case.dtype).eps * float(exact[0].abs().max()) if case.dtype == torch.float32 else 0.0
        ),
    )


def flex_gradient_calls() -> Iterator[Call]:
    for case in dict.fromkeys(cases()):
        yield gradient_call(case)


def flex_captured_calls() -> Iterator[Call]:
    """Differentiate by what a modification captures: sums of fp32, in any order."""
    for dtype, widths, mask, mod, offset in itertools.product(
        DTYPES, WIDTHS, MODES, ("alibi", "relative", "bias"), (0, 1)
    ):
        if _fits(dtype, widths):
            yield _captured_call(Case(dtype, widths, mask, mod, offset=offset))


def _captured(mod: Any) -> Tensor:
    """Return the one tensor that a modification captures."""
    tensor = mod.slots[0].table if mod.bias is None else mod.bias
    return tensor.requires_grad_()  # type: ignore[no-any-return]


def _captured_call(case: Case) -> Call:
    def differentiate(run: Callable[[Any], Tensor], to: torch.dtype | None = None) -> Outputs:
        mod = case.own_mod()
        tensor = _captured(mod)
        grad = case.grads()[0]
        return torch.autograd.grad(run(mod), (tensor,), grad if to is None else grad.to(to))

    def ours(mod: Any) -> Tensor:
        return as_tuple(flex_attention(*case.inputs(), mod, case.block_mask(), enable_gqa=True, deterministic=False))[0]

    return Call(
        _label("flex_attention captured", case),
        lambda: differentiate(ours),
        lambda: differentiate(
            lambda mod: reference.flex_attention(*(x.double() for x in case.inputs()), mod, case.mask_mod)[0],
            torch.float64,
        ),
        lambda: differentiate(lambda mod: case.torchs(case.inputs(), mod)[0]),
        (3.0,),
        lambda exact: 200 * torch.finfo(torch.float32).eps * float(exact[0].abs().max()),
    )


def gradient_call(case: Case, mod: Any = None) -> Call:
    """Differentiate likewise."""

    def differentiate(function: Callable[[list[Tensor], Any], Outputs], to: torch.dtype | None = None) -> Outputs:
        inputs = [x if to is None else x.to(to) for x in case.inputs()]
        with case.steered():
            results = function([x.requires_grad_() for x in inputs], mod)
            grads = [x if to is None else x.to(to) for x in case.grads()]
            # a row that sees nothing takes no part of the gradient of its log-sum
            blind = results[1] == float("-inf")
            return torch.autograd.grad(results, inputs, [grads[0], grads[1].masked_fill(blind, 0.0)])

    return Call(
        _label("flex_attention backward", case),
        lambda: differentiate(case.run),
        lambda: differentiate(case.expected, torch.float64),
        lambda: differentiate(case.torchs),
        (3.0, 3.0, 3.0),
        # weights are recomputed from log-sums in fp32, as in every fused kernel: those here are 10 at most
        lambda exact: 20 * torch.finfo(torch.float32).eps * max(float(value.abs().max()) for value in exact),
    )
