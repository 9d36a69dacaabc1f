"""A stage for the pages' Python: a `torch` without a GPU, whose tensors the fake framework makes."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from tests.support.bundles import SyntheticKernel, kernel, make_bundle

__all__ = ["make_torch", "scale_rows", "set_bundles", "vector_add"]

_ADDRESS = 0x7F0000000000
_ITEM_BYTES = 4


class _DType:
    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"


# programs tell a dtype by its type's name
_DType.__name__ = "dtype"


def make_torch(faketorch: ModuleType) -> ModuleType:
    """Make a module with as much of torch as the pages use; its tensors have fp32 addresses and no contents."""

    class Tensor(faketorch.Tensor):  # type: ignore[name-defined,misc] # the fake framework is compiled by the tests
        made = 0

        def __init__(self, count: int) -> None:
            # each lies behind the one before, aligned as torch aligns
            super().__init__(_ADDRESS + Tensor.made * (1 << 32), "float32", (count,))
            Tensor.made += 1
            self.count = count

        def numel(self) -> int:
            return self.count

        def __add__(self, other: Tensor) -> Tensor:
            return self

    torch = ModuleType("torch")

    def randn(count: int, *, device: str) -> Tensor:
        if device != "cuda":
            raise ValueError(f"expected a tensor on the GPU, got {device}")
        return Tensor(count)

    def like(other: Tensor) -> Tensor:
        return Tensor(other.count)

    def assert_close(actual: Tensor, expected: Tensor) -> None:
        """Nothing was computed, so there is nothing to compare."""

    def empty(count: int, *, dtype: object, device: str) -> Tensor:
        return Tensor(count)

    testing: Any = ModuleType("torch.testing")
    testing.assert_close = assert_close
    vars(torch).update(Tensor=Tensor, randn=randn, randn_like=like, empty_like=like, empty=empty, testing=testing)
    vars(torch).update(float32=_DType("float32"), uint8=_DType("uint8"))
    return torch


def vector_add() -> SyntheticKernel:
    """Make the kernel of examples/vector_add without Triton: its manifest in other words."""
    pointers = dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), "*{dtype}")
    return kernel(
        "vector_add",
        {**pointers, "n": "i32", "BLOCK": "constexpr"},
        matrix={"dtype": ["fp16", "fp32"]},
        hints=[dict.fromkeys((*pointers, "n"), 16)],
        configs=[{"BLOCK": 1024, "num_warps": 4}],
        grid=["cdiv(n, BLOCK)"],
    )


def scale_rows() -> SyntheticKernel:
    """Make the kernel of examples/porting likewise."""
    pointers = {"x_ptr": "*{dtype}", "scale_ptr": "*fp32", "bias_ptr": "*fp32?", "out_ptr": "*{dtype}"}
    numbers = dict.fromkeys(("rows", "cols", "stride"), "i32")
    return kernel(
        "scale_rows",
        {**pointers, **numbers, **dict.fromkeys(("ACTIVATION", "BLOCK_M", "BLOCK_N", "EVEN"), "constexpr")},
        matrix={"dtype": ["bf16", "fp32"], "ACTIVATION": ["", "relu"]},
        hints=[dict.fromkeys(("cols", "out_ptr", "stride", "x_ptr"), 16)],
        configs=[
            {"BLOCK_M": 1, "BLOCK_N": 1024, "num_warps": 4},
            {"BLOCK_M": 4, "BLOCK_N": 256, "num_warps": 8, "num_stages": 2},
        ],
        derived={"EVEN": "cols % BLOCK_N == 0"},
        grid=["cdiv(rows, BLOCK_M)"],
    )


def set_bundles(folder: Path) -> None:
    """Put the bundles below `folder` that the pages load."""
    for place, file, made in (
        ("artifacts/example", "vector-add-1.0-sm_90.nojit", vector_add()),
        ("artifacts/porting", "scale-rows-1.0-sm_90.nojit", scale_rows()),
    ):
        (folder / place).mkdir(parents=True)
        make_bundle(folder / place / file, made)
