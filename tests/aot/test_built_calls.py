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

from tests.fakecuda import FakeCuda

pytestmark = pytest.mark.triton

HEADER = 'schema = 1\n[bundle]\nname = "demo"\nversion = "1.0"\narchs = ["sm_90"]\n'
IMPORTS = "import triton\nimport triton.language as tl\n\n\n"

Built = Callable[..., Kernel]


@pytest.fixture
def built(fakecuda: FakeCuda, tmp_path: Path) -> Iterator[Built]:
    """Build the function `k` of a source by an entry, and return the kernel of the bundle."""
    from nojit.aot import compiler
    from nojit.aot.build import build
    from nojit.aot.cache import Cache
    from nojit.aot.plan import make_plans

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
