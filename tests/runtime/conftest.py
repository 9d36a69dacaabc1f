"""Kernels to launch: bundles made on the spot, opened, and closed when the test ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from nojit.runtime import loader
from nojit.runtime.kernel import Kernel

from tests.fakecuda import FakeCuda
from tests.support.bundles import kernel, make_bundle
from tests.support.tensors import OldTorch

Make = Callable[..., Kernel]

VECTOR_ADD: dict[str, Any] = {
    "params": {"x": "*{dtype}", "y": "*{dtype}", "n": "i32", "BLOCK": "constexpr"},
    "matrix": {"dtype": ["fp16", "fp32"]},
    "configs": [{"BLOCK": 1024, "num_warps": 4}, {"BLOCK": 256, "num_warps": 2}],
    "hints": [{"x": 16, "y": 16, "n": 16}],
    "grid": ["cdiv(n, BLOCK)"],
}


@pytest.fixture
def make(fakecuda: FakeCuda, tmp_path: Path) -> Iterator[Make]:
    """Build a bundle of one kernel and return the kernel."""
    open_bundles = []

    def build(
        params: dict[str, str] | None = None, *, name: str = "add", file: dict[str, Any] | None = None, **facts: Any
    ) -> Kernel:
        words = VECTOR_ADD if params is None else {"params": params}
        path = tmp_path / f"{len(open_bundles)}.nojit"
        bundle = loader.load(make_bundle(path, kernel(name, **words | facts), **file or {}))
        open_bundles.append(bundle)
        return bundle.kernel(name)

    yield build
    for bundle in open_bundles:
        bundle.close()


@pytest.fixture
def old_torch(monkeypatch: pytest.MonkeyPatch) -> OldTorch:
    """A torch without the exchange API, as the one that the process has imported."""
    made = OldTorch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no torch be imported."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.fixture
def tensor(faketorch: ModuleType) -> Callable[..., Any]:
    return faketorch.Tensor
