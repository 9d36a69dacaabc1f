"""A compiled transformer block with a custom Triton kernel inside, forward and backward. Prints a digest of each result.

    TORCHINDUCTOR_CACHE_DIR=/var/cache/graphs python examples/record_serve/compiled.py [--forward]

torch keeps the compiled graph in that folder; nojit's bundle holds the machine code of the kernels that the graph launches.
"""

import argparse
import hashlib
import sys

try:
    import torch
    import triton
    from layers import scale_kernel
    from torch import Tensor, nn
    from torch.library import triton_op, wrap_triton
except ModuleNotFoundError as error:
    sys.exit(f"error: expected {error.name} to be installed: pip install torch triton")

WIDTH, HEADS, TOKENS = 512, 8, 256


@triton_op("record_serve::scale", mutates_args=())
def scale(x: Tensor, factor: Tensor) -> Tensor:
    """Return `x * factor`; `factor` holds one number."""
    out = torch.empty_like(x)
    wrap_triton(scale_kernel)[(triton.cdiv(x.numel(), 1024),)](x, factor, out, x.numel(), BLOCK=1024)
    return out


@scale.register_kernel("cpu")
def _(x: Tensor, factor: Tensor) -> Tensor:
    return x * factor


class Block(nn.Module):
    """Attention and a feed-forward layer; `factor` scales the result without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.register_buffer("factor", torch.full((1,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output for `x` `[batch, tokens, WIDTH]`."""
        heads = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(*heads.unbind(), is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        x = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return x * scale(x.detach().contiguous(), self.factor)


def main() -> None:
    """Run a step and print a digest of each result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-digest", action="store_true", help="print no digest: results are not read")
    parser.add_argument("--forward", action="store_true", help="no backward pass, as in inference")
    given = parser.parse_args()
    torch.manual_seed(0)
    block = Block().to("cuda", torch.bfloat16)
    compiled = torch.compile(block)
    x = torch.randn(2, TOKENS, WIDTH, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    with torch.set_grad_enabled(not given.forward):
        out = compiled(x)
    if not given.forward:
        out.sum().backward()
    if given.no_digest:
        print("ran")
        return
    gradients = {name: weight.grad for name, weight in block.named_parameters() if weight.grad is not None}
    for name, result in {"output": out.detach(), **gradients}.items():
        print(name, hashlib.sha256(result.float().cpu().numpy().tobytes()).hexdigest())


if __name__ == "__main__":
    main()
