"""A program with Triton kernels: a few layers for batches of several sizes, forward and backward. Prints a digest of each result.

    python examples/record_serve/program.py

The output is the same whether Triton compiles the kernels or nojit serves them. On a machine without a GPU, run it under
``nojit record --fake sm_90``: there are no results then.
"""

import argparse
import hashlib
import sys

try:
    import torch
    from layers import add, gelu, linear, rms_norm, scaled, silu
    from torch import Tensor
except ModuleNotFoundError as error:
    sys.exit(f"error: expected {error.name} to be installed: pip install torch triton")

WIDTH, HIDDEN = 256, 704


def run(rows: int, dtype: torch.dtype) -> list[Tensor]:
    """Return the output and the gradient of a block for `rows` rows."""
    device = torch.device("cuda")
    generator = torch.Generator(device).manual_seed(rows)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=dtype, device=device, generator=generator)

    x, norm = random(rows, WIDTH), random(WIDTH)
    up, gate, down = random(HIDDEN, WIDTH), random(HIDDEN, WIDTH), random(WIDTH, HIDDEN)
    factor = random(1)
    hidden = rms_norm(x, norm)
    hidden = linear(hidden, up, silu) * linear(hidden, gate, gelu)
    out = add(x, linear(hidden, down)).requires_grad_()
    result = scaled(out, factor)
    result.sum().backward()
    return [result.detach(), *([] if out.grad is None else [out.grad])]


def main() -> None:
    """Run batches of several sizes and print a digest of each result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 64, 200], help="rows of each batch")
    parser.add_argument("--no-digest", action="store_true", help="print no digest: results are not read")
    given = parser.parse_args()
    for rows in given.rows:
        for dtype in (torch.float16, torch.bfloat16):
            results = run(rows, dtype)
            if not given.no_digest:
                for name, result in zip(("output", "gradient"), results, strict=False):
                    digest = hashlib.sha256(result.float().cpu().numpy().tobytes())
                    print(f"{rows} rows, {dtype}, {name}: {digest.hexdigest()}")
    print("ran")


if __name__ == "__main__":
    main()
