"""A server of several ranks: each has a slice of a layer's weights, and adds its part of every answer to the others'.

    torchrun --nproc-per-node 2 examples/record_serve/ranks.py

Each rank is a process that launches the same kernels on its own GPU. Rank 0 prints a digest of each answer. Without GPUs, run it under
``nojit record --fake sm_90`` with ``--no-digest``: there are no answers then.
"""

import argparse
import hashlib
import sys

try:
    import torch
    import torch.distributed as dist
    from layers import linear, rms_norm, silu
    from torch import Tensor
except ModuleNotFoundError as error:
    sys.exit(f"error: expected {error.name} to be installed: pip install torch triton")

WIDTH, HIDDEN = 512, 1536
REQUESTS = (1, 7, 64)
"""Rows of each request."""


def answer(x: Tensor, norm: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Return the layer's output for `x` `[rows, WIDTH]`, summed over all ranks' slices of the hidden dimension."""
    part = linear(linear(rms_norm(x, norm), up, silu), down)
    dist.all_reduce(part)
    return part


def main() -> None:
    """Answer a few requests and print a digest of each answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-digest", action="store_true", help="print no digest: results are not read")
    given = parser.parse_args()
    dist.init_process_group("nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    generator = torch.Generator(device).manual_seed(rank)
    own = HIDDEN // ranks
    up = torch.randn(own, WIDTH, dtype=torch.bfloat16, device=device, generator=generator) / WIDTH**0.5
    down = torch.randn(WIDTH, own, dtype=torch.bfloat16, device=device, generator=generator) / HIDDEN**0.5
    norm = torch.ones(WIDTH, dtype=torch.bfloat16, device=device)
    for rows in REQUESTS:
        x = torch.linspace(-1, 1, rows * WIDTH, device=device).to(torch.bfloat16).view(rows, WIDTH)
        answered = answer(x, norm, up, down)
        if not rank and not given.no_digest:
            print(f"{rows} rows", hashlib.sha256(answered.float().cpu().numpy().tobytes()).hexdigest())
    if not rank:
        print("ran")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
