"""The example's models on the CPU, their kernels interpreted: the same losses and gradients as with torch's attention."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch

FOLDER = Path(__file__).resolve().parents[2] / "examples/transformers"
MODULES = ("model", "encoder", "decoder", "run")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program's module; it and its neighbours are forgotten again."""
    monkeypatch.syspath_prepend(FOLDER)
    yield import_module("run")
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_step_is_torchs(kind, example):
    of = getattr(example, kind)
    shape = example.Shape(batch=2, length=64, layers=2, hidden=32, heads=2, vocabulary=11)
    attentions = of.attentions(shape, block=16, device="cpu") if kind == "encoder" else of.attentions()
    model, batch = example.Transformer(shape), of.make_batch(shape, device="cpu")
    ours, torchs = (example.take_step(model, batch, attentions[name]) for name in ("nojit", "torch"))
    assert ours.loss == pytest.approx(torchs.loss, rel=1e-5)
    assert example.distance(ours, torchs) < 1e-5
    assert example.agrees(ours, torchs, torchs)
    wrong = example.Step(ours.loss, ours.gradient * 1.1)
    assert not example.agrees(wrong, torchs, torchs)


def test_the_encoder_sees_bigbirds_blocks_alone(example):
    torch.manual_seed(0)
    shape = example.encoder.SHAPE
    sparse = example.encoder.attentions(shape, device="cpu")["nojit"]
    assert sparse.master_layout.shape == (shape.heads, 64, 64)
    assert sparse.master_layout.float().mean() < 0.15


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_the_program_says_what_it_needs():
    ran = subprocess.run([sys.executable, FOLDER / "run.py"], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith("this example needs a CUDA device, and a bundle for it: nojit build manifests")
