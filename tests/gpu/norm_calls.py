"""Calls of norms: every dtype, width of a config, alignment, and gradients of all operands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from nojit.kernels.norm import add_rms_norm, reference, rms_norm
from torch import Tensor

from tests.gpu.call import DTYPES, Call, Outputs, view

# of each tile: even rows, which load by 16 bytes, and rows that cannot
_WIDTHS = (93, 96, 400, 1001, 1024, 1536, 4096, 5003, 8192, 9000, 20_000, 20_003)


def norm_calls() -> Iterator[Call]:
    for dtype, width, added, scaled, offset in itertools.product(
        DTYPES, _WIDTHS, (False, True), (False, True), (0, 1)
    ):  # fmt: skip
        yield _norm_call(dtype, width, added, scaled, offset)


def _norm_call(dtype: torch.dtype, width: int, added: bool, scaled: bool, offset: int) -> Call:
    rows = 1027 if width < 8192 else 203

    def inputs(count: int) -> list[Tensor]:
        """Make the input, what is added, a weight, and gradients of both results."""
        shapes = [(rows, width)] * (2 if added else 1) + [(width,)] * scaled + [(rows, width)] * count
        return [view(shape, dtype, seed, offset=offset) for seed, shape in enumerate(shapes)]

    def run(functions: tuple[Callable[..., object], ...], wide: torch.dtype | None) -> Outputs:
        """Return the outputs, without gradients and with them, and gradients of all operands."""
        count = 2 if added else 1
        made = [value if wide is None else value.to(wide) for value in inputs(count)]
        operands, grads = made[:-count], made[-count:]
        if added and wide is not None:
            # the sum is rounded before it is normalized
            operands[0] = (operands[0] + operands[1]).to(dtype).to(wide) - operands[1]
        named = {"weight": operands.pop()} if scaled else {}
        function = functions[added]
        plain = _tuple(function(*operands, **named))
        leaves = [value.requires_grad_() for value in (*operands, *named.values())]
        outs = _tuple(function(*operands, **named))
        return (*plain, *(out.detach() for out in outs), *torch.autograd.grad(outs, leaves, grads))

    outputs = 2 if added else 1
    return Call(
        f"rms_norm {str(dtype)[6:]} {rows} x {width}{' added' * added}{' scaled' * scaled} offset {offset}",
        lambda: run((rms_norm, add_rms_norm), None),
        lambda: run((reference.rms_norm, reference.add_rms_norm), torch.float64),
        lambda: run((reference.rms_norm, reference.add_rms_norm), None),
        (*(2.0,) * 2 * outputs, *(3.0,) * (outputs + scaled)),
    )


def _tuple(value: object) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)  # type: ignore[return-value]
