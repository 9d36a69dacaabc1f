"""What manifests mean, held against Triton's JIT on a device: annotations, decided flags, constants, ``*args``, hints one by one."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
pytest.importorskip("triton")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from nojit import runtime  # noqa: E402

VERSION = tuple(map(int, triton.__version__.split(".")[:2]))
IMPORTS = "import triton\nimport triton.language as tl\n\n\n"

Pair = tuple[Any, Any]
Make = Callable[..., Pair]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Build the function `k` of a source for this device; return the bundle's kernel and the module of the source."""
    from nojit.aot.cache.cache import Cache
    from nojit.aot.compile.triton import compiler
    from nojit.aot.pipeline.build import build
    from nojit.aot.plan.planner import make_plans

    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    header = f'schema = 1\n[bundle]\nname = "meaning"\nversion = "1.0"\narchs = ["{arch}"]\n'
    opened = []

    def built(source: str, entry: str) -> Pair:
        name = f"meaning_source_{len(opened)}"
        path = tmp_path / f"{name}.py"
        path.write_text(IMPORTS + source, encoding="utf-8")
        (tmp_path / f"{name}.toml").write_text(
            f'{header}[[kernel]]\nname = "k"\nsource = "{name}:k"\n{entry}', encoding="utf-8"
        )
        monkeypatch.syspath_prepend(tmp_path)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        plans = make_plans([tmp_path / f"{name}.toml"], [], "full", compiler)
        result = build(plans, tmp_path / name, compiler, Cache(tmp_path / "cache"), lambda: ThreadPoolExecutor(1))
        assert not result.failures
        opened.append(runtime.load(tmp_path / name))
        return opened[-1].kernel("k"), module

    yield built
    torch.cuda.synchronize()
    for bundle in opened:
        bundle.close()


def outputs(count: int, dtype: Any) -> tuple[Any, Any]:
    return tuple(torch.full((count,), 77, dtype=dtype, device="cuda") for _ in range(2))


def both(kernel: Any, module: Any, outs: Pair, grid: int, *arguments: Any, **named: Any) -> list[Any]:
    """Launch the bundle's kernel and Triton's; return what both stored."""
    kernel[grid,](outs[0], *arguments, **named)
    module.k[grid,](outs[1], *arguments, **named)
    assert torch.equal(*outs)
    stored: list[Any] = outs[0].tolist()
    return stored


WIDE = """
@triton.jit
def k(out_ptr, base: tl.int64, scale: tl.float16, flag: tl.int1):
    place = tl.program_id(0)
    tl.store(out_ptr + place, base * 65536 * (place + 1) + scale.to(tl.int64) + flag.to(tl.int64))
"""


@pytest.mark.parametrize("base", [1, 16, 40_000, 1 << 40])
def test_arithmetic_is_as_wide_as_a_param_is_annotated(make, base):
    params = '[kernel.params]\nout_ptr = "*i64"\nbase = "i64"\nscale = "fp16"\nflag = "i1"\n'
    kernel, module = make(WIDE, f"{params}[[kernel.hints]]\nout_ptr = 16\nbase = 16\n")
    stored = both(kernel, module, outputs(3, torch.int64), 3, base, 2.5, True)
    assert stored == [base * 65536 * place + 3 for place in (1, 2, 3)]


FLAGS = """
@triton.jit
def k(out_ptr, a, b, HAS_A: tl.constexpr, HAS_B: tl.constexpr):
    value = 1.0
    if HAS_A:
        value += 2 * tl.load(a)
    if HAS_B:
        value += 4 * b
    tl.store(out_ptr, value)
"""


def test_flags_follow_from_what_is_there(make):
    entry = '[kernel.params]\nout_ptr = "*fp32"\na = "*fp32?"\nb = "fp32?"\n[kernel.derived]\nHAS_A = "has(a)"\nHAS_B = "has(b)"\n'
    kernel, module = make(FLAGS, entry)
    a = torch.tensor([10.0], device="cuda")
    for there, number in itertools.product((a, None), (0.5, None)):
        out, other = outputs(1, torch.float32)
        kernel[1,](out, there, number)
        module.k[1,](other, there, number, HAS_A=there is not None, HAS_B=number is not None)
        assert out.item() == other.item() == 1 + (20 if there is not None else 0) + (2 if number is not None else 0)


CONSTANTS = """
@triton.jit
def double(x):
    return 2 * x


@triton.jit
def negate(x):
    return -x


@triton.jit
def k(out_ptr, how):
    tl.store(out_ptr, how[0](how[1]) * how[2][0] + how[2][1])
"""


def test_functions_and_constexprs_in_tuples(make):
    entry = """
[kernel.params]
out_ptr = "*i32"
how = "(={function}, i32, (={factor}, i32))"

[kernel.matrix]
function = ["function:meaning_source_0:double", "function:meaning_source_0:negate"]
factor = ["3", "5"]
"""
    kernel, module = make(CONSTANTS, entry)
    for name, factor in itertools.product(("double", "negate"), (3, 5)):
        how = (getattr(module, name), 100, (tl.constexpr(factor), 7))
        expected = (200 if name == "double" else -100) * factor + 7
        assert both(kernel, module, outputs(1, torch.int32), 1, how) == [expected]
    with pytest.raises(runtime.NoMatchingVariantError, match="expected the constant"):
        kernel[1,](torch.empty(1, dtype=torch.int32, device="cuda"), (module.double, 1, (tl.constexpr(4), 7)))


REST = """
@triton.jit
def k(out_ptr, *parts, SCALE: tl.constexpr):
    total = 0
    for place in tl.static_range(len(parts)):
        total += tl.load(parts[place][0]) * parts[place][1]
    tl.store(out_ptr, total * SCALE)
"""


@pytest.mark.skipif(VERSION < (3, 9), reason="this Triton takes no *args")
def test_rest_arguments(make):
    entry = """
[kernel.params]
out_ptr = "*i32"
parts = "{kinds}"

[kernel.matrix]
kinds = ["((*i32, i32))", "((*i32, i32), (*i32, i32))"]
SCALE = [3]
"""
    kernel, module = make(REST, entry)
    first, second = (torch.tensor([value], dtype=torch.int32, device="cuda") for value in (10, 100))
    assert both(kernel, module, outputs(1, torch.int32), 1, (first, 5), SCALE=3) == [150]
    assert both(kernel, module, outputs(1, torch.int32), 1, (first, 5), (second, 7), SCALE=3) == [2250]


SUM = """
@triton.jit
def k(out_ptr, a_ptr, b_ptr, n, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    value = tl.load(a_ptr + lanes, mask=lanes < n) + tl.load(b_ptr + lanes, mask=lanes < n)
    tl.store(out_ptr + lanes, value, mask=lanes < n)
"""
SUM_ENTRY = """
[kernel.params]
out_ptr = "*fp32"
a_ptr = "*fp32"
b_ptr = "*fp32"
n = "i32"

[[kernel.configs]]
BLOCK = 1024
"""


def test_hints_that_hold_one_by_one_change_no_result(make):
    hints = "[[kernel.partial_hints]]\nhints = { out_ptr = 16, a_ptr = 16, b_ptr = 16, n = 16 }\n"
    kernel, _ = make(SUM, SUM_ENTRY + hints)
    spare = torch.randn(3, 1200, device="cuda")
    for shifts in itertools.product((0, 1), repeat=4):
        out, a, b = (row[shift:] for row, shift in zip(spare.clone(), shifts, strict=False))
        n = 1000 + shifts[3] if shifts[3] else 1008
        expected = a[:n] + b[:n]
        kernel[1,](out, a, b, n, BLOCK=1024)
        assert torch.equal(out[:n], expected)


def test_a_point_without_a_twin_serves_no_other_call(make):
    point = '[[kernel.point]]\nhints = { out_ptr = 16, a_ptr = 16, b_ptr = 16 }\naligned_only = "recorded calls only"\n'
    kernel, _ = make(SUM, SUM_ENTRY + point)
    out, a, b = (torch.randn(1200, device="cuda") for _ in range(3))
    expected, before = a[:1000] + b[:1000], out.clone()
    with pytest.raises(runtime.NoMatchingVariantError, match="expects a_ptr divisible by 16"):
        kernel[1,](out, a[1:], b, 1000)
    assert torch.equal(out, before)
    kernel[1,](out, a, b, 1000)
    assert torch.equal(out[:1000], expected)
