"""Train two transformers for a step, with this library's kernels and with torch's: losses, gradients, times.

    python examples/transformers/run.py [--bundle PATH] [--rounds 10]

Needs a GPU, torch, and a bundle for that GPU; neither Triton nor a compiler. Exits 1 if losses or gradients disagree.
"""

import argparse
import copy
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

try:
    import decoder
    import encoder
    import torch
    from model import Attend, Shape, Transformer
    from nojit.runtime.errors import NojitError
    from torch import Tensor
except ModuleNotFoundError as error:
    sys.exit(f"error: expected {error.name} to be installed: pip install torch")

NEEDS = "needs a CUDA device, and a bundle for it: nojit build manifests --profile core --arch sm_90 --out artifacts"
# a step may be this many times farther from the fp32 step than torch's own bf16 step
FACTOR = 3.0
LOSS_APART = 1e-3


@dataclass(frozen=True)
class Step:
    """Results of a training step."""

    loss: float
    gradient: Tensor
    """Gradient of all weights, fp32."""


def take_step(model: Transformer, batch: tuple[Tensor, Tensor], attend: Attend) -> Step:
    """Run forward and backward."""
    model.zero_grad()
    loss = model.loss(*batch, attend)
    loss.backward()
    return Step(loss.item(), torch.cat([weight.grad.float().flatten() for weight in model.parameters()]))


def distance(step: Step, exact: Step) -> float:
    """Return the distance of a step's gradient from the exact one, relative to the norm of the exact one."""
    return float((step.gradient - exact.gradient).norm() / exact.gradient.norm())


def agrees(ours: Step, torchs: Step, exact: Step) -> bool:
    """Return whether our step is as exact as torch's in the same precision."""
    rounding = torch.finfo(torch.bfloat16).eps
    near = abs(ours.loss - exact.loss) <= LOSS_APART * exact.loss
    return near and distance(ours, exact) <= FACTOR * distance(torchs, exact) + rounding


def time_ms(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median device time of each call, in milliseconds; the calls take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 2):
        for name, call in calls.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end))
    return {name: statistics.median(of[2:]) for name, of in times.items()}


def compare(what: str, shape: Shape, batch: tuple[Tensor, Tensor], attentions: dict[str, Attend], rounds: int) -> bool:
    """Print a model's table; return whether the steps agree."""
    torch.manual_seed(0)
    model = Transformer(shape).to("cuda", torch.bfloat16)
    exact = take_step(copy.deepcopy(model).float(), batch, attentions["torch"])
    steps = {name: take_step(model, batch, attend) for name, attend in attentions.items()}
    with torch.no_grad():
        forward = time_ms({name: lambda a=a: model.loss(*batch, a) for name, a in attentions.items()}, rounds)
    whole = time_ms({name: lambda a=a: model.loss(*batch, a).backward() for name, a in attentions.items()}, rounds)
    print(f"{what}: {shape}")
    print(f"{'attention':<12}{'loss':>10}{'gradient off by':>18}{'forward ms':>12}{'step ms':>10}")
    for name, step in steps.items():
        far = distance(step, exact)
        print(f"{name:<12}{step.loss:>10.5f}{far:>18.5f}{forward[name]:>12.2f}{whole[name]:>10.2f}")
    print(f"{'torch, fp32':<12}{exact.loss:>10.5f}\n")
    return agrees(steps["nojit"], steps["torch"], exact)


def main() -> int:
    """Compare both models; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", help="a bundle file or folder; by default the one that operators find")
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print(f"this example {NEEDS}", file=sys.stderr)
        return 1
    if arguments.bundle:
        os.environ["NOJIT_BUNDLES"] = arguments.bundle
    of_encoder, of_decoder = encoder.attentions(encoder.SHAPE), decoder.attentions()
    try:
        right = [
            compare("encoder", encoder.SHAPE, encoder.make_batch(encoder.SHAPE), of_encoder, arguments.rounds),
            compare("decoder", decoder.SHAPE, decoder.make_batch(decoder.SHAPE), of_decoder, arguments.rounds),
        ]
    except NojitError as error:
        print(f"{error}\nthis example {NEEDS}", file=sys.stderr)
        return 1
    if not all(right):
        print("losses or gradients disagree", file=sys.stderr)
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
