"""Liger's operators, forward and backward. Needs ``liger-kernel``."""

import torch
from liger_kernel.ops import (
    LigerCrossEntropyFunction,
    LigerFusedLinearCrossEntropyFunction,
    LigerGELUMulFunction,
    LigerLayerNormFunction,
    LigerRMSNormFunction,
    LigerRopeFunction,
    LigerSiLUMulFunction,
)
from outputs import compute, random

TOKENS, WIDTH, WORDS, HEADS = 512, 1024, 4096, 8


def main() -> None:
    """Run each operator."""
    x, weight, bias = random(TOKENS, WIDTH, grad=True), random(WIDTH, grad=True), random(WIDTH, scale=0.1, grad=True)
    compute("rms_norm", LigerRMSNormFunction.apply(x, weight, 1e-6), {"x": x, "weight": weight})
    compute("layer_norm", LigerLayerNormFunction.apply(x, weight, bias, 1e-6), {"x": x, "weight": weight, "bias": bias})
    gate, up = random(TOKENS, WIDTH, grad=True), random(TOKENS, WIDTH, scale=0.5, grad=True)
    compute("swiglu", LigerSiLUMulFunction.apply(gate, up), {"gate": gate, "up": up})
    compute("geglu", LigerGELUMulFunction.apply(gate, up), {"gate": gate, "up": up})
    q, k = random(1, HEADS, TOKENS, 64, grad=True), random(1, HEADS // 2, TOKENS, 64, grad=True)
    angles = random(1, TOKENS, 64)
    compute("rope", LigerRopeFunction.apply(q, k, angles.cos(), angles.sin()), {"q": q, "k": k})
    logits = random(TOKENS, WORDS, grad=True)
    # from the CPU: Liger asks how many of them count
    labels = torch.randint(WORDS, (TOKENS,), generator=torch.Generator().manual_seed(1)).cuda()
    loss = LigerCrossEntropyFunction.apply(logits, labels, None)[0]
    compute("cross_entropy", loss, {"logits": logits})
    head = random(WORDS, WIDTH, scale=0.02, grad=True)
    loss = LigerFusedLinearCrossEntropyFunction.apply(x, head, labels)[0]
    compute("fused_linear_cross_entropy", loss, {"x": x, "head": head})


if __name__ == "__main__":
    main()
