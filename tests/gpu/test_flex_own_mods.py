"""Score modifications of one's own on a device: built here, by the Triton at hand, and held to exact results, both ways."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
pytest.importorskip("triton", reason="builds kernels, which needs Triton")

from nojit import runtime  # noqa: E402
from nojit.kernels import library  # noqa: E402
from nojit.kernels.flex import flex_attention, reference  # noqa: E402

from tests.gpu.call import view  # noqa: E402
from tests.gpu.flex_calls import HEADS, LONG, MASKS, Case, attention_call, gradient_call  # noqa: E402
from tests.gpu.replay import Steered, build_here  # noqa: E402
from tests.gpu.steering import check  # noqa: E402
from tests.kernels.accuracy import assert_accurate  # noqa: E402
from tests.kernels.flex_own_mods import MINE, THEN_CAP, my_mod, then_cap, write_manifests  # noqa: E402

MAJOR = torch.cuda.get_device_capability()[0]
BUILT = [
    "flex_attention_fwd",
    "flex_attention_bwd_dkdv",
    "flex_attention_bwd_dq",
    "flex_decoding",
    "flex_decoding_blocks",
]
BUILT += ["flex_attention_fwd_sm90", "flex_attention_bwd_sm90"] * (MAJOR == 9)
LEFT_OUT = f"dtype != 'fp16' or BLOCK_D != 64 or (SCORE_MOD != '{MINE}' and SCORE_MOD != '{THEN_CAP}')"
MODS = {
    "own": lambda: my_mod(view((HEADS,), torch.float32, 6)),
    "own, and a cap": lambda: then_cap(view((HEADS,), torch.float32, 6), 1.5),
}


@dataclass(frozen=True)
class Joined:
    """Two bundles: the one that was built here, and for all other kernels the one under test."""

    own: Any
    rest: Any

    def kernel(self, name: str) -> Any:
        return (self.own if name in BUILT else self.rest).kernel(name)


@pytest.fixture(scope="module")
def steered(bundle, tmp_path_factory) -> Iterator[Steered]:
    """Operators run every config that was built, one after the other."""
    folder = tmp_path_factory.mktemp("own")
    write_manifests(folder, leave_out=LEFT_OUT)
    manifests = [folder / "flex.toml", folder / "flex_decoding.toml"]
    built = build_here(manifests, f"sm_{10 * MAJOR}", folder / "built", kernels=BUILT)
    with runtime.load(built) as own:
        provider = Steered(Joined(own, bundle))
        with library.override(provider, devices=frozenset({"cuda"})):
            yield provider


def cases() -> Iterator[Case]:
    for mask, maps in itertools.product(MASKS, (True, False)):
        yield Case(torch.float16, (64, 64), mask, maps=maps)
        yield Case(torch.float16, (64, 64), mask, lengths=LONG, maps=maps)
    yield Case(torch.float16, (64, 64), "dilated", block=64)
    yield Case(torch.float16, (40, 64), "causal", offset=1)


@pytest.mark.parametrize("mod", MODS)
@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_attention_is_as_exact_as_torchs(steered, case, mod):
    check(attention_call(case, MODS[mod]()), steered)


@pytest.mark.parametrize("mod", MODS)
@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_gradients_are_as_exact_as_torchs(steered, case, mod):
    check(gradient_call(case, MODS[mod]()), steered)


@pytest.mark.parametrize("mod", MODS)
@pytest.mark.parametrize("mask", ["none", "causal", "documents", "patches"])
def test_few_queries_are_decoded(steered, mask, mod):
    case, own = Case(torch.float16, (64, 64), mask, lengths=(5, 1500)), MODS[mod]()
    kernel = "flex_decoding_blocks" if mask == "patches" else "flex_decoding"
    before = steered.tallies[kernel].launches if kernel in steered.tallies else 0
    inputs, block_mask = case.inputs(), case.block_mask()
    exact = reference.flex_attention(*(each.double() for each in inputs), own, case.mask_mod)[0]
    for _ in steered.rounds():
        out = flex_attention(*inputs, own, block_mask, enable_gqa=True)
        assert_accurate(out, exact, case.torchs(inputs, own)[0])
    assert steered.tallies[kernel].launches > before
