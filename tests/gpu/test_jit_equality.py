"""Every variant gives the bits that Triton's own launcher gives for it, with a bundle built by the Triton at hand.

`NOJIT_TEST_PROFILE` names the profile to compare, else it is ``full``, which takes long: all of it is compiled here, twice.
"""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
pytest.importorskip("triton")

from nojit import runtime  # noqa: E402
from nojit.kernels import library  # noqa: E402
from nojit.runtime.errors import NojitError  # noqa: E402

from tests.gpu import calls, gemm_calls, matmul_calls, scaled_mm_calls  # noqa: E402
from tests.gpu.replay import Replay, build_here, compile_ahead, plan_for  # noqa: E402

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
PROFILE = os.environ.get("NOJIT_TEST_PROFILE", "full")


def test_launches_equal_those_of_tritons_own_launcher(tmp_path):
    major, minor = torch.cuda.get_device_capability()
    arch = f"sm_{major}{minor}"
    plan = plan_for(MANIFESTS, arch, PROFILE)
    compile_ahead(plan)
    with runtime.load(build_here(MANIFESTS, arch, tmp_path, PROFILE)) as bundle:
        replay = Replay(bundle, plan)
        with library.override(replay, devices=frozenset({"cuda"})):
            products = chain(
                matmul_calls.matmul_calls(),
                matmul_calls.gradient_calls(),
                gemm_calls.gemm_calls(),
                scaled_mm_calls.scaled_calls(),
            )
            for call in chain(calls.all_calls(), products):
                try:
                    call.run()
                except NojitError:
                    # smaller profiles leave calls unserved
                    if PROFILE == "full":
                        raise
    assert {name: tally.different for name, tally in replay.tallies.items() if tally.different} == {}
    compared = {name for name, tally in replay.tallies.items() if tally.rows}
    assert {kernel.spec.name for kernel in plan.kernels if kernel.variants} - compared == set()
