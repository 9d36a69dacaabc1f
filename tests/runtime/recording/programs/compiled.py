"""A compiled block with a kernel of its own inside, two steps forward."""

import torch
import triton
import triton.language as tl
from torch import nn

WIDTH, HEADS = 64, 2


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.load(x_ptr + places, places < n) * factor, places < n)


def scale(x):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), 0.5, BLOCK=256)
    return out


class Block(nn.Module):
    """Attention and a feed-forward layer, scaled by a kernel."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        heads = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(*heads.unbind(), is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        x = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return scale(x.softmax(-1))


def main():
    block = Block().to("cuda", torch.float16)
    compiled = torch.compile(block)
    with torch.no_grad():
        for _ in range(2):
            compiled(torch.randn(2, 32, WIDTH, dtype=torch.float16, device="cuda"))


if __name__ == "__main__":
    main()
