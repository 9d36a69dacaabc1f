"""scaled_mm through Triton's interpreter: formats, scales, sizes, strides, results, mistakes."""

from __future__ import annotations

import random
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.problem import requested
from nojit.kernels.products import launch_fp8
from nojit.kernels.products.splits import splits_of
from nojit.kernels.scaled_mm import launch as launch_module
from nojit.kernels.scaled_mm import reference, scaled_mm
from nojit.kernels.scaled_mm.scales import scales_of
from nojit.runtime.errors import ArgumentError, KernelNotFoundError
from torch import Tensor

from tests.kernels.accuracy import assert_accurate

E4, E5 = torch.float8_e4m3fn, torch.float8_e5m2
PAIRS = ((E4, E4), (E4, E5), (E5, E4))
OUTS = (torch.bfloat16, torch.float16, torch.float32)
SCALES = ("whole", "ends", "1x128 128x128", "1x128 1x128", "128x128 1x128", "128x128 128x128")

pytestmark = pytest.mark.usefixtures("interpreted")


def operands(m: int, n: int, k: int, formats: tuple[torch.dtype, torch.dtype] = (E4, E4)) -> tuple[Tensor, Tensor]:
    """Make a by rows and b by columns."""
    return torch.randn(m, k).to(formats[0]), torch.randn(n, k).to(formats[1]).t()


def scales(m: int, n: int, k: int, kind: str) -> tuple[Tensor, Tensor]:
    """Make scales of a kind, all of them apart from one another."""
    if kind == "whole":
        return torch.rand(()) + 0.5, torch.rand(1) + 0.5
    if kind == "ends":
        return torch.rand(m, 1) + 0.5, torch.rand(1, n) + 0.5
    of_a, of_b = kind.split()
    deep = -(-k // 128)
    rows = m if of_a == "1x128" else -(-m // 128)
    cols = n if of_b == "1x128" else -(-n // 128)
    return torch.rand(rows, deep) + 0.5, torch.rand(deep, cols) + 0.5


def check(result: Tensor, a: Tensor, b: Tensor, *rest: Tensor) -> None:
    exact = reference.scaled_mm(a, b, *rest)
    torchs = reference.scaled_mm(a, b, *rest, dtype=torch.float32).to(result.dtype)
    assert_accurate(result, exact, torchs)


@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("formats", PAIRS, ids=["e4m3 e4m3", "e4m3 e5m2", "e5m2 e4m3"])
@pytest.mark.parametrize("dtype", OUTS, ids=str)
def test_formats_and_scales(dtype, formats, kind):
    m, n, k = 17, 144, 272
    a, b = operands(m, n, k, formats)
    given = scales(m, n, k, kind)
    check(scaled_mm(a, b, *given, out_dtype=dtype), a, b, *given)
    if dtype != torch.float32:
        bias = torch.randn(n).to(dtype)
        check(scaled_mm(a, b, *given, bias, dtype), a, b, *given, bias)


@pytest.mark.parametrize("seed", range(8))
def test_any_sizes(seed):
    rng = random.Random(seed)
    m = rng.choice((1, 3, 16, 17, 65, 130))
    n, k = (rng.choice((16, 48, 64, 112, 128, 144, 272)) for _ in range(2))
    a, b = operands(m, n, k, rng.choice(PAIRS))
    given = scales(m, n, k, rng.choice(SCALES))
    check(scaled_mm(a, b, *given, use_fast_accum=rng.random() < 0.5), a, b, *given)


def test_parts_of_the_depth_are_added_up():
    m, n, k = 9, 48, 2064
    assert splits_of(1, m, n, k, 132) > 1
    a, b = operands(m, n, k)
    bias = torch.randn(n).bfloat16()
    for kind in ("ends", "1x128 128x128"):
        given = scales(m, n, k, kind)
        check(scaled_mm(a, b, *given, bias), a, b, *given, bias)


@pytest.mark.parametrize("kind", ["ends", "1x128 1x128", "128x128 128x128"])
def test_any_strides(kind):
    m, n, k = 20, 48, 272
    wide = torch.full((m + 1, 2 * k + 1), 99.0).to(E4)
    a = wide[1:, 1 : k + 1]
    a.copy_(torch.randn(m, k).to(E4))
    other = torch.full((n, k + 3), 99.0).to(E4)[:, 3:]
    b = other.copy_(torch.randn(n, k).to(E4)).t()
    scale_a, scale_b = scales(m, n, k, kind)
    scale_a = scale_a.t().contiguous().t()
    scale_b = scale_b.repeat(1, 2)[:, ::2] if kind == "ends" else scale_b.t().contiguous().t()
    scale_b = scale_b[:, : scale_b.shape[1]]
    bias = torch.randn(2 * n).bfloat16()[::2]
    check(scaled_mm(a, b, scale_a, scale_b, bias), a, b, scale_a, scale_b, bias)
    check(scaled_mm(a, b, scale_a, scale_b, bias[None]), a, b, scale_a, scale_b, bias[None])


def test_operands_and_scales_may_be_expanded():
    a, b = torch.randn(1, 80).to(E4).expand(20, -1), torch.randn(1, 80).to(E4).expand(32, -1).t()
    given = torch.rand(1, 1).expand(20, 1), torch.rand(1, 1).expand(1, 32)
    check(scaled_mm(a, b, *given), a, b, *given)


def test_out_may_lie_any_way():
    a, b = operands(20, 48, 80)
    given = scales(20, 48, 80, "ends")
    expected = scaled_mm(a, b, *given)
    nan = torch.full((20 * 48 * 4,), float("nan")).bfloat16()
    ways = {
        "rows": nan.clone()[:960].view(20, 48),
        "columns": nan.clone()[:960].view(48, 20).t(),
        "gaps": nan.clone().view(40, 96)[::2, ::2],
        "offset": nan.clone()[1:961].view(20, 48),
    }
    for out in ways.values():
        assert scaled_mm(a, b, *given, out=out) is out
        assert torch.equal(out, expected)
    wide = torch.empty(20, 48)
    assert scaled_mm(a, b, *given, out=wide).dtype == torch.float32
    check(wide, a, b, *given)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 32, 16), (3, 0, 16), (3, 32, 0), (0, 0, 0)])
@pytest.mark.parametrize("kind", ["whole", "ends", "1x128 128x128"])
def test_nothing_to_multiply(m, n, k, kind):
    a, b = operands(m, n, k)
    given = scales(m, n, k, kind)
    assert torch.equal(scaled_mm(a, b, *given), torch.zeros(m, n).bfloat16())
    bias = torch.randn(n).bfloat16()
    assert torch.equal(scaled_mm(a, b, *given, bias), bias.expand(m, n))


@pytest.mark.parametrize("formats", PAIRS, ids=["e4m3 e4m3", "e4m3 e5m2", "e5m2 e4m3"])
def test_devices_without_fp8_multiply_bytes(formats, monkeypatch):
    monkeypatch.setattr(launch_module, "takes_bytes", lambda *_: True)
    asked = []
    source = library.CURRENT.source
    with library.override(lambda name: asked.append(name) or source.kernel(name)):
        for m, kind in product((5, 70), ("ends", "1x128 128x128")):
            a, b = operands(m, 48, 272, formats)
            given = scales(m, 48, 272, kind)
            for _ in range(2):
                check(scaled_mm(a, b, *given, out_dtype=torch.float32), a, b, *given)
    assert asked == ["scaled_mm_bytes"]


@pytest.mark.parametrize("as_bytes", [False, True])
@pytest.mark.parametrize("format_", [E4, E5], ids=str)
def test_every_value_of_a_format(format_, as_bytes, monkeypatch):
    monkeypatch.setattr(launch_module, "takes_bytes", lambda *_: as_bytes)
    values = torch.arange(256, dtype=torch.uint8).view(format_)
    # one value in each row, and what it is multiplied by is 1
    a = torch.zeros(256, 16).to(format_)
    a[:, 0] = values
    b = torch.zeros(16, 16).to(E4)
    b[:, 0] = torch.ones(16).to(E4)
    one = torch.ones(())
    result = scaled_mm(a, b.t(), one, one, out_dtype=torch.float32)
    expected = values.float()[:, None].expand(-1, 16)
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("found", "built", "kernel"),
    [
        ((8, 0), True, "scaled_mm_bytes"),
        ((8, 9), True, "scaled_mm"),
        ((8, 9), False, "scaled_mm_bytes"),
        ((8, 9), None, "scaled_mm_bytes"),
        ((10, 0), False, "scaled_mm"),
    ],
)
def test_which_devices_multiply_fp8(found, built, kernel, monkeypatch):
    class Cuda(torch.Tensor):
        """Says that it lies on a device."""

        is_cuda = True

    def provide(name: str) -> SimpleNamespace:
        if built is None:
            raise KernelNotFoundError("expected a bundle that holds the kernel", got=name)
        return SimpleNamespace(fits=lambda _: built)

    monkeypatch.setattr(launch_fp8, "capability", lambda _: found)
    monkeypatch.setattr(launch_module, "processors", lambda _: 132)
    a, b = operands(3, 16, 16)
    one = torch.ones(())
    with library.override(provide):
        given = launch_module.Operands(a.as_subclass(Cuda), b, one, one, None)
        assert launch_module.prepare(given, None, torch.bfloat16, fast=False).kernel == kernel


def test_fast_sums_are_asked_for_over_maps_alone():
    a, b = operands(32, 64, 256)
    for kind, fast in product(("whole", "ends", "1x128 128x128"), (False, True)):
        given = launch_module.Operands(a, b, *scales(32, 64, 256, kind), None)
        call = launch_module.prepare(given, None, torch.bfloat16, fast, maps_run=lambda _: True)
        assert call.constexprs["FAST"] == (fast and kind in {"whole", "ends"})
        assert "FAST" not in launch_module.prepare(given, None, torch.bfloat16, fast).constexprs


@pytest.mark.parametrize(
    ("m", "n", "k", "shapes", "expected"),
    [
        (5, 32, 300, ((1,), ()), ("ends", 1, 1)),
        (5, 32, 300, ((5, 1), (1, 32)), ("ends", 1, 1)),
        (1, 32, 300, ((1, 1), (1, 32)), ("ends", 1, 1)),
        (5, 32, 100, ((5, 1), (1, 32)), ("ends", 1, 1)),
        (5, 32, 300, ((5, 3), (3, 32)), ("rows", 1, 1)),
        (5, 32, 300, ((5, 3), (3, 1)), ("tiles", 1, 128)),
        (300, 272, 300, ((3, 3), (3, 3)), ("tiles", 128, 128)),
        (300, 272, 300, ((3, 3), (3, 272)), ("rows", 128, 1)),
    ],
)
def test_shapes_say_what_scales_are_of(m, n, k, shapes, expected):
    given = scales_of(*(torch.ones(shape) for shape in shapes), torch.empty(m, k), torch.empty(k, n))
    assert given[:3] == expected


def test_calls_are_remembered_by_all_that_they_depend_on():
    a, b = operands(20, 48, 272)
    one = torch.ones(())
    bias = torch.randn(48).bfloat16()
    ends = scales(20, 48, 272, "ends")
    blocks = scales(20, 48, 272, "1x128 128x128")
    calls = (
        lambda: scaled_mm(a, b, one, one),
        lambda: scaled_mm(a, b, one, one, use_fast_accum=True),
        lambda: scaled_mm(a, b, one, one, out_dtype=torch.float32),
        lambda: scaled_mm(a, b, one, one, bias),
        lambda: scaled_mm(a, b, one, one, bias.half(), torch.float16),
        lambda: scaled_mm(a, b, *ends),
        lambda: scaled_mm(a, b, *blocks),
        lambda: scaled_mm(a, a[:16].t(), one, one),
    )
    first = [call() for call in calls]
    for call, result in zip(calls, first, strict=True):
        again = call()
        assert again.data_ptr() != result.data_ptr()
        assert torch.equal(again, result)
    assert [result.dtype for result in first[1:5]] == [torch.bfloat16, torch.float32, torch.bfloat16, torch.float16]
    assert not torch.equal(first[0], first[3])
    one.fill_(2.0)
    assert torch.equal(calls[2](), 4 * first[2])


def test_launches_one_kernel_and_nothing_else():
    a, b = operands(20, 48, 80)
    one = torch.ones(())
    launch, out = requested(lambda: scaled_mm(a, b, one, one))
    assert launch.kernel == "scaled_mm"
    assert launch.args[7:15] == (20, 48, 80, 1, 48, 0, 1, 1)
    assert out.shape == (20, 48)


def test_the_operator_is_torchs_kind():
    a, b = operands(5, 32, 80)
    one = torch.ones(())
    bias = torch.randn(32).bfloat16()
    # what looks at the schema multiplies operands, and torch does not multiply fp8
    utilities = (
        "test_faketensor",
        "test_autograd_registration",
        "test_aot_dispatch_static",
        "test_aot_dispatch_dynamic",
    )
    for given in ((one, one, None, torch.float32, False), (*scales(5, 32, 80, "ends"), bias, torch.bfloat16, True)):
        torch.library.opcheck(torch.ops.nojit.scaled_mm.default, (a, b, *given), test_utils=utilities)
        out = torch.empty(5, 32, dtype=given[3])
        torch.library.opcheck(torch.ops.nojit.scaled_mm_out.default, (a, b, *given, out), test_utils=utilities)


def test_traces_without_a_graph_break():
    a, b = operands(5, 32, 80)
    one = torch.ones(())
    bias = torch.randn(32).bfloat16()

    def several(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
        out = torch.empty(5, 32, dtype=torch.bfloat16)
        scaled_mm(a, b, one, one, out=out)
        return scaled_mm(a, b, one, one, bias) + scaled_mm(a, b, one, one, out_dtype=torch.float32) + out

    traced = torch.compile(several, backend="aot_eager", fullgraph=True)
    assert torch.equal(traced(a, b, bias), several(a, b, bias))


def test_there_are_no_gradients():
    a, b = operands(5, 32, 80)
    one, learned = torch.ones(()), torch.ones((), requires_grad=True)
    with pytest.raises(ValueError, match="scale_b: expected a tensor that requires no grad"):
        scaled_mm(a, b, one, learned)
    with pytest.raises(ValueError, match="bias: expected a tensor that requires no grad"):
        scaled_mm(a, b, one, one, torch.ones(32, dtype=torch.bfloat16, requires_grad=True))
    with torch.no_grad():
        assert torch.equal(scaled_mm(a, b, one, learned), scaled_mm(a, b, one, one))


def test_mistakes_are_named():
    a, b = operands(5, 32, 80)
    one, half = torch.ones(()), torch.ones((), dtype=torch.float16)
    bias = torch.ones(32).bfloat16()
    memory = torch.zeros(5 * 80, dtype=torch.uint8)
    for call, error, words in (
        (
            lambda: scaled_mm(a.float(), b, one, one),
            ArgumentError,
            "a: expected torch.float8_e4m3fn or torch.float8_e5m2",
        ),
        (lambda: scaled_mm(a, b.half(), one, one), ArgumentError, "b: expected torch.float8_e4m3fn or"),
        (lambda: scaled_mm(a.to(E5), b.to(E5), one, one), ArgumentError, "b: expected torch.float8_e4m3fn where a is"),
        (lambda: scaled_mm(None, b, one, one), ArgumentError, "a: expected a tensor, got NoneType"),
        (lambda: scaled_mm(a[None], b, one, one), ValueError, "a: expected 2 dimensions"),
        (
            lambda: scaled_mm(a[:, :64], b, one, one),
            ValueError,
            "b: expected 64 rows, as many as a has columns, got 80",
        ),
        (lambda: scaled_mm(a[:, :72], b[:72], one, one), ValueError, "a: expected a multiple of 16 columns, got 72"),
        (lambda: scaled_mm(a, b[:, :24], one, one), ValueError, "b: expected a multiple of 16 columns, got 24"),
        (lambda: scaled_mm(a, b.contiguous(), one, one), ValueError, "b: expected contiguous columns"),
        (lambda: scaled_mm(a.t().contiguous().t(), b, one, one), ValueError, "a: expected contiguous rows"),
        (lambda: scaled_mm(a, b, half, one), ArgumentError, "scale_a: expected torch.float32, got torch.float16"),
        (
            lambda: scaled_mm(a, b, one, one.to("meta")),
            ArgumentError,
            "scale_b: expected a tensor on cpu as a is, got meta",
        ),
        (
            lambda: scaled_mm(a, b, torch.ones(5, 1), one),
            ValueError,
            r"scale_a, scale_b: expected one element each, or",
        ),
        (lambda: scaled_mm(a, b, torch.ones(5), torch.ones(32)), ValueError, r"got \(5,\) and \(32,\)"),
        (lambda: scaled_mm(a, b, one, 1.0), ArgumentError, "scale_b: expected a tensor, got float"),
        (lambda: scaled_mm(a, b, one, one, bias[:16]), ValueError, r"bias: expected shape \(32,\) \[N\]"),
        (lambda: scaled_mm(a, b, one, one, bias[:, None]), ValueError, r"bias: expected shape \(1, 32\)"),
        (
            lambda: scaled_mm(a, b, one, one, bias.half()),
            ArgumentError,
            "bias: expected torch.bfloat16 as the result has",
        ),
        (
            lambda: scaled_mm(a, b, one, one, bias, torch.float32),
            ArgumentError,
            "bias: expected None where out_dtype is",
        ),
        (lambda: scaled_mm(a, b, one, one, out_dtype=E4), ArgumentError, "out_dtype: expected torch.float16 or"),
        (lambda: scaled_mm(a, b, one, one, out_dtype="bf16"), ArgumentError, "out_dtype: expected torch.float16 or"),
        (lambda: scaled_mm(a, b, one, one, use_fast_accum="yes"), ArgumentError, "use_fast_accum: expected a bool"),
        (lambda: scaled_mm(a, b, one, one, out=torch.empty(5, 16)), ValueError, r"out: expected shape \(5, 32\)"),
        (
            lambda: scaled_mm(a, b, one, one, out=torch.empty(5, 32), out_dtype=torch.bfloat16),
            ArgumentError,
            "out: expected torch.bfloat16 as out_dtype says, got torch.float32",
        ),
        (lambda: scaled_mm(a, b, one, one, out=torch.empty(1).expand(5, 32)), ValueError, "without repeated elements"),
        (
            lambda: scaled_mm(
                memory.view(E4).view(5, 80), b, one, one, out=memory[:320].view(torch.bfloat16).view(5, 32)
            ),
            ValueError,
            "out: expected memory of its own, as the kernel reads a while it writes out",
        ),
    ):
        for _ in range(2):
            with pytest.raises(error, match=words):
                call()
