"""Score modifications of one's own, for tests: their functions in Triton and in torch, and manifests that build them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from nojit.kernels.flex import CustomMod, SoftCap
from nojit.kernels.score_mod.mods import NO_SLOT, Slot
from torch import Tensor

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
MINE, THEN_CAP = "mine.py:my_mod", "mine.py:then_cap"
SOURCE = '''
import triton
import triton.language as tl
from nojit.kernels.flex.kernel_mods import capped


@triton.jit
def my_mod(score, batch, head, query, key, inside, first, second, bias):
    """Return first.value * score + first.table[head], and its derivative."""
    return score * first[4] + tl.load(first[1] + head), tl.where(inside, first[4], 0.0)


@triton.jit
def then_cap(score, batch, head, query, key, inside, first, second, bias):
    """Return what the soft cap of the second slot makes of that, and its derivative."""
    score, slope = my_mod(score, batch, head, query, key, inside, first, second, bias)
    score, factor = capped(score, second[0] == 3, second[4])
    return score, slope * factor
'''


def my_mod(table: Tensor) -> CustomMod:
    """Return ``score / 2 + table[head]``, the table being fp32 [H]."""

    def twin(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return score * 0.5 + table[h].to(score.dtype)

    return CustomMod(MINE, twin, (Slot(0, table, value=0.5), NO_SLOT))


def then_cap(table: Tensor, cap: float) -> CustomMod:
    """Return the library's soft cap of `my_mod`."""
    first, second = my_mod(table), SoftCap(cap)

    def twin(score: Tensor, *places: Tensor) -> Tensor:
        return second(first(score, *places), *places)

    return CustomMod(THEN_CAP, twin, (first.slots[0], second.slot))


def write_manifests(folder: Path, functions: Iterable[str] = (MINE, THEN_CAP), leave_out: str | None = None) -> None:
    """Write manifests of all that attends in a folder, with functions more in each axis of modifications, and `SOURCE`.

    Args:
        folder: where to.
        functions: what to build besides.
        leave_out: a rule of a manifest: which variants of kernels that have modifications are not to be built.
    """
    shutil.copy(MANIFESTS / "flash_attention.toml", folder)
    more = "".join(f', {{ function = "{function}" }}' for function in functions)
    for name in ("flex.toml", "flex_decoding.toml"):
        kernels = (MANIFESTS / name).read_text().split("[[kernel]]")
        (folder / name).write_text("[[kernel]]".join(_with(each, more, leave_out) for each in kernels))
    (folder / "mine.py").write_text(SOURCE)


def _with(kernel: str, more: str, leave_out: str | None) -> str:
    kernel, count = re.subn(r"^(SCORE_MOD = \[.*)\]$", rf"\1{more}]", kernel, flags=re.MULTILINE)
    if not count or leave_out is None:
        return kernel
    return kernel.replace("[kernel.matrix]", f'[[kernel.exclude]]\nwhen = "{leave_out}"\n\n[kernel.matrix]')
