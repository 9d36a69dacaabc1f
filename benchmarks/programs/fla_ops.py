"""Flash Linear Attention, forward and backward: autotuned kernels with heuristics. Needs ``flash-linear-attention``."""

from configs import limit_configs

# its 450 configs would take longer than the time limit; the limit is the same in every run
limit_configs()

from fla.modules.layernorm import layer_norm  # noqa: E402 - after the limit
from fla.ops.gated_delta_rule import chunk_gated_delta_rule  # noqa: E402 - as above
from fla.ops.gla import chunk_gla  # noqa: E402 - as above
from fla.ops.retention import chunk_retention  # noqa: E402 - as above
from outputs import compute, random  # noqa: E402 - as above

BATCH, TOKENS, HEADS, WIDTH = 1, 256, 4, 64


def main() -> None:
    """Run some operators."""
    q, k, v = (random(BATCH, TOKENS, HEADS, WIDTH, scale=scale, grad=True) for scale in (0.5, 0.4, 1.0))
    decay = (-random(BATCH, TOKENS, HEADS, WIDTH).exp() * 0.1).detach().requires_grad_()
    compute("gla", chunk_gla(q, k, v, decay)[0], {"q": q, "k": k, "v": v, "decay": decay})
    compute("retention", chunk_retention(q, k, v)[0], {"q": q, "k": k, "v": v})
    # forward alone: FLA refuses its gradient with some Tritons on Hopper
    gate = -random(BATCH, TOKENS, HEADS).exp() * 0.1
    beta = random(BATCH, TOKENS, HEADS).sigmoid()
    out = chunk_gated_delta_rule(q.detach(), k.detach(), v.detach(), gate, beta, use_qk_l2norm_in_kernel=True)[0]
    compute("gated_delta_rule", out, {})
    x, weight = random(TOKENS, WIDTH, grad=True), random(WIDTH, grad=True)
    compute("layer_norm", layer_norm(x, weight, None), {"x": x, "weight": weight})


if __name__ == "__main__":
    main()
