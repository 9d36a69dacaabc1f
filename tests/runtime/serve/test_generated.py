"""Kernels of torch.compile: recorded, built into a bundle, and launched by Inductor's own code from it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch._inductor")
import torch._inductor.config as settings
import triton
from nojit import runtime
from nojit.runtime.errors import NoMatchingVariantError
from nojit.runtime.recording import generated
from nojit.runtime.recording.closure import digest_of
from nojit.runtime.recording.winners import encoded_config
from nojit.runtime.serve.session import Serving, serve
from torch._inductor.runtime import triton_helpers

from tests.fakecuda import FakeCuda
from tests.runtime.recording.programs.generated import compiled, load, pointwise
from tests.support.recordings import Recorder
from tests.support.tensors import PointerTensor

pytestmark = [pytest.mark.triton, pytest.mark.slow]
Begin = Callable[[], Serving]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fakecuda: FakeCuda, default_stream: None) -> Iterator[Begin]:
    """Record a generated kernel and build it; return a function that serves it until the test ends."""
    for variable in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setattr(triton_helpers, "set_driver_to_gpu", lambda: None)
    monkeypatch.setattr(triton.runtime.driver, "_active", None)
    monkeypatch.setattr(triton.runtime.driver, "_default", None)
    with settings.patch(use_static_triton_launcher=False):
        record(Recorder(tmp_path / "recording", torch="2.13.0"))
        words = ["build", "recording", "--out", "artifacts", "--cache-dir", "cache"]
        subprocess.run([sys.executable, "-m", "nojit", *words], cwd=tmp_path, check=True, capture_output=True)
        begun: list[Serving] = []
        yield lambda: begun.append(serve(tmp_path / "artifacts", miss="error")) or begun[-1]  # type: ignore[func-returns-value]
        for each in begun:
            each.close()


def record(recorder: Recorder) -> None:
    """Write what the live recorder writes of a generated kernel."""
    autotuner = load(pointwise())
    config, source, options = compiled(autotuner)
    closure = generated.capture_generated(autotuner.fn)
    digest = digest_of(closure)
    recorder.writer.add("closure", digest=digest, closure=closure)
    found = generated.read_generated(autotuner.fn, source, options, arch="sm_90", closure=digest)
    recorder.add(found)
    winner: dict[str, Any] = {"key": generated.key_of(autotuner), "config": encoded_config(config, "")}
    recorder.writer.add(
        "winner", module=found["module"], qualname=found["qualname"], closure=digest, time_ns=None, **winner
    )


def test_a_generated_kernel_is_launched_by_inductor_from_the_bundle(begin: Begin, fakecuda: FakeCuda) -> None:
    begin()
    autotuner = load(pointwise(device=0, count=1))
    autotuner.precompile()
    x, y = (PointerTensor(0x10000 * number, "torch.float32") for number in (1, 2))
    autotuner.run(x, y, 5000, stream=0)
    block = autotuner.launchers[0].config.kwargs["XBLOCK"]
    (launch,) = fakecuda.launches()
    assert launch.grid == (-(-5000 // block), 1, 1)
    assert launch.ints()[:3] == (0x10000, 0x20000, 5000)
    (served,) = (each for each in runtime.counters().served[-1:])
    assert (served.kernel, served.launches, served.misses) == ("triton_poi_fused_tanh_0", 1, 0)


def test_another_generated_kernel_of_the_same_name_is_a_miss(begin: Begin) -> None:
    begin()
    with pytest.raises(NoMatchingVariantError, match="is not the function that was recorded"):
        load(pointwise(constant=7.0)).precompile()


def test_the_end_lets_inductor_compile_again(begin: Begin) -> None:
    begin().close()
    autotuner = load(pointwise())
    autotuner._precompile_config(autotuner.configs[0])
