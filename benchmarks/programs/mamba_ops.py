"""Mamba 2's chunked scan and gated norm, forward and backward: autotuned kernels with heuristics. Needs the folder ``mamba_ssm``, and ``einops``."""

import sys
from importlib.util import find_spec
from types import ModuleType

import torch
from configs import limit_configs

# its 200 configs would take longer than the time limit; the limit is the same in every run
limit_configs()

# the package's own `__init__` needs its CUDA extension, which these kernels do not
package = ModuleType("mamba_ssm")
found = find_spec("mamba_ssm")
if found is None or found.submodule_search_locations is None:
    raise ModuleNotFoundError("No module named 'mamba_ssm'", name="mamba_ssm")
package.__path__ = [*found.submodule_search_locations]
sys.modules["mamba_ssm"] = package

from mamba_ssm.ops.triton.layernorm_gated import rmsnorm_fn  # noqa: E402 - after the package
from mamba_ssm.ops.triton.selective_state_update import selective_state_update  # noqa: E402 - as above
from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined  # noqa: E402 - as above
from outputs import compute, random  # noqa: E402 - as above

BATCH, TOKENS, HEADS, WIDTH, STATE = 1, 256, 4, 64, 32


def main() -> None:
    """Run each operator."""
    x = random(BATCH, TOKENS, HEADS, WIDTH, grad=True)
    steps = random(BATCH, TOKENS, HEADS).sigmoid().detach().requires_grad_()
    decay = (-random(HEADS, dtype=torch.float32).exp()).detach().requires_grad_()
    b, c = random(BATCH, TOKENS, 1, STATE, grad=True), random(BATCH, TOKENS, 1, STATE, scale=0.5, grad=True)
    out = mamba_chunk_scan_combined(x, steps, decay, b, c, 64)
    compute("chunk_scan", out, {"x": x, "steps": steps, "decay": decay, "b": b, "c": c})
    rows, gate, weight = (
        random(TOKENS, 256, grad=True),
        random(TOKENS, 256, scale=0.5, grad=True),
        random(256, grad=True),
    )
    compute("rms_norm", rmsnorm_fn(rows, weight, None, z=gate), {"x": rows, "gate": gate, "weight": weight})
    state, one = random(BATCH, HEADS, WIDTH, STATE, dtype=torch.float32), random(BATCH, HEADS, WIDTH)
    rates = -random(HEADS, WIDTH, STATE, dtype=torch.float32).exp()
    mixed = random(BATCH, 1, STATE)
    skip = random(HEADS, WIDTH, dtype=torch.float32)
    out = selective_state_update(state, one, one.sigmoid(), rates, mixed, mixed, D=skip, dt_bias=skip)
    compute("state_update", out, {})


if __name__ == "__main__":
    main()
