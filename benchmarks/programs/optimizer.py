"""Steps of a compiled AdamW: torch makes the optimizer's state while it compiles the first step."""

import torch
from outputs import random, say
from torch import nn


def main() -> None:
    """Take three steps, and print a digest of each parameter."""
    layer = nn.Linear(96, 160).to("cuda", torch.bfloat16)
    with torch.no_grad():
        layer.weight.copy_(random(160, 96, scale=0.1))
        layer.bias.zero_()
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2)
    step = torch.compile(optimizer.step)
    for number in range(3):
        for parameter in layer.parameters():
            parameter.grad = random(*parameter.shape, scale=1.0 + number)
        step()
    for name, parameter in layer.named_parameters():
        say(name, parameter)


if __name__ == "__main__":
    main()
