"""A program that loads the package and calls it with the types and sizes to ship.

    python examples/hub_kernel/use.py

needs the package ``kernels``, and a GPU unless it runs under ``nojit record --fake``.
"""

import sys
from pathlib import Path

try:
    import torch

    from kernels import get_local_kernel  # noqa: TID251 - the library of that name
except ModuleNotFoundError as error:
    sys.exit(f"error: expected {error.name} to be installed: pip install torch kernels")


def main() -> None:
    """Call each function with several sizes and dtypes."""
    activations = get_local_kernel(Path(__file__).parent)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for rows, columns in ((1, 704), (64, 704), (3, 701)):
            x = torch.ones(rows, 2 * columns, dtype=dtype, device="cuda")
            for function in (activations.silu_and_mul, activations.gelu_and_mul):
                function(torch.empty(rows, columns, dtype=dtype, device="cuda"), x)
    print("ran")


if __name__ == "__main__":
    main()
