"""Every variant gives the bits that Triton's own launcher gives for it, with a bundle built by the Triton at hand.

`NOJIT_TEST_PROFILE` names the profile to compare, else it is ``full``, which takes long: all of it is compiled here, twice;
once where `NOJIT_TEST_BUILT` is a folder with a bundle of it that the same Triton built elsewhere. Each family is a test of
its own, so that several processes can share them out (``-k conv``); ``python -m tests.gpu.compile_ahead`` before them
compiles all that Triton launches, on every core.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
pytest.importorskip("triton")

from nojit import runtime  # noqa: E402
from nojit.kernels import library  # noqa: E402
from nojit.runtime.errors import NojitError  # noqa: E402

from tests.gpu.families import FAMILIES  # noqa: E402
from tests.gpu.replay import Replay, build_here, built_alike, compile_ahead, plan_for  # noqa: E402

MANIFESTS: Final = Path(__file__).resolve().parents[2] / "manifests"
PROFILE: Final = os.environ.get("NOJIT_TEST_PROFILE", "full")
BUILT: Final = os.environ.get("NOJIT_TEST_BUILT")


def paths(names: Iterable[str]) -> list[Path]:
    return [MANIFESTS / f"{name}.toml" for name in names]


@pytest.mark.parametrize("name", FAMILIES)
def test_launches_equal_those_of_tritons_own_launcher(name, tmp_path):
    family = FAMILIES[name]
    major, minor = torch.cuda.get_device_capability()
    arch = f"sm_{major}{minor}"
    own = {kernel.spec.name for kernel in plan_for(paths(family.own), arch, PROFILE).kernels if kernel.variants}
    if not own:
        pytest.skip(f"profile {PROFILE} holds no variant of {', '.join(family.own)}")
    manifests = paths((*family.own, *family.borrowed))
    plan = plan_for(manifests, arch, PROFILE)
    if BUILT is None:
        compile_ahead([plan])
        built = build_here(manifests, arch, tmp_path, PROFILE)
    else:
        built = built_alike(Path(BUILT), arch)
    with runtime.load(built) as bundle:
        replay = Replay(bundle, plan)
        with library.override(replay, devices=frozenset({"cuda"})):
            for call in family.calls():
                try:
                    call.run()
                except NojitError:
                    # smaller profiles leave calls unserved
                    if PROFILE == "full":
                        raise
    assert {name: tally.different for name, tally in replay.tallies.items() if tally.different} == {}
    missed = {name: replay.tallies[name].missed() if name in replay.tallies else ["all"] for name in own}
    assert {name: labels for name, labels in missed.items() if labels} == {}
