"""SageAttention: attention in int8. Needs ``sageattention`` 1."""

import torch
from outputs import compute, random
from sageattention import sageattn


def main() -> None:
    """Run attention with and without a causal mask."""
    q, k, v = (random(2, 4, 300, 64, dtype=torch.float16, scale=scale) for scale in (1.0, 0.9, 0.8))
    for causal in (False, True):
        compute(f"attention, causal {causal}", sageattn(q, k, v, is_causal=causal), {})


if __name__ == "__main__":
    main()
