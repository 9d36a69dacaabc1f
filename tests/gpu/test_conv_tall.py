"""Convolutions by tiles of 192 positions, three boxes and as many consumers: built here, for the bundle may hold none."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
    pytest.skip("needs a CUDA device of sm_90", allow_module_level=True)
pytest.importorskip("triton")

from nojit import runtime  # noqa: E402
from nojit.kernels import library  # noqa: E402

from tests.gpu.conv_calls import STEPPED, tall_calls  # noqa: E402
from tests.gpu.replay import Steered, build_here, same_bits  # noqa: E402
from tests.gpu.steering import assert_all_launched, check  # noqa: E402

MANIFEST = Path(__file__).resolve().parents[2] / "manifests/conv.toml"
KERNEL = "conv_sm90"
TABLE = """
schema = 1
kernel = "conv_sm90"
key = {key}
[device]
name = "any"
arch = "sm_90"
multiprocessors = 132
memory_bytes = 150109880320
[origin]
tool = "tests"
[[config]]
BLOCK_M = 192
BLOCK_N = 128
GROUP = 8
STAGES = 4
num_warps = 4
[[config]]
BLOCK_M = 192
BLOCK_N = 64
GROUP = 4
STAGES = 4
num_warps = 4
[[entry]]
where = {{}}
rows = [{{ at = {at}, use = [0, 1] }}]
"""
"""A table that covers every case, so that nothing but its configs is built."""


def manifests_with_table(folder: Path) -> Path:
    """Copy the manifest, and write the table beside it."""
    specs = tomllib.loads(MANIFEST.read_text())["kernel"]
    (key,) = (spec["tuning"]["key"] for spec in specs if spec["name"] == KERNEL)
    (folder / "tuned").mkdir(parents=True)
    shutil.copy(MANIFEST, folder)
    table = TABLE.format(key=json.dumps(key), at=[1] * len(key))
    (folder / f"tuned/{KERNEL}.any.toml").write_text(table)
    return folder


@pytest.fixture(scope="module")
def tall(bundle, tmp_path_factory) -> Iterator[Steered]:
    """Operators run each config of the table in turn, and all other kernels from the bundle under test."""
    made = tmp_path_factory.mktemp("tall")
    path = build_here([manifests_with_table(made / "manifests")], "sm_90", made / "out", kernels=[KERNEL])
    with runtime.load(path) as own:
        kernels = SimpleNamespace(kernel=lambda name: (own if name == KERNEL else bundle).kernel(name))
        steered = Steered(kernels)
        with library.override(steered, devices=frozenset({"cuda"})):
            yield steered


@pytest.mark.parametrize("call", list(tall_calls()), ids=lambda call: call.label)
def test_tall_tiles_are_as_exact_as_torchs(tall, call):
    check(call, tall)


def test_every_variant_was_launched(tall):
    assert_all_launched(tall, KERNEL)


def test_runs_give_the_same_bits(tall):
    call = STEPPED.call()
    for _ in tall.rounds():
        first = call.run()
        for _ in range(9):
            assert all(map(same_bits, first, call.run()))
