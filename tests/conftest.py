"""Fixtures that several rooms share. Helpers lie in tests/support and tests/fakecuda, imported as ``tests.support``."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.fakecuda import FakeCuda, build_driver, build_faketorch, load_extension
from tests.support.engine import compile_engine, sanitizing_compiler

# before anything loads OpenMP, and for every child: its threads spin while they wait for each other, which took half of all
# CPU time, and most on a busy machine
os.environ.setdefault("OMP_NUM_THREADS", "1")


try:
    from hypothesis import HealthCheck, settings
except ModuleNotFoundError:
    # the runtime's tests on another Python have none
    pass
else:
    # both judge by the clock, and a busy machine is no fault of the test
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> None:
    """Let tests that collect garbage walk what those of their module made: all else stays to the end."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Take what stayed to the end for garbage again, or libraries name it as leaked."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def fakecuda_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeCuda]:
    """The fake driver, built once; the runtime finds it in this process through ``NOJIT_LIBCUDA``."""
    driver = FakeCuda(build_driver(tmp_path_factory.mktemp("fakecuda")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOJIT_LIBCUDA", str(driver.path))
        yield driver


def forget_images() -> None:
    """Let the runtime load each image anew, as in a process of its own."""
    from nojit.runtime import _core

    _core.forget_images()


@pytest.fixture
def fakecuda(fakecuda_library: FakeCuda) -> Iterator[FakeCuda]:
    """The fake driver with nothing scripted, no image in it and two sm_90 devices; violations left over fail the test."""
    fakecuda_library.reset()
    forget_images()
    yield fakecuda_library
    violations = fakecuda_library.violations()
    fakecuda_library.reset()
    assert not violations, "the fake driver saw what a right caller never does"


@pytest.fixture(scope="session")
def sanitized_engine(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Objects of the engine under sanitizers, compiled once for all programs that link them."""
    return compile_engine(tmp_path_factory.mktemp("engine"), *sanitizing_compiler())


@pytest.fixture(scope="session")
def faketorch_module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return load_extension(build_faketorch(tmp_path_factory.mktemp("faketorch")))


@pytest.fixture
def faketorch(faketorch_module: ModuleType, fakecuda_library: FakeCuda) -> ModuleType:
    """A framework with DLPack's C exchange API whose tensors lie at any address of any device.

    The fake driver asks it about the addresses of each launch: scratch that was freed, or that belongs to another stream
    or device, is a violation.
    """
    faketorch_module.reset()
    fakecuda_library.watch_memory(faketorch_module.watch())
    return faketorch_module
