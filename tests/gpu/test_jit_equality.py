"""Every variant gives the bits that Triton's own launcher gives for it, with a bundle built by the Triton at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
pytest.importorskip("triton")

from nojit import runtime  # noqa: E402
from nojit.kernels import library  # noqa: E402

from tests.gpu import calls  # noqa: E402
from tests.gpu.replay import Replay, build_here, compile_ahead, plan_for  # noqa: E402

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"


def test_launches_equal_those_of_tritons_own_launcher(tmp_path):
    major, minor = torch.cuda.get_device_capability()
    arch = f"sm_{major}{minor}"
    plan = plan_for(MANIFESTS, arch, "full")
    compile_ahead(plan)
    with runtime.load(build_here(MANIFESTS, arch, tmp_path)) as bundle:
        replay = Replay(bundle, plan)
        with library.override(replay, devices=frozenset({"cuda"})):
            for call in calls.all_calls():
                call.run()
    assert {name: tally.different for name, tally in replay.tallies.items() if tally.different} == {}
