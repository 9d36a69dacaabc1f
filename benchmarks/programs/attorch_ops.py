"""Layers of attorch, forward and backward: autotuned kernels with heuristics. Needs the folder ``attorch``."""

import attorch
import torch
from outputs import compute, random


def main() -> None:
    """Run some layers."""
    x = random(256, 512, dtype=torch.float32, grad=True)
    torch.manual_seed(0)
    layers = {
        "layer_norm": attorch.LayerNorm(512),
        "rms_norm": attorch.RMSNorm(512),
        "linear": attorch.Linear(512, 128, act_func="relu"),
        "softmax": attorch.Softmax(dim=-1),
        "gelu": attorch.GELU(),
    }
    for name, layer in layers.items():
        layer.cuda()
        compute(name, layer(x), {"x": x, **dict(layer.named_parameters())})
    compute("glu", attorch.GLU()(x), {"x": x})
    labels = torch.randint(512, (256,), generator=torch.Generator().manual_seed(1)).cuda()
    compute("cross_entropy", attorch.CrossEntropyLoss()(x, labels), {"x": x})


if __name__ == "__main__":
    main()
