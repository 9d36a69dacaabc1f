"""Calls of pairs of products: every dtype, layout, alignment, order and function, and gradients of all factors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from nojit.kernels.b2b_gemm import b2b_gemm, launch, op, reference
from torch import Tensor

from tests.gpu.call import DTYPES, Call, Outputs, view
from tests.gpu.gemm_calls import as_tf32, in_fp32, prepared_anew
from tests.gpu.matmul_calls import TF32_FACTOR, switched

# M, K, L, N
SMALL = (8192, 32, 32, 32)
SKINNY = (20480, 64, 64, 64)
NARROW = (1168, 128, 104, 72)
# of the kernel for `sm_90`
WIDTHS = (32, 64, 128)
DEEP = (16384, 144, 80, 64)
WIDE = (1168, 144, 208, 784)
RAGGED = (1021, 61, 75, 33)
_ACTIVATIONS = ("relu", "square", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")


@dataclass(frozen=True)
class Case:
    """One pair of products."""

    dtype: torch.dtype
    sizes: tuple[int, int, int, int]
    columns: str = ""
    """Which factors are stored by columns."""
    assoc: str = "left"
    activation: str = "gelu"
    offset: int = 0
    tf32: bool = False
    maps: bool = True
    """Whether the kernel for `sm_90` may run where it can."""

    @property
    def label(self) -> str:
        flags = (
            f"{self.columns} by columns" if self.columns else "",
            "tf32" if self.tf32 else "",
            "" if self.maps else "pointers",
            f"offset {self.offset}" if self.offset else "",
        )
        return (
            f"{str(self.dtype)[6:]} {self.sizes} {self.assoc} {self.activation} {' '.join(filter(None, flags))}".strip()
        )

    def inputs(self) -> list[Tensor]:
        """Make the factors; if the second product comes first, those of the transpose, so that it is as skinny."""
        m, k, middle, n = self.sizes
        shapes = ((m, k), (k, middle), (middle, n))
        if self.assoc == "right":
            shapes = ((n, middle), (middle, k), (k, m))
        made = []
        for seed, (name, shape) in enumerate(zip("abc", shapes, strict=True)):
            by_columns = name in self.columns
            scale = 1.0 if (name == "a") == (self.assoc == "left") and name != "b" else max(shape[0], 1) ** -0.5
            value = view(shape[::-1] if by_columns else shape, self.dtype, seed, offset=self.offset, scale=scale)
            made.append(value.mT if by_columns else value)
        return made

    def call(self, *, gradients: bool = False) -> Call:
        def run(function: Callable[..., Tensor], wide: torch.dtype | None = None, *, cut: bool = False) -> Outputs:
            values = [as_tf32(value) if cut else value for value in self.inputs()]
            values = [value if wide is None else value.to(wide) for value in values]
            words = {"activation": self.activation, "assoc": self.assoc, "alpha": 0.75}
            with switched(self.tf32 and wide is None), prepared_anew(op, launch, self.maps):
                if not gradients:
                    return (function(*values, **words),)
                out = function(*(value.requires_grad_() for value in values), **words)
                grad = view(tuple(out.shape), self.dtype, 9).to(out.dtype)
                return (out.detach(), *torch.autograd.grad(out, values, grad))

        # what lies between the products is cut too
        factor = 2 * TF32_FACTOR if self.tf32 else 2.0
        # the formula of some activations is off by units of 1, where torch's is by units of the result
        slack = 1e-6 if self.dtype == torch.float32 else 0.0
        return Call(
            f"b2b_gemm {self.label}",
            lambda: run(b2b_gemm),
            lambda: run(reference.b2b_gemm, torch.float64),
            lambda: in_fp32(run(reference.b2b_gemm, torch.float64, cut=True)) if self.tf32 else run(reference.b2b_gemm),
            (2.0, *(3.0,) * 3) if gradients else (factor,),
            lambda _: slack,
        )


def _kinds() -> Iterator[tuple[torch.dtype, bool]]:
    yield from ((dtype, False) for dtype in DTYPES)
    yield torch.float32, True


def cases() -> Iterator[Case]:
    """List cases that together reach every variant."""
    for (dtype, tf32), sizes in itertools.product(_kinds(), (SMALL, SKINNY, NARROW, DEEP, WIDE, RAGGED)):
        for assoc, columns in (("left", ""), ("left", "bc"), ("right", ""), ("right", "ab"), ("left", "abc")):
            yield Case(dtype, sizes, columns, assoc, tf32=tf32)
            if dtype.itemsize == 2:
                yield Case(dtype, sizes, columns, assoc, maps=False)
        yield Case(dtype, sizes, offset=1, tf32=tf32)
    for dtype, columns, *widths, less in itertools.product(DTYPES, ("", "bc"), WIDTHS, WIDTHS, WIDTHS, (0, 8)):
        if dtype.itemsize == 2:
            k, middle, n = widths
            yield Case(dtype, (1168, k - less, middle - less, n - less), columns)
    for dtype, activation in itertools.product(DTYPES, _ACTIVATIONS):
        yield Case(dtype, (300, 64, 80, 64), activation=activation)
    yield Case(torch.bfloat16, SKINNY, assoc="auto", activation="none")


def b2b_calls() -> Iterator[Call]:
    for case in cases():
        yield case.call()


def gradient_calls() -> Iterator[Call]:
    for dtype, assoc, activation in itertools.product(DTYPES, ("left", "right"), ("none", *_ACTIVATIONS)):
        yield Case(dtype, (304, 64, 80, 48), assoc=assoc, activation=activation).call(gradients=True)
