"""The example's models on a device, from a bundle: the program itself judges losses and gradients."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from importlib import import_module

import pytest
from nojit import runtime

from tests.gpu.conftest import ROOT

torch = pytest.importorskip("torch")


def test_two_transformers_train_as_with_torch(device, bundle_folder):
    ran = subprocess.run(
        [sys.executable, ROOT / "examples/transformers/run.py", "--bundle", bundle_folder, "--rounds", "3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("nojit") == ran.stdout.count("torch, fp32") == 2


def test_a_language_models_server_answers_as_with_torch(device, bundle_folder, monkeypatch):
    """The model of the serving example, in bf16: the scores of a prompt's and of a later token, and no late loads."""
    monkeypatch.syspath_prepend(ROOT / "examples/inference_server")
    monkeypatch.setenv("NOJIT_BUNDLES", str(bundle_folder))
    backends, model = import_module("backends"), import_module("model")
    for name in ("backends", "model"):
        monkeypatch.delitem(sys.modules, name)
    shape = model.Shape(layers=3, context=1024)
    scores: dict[str, list[torch.Tensor]] = {}
    for name in ("torch", "nojit"):
        backend = backends.make_backend(name, device)
        made = scores[name] = []
        spied = replace(backend, multiply=partial(_noting, backend.multiply, made, shape.vocabulary))
        with backend.ready():
            loaded = runtime.counters().loaded
            decoder = model.Decoder(shape, spied, device, torch.bfloat16)
            for slot, length in enumerate((512, 1, 37, 800)):
                decoder.start(slot, [token * 7 % 31_000 for token in range(length)])
            # the same tokens next, though rounding may have chosen others
            decoder._tokens.fill_(5)
            decoder.step()
            assert runtime.counters().loaded == loaded
    assert len(scores["nojit"]) == 5
    for pair in zip(scores["nojit"], scores["torch"], strict=True):
        # slots that nobody is in say nothing
        ours, theirs = (each[:4].float() for each in pair)
        assert float((ours - theirs).norm() / theirs.norm()) < 0.03


def _noting(multiply, made, width, x, w):
    product = multiply(x, w)
    if w.shape[1] == width:
        made.append(product)
    return product


def test_the_servers_client_measures_each_way(device, bundle_folder, tmp_path):
    """Whether bars are kept is the benchmark's to say: this is about what runs."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    words = ["--bundles", bundle_folder, "--ways", "nojit;torch", "--rounds", "1", "--requests", "3", "--out", tmp_path]
    ran = subprocess.run(
        [sys.executable, ROOT / "examples/inference_server/client.py", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    table = {each["way"]: each for each in json.loads((tmp_path / "inference_server.json").read_text())}
    assert table.keys() == {"nojit", "torch"}, ran.stdout + ran.stderr
    assert table["nojit"]["files"] == 0
    assert all(0 < each["token_ms"] < each["first_ms"] < each["ready_ms"] for each in table.values())
