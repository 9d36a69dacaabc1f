"""Every variant gives the bits that Triton's own launcher gives for it, with a bundle built by the Triton at hand.

`NOJIT_TEST_PROFILE` names the profile to compare, else it is ``full``, which takes long: all of it is compiled here, twice;
once where `NOJIT_TEST_BUILT` is a folder with a bundle of it that the same Triton built elsewhere. A family's calls are a test of
their own, or then several, which processes can share out (``-k conv``); those that leave in the folder `NOJIT_TEST_LAUNCHED`
names what they reached are judged there by the last test. ``python -m tests.gpu.compile_ahead`` before them
compiles all that Triton launches, on every core.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from itertools import islice
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


def shares_of(name: str) -> int:
    """Return in how many parts a family's calls are made: in one where each would build the bundle anew."""
    return FAMILIES[name].shares if BUILT else 1


PARTS: Final = [(name, number) for name in FAMILIES for number in range(shares_of(name))]


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where parts leave which variants they reached, and which can be."""
    folder = os.environ.get("NOJIT_TEST_LAUNCHED")
    return Path(folder) if folder else tmp_path_factory.mktemp("reached")


@pytest.mark.parametrize(("name", "part"), PARTS, ids=str)
def test_launches_equal_those_of_tritons_own_launcher(name, part, reached, tmp_path):
    family = FAMILIES[name]
    major, minor = torch.cuda.get_device_capability()
    arch = f"sm_{major}{minor}"
    own = {kernel.spec.name for kernel in plan_for(paths(family.own), arch, PROFILE).kernels if kernel.variants}
    if not own:
        pytest.skip(f"profile {PROFILE} holds no variant of {', '.join(family.own)}")
    manifests = paths((*family.own, *family.borrowed))
    plan = plan_for(manifests, arch, PROFILE)
    if BUILT is None:
        compile_ahead(plan)
        built = build_here(manifests, arch, tmp_path, PROFILE)
    else:
        built = built_alike(Path(BUILT), arch)
    with runtime.load(built) as bundle:
        replay = Replay(bundle, plan, family.in_any_order)
        with library.override(replay, devices=frozenset({"cuda"})):
            for call in islice(family.calls(), part, None, shares_of(name)):
                try:
                    call.run()
                except NojitError:
                    # smaller profiles leave calls unserved
                    if PROFILE == "full":
                        raise
        wanted = {kernel: replay.reachable(kernel, family.reaches) for kernel in own}
    found = {kernel: tally.reached() for kernel, tally in replay.tallies.items()}
    (reached / f"{name}-{part}.json").write_text(json.dumps({"wanted": wanted, "reached": found}))
    assert {name: tally.different for name, tally in replay.tallies.items() if tally.different} == {}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_variant_was_compared(name, reached):
    """Run after the others: what they leave out is what nobody has compared."""
    parts = [json.loads(path.read_text()) for path in sorted(reached.glob(f"{name}-*.json"))]
    if len(parts) != shares_of(name):
        pytest.skip("judged where all parts have run")
    found = {(kernel, label) for part in parts for kernel, labels in part["reached"].items() for label in labels}
    wanted = [(kernel, label) for kernel, labels in parts[0]["wanted"].items() for label in labels]
    missed = [f"{kernel} {label}" for kernel, label in wanted if (kernel, label) not in found]
    assert not missed, "no call runs " + "; ".join(missed)
