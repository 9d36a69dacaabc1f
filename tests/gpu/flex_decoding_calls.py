"""Calls of flex decoding: every dtype, width, kind of mask, modification, alignment and place of keys."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from nojit.kernels.flex import Causal, Chain, DenseBias, RelativeBias, SoftCap, Window, create_block_mask
from nojit.kernels.flex_decoding import flex_decoding, reference
from torch import Tensor

from tests.gpu.call import DTYPES, Call, Outputs, as_tuple, view
from tests.gpu.matmul_calls import VECTOR_FACTOR
from tests.kernels.accuracy import largest

HEADS = 8
# each tile width full and not
WIDTHS = [(d, d) for d in (64, 128, 256, 24, 80, 111, 200)] + [(256, 128), (192, 128), (40, 64)]
# rows that read the same keys: 4, 24 and 80 of groups of four
LENGTHS = ((1, 800), (6, 800), (20, 773))
# numbers of queries that fill tiles, and that are one off
MANY = (21, 32, 33, 64, 65, 100, 127)
MASKS: Mapping[str, Callable[[int, int], tuple[Any, int | None]]] = {
    "none": lambda q_len, kv_len: (None, None),
    "band": lambda q_len, kv_len: (Causal(kv_len - q_len - 20), None),
    "window": lambda q_len, kv_len: (Window(300, 0, kv_len - q_len), None),
    "intervals": lambda q_len, kv_len: ((lambda b, h, q, k: (k >= 50 * h) & (k < 60 * h + 200 + 7 * q)), HEADS),
    "dilated": lambda q_len, kv_len: ((lambda b, h, q, k: (q - k) % 3 == 0), None),
    "far blocks": lambda q_len, kv_len: ((lambda b, h, q, k: (k // 128) % 2 == 1), None),
    "by head": lambda q_len, kv_len: ((lambda b, h, q, k: (k // 16 + h) % 2 == 0), HEADS),
}
MODS: Mapping[str, Callable[[torch.dtype, int, int], Any]] = {
    "none": lambda dtype, q_len, kv_len: None,
    "relative": lambda dtype, q_len, kv_len: RelativeBias(view((HEADS, 65), torch.float32, 6)),
    "chain": lambda dtype, q_len, kv_len: Chain(SoftCap(2.0), DenseBias(view((1, HEADS, q_len, kv_len), dtype, 7))),
}


@dataclass(frozen=True)
class Case:
    """One call."""

    dtype: torch.dtype
    widths: tuple[int, int] = (128, 128)
    mask: str = "none"
    mod: str = "none"
    lengths: tuple[int, int] = LENGTHS[0]
    offset: int = 0
    page: int = 0
    """Rows of a page; 0 without pages."""
    lens: bool = False
    """Whether the device says how many keys there are."""
    splits: int | None = None
    words: tuple[tuple[str, Any], ...] = ()
    """More words of the call."""
    kv_heads: int = 2
    batch: int = 3

    @property
    def label(self) -> str:
        """Everything that is not as usual."""
        return " ".join(f"{name}={getattr(self, name)}" for name in Case.__dataclass_fields__)

    def inputs(self) -> tuple[list[Tensor], dict[str, Any]]:
        """Make query, key and value, and the words that both this operator and its reference take."""
        (q_len, kv_len), (dim, v_dim) = self.lengths, self.widths
        words: dict[str, Any] = dict(self.words)
        lead, rows = self.batch, kv_len
        if self.page:
            pages = -(-kv_len // self.page)
            lead, rows = self.batch * pages + 5, self.page
            order = torch.randperm(lead, generator=torch.Generator("cuda").manual_seed(9), device="cuda")
            words["page_table"] = order[: self.batch * pages].view(self.batch, pages).to(torch.int32)
        if self.lens or self.page:
            lens = torch.linspace(kv_len, kv_len // 3, self.batch, device="cuda")
            words["kv_lens"] = lens.to(torch.int32)
        q = view((self.batch, HEADS, q_len, dim), self.dtype, 1, offset=self.offset)
        k = view((lead, self.kv_heads, rows, dim), self.dtype, 2, offset=self.offset)
        # heads in the inner place: strides that are not those of a contiguous tensor
        v = view((lead, rows, self.kv_heads, v_dim), self.dtype, 3, offset=self.offset).transpose(1, 2)
        return [q, k, v], words

    @property
    def capacity(self) -> int:
        """How many keys there is room for."""
        return -(-self.lengths[1] // self.page) * self.page if self.page else self.lengths[1]

    @property
    def mask_mod(self) -> Any:
        """The function of the mask."""
        return MASKS[self.mask](self.lengths[0], self.capacity)[0]

    def run(self) -> Outputs:
        """Call the operator."""
        operands, words = self.inputs()
        sizes = (self.lengths[0], self.capacity)
        function, heads = MASKS[self.mask](*sizes)
        if function is not None:
            words["block_mask"] = create_block_mask(function, None, heads, *sizes, "cuda")
        mod = MODS[self.mod](self.dtype, *sizes)
        return as_tuple(flex_decoding(*operands, mod, enable_gqa=True, return_lse=True, splits=self.splits, **words))

    def expected(self, to: torch.dtype) -> Outputs:
        """Attend in plain torch, in another precision; what a modification captured keeps its own."""
        operands, words = self.inputs()
        mod = MODS[self.mod](self.dtype, self.lengths[0], self.capacity)
        if mod is not None and "kv_lens" in words:
            mod = _rows_by_query(mod, words["kv_lens"], self.lengths[0])
        out, lse = reference.flex_decoding(*(each.to(to) for each in operands), mod, mask_mod=self.mask_mod, **words)
        return out.to(to), lse

    def call(self) -> Call:
        """Return it as the tests take it."""
        return Call(
            f"flex_decoding {self.label}",
            self.run,
            lambda: self.expected(torch.float64),
            lambda: tuple(x if at == 0 else x.float() for at, x in enumerate(self.expected(self.dtype))),
            (self._factor(), 2.0),
            # log-sums are fp32 in every dtype, where torch's eager ones are rounded
            lambda exact: 2e-5 * max(1.0, largest(exact[1])),
        )

    def _factor(self) -> float:
        return VECTOR_FACTOR if self.dtype == torch.float32 and self.lengths[0] == 1 else 2.0


def _rows_by_query(mod: Any, lens: Tensor, q_len: int) -> Any:
    """Count the rows of a dense bias from the first query, wherever that stands."""
    if not isinstance(mod, Chain):
        return mod
    values = mod.second.values

    def modify(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        own = q - lens.view(-1, 1, 1, 1) + q_len
        return mod.first(score, b, h, q, k) + values[torch.zeros_like(b), h, own, k]

    return modify


def _fits(dtype: torch.dtype, widths: tuple[int, int]) -> bool:
    return dtype is not torch.float32 or max(widths) <= 128


def cases() -> Iterator[Case]:
    """List cases that together reach every variant."""
    for dtype, widths, page, mask, mod in itertools.product(
        DTYPES, WIDTHS, (0, 16), ("none", "dilated"), ("none", "chain")
    ):
        if _fits(dtype, widths):
            for offset, lengths in itertools.product((0, 1), LENGTHS):
                if not offset or lengths == LENGTHS[2]:
                    yield Case(dtype, widths, mask, mod, lengths, offset, page)
    yield from _other_cases()


def _other_cases() -> Iterator[Case]:
    """List cases of every mask, page size, word and number of heads."""
    for dtype, mask, lengths in itertools.product(DTYPES, MASKS, LENGTHS):
        yield Case(dtype, mask=mask, lengths=lengths, widths=(64, 64), splits=1)
        yield Case(dtype, mask=mask, lengths=lengths, widths=(64, 64), splits=5, lens=True)
    for page in (1, 16, 32, 64, 128, 256):
        yield Case(torch.bfloat16, page=page, lengths=(3, 800), words=(("is_causal", True), ("window", 200)))
    for words in ((("is_causal", True),), (("window", (90, 3)),), (("is_causal", True), ("window", 64))):
        for splits in (1, 2, 7, 40):
            yield Case(torch.float16, lengths=(9, 1000), lens=True, splits=splits, words=words)
    for words, heads in itertools.product(((), (("is_causal", True),), (("window", (90, 3)),)), (1, 2, 8)):
        for splits in (None, 1, 3, 40):
            yield Case(torch.float16, lens=True, splits=splits, words=words, kv_heads=heads)
            yield Case(torch.bfloat16, (64, 64), lengths=(1, 131), page=32, splits=splits, words=words, kv_heads=heads)
    for mod in ("relative", "chain"):
        yield Case(torch.bfloat16, mod=mod, lens=True, lengths=(5, 600))
    for q_len, heads in itertools.product(MANY, (1, 2, 8)):
        for mask in ("none", "window", "intervals", "dilated"):
            yield Case(torch.bfloat16, (64, 64), mask, lengths=(q_len, 1500), kv_heads=heads)
        yield Case(torch.float16, (128, 128), mod="chain", lengths=(q_len, 1500), kv_heads=heads)
        yield Case(torch.float16, page=16, lengths=(q_len, 1500), words=(("is_causal", True),), kv_heads=heads)
    yield Case(torch.bfloat16, lengths=(1, 70_000), batch=1)
    yield Case(torch.bfloat16, lengths=(2, 0), batch=2)


def flex_decoding_calls() -> Iterator[Call]:
    for case in cases():
        yield case.call()
