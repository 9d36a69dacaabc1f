"""Kernels of torch.compile: recorded, built into a bundle, and launched by Inductor's own code from it."""

from __future__ import annotations

import json
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
from nojit.runtime.recording import generated_kernels
from nojit.runtime.recording.closure import digest_of
from nojit.runtime.recording.file import Recording, read_recording
from nojit.runtime.recording.winner_spelling import encoded_config
from nojit.runtime.serve.session import Serving, serve
from torch._inductor.codecache import PyCodeCache
from torch._inductor.runtime import triton_helpers

from tests.fakecuda import FakeCuda
from tests.runtime.recording.programs.generated import compiled, load, pointwise
from tests.support.recordings import Recorder
from tests.support.tensors import PointerTensor

pytestmark = [pytest.mark.triton, pytest.mark.slow]
PROGRAM = Path(__file__).parents[1] / "recording" / "programs" / "compiled.py"
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
    closure = generated_kernels.capture_generated(autotuner.fn)
    digest = digest_of(closure)
    recorder.writer.add("closure", digest=digest, closure=closure)
    found = generated_kernels.read_generated(autotuner.fn, source, options, arch="sm_90", closure=digest)
    recorder.add(found)
    winner: dict[str, Any] = {"key": generated_kernels.key_of(autotuner), "config": encoded_config(config, "")}
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


def test_a_compiled_block_is_recorded_without_a_gpu_and_served(
    tmp_path: Path, fakecuda: FakeCuda, default_stream: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "inductor"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
    recording = tmp_path / "compiled.nojitrec"
    words = [sys.executable, "-m", "nojit"]
    program = ["record", "--fake", "sm_90", "-o", str(recording), "--", sys.executable, str(PROGRAM)]
    subprocess.run([*words, *program], check=True, capture_output=True, timeout=300)
    recorded = read_recording(recording)
    assert recorded.problems == []
    assert all(recorded.launches(digest) == 2 for digest in recorded.to_build())
    qualnames = {each["qualname"] for each in recorded.specializations.values()}
    assert {each["qualname"] for each in recorded.winners} == qualnames
    assert len(qualnames) == len(recorded.to_build()) > 4
    built = ["build", str(recording), "--out", str(tmp_path / "artifacts"), "--cache-dir", str(tmp_path / "cache")]
    subprocess.run([*words, *built], check=True, capture_output=True, timeout=300)

    monkeypatch.setattr("torch._inductor.runtime.triton_helpers.set_driver_to_gpu", lambda: None)
    with serve(tmp_path / "artifacts", miss="error"):
        for text in sorted(file.read_text() for file in folder.rglob("*.py")):
            if "@triton_heuristics" in text and "async_compile" not in text:
                module = PyCodeCache.load(text)
                (tuner,) = (each for each in vars(module).values() if hasattr(each, "inductor_meta"))
                tuner.precompile()
                launch(tuner, recorded)
        served = {each.kernel: each.launches for each in runtime.counters().served if each.kernel in qualnames}
    assert served == dict.fromkeys(qualnames, 1)
    assert len(fakecuda.launches()) == len(qualnames)

    told = subprocess.run(
        [sys.executable, "-c", CACHE_KEYS, str(tmp_path / "artifacts")], check=True, capture_output=True, timeout=300
    )
    (known,) = recorded.inductor
    assert json.loads(told.stdout) == [known["triton_key"], known["backend_hash"]]


CACHE_KEYS = """
import json, sys
import tests.support.hidden_triton
import nojit
nojit.serve(sys.argv[1], miss="error")
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime.cache import triton_key
print(json.dumps([triton_key(), make_backend(GPUTarget("cuda", 90, 32)).hash()]))
"""


def launch(tuner: Any, recorded: Recording) -> None:
    """Launch a served kernel with the ints of its recorded call."""
    digest = next(digest for digest, each in recorded.specializations.items() if each["qualname"] == tuner.fn.__name__)
    sample = recorded.samples[digest][0]
    ints = dict(sample["values"])
    code = tuner.launchers[0].__code__
    types = dict(recorded.specializations[digest]["types"])
    extra = dict(zip(("_grid_0", "_grid_1", "_grid_2"), sample["grid"], strict=True))
    args = [
        PointerTensor(0x10000, TORCH[types[name]])
        if name in types and types[name].startswith("*")
        else (ints | extra).get(name, 1)
        for name in code.co_varnames[: code.co_argcount - 1]
    ]
    tuner.run(*args, stream=0)


TORCH = {"*fp16": "torch.float16", "*fp32": "torch.float32", "*bf16": "torch.bfloat16"}
