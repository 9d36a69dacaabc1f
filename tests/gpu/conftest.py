"""What GPU tests share: the bundle under test, which this device runs, and a clean message where there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def device():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return torch.device("cuda", 0)


@pytest.fixture(scope="session")
def bundle_folder() -> Path:
    """The bundles under test: `NOJIT_TEST_BUNDLES`, else artifacts/full, else artifacts."""
    if chosen := os.environ.get("NOJIT_TEST_BUNDLES"):
        return Path(chosen)
    full = ROOT / "artifacts" / "full"
    return full if any(full.glob("*.nojit")) else ROOT / "artifacts"


@pytest.fixture(scope="session")
def bundle(device, bundle_folder) -> Iterator[object]:
    from nojit import runtime

    with runtime.load(bundle_folder) as opened:
        yield opened


@pytest.fixture
def operators(bundle) -> Iterator[None]:
    """Operators take their kernels from the bundle under test."""
    from nojit.kernels import library

    with library.override(bundle.kernel, devices=frozenset({"cuda"})):
        yield
