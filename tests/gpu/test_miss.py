"""Calls that nothing serves, made by Triton's JIT on a real device."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
pytest.importorskip("triton")

from nojit import runtime  # noqa: E402
from nojit.kernels import library  # noqa: E402
from nojit.kernels.bmm.op import mm  # noqa: E402
from nojit.kernels.flash_attention.op import flash_attention  # noqa: E402
from nojit.kernels.norm.op import rms_norm  # noqa: E402
from nojit.kernels.pointwise.op import vector_add  # noqa: E402
from nojit.runtime.fallback import policy as miss_policy  # noqa: E402

# Triton's own, where nobody says whether products and sums are fused
pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION is unset")

Set = Callable[[str], None]


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Set]:
    def set_to(name: str) -> None:
        monkeypatch.setenv("NOJIT_MISS", name)
        miss_policy.policy.cache_clear()

    yield set_to
    miss_policy.policy.cache_clear()


@pytest.fixture
def nowhere(policy: Set, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No bundle is at hand, and the JIT makes every operator's calls."""
    policy("jit")
    monkeypatch.setattr("nojit.runtime.discovery.discover.survey", lambda _: ([], [], []))
    with library.override(library._from_bundles, devices=frozenset({"cuda"})):
        yield


def doubles(n: int = 100_003):
    return (torch.randn(n, dtype=torch.float64, device="cuda") for _ in range(3))


def test_a_dtype_that_no_bundle_holds_is_an_error(bundle, policy: Set) -> None:
    policy("error")
    x, y, out = doubles()
    with pytest.raises(runtime.NoMatchingVariantError, match="fp64"):
        bundle.kernel("vector_add")(x, y, out, x.numel())


def test_a_dtype_that_no_bundle_holds_is_compiled(bundle, policy: Set) -> None:
    policy("jit")
    add = bundle.kernel("vector_add")
    for n in (1, 16, 100_003):
        x, y, out = doubles(n)
        add(x, y, out, n)
        assert torch.equal(out, x + y)
    out.zero_()
    add[lambda meta: (-(-n // meta["BLOCK"]),)](x, y, out, n, BLOCK=512, TILES=1)
    assert torch.equal(out, x + y)
    out.zero_()
    add.bind((-(-n // 1024),), BLOCK=1024, TILES=1)(x, y, out, n)
    assert torch.equal(out, x + y)


def test_a_warning_says_so_once(bundle, policy: Set) -> None:
    policy("warn")
    x, y, out = doubles()
    add = bundle.kernel("vector_add")
    with pytest.warns(runtime.MissWarning, match="kernel vector_add: no variant serves this call"):
        add(x, y, out, x.numel(), num_warps=2)
    add(x, y, out, x.numel(), num_warps=2)
    assert torch.equal(out, x + y)


def test_it_runs_on_the_stream_of_the_call_and_in_graphs(bundle, policy: Set) -> None:
    policy("jit")
    add, (x, y, out) = bundle.kernel("vector_add"), doubles()
    add(x, y, out, x.numel())
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(1)
        y.fill_(2)
    add(x, y, out, x.numel(), stream=stream)
    stream.synchronize()
    assert (out == 3).all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add(x, y, out, x.numel())
    x.fill_(5)
    graph.replay()
    torch.cuda.synchronize()
    assert (out == 7).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.usefixtures("nowhere")
def test_operators_without_bundles_compute_what_torch_does(dtype: torch.dtype) -> None:
    """On an sm_90 products and attention are Gluon kernels over tensor maps."""
    close = {"atol": 2e-2, "rtol": 2e-2}
    x, y = (torch.randn(1001, 768, device="cuda").to(dtype) for _ in range(2))
    assert torch.equal(vector_add(x, y), x + y)
    weight = torch.randn(768, device="cuda").to(dtype)
    torch.testing.assert_close(rms_norm(x, weight), torch.nn.functional.rms_norm(x, (768,), weight), **close)
    a, b = (torch.randn(256, 256, device="cuda").to(dtype) / 16 for _ in range(2))
    torch.testing.assert_close(mm(a, b), a @ b, **close)
    q, k, v = (torch.randn(2, 4, 300, 64, device="cuda").to(dtype) for _ in range(3))
    attention = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(flash_attention(q, k, v, is_causal=True), attention, **close)
