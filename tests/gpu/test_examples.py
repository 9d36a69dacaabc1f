"""The example's models on a device, from a bundle: the program itself judges losses and gradients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from types import SimpleNamespace

import pytest
from nojit import runtime
from nojit.kernels import library

from tests.gpu.conftest import ROOT
from tests.gpu.replay import build_here

torch = pytest.importorskip("torch")
SERVER = ROOT / "examples/inference_server"


def test_two_transformers_train_as_with_torch(device, bundle_folder):
    ran = subprocess.run(
        [sys.executable, ROOT / "examples/transformers/run.py", "--bundle", bundle_folder, "--rounds", "3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("nojit") == ran.stdout.count("torch, fp32") == 2


@pytest.fixture(scope="module")
def server_bundles(device, bundle_folder, tmp_path_factory) -> str:
    """The bundles under test, and one of the serving example's own kernels, built with the Triton at hand."""
    major, minor = torch.cuda.get_device_capability()
    own = build_here([SERVER / "decoder.toml"], f"sm_{major}{minor}", tmp_path_factory.mktemp("server"))
    return os.pathsep.join([str(bundle_folder), str(own)])


@pytest.fixture
def server(device, server_bundles, monkeypatch) -> Iterator[SimpleNamespace]:
    """The modules of the serving example, with its bundles at hand."""
    monkeypatch.syspath_prepend(SERVER)
    monkeypatch.setenv("NOJIT_BUNDLES", server_bundles)
    with library.override(library._from_bundles, devices=frozenset({"cuda"})):
        yield SimpleNamespace(**{name: import_module(name) for name in ("backends", "model", "shape")})
    for name in ("backends", "model", "own", "plain", "preload", "shape", "slots"):
        sys.modules.pop(name, None)


def test_a_language_models_server_answers_as_with_torch(device, server):
    """The model of the serving example, in bf16: the scores of a prompt's and of a later token, and no late loads."""
    shape = server.shape.Shape(layers=3, context=1024)
    scores: dict[str, list[torch.Tensor]] = {}
    for name in ("torch", "nojit"):
        backend = server.backends.make_backend(name)
        made = scores[name] = []
        spied = replace(backend, multiply=partial(_noting, backend.multiply, made, shape.vocabulary))
        with server.backends.begin(name, device):
            loaded = runtime.counters().loaded
            decoder = server.model.Decoder(shape, spied, device, torch.bfloat16)
            for slot, length in enumerate((512, 1, 37, 800)):
                decoder.start(slot, [token * 7 % 31_000 for token in range(length)])
            # the same tokens next, though rounding may have chosen others
            decoder._slots.tokens.fill_(5)
            decoder.step()
            assert runtime.counters().loaded == loaded
    assert len(scores["nojit"]) == 5
    for pair in zip(scores["nojit"], scores["torch"], strict=True):
        # slots that nobody is in say nothing
        ours, theirs = (each[:4].float() for each in pair)
        assert float((ours - theirs).norm() / theirs.norm()) < 0.03


def test_a_rehearsed_request_meets_nothing_for_the_first_time(device, server):
    shape = server.shape.Shape(layers=3, context=1024)
    prompt = [token * 7 % 31_000 for token in range(512)]
    with server.backends.begin("nojit", device):
        decoder, plain = (
            server.model.Decoder(shape, server.backends.make_backend("nojit"), device, torch.bfloat16) for _ in range(2)
        )
        decoder.rehearse([512])
        assert decoder._slots.lens.tolist() == [1] * shape.slots
        planned = runtime.counters().planned
        made = [decoder.start(1, prompt, 0.7, seed=3), decoder.step()[1], decoder.step()[1]]
        assert runtime.counters().planned == planned
        assert [plain.start(1, prompt, 0.7, seed=3), plain.step()[1], plain.step()[1]] == made
        decoder.release(1)
        assert decoder._slots.lens.tolist() == [1] * shape.slots


def test_a_request_launches_no_kernel_of_torchs(device, server):
    shape = server.shape.Shape(layers=2, context=1024)
    with server.backends.begin("nojit", device):
        decoder = server.model.Decoder(shape, server.backends.make_backend("nojit"), device, torch.bfloat16)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiled:
            decoder.start(0, list(range(1, 300)), 0.5)
            decoder.step()
            decoder.release(0)
            torch.cuda.synchronize()
    ran = {event.name for event in profiled.events() if event.device_type == torch.autograd.DeviceType.CUDA}
    assert not [name for name in ran if "at::" in name or "cutlass" in name], ran


def _noting(multiply, made, width, x, w):
    product = multiply(x, w)
    if w.shape[1] == width:
        made.append(product)
    return product


def test_the_servers_client_measures_each_way(device, server_bundles, tmp_path):
    """Whether bars are kept is the benchmark's to say: this is about what runs."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    words = [
        "--bundles",
        server_bundles,
        "--ways",
        "nojit;torch",
        "--rounds",
        "1",
        "--requests",
        "3",
        "--out",
        tmp_path,
    ]
    ran = subprocess.run(
        [sys.executable, SERVER / "client.py", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    table = {each["way"]: each for each in json.loads((tmp_path / "inference_server.json").read_text())}
    assert table.keys() == {"nojit", "torch"}, ran.stdout + ran.stderr
    assert table["nojit"]["files"] == 0
    assert all(0 < each["token_ms"] < each["first_ms"] < each["ready_ms"] for each in table.values())
