"""The kernels of dense products for sm_90 as Python: what they get in place of tensors and maps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from nojit.kernels.calls.tensor_maps import Described
from nojit.kernels.manifest_kernels import by_position
from torch import Tensor

from tests.kernels.gluon_stub import Map, Pointer, load

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
SHARED = (
    "kernel_functions.py",
    "products/kernel_sm90_tiles.py",
    "products/kernel_sm90_two_widths.py",
    "products/kernel_tiles.py",
    "products/kernel_sm90.py",
)
SCALES = "products/kernel_sm90_scales.py"
WAVES = ("products/kernel_wave_shares.py", "products/kernel_sm90_waves.py")
GROUPS = (SCALES, "products/kernel_groups.py", "products/kernel_sm90_groups.py")
OWN = {
    "bmm_tiles_sm90": ("bmm/kernel_sm90.py",),
    "grouped_mm_sm90": (*GROUPS, "grouped_mm/kernel_sm90.py"),
    "scaled_grouped_mm_sm90": (*GROUPS, "scaled_grouped_mm/kernel_sm90.py"),
    "grouped_mm_depth_sm90": ("products/kernel_groups.py", "grouped_mm/kernel_sm90_grad.py"),
    "scaled_mm_sm90": (SCALES, "scaled_mm/kernel_sm90.py"),
    "scaled_mm_parts_sm90": (SCALES, "scaled_mm/kernel_sm90.py"),
    "scaled_mm_tiles_sm90": (SCALES, "scaled_mm/kernel_sm90.py"),
    "scaled_mm_waves_sm90": (SCALES, *WAVES, "scaled_mm/kernel_sm90_waves.py"),
}
"""The files of kernels that have several of their own, or whose file has another name."""
FUNCTIONS = {"bmm_tiles_sm90": "bmm_sm90_kernel"}
"""The functions of kernels that share one."""
BOXES = {"grouped_mm_sm90": 16, "scaled_grouped_mm_sm90": 16}
"""Rows of the left operand that are copied at once."""
PROGRAMS = 3
PANEL_BYTES = 128
WHOLE = frozenset({"scaled_mm_sm90", "scaled_mm_parts_sm90", "scaled_mm_waves_sm90", "scaled_grouped_mm_sm90"})
"""Kernels that copy all that a tile takes of the right operand at once, unless the caller names a `BOX`."""


def pretend(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
    """Have a device whose kernels take maps."""
    monkeypatch.setattr(module, "takes_maps", lambda value: value.element_size() == 2)


def provide(name: str, config: Callable[[], dict[str, int]]) -> Callable[..., None]:
    """Give a kernel, to run with the config of the moment."""
    family = name.removesuffix("_sm90")
    own = OWN.get(name, (f"{family}/kernel_sm90.py",))
    kernel = load(FUNCTIONS.get(name, f"{name}_kernel"), *(KERNELS / path for path in (*SHARED, *own)))

    def launch(*args: Any, **named: Any) -> None:
        args, named = by_position(name, args, named)
        left, right, *others = args
        # the tile is the caller's where it names one
        chosen = {**config(), **named}
        # the kernels that let the caller choose how many rows are copied of the left operand name them so
        maps = (
            argument(left, chosen.get("ROWS", BOXES.get(name, 64))),
            argument(right, chosen.get("BOX", chosen["BLOCK_N"] if name in WHOLE else 64)),
        )
        kernel(PROGRAMS, *maps, *(argument(other, width=chosen.get("BOX")) for other in others), **chosen)

    return launch


def noted(kernel: Callable[..., None], name: str, asked: list[str]) -> Callable[..., None]:
    """Give a kernel that adds its name to `asked` at each launch."""

    def launch(*args: Any, **named: Any) -> None:
        asked.append(name)
        args, constexprs = by_position(name, args, named)
        kernel(*args, **constexprs)

    return launch


def stored(shape: tuple[int, ...], columns: bool, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Make a random matrix, or a batch of them, that is stored by rows or by columns."""
    value = torch.randn(*shape[:-2], *(reversed(shape[-2:]) if columns else shape[-2:])).to(dtype)
    return value.mT if columns else value


def argument(value: Any, height: int = 64, width: int | None = None) -> Any:
    if isinstance(value, Described):
        width = width or PANEL_BYTES // value.base.element_size()
        return Map(value.base.as_strided(value.shape, value.strides), (height, width))
    if not isinstance(value, Tensor):
        return value
    memory = value.new_empty(0).set_(value.untyped_storage())  # type: ignore[call-overload]
    return Pointer(memory, value.storage_offset())
