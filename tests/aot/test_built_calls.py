"""Small manifests, built by Triton and called on the fake driver: which image a call runs, and what it is passed."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from nojit import runtime
from nojit.runtime.kernel import Kernel
from nojit.runtime.values import DType, FunctionRef

from tests.fakecuda import FakeCuda

pytestmark = pytest.mark.triton

HEADER = 'schema = 1\n[bundle]\nname = "demo"\nversion = "1.0"\narchs = ["sm_90"]\n'
IMPORTS = "import triton\nimport triton.language as tl\n\n\n"

Built = Callable[..., Kernel]


@pytest.fixture
def built(fakecuda: FakeCuda, tmp_path: Path) -> Iterator[Built]:
    """Build the function `k` of a source by an entry, and return the kernel of the bundle."""
    from nojit.aot.cache.cache import Cache
    from nojit.aot.compile.triton import compiler
    from nojit.aot.pipeline.build import build
    from nojit.aot.plan.planner import make_plans

    opened = []

    def make(source: str, entry: str, *, count: int | None = None) -> Kernel:
        folder = tmp_path / f"{len(opened)}"
        folder.mkdir()
        (folder / "source.py").write_text(IMPORTS + textwrap.dedent(source), encoding="utf-8")
        text = f'{HEADER}[[kernel]]\nname = "k"\nsource = "source.py:k"\n{textwrap.dedent(entry)}'
        (folder / "demo.toml").write_text(text, encoding="utf-8")
        plans = make_plans([folder / "demo.toml"], [], "full", compiler)
        if count is not None:
            assert plans[0].count() == count
        result = build(plans, folder, compiler, Cache(folder / "cache"), lambda: ThreadPoolExecutor(1))
        assert not result.failures
        opened.append(runtime.load(folder))
        return opened[-1].kernel("k")

    yield make
    for bundle in opened:
        bundle.close()


@pytest.fixture
def tensor(faketorch: ModuleType) -> Callable[..., Any]:
    return faketorch.Tensor


# -- what types decide -----------------------------------------------------------------------------------------------

OPTIONAL = """
    @triton.jit
    def k(out_ptr, a, b, c, d, HAS_A: tl.constexpr, HAS_B: tl.constexpr, HAS_C: tl.constexpr, HAS_D: tl.constexpr):
        value = 0.0
        if HAS_A:
            value += tl.load(a)
        if HAS_B:
            value += 2 * tl.load(b)
        if HAS_C:
            value += 4 * tl.load(c)
        if HAS_D:
            value += 8 * tl.load(d)
        tl.store(out_ptr, value)
"""
OPTIONAL_ENTRY = """
    [kernel.params]
    out_ptr = "*fp32"
    a = "*fp32?"
    b = "*fp32?"
    c = "*fp32?"
    d = "*fp32?"

    [kernel.derived]
    HAS_A = "has(a)"
    HAS_B = "has(b)"
    HAS_C = "has(c)"
    HAS_D = "has(d)"
"""


def test_flags_of_optional_pointers_are_built_once_for_each_choice_of_them(built, tensor, fakecuda):
    kernel = built(OPTIONAL, OPTIONAL_ENTRY, count=16)
    images = set()
    for _ in range(2):
        for there in itertools.product((True, False), repeat=4):
            given = [tensor(4096 << place, "float32") if one else None for place, one in enumerate(there)]
            kernel[1,](tensor(1 << 20, "float32"), *given)
            launch = fakecuda.last_launch()
            addresses = tuple(4096 << place for place, one in enumerate(there) if one)
            assert launch.ints()[: 1 + sum(there)] == (1 << 20, *addresses)
            images.add(launch.kernel)
    assert len(images) == 16


HAS = """
    @triton.jit
    def k(out_ptr, big, pair, desc, HAS_BIG: tl.constexpr, HAS_PAIR: tl.constexpr, HAS_DESC: tl.constexpr):
        tl.store(out_ptr, HAS_BIG + 2 * HAS_PAIR + 4 * HAS_DESC)
"""
HAS_ENTRY = """
    [kernel.params]
    out_ptr = "*i32"
    big = "u64?"
    pair = "(i32, fp32)?"
    desc = "tensordesc<fp16[64,64]>?"

    [kernel.derived]
    HAS_BIG = "has(big)"
    HAS_PAIR = "has(pair)"
    HAS_DESC = "has(desc)"
"""


def test_has_asks_whether_numbers_tuples_and_descriptors_are_there(built, tensor, fakecuda):
    kernel = built(HAS, HAS_ENTRY, count=8)
    x = tensor(4096, "float16", (64, 64))
    given = ((1 << 64) - 1, (3, 0.25), runtime.TensorDescriptor(x, (64, 64), (64, 1), (64, 64)))
    images = set()
    for _ in range(2):
        for there in itertools.product((True, False), repeat=3):
            arguments = [one if kept else None for one, kept in zip(given, there, strict=True)]
            kernel[1,](tensor(1 << 20, "int32"), *arguments)
            images.add(fakecuda.last_launch().kernel)
            assert kernel.explain(tensor(1 << 20, "int32"), *arguments).chosen
    assert len(images) == 8


# -- points, and hints that hold one by one --------------------------------------------------------------------------

SUM = """
    @triton.jit
    def k(out_ptr, a_ptr, b_ptr, n, SCALE: tl.constexpr, BLOCK: tl.constexpr):
        lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(a_ptr + lanes, mask=lanes < n) + tl.load(b_ptr + lanes, mask=lanes < n)
        tl.store(out_ptr + lanes, value * SCALE, mask=lanes < n)
"""
SUM_ENTRY = """
    [kernel.params]
    out_ptr = "*{dtype}"
    a_ptr = "*{dtype}"
    b_ptr = "*{dtype}"
    n = "i32"

    [kernel.matrix]
    dtype = ["fp32", "fp16"]
    SCALE = [1, 2]

    [[kernel.configs]]
    BLOCK = 512
    num_warps = 1
"""


def test_a_recorded_call_is_served_and_no_other(built, tensor, fakecuda):
    entry = f"""{textwrap.dedent(SUM_ENTRY)}
[[kernel.point]]
values = {{ dtype = "fp32", SCALE = 2 }}
hints = {{ out_ptr = 16, a_ptr = 16, b_ptr = 16, n = 16 }}
aligned_only = "recorded calls only"

[[kernel.point]]
values = {{ dtype = "fp16", SCALE = 1 }}
types = {{ n = "i64" }}
"""
    kernel = built(SUM, entry, count=2)

    def call(dtype: str, scale: int, n: int, last: int = 1 << 16) -> list[Any]:
        return [*(tensor(address, dtype) for address in (4096, 8192, last)), n, scale]

    for _ in range(2):
        kernel[1,](*call("float32", 2, 512))
        assert fakecuda.last_launch().ints()[:4] == (4096, 8192, 1 << 16, 512)
        kernel[1,](*call("float16", 1, 1 << 40))
    launched = fakecuda.launch_count()
    for arguments, reason in [
        (call("float32", 2, 500), "expects n divisible by 16, got int 500"),
        (call("float32", 2, 512, 4100), "expects b_ptr divisible by 16, got 0x1004"),
        (call("float32", 1, 512), "SCALE is 2, got 1"),
        (call("float16", 2, 512), "SCALE is 1, got 2"),
    ]:
        for make in (kernel[1,], kernel.warmup):
            with pytest.raises(runtime.NoMatchingVariantError, match=reason):
                make(*arguments)
        assert kernel.explain(*arguments).chosen is None
    with pytest.raises(runtime.NoMatchingVariantError, match="the variants without hints, which `aligned_only` leaves"):
        kernel[1,](*call("float32", 2, 500))
    assert fakecuda.launch_count() == launched


def test_the_most_hints_that_hold_are_what_a_call_runs_with(built, tensor, fakecuda):
    entry = (
        SUM_ENTRY.replace('["fp32", "fp16"]', '["fp32"]').replace("[1, 2]", "[1]")
        + """
    [[kernel.partial_hints]]
    hints = { out_ptr = 16, a_ptr = 16, b_ptr = 16, n = 16 }
    missing = 2
    """
    )
    kernel = built(SUM, entry, count=12)
    images: dict[frozenset[str], set[int]] = {}
    for _ in range(2):
        for held in itertools.product((True, False), repeat=4):
            addresses = [(4096 << place) + (0 if one else 4) for place, one in enumerate(held[:3])]
            arguments = [*(tensor(address, "float32") for address in addresses), 512 if held[3] else 500, 1]
            kernel[1,](*arguments)
            assert fakecuda.last_launch().ints()[:4] == (*addresses, arguments[3])
            names = ("out_ptr", "a_ptr", "b_ptr", "n")
            # with fewer than two that hold nothing was built but the variant without
            expected = frozenset(name for name, one in zip(names, held, strict=True) if one and sum(held) > 1)
            chosen = kernel.explain(*arguments).chosen
            assert {word.partition(":")[0] for word in chosen.split() if word.endswith(":16")} == expected
            images.setdefault(expected, set()).add(fakecuda.last_launch().kernel)
    assert all(len(ran) == 1 for ran in images.values())
    assert len(set().union(*images.values())) > 6


# -- constants among the arguments, and *args ------------------------------------------------------------------------

CONSTANTS = """
    @triton.jit
    def double(x):
        return 2 * x


    @triton.jit
    def negate(x):
        return -x


    @triton.jit
    def k(out_ptr, how, SCALE: tl.constexpr):
        tl.store(out_ptr, how[0](how[1]) * how[2] + how[3][0] + SCALE)
"""
CONSTANTS_ENTRY = """
    [kernel.params]
    out_ptr = "*i32"
    how = "(={function}, i32, =3, (={offset}, *i32?))"

    [kernel.matrix]
    function = ["function:source.py:double", "function:source.py:negate"]
    offset = ["5", "7"]
    SCALE = [1]
"""


class Constexpr:
    """As `tl.constexpr`, which is known by its name."""

    def __init__(self, value: Any) -> None:
        self.value = value


Constexpr.__name__ = Constexpr.__qualname__ = "constexpr"
Constexpr.__module__ = "triton.language.core"


def test_constants_in_tuples_choose_the_image_and_are_not_passed(built, tensor, fakecuda):
    kernel = built(CONSTANTS, CONSTANTS_ENTRY, count=8)
    out = tensor(4096, "int32")
    images: dict[Any, int] = {}
    for wrap, _ in itertools.product((lambda value: value, Constexpr), range(2)):
        for name, offset in itertools.product(("double", "negate"), (5, 7)):
            how = (FunctionRef(f"source.py:{name}"), 100, wrap(3), (wrap(offset), tensor(8192, "int32")))
            kernel[1,](out, how, 1)
            launch = fakecuda.last_launch()
            assert launch.ints()[:3] == (4096, 100, 8192)
            assert images.setdefault((name, offset), launch.kernel) == launch.kernel
            explained = kernel.explain(out, how, 1)
            assert f"how.0=source.py:{name}" in explained.chosen
            assert f"how.3.0={offset}" in explained.chosen
    assert len(set(images.values())) == 4
    how = (FunctionRef("source.py:double"), 100, 3, (5, None))
    for place, wrong, reason in [
        (0, FunctionRef("source.py:triple"), "member 0: expected the constant source.py:double, got the constant source.py:triple"),
        (0, 5, "member 0: expected the constant source.py:double, got int 5"),
        (2, 4, "member 2: expected the constant 3, got int 4"),
        (2, True, "member 2: expected the constant 3, got bool True"),
        (2, "3", "member 2: expected the constant 3, got the constant '3'"),
        (3, (6, None), "member 3: member 0: expected the constant 5, got int 6"),
    ]:  # fmt: skip
        arguments = [*how[:place], wrong, *how[place + 1 :]]
        for make in (kernel[1,], kernel.warmup):
            with pytest.raises(runtime.NoMatchingVariantError, match=reason):
                make(out, tuple(arguments), 1)


def test_constants_of_every_kind_are_told_apart(built, tensor, fakecuda):
    values = {
        "3": 3,
        "-1": -1,
        "true": True,
        "1.5": 1.5,
        "'silu'": "silu",
        "dtype:fp16": DType("fp16"),
        '"a%2C b"': "a, b",
    }
    source = "@triton.jit\ndef k(out_ptr, what):\n    tl.store(out_ptr, 1)\n"
    spelled = ", ".join(f"'{name}'" if "'" not in name else f'"{name}"' for name in values).replace(" b", "%20b")
    entry = f"""
[kernel.params]
out_ptr = "*i32"
what = "={{kind}}"

[kernel.matrix]
kind = [{spelled}]
"""
    kernel = built(source, entry, count=len(values))
    for _ in range(2):
        seen = []
        for value in values.values():
            for given in (value, Constexpr(value)):
                kernel[1,](tensor(4096, "int32"), given)
                assert fakecuda.last_launch().ints()[0] == 4096
            seen.append(kernel.explain(tensor(4096, "int32"), value).row)
        assert len(set(seen)) == len(values)
    for value in (4, 3.0, False, "relu", DType("bf16"), 1.25, (3,), None):
        with pytest.raises(runtime.NojitError):
            kernel[1,](tensor(4096, "int32"), value)


def test_functions_and_constexprs_of_triton_are_constants(built, tensor, fakecuda, tmp_path, monkeypatch):
    import triton.language as tl

    (tmp_path / "functions_of_test.py").write_text(f"{IMPORTS}@triton.jit\ndef double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    import functions_of_test

    source = "@triton.jit\ndef k(out_ptr, how):\n    tl.store(out_ptr, how[0](how[1]) + how[2])\n"
    entry = '[kernel.params]\nout_ptr = "*i32"\nhow = "(=function:functions_of_test:double, i32, =4)"\n'
    kernel = built(source, entry, count=1)
    for _ in range(2):
        kernel[1,](tensor(4096, "int32"), (functions_of_test.double, 100, tl.constexpr(4)))
        assert fakecuda.last_launch().ints()[:2] == (4096, 100)


REST = """
    @triton.jit
    def k(out_ptr, *parts, SCALE: tl.constexpr, BLOCK: tl.constexpr = 128):
        total = 0
        for place in tl.static_range(len(parts)):
            total += tl.load(parts[place][0]) * parts[place][1]
        tl.store(out_ptr, total * SCALE)
"""
REST_ENTRY = """
    [kernel.params]
    out_ptr = "*i32"
    parts = "{kinds}"

    [kernel.matrix]
    kinds = ["()", "((*i32, i32))", "((*i32, i32), (*i32, =2))"]
    SCALE = [1]

    [[kernel.configs]]
    BLOCK = 128
    num_warps = 2

    [[kernel.hints]]
    out_ptr = 16
"""


def test_a_kernel_with_rest_arguments_is_called_as_triton_calls_it(built, tensor, fakecuda):
    kernel = built(REST, REST_ENTRY, count=6)
    out, first, second = (tensor(address, "int32") for address in (4096, 8192, 1 << 20))
    for _ in range(2):
        kernel[1,](out, SCALE=1)
        assert fakecuda.last_launch().ints()[:1] == (4096,)
        kernel[1,](out, (first, 5), SCALE=1, num_warps=2)
        assert fakecuda.last_launch().ints()[:3] == (4096, 8192, 5)
        kernel[1,](out, (first, 5), (second, 2), BLOCK=128, SCALE=1)
        assert fakecuda.last_launch().ints()[:4] == (4096, 8192, 5, 1 << 20)
        kernel.bind((1,), SCALE=1)(out, (first, 6))
        assert fakecuda.last_launch().ints()[:3] == (4096, 8192, 6)
        kernel[1,](out_ptr=out, SCALE=1)
    assert kernel.explain(out, (first, 5), (second, 2), SCALE=1).chosen
    kernel.warmup(out, (first, 5), SCALE=1)
    launched = fakecuda.launch_count()
    with pytest.raises(runtime.NoMatchingVariantError, match=r"expected 0 members in \(\), got 3"):
        kernel[1,](out, (first, 1), (first, 2), (first, 3), SCALE=1)
    with pytest.raises(runtime.ArgumentError, match="expected one value, by position or by name"):
        kernel[1,](out, parts=((first, 5),), SCALE=1)
    with pytest.raises(runtime.ArgumentError, match="expected a value"):
        kernel[1,](SCALE=1)
    assert fakecuda.launch_count() == launched
