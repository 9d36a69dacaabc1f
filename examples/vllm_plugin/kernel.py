"""A kernel in the form that vLLM's warmup asks for."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from standin import JitKernel, WarmupTensor


@triton.jit
def slots_kernel(table_ptr, positions_ptr, out_ptr, tokens, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr):
    places = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = places < tokens
    position = tl.load(positions_ptr + places, inside, 0)
    block = tl.load(table_ptr + position // BLOCK_SIZE, inside, 0)
    tl.store(out_ptr + places, block * BLOCK_SIZE + position % BLOCK_SIZE, inside)


class SlotsKernel(JitKernel):
    """Slots of tokens in a cache of blocks."""

    @dataclass(frozen=True)
    class CompileKey:
        """Constexprs and hint of one specialization."""

        block_size: int
        tile: int
        whole: bool

    def dispatch(self, block_size: int, tokens: int) -> CompileKey:
        """Return the key of a call."""
        return self.CompileKey(block_size, min(1024, triton.next_power_of_2(tokens)), tokens % 16 == 0)

    def get_warmup_keys(self) -> Iterable[CompileKey]:
        """Return the keys to have before the first request."""
        return [self.dispatch(size, tokens) for size in (16, 32) for tokens in (33, 64, 512, 4000, 4096)]

    def compile(self, key: CompileKey) -> None:
        """Make a key available: Triton compiles it, or nojit loads it."""
        tables, slots = WarmupTensor(torch.int32), WarmupTensor(torch.int64)
        named = {"BLOCK_SIZE": key.block_size, "TILE": key.tile}
        slots_kernel.warmup(tables, slots, slots, 16 if key.whole else 33, grid=(1,), **named)

    def __call__(self, table: torch.Tensor, positions: torch.Tensor, out: torch.Tensor, block_size: int) -> None:
        """Launch."""
        tokens = out.numel()
        key = self.dispatch(block_size, tokens)
        grid = (triton.cdiv(tokens, key.tile),)
        slots_kernel[grid](table, positions, out, tokens, BLOCK_SIZE=block_size, TILE=key.tile)


SLOTS = SlotsKernel()
