"""GemLite: products with 4-bit weights, in kernels whose configs are pruned by the problem. Needs ``gemlite``."""

import torch
from gemlite.core import DType, GemLiteLinearTriton
from outputs import compute, random

WIDTH, OUT, GROUP = 512, 256, 64


def main() -> None:
    """Run products of one row and of several."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randint(16, (OUT, WIDTH), generator=generator, dtype=torch.uint8).cuda()
    scales = random(OUT, WIDTH // GROUP, dtype=torch.float16, scale=0.01).view(-1, 1)
    zeros = torch.full_like(scales, 7.0)
    layer = GemLiteLinearTriton(4, GROUP, WIDTH, OUT, input_dtype=DType.FP16, output_dtype=DType.FP16)
    layer.pack(weight, scales, zeros, None)
    for rows in (1, 16, 128):
        compute(f"product of {rows}", layer(random(rows, WIDTH, dtype=torch.float16)), {})


if __name__ == "__main__":
    main()
