"""The library's measure of right: as close to the exact result as torch's own operator of that precision."""

from __future__ import annotations

import torch
from torch import Tensor


def largest(values: Tensor) -> float:
    """The largest absolute value of those that are finite; 0 without any."""
    finite = values[torch.isfinite(values)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def error(value: Tensor, exact: Tensor) -> float:
    """The largest distance to the exact result; infinities and NaNs must stand where they stand there."""
    value = value.double()
    assert value.shape == exact.shape
    assert torch.equal(torch.isnan(value), torch.isnan(exact))
    endless = torch.isinf(exact)
    assert torch.equal(value[endless], exact[endless])
    apart = (value - exact)[torch.isfinite(exact)].abs()
    assert torch.isfinite(apart).all(), "finite in the exact result, and not here"
    return float(apart.max()) if apart.numel() else 0.0


def assert_accurate(value: Tensor, exact: Tensor, torchs: Tensor, factor: float = 2.0, slack: float = 0.0) -> None:
    """Hold `value` to `factor` times the error of `torchs` against `exact` (fp64), one unit in the last place, `slack`."""
    assert value.dtype == torchs.dtype
    bound = factor * error(torchs, exact) + torch.finfo(value.dtype).eps * largest(exact) + slack
    got = error(value, exact)
    assert got <= bound, f"off by {got:.3g}, at most {bound:.3g} allowed"
