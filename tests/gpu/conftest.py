"""What GPU tests share: the bundle under test, which this device runs, and a clean message where there is none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.shares import share_of, taken

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.gpu)
            # torch's own, in the thread that computes gradients
            item.add_marker(
                pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS, but there was no current CUDA")
            )
            # of the first test that torch compiles
            item.add_marker(pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning"))
    if spelled := os.environ.get("NOJIT_TEST_SHARE"):
        names = [getattr(item, "originalname", item.name) for item in items]
        kept = taken(items, names, share_of(spelled))
        config.hook.pytest_deselected(items=list({*items} - {*kept}))
        items[:] = kept


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


@pytest.fixture(scope="session")
def launch_bundle(device, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the kernels of `launch/` for this device, with the Triton at hand."""
    import torch

    from tests.gpu.replay import build_here

    major, minor = torch.cuda.get_device_capability()
    return build_here([Path(__file__).with_name("launch")], f"sm_{major}{minor}", tmp_path_factory.mktemp("launch"))


@pytest.fixture(scope="session")
def kernels(launch_bundle: Path) -> Iterator[Callable[[str], Any]]:
    """Give the kernels of `launch/` by name."""
    from nojit import runtime

    with runtime.load(launch_bundle) as opened:
        yield opened.kernel


@pytest.fixture
def operators(bundle) -> Iterator[None]:
    """Operators take their kernels from the bundle under test."""
    from nojit.kernels import library

    with library.override(bundle.kernel, devices=frozenset({"cuda"})):
        yield


@pytest.fixture(scope="module")
def steered(bundle) -> Iterator[object]:
    """Operators run every config that can serve a call, one after the other."""
    from nojit.kernels import library

    from tests.gpu.replay import Steered

    provider = Steered(bundle)
    with library.override(provider, devices=frozenset({"cuda"})):
        yield provider
