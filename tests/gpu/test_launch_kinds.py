"""Each way in which a launch can differ: what the kernel saw is what was passed, and what Triton's JIT shows it.

The kernels of `launch/kernel.py` store what they are given. Each call is made through a bundle, built by the Triton at
hand, and compared with plain values; where Triton's own launcher takes the same call, with its bits too.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
pytest.importorskip("triton")

import triton  # noqa: E402
from nojit import runtime  # noqa: E402
from nojit.runtime.values import DType, FunctionRef  # noqa: E402
from torch import Tensor  # noqa: E402
from triton.tools import tensor_descriptor as theirs  # noqa: E402

from tests.gpu.launch import kernel as source  # noqa: E402
from tests.gpu.replay import same_bits  # noqa: E402

CAPABILITY = torch.cuda.get_device_capability()
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
BYTES = (torch.bool, torch.int8, torch.uint8, torch.float8_e5m2, torch.float8_e4m3fn)
INTS = (torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64)

Tile = collections.namedtuple("Tile", "ptr shape scale")  # noqa: PYI024 - kernels see it as callers write it
Shape = collections.namedtuple("Shape", "rows cols")  # noqa: PYI024


@pytest.fixture(autouse=True)
def tritons_scratch() -> Iterator[None]:
    """Let Triton's own launcher have scratch memory."""
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    yield
    torch.cuda.synchronize()


def jit(name: str) -> Any:
    return getattr(source, f"{name}_kernel")


def fp32(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device="cuda")


def outputs(count: int, dtype: Any = torch.float32) -> tuple[Tensor, Tensor]:
    """One for the bundle's launch, one for Triton's."""
    return tuple(torch.full((count,), 77, dtype=dtype, device="cuda") for _ in range(2))  # type: ignore[return-value]


def both(kernels: Callable[[str], Any], name: str, outs: tuple[Tensor, Tensor], *args: Any, **named: Any) -> Tensor:
    """Launch one program both ways, with `out` in place of `...`; return what the bundle's launch stored."""
    for launch, out in zip((kernels(name), jit(name)), outs, strict=True):
        launch[1,](*(out if arg is ... else arg for arg in args), **named)
    assert same_bits(*outs)
    return outs[0]


def random(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Tensor:
    chance = torch.Generator("cuda").manual_seed(seed)
    if dtype in FLOATS or dtype in BYTES[3:]:
        return torch.randn(shape, generator=chance, device="cuda").to(dtype)
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=chance, device="cuda").to(dtype)
    return torch.randint(0, 100, shape, generator=chance, device="cuda").to(dtype)


# -- scalars and pointers --------------------------------------------------------------------------------------------

LEAST = (-(1 << 7), -(1 << 15), -(1 << 31), -(1 << 63), 0, 0, 0, 0)
MOST = ((1 << 7) - 1, (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1, (1 << 8) - 1, (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1)  # fmt: skip
NUMBERS = [0.0, -0.0, 1.0, 1 / 3, 1e-7, 65504.0, math.pi, math.inf, -math.inf, math.nan, 2**-24, 3 * 2**-25, 1e-40]


@pytest.mark.parametrize("ints", [LEAST, MOST, (1,) * 8, (16,) * 8, (5,) * 8])
@pytest.mark.parametrize("flag", [True, False])
def test_ints_of_every_width(kernels, ints, flag):
    stored, floats = outputs(9, torch.int64)[0], fp32().double().new_zeros(4)
    kernels("scalars")[1,](stored, floats, *ints, flag, 1.0, 1.0, 1.0, 1.0)
    signed = [value - (1 << 64) if value >= 1 << 63 else value for value in (*ints, int(flag))]
    assert stored.tolist() == signed
    theirs_stored = torch.zeros_like(stored)
    try:
        jit("scalars")[1,](theirs_stored, floats, *ints, flag, 1.0, 1.0, 1.0, 1.0)
    except OverflowError:
        # Triton 3.6 packs an i8 as an unsigned byte
        assert min(ints) < 0
    else:
        assert same_bits(stored, theirs_stored)


@pytest.mark.parametrize("value", NUMBERS)
def test_floats_of_every_width_bit_for_bit(kernels, value):
    ints = outputs(9, torch.int64)[0]
    ours, jitted = outputs(4, torch.float64)
    for launch, out in ((kernels("scalars"), ours), (jit("scalars"), jitted)):
        launch[1,](ints, out, *(0,) * 8, True, value, value, value, value)
    assert same_bits(ours, jitted)
    assert same_bits(ours[3:], torch.tensor([value], dtype=torch.float64, device="cuda"))


@pytest.mark.parametrize("ints", [(True,) * 8, (False,) * 8, (3,) * 8])
@pytest.mark.parametrize("flag", [1, 0])
@pytest.mark.parametrize("number", [3, True, False, 16, 2**20])
def test_numbers_of_another_type_bit_for_bit(kernels, ints, flag, number):
    seen = []
    for launch in (kernels("scalars"), jit("scalars")):
        stored, floats = outputs(9, torch.int64)[0], outputs(4, torch.float64)[0]
        launch[1,](stored, floats, *ints, flag, number % 1000, number, number, number)
        seen.append((stored, floats))
    for ours, jitted in zip(*seen, strict=True):
        assert same_bits(ours, jitted)
    assert seen[0][1][2:].tolist() == [float(number)] * 2


@pytest.mark.parametrize("dtype", [*FLOATS, *BYTES, *INTS], ids=str)
@pytest.mark.parametrize(("offset", "n"), [(0, 1024), (1, 1000), (0, 1)])
def test_tensors_of_every_dtype(kernels, dtype, offset, n):
    if dtype is torch.float8_e4m3fn and CAPABILITY < (8, 9):
        pytest.skip("needs sm_89")
    x = random((n + offset,), dtype)[offset:]
    out = torch.zeros_like(x)
    kernels("copy")(x, out, n)
    assert same_bits(out, x)


@pytest.mark.parametrize("named", [{}, {"BLOCK": 256}, {"BLOCK": 1024, "num_warps": 8, "maxnreg": 64}])
def test_configs_and_grids_as_the_caller_says(kernels, named):
    x = random((5000,), torch.float32)
    for grid in ((20,), lambda meta: (triton.cdiv(5000, meta["BLOCK"]),), (20, 1), (20, 1, 1)):
        out = torch.zeros_like(x)
        kernels("copy")[grid](n=5000, out_ptr=out, x_ptr=x, **named)
        assert same_bits(out, x)


def test_a_length_beyond_32_bits_takes_the_wide_variant(kernels):
    x = random((256,), torch.float32)
    out = torch.zeros_like(x)
    kernels("copy")[1,](x, out, 1 << 40)
    assert same_bits(out, x)


def test_pointers_to_constants(kernels):
    assert both(kernels, "constant", outputs(1), fp32(3.5), ...).tolist() == [3.5]


def test_none_for_a_pointer(kernels):
    assert both(kernels, "optional", outputs(1), fp32(3.0), None, ...).tolist() == [3.0]
    assert both(kernels, "optional", outputs(1), fp32(3.0), fp32(4.0), ...).tolist() == [7.0]


@pytest.mark.parametrize("pair", [(1, 1), (16, 16), (7, 1), (-5, 32)])
def test_ints_that_are_not_specialized(kernels, pair):
    assert both(kernels, "unspecialized", outputs(2, torch.int32), ..., *pair).tolist() == list(pair)


def test_grids_of_three_dimensions(kernels):
    expected = [[x, y, z] for x in range(2) for y in range(3) for z in range(5)]
    for launch in (kernels("grid"), kernels("grid")[2, 3, 5], jit("grid")[2, 3, 5]):
        out = outputs(90, torch.int32)[0]
        launch(out, 3, 5)
        assert out.view(30, 3).tolist() == expected


# -- numbers of arguments --------------------------------------------------------------------------------------------


def test_one_argument(kernels):
    assert both(kernels, "arguments_1", outputs(1), ...).tolist() == [42.0]


def test_four_arguments(kernels):
    assert both(kernels, "arguments_4", outputs(1), ..., fp32(2.0), 5, 1.5).tolist() == [8.0]


@pytest.mark.parametrize(("name", "counts"), [("arguments_12", (5, 4, 2)), ("arguments_30", (9, 15, 5))])
@pytest.mark.parametrize("by_name", [False, True])
def test_many_arguments(kernels, name, counts, by_name):
    pointers, ints, floats = counts
    values = {f"p{i}": fp32(i + 0.5) for i in range(pointers)}
    values |= {f"i{i}": i * 3 for i in range(ints)} | {f"f{i}": i + 0.25 for i in range(floats)}
    backwards = dict(reversed(values.items()))
    outs = outputs(len(values))
    if by_name:
        both(kernels, name, outs, ..., **backwards)
    else:
        both(kernels, name, outs, ..., *values.values())
    assert outs[0].tolist() == [value.item() if isinstance(value, Tensor) else value for value in values.values()]


# -- constexprs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("number", [0.5, 2.5])
@pytest.mark.parametrize("pair", [(1, 2), (3, 4)])
def test_constexprs_of_every_kind(kernels, first, number, pair):
    import triton.language as tl

    values = {"INT": 7 if first else -1, "FLOAT": number, "BOOL": first, "WORD": "gelu" if first else "relu"}
    values |= {"MAYBE": None if first else 3, "PAIR": pair}
    ours = {"DTYPE": DType("fp16" if first else "bf16"), "FUNCTION": FunctionRef(f"kernel.py:{'double' if first else 'negate'}")}  # fmt: skip
    jitted = {"DTYPE": tl.float16 if first else tl.bfloat16, "FUNCTION": source.double if first else source.negate}
    outs = outputs(9)
    kernels("constexprs")[1,](outs[0], **values, **ours)
    jit("constexprs")[1,](outs[1], **values, **jitted)
    assert same_bits(*outs)
    rounded = torch.tensor(1.3).to(torch.float16 if first else torch.bfloat16).item()
    head = [7.0, number, 1.0, 1.0, -1.0] if first else [-1.0, number, 0.0, 0.0, 3.0]
    assert outs[0].tolist() == [*head, rounded, 154.0 if first else -77.0, pair[0] * 10.0 + pair[1], 9.0]


# -- tuples ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [5, 16, 1, 0, -16])
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("offset", [0, 1])
def test_tuples(kernels, number, flag, there, offset):
    x = (fp32(1.5, 2.5)[offset:], (number, 0.75), fp32(4.5) if there else None, flag)
    expected = [1.5 + offset, number, 0.75, 4.5 if there else -1.0, flag]
    assert both(kernels, "tuple", outputs(5), x, ...).tolist() == expected


@pytest.mark.parametrize("cols", [7, 1 << 40])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_named_tuples(kernels, cols, dtype):
    pointer = torch.tensor([1.5], dtype=dtype, device="cuda")
    out = both(kernels, "named_tuple", outputs(4), Tile(pointer, Shape(3, cols), 0.5), ...)
    assert out.tolist() == [1.5, 3.0, float(cols), 0.5]
    plain = outputs(4)[0]
    kernels("named_tuple")[1,]((pointer, (3, cols), 0.5), plain)
    assert same_bits(plain, out)


@pytest.mark.parametrize("n", [1024, 1000, 1, 4096])
@pytest.mark.parametrize("offset", [0, 1, 8])
def test_hints_on_members_hold_call_by_call(kernels, n, offset):
    x = random((n + offset,), torch.float16)[offset:]
    out = torch.zeros_like(x)
    kernels("copy_in_a_tuple")[cdiv(n, 1024),]((x, (out, n)))
    assert same_bits(out, x)


def test_a_tuple_of_pointers(kernels):
    xs = tuple(fp32(i + 0.5) for i in range(3))
    assert both(kernels, "pointers", outputs(3), xs, ..., COUNT=3).tolist() == [0.5, 1.5, 2.5]


@pytest.mark.parametrize("wrong", [(), (None,) * 3, None, 5, "abc"])
def test_what_is_no_such_tuple_is_refused(kernels, wrong):
    with pytest.raises(runtime.NojitError):
        kernels("pointers")[1,](wrong, outputs(3)[0], COUNT=3)


# -- tensor descriptors ----------------------------------------------------------------------------------------------


OURS, THEIRS = runtime.TensorDescriptor, theirs.TensorDescriptor


def describe(tensor: Tensor, block: list[int], kind: Any = OURS, **how: Any) -> Any:
    return kind(tensor, list(tensor.shape), list(tensor.stride()), block, **how)


def launches(kernels: Callable[[str], Any], name: str) -> list[tuple[Any, Any]]:
    """List the ways to launch a kernel with descriptors, each with the class to describe tensors by."""
    return [(kernels(name), OURS), (kernels(name), THEIRS), (jit(name), THEIRS)]


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


DTYPES_2D = [torch.float16, torch.bfloat16, torch.float32, torch.float8_e5m2, torch.float8_e4m3fn, torch.int32]


@pytest.mark.parametrize("dtype", DTYPES_2D, ids=str)
@pytest.mark.parametrize("shape", [(64, 64), (200, 192), (65, 80)])
def test_copies_through_descriptors(kernels, dtype, shape):
    if dtype is torch.float8_e4m3fn and CAPABILITY < (8, 9):
        pytest.skip("needs sm_89")
    x = random(shape, dtype)
    for launch, kind in launches(kernels, "copy_2d"):
        out = torch.zeros_like(x)
        launch[cdiv(shape[0], 64), cdiv(shape[1], 64)](describe(x, [64, 64], kind), describe(out, [64, 64], kind))
        assert same_bits(out, x)


@pytest.mark.skipif(CAPABILITY < (9, 0), reason="needs sm_90")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32], ids=str)
@pytest.mark.parametrize("rows", [64, 128])
def test_copies_in_gluon(kernels, dtype, rows):
    x = random((200, 192), dtype)
    out = torch.zeros_like(x)
    kernels("gluon_copy")[cdiv(200, rows), 3](describe(x, [rows, 64]), describe(out, [rows, 64]))
    assert same_bits(out, x)


@pytest.mark.skipif(CAPABILITY < (9, 0), reason="needs sm_90")
def test_copies_in_gluon_through_a_layout_of_its_own(kernels):
    x = random((200, 192), torch.float16)
    out = torch.zeros_like(x)
    kernels("gluon_copy_laid_out")[4, 3](describe(x, [64, 64]), describe(out, [64, 64]))
    assert same_bits(out, x)


def test_blocks_that_one_map_does_not_hold(kernels):
    x = random((300, 100 * 16), torch.float16)
    out = torch.zeros_like(x)
    a, b = (describe(tensor, [128, 64]) for tensor in (x, out))
    kernels("copy_2d")[cdiv(300, 128), 25](a, b)
    assert same_bits(out, x)


def test_strides_of_a_view(kernels):
    x = random((100, 256), torch.float16)[::2, 64:192]
    out = torch.zeros(50, 512, dtype=torch.float16, device="cuda")[:, 128:256]
    a, b = (describe(tensor, [64, 64]) for tensor in (x, out))
    kernels("copy_2d")[1, 2](a, b)
    assert same_bits(out, x)


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_what_lies_outside(kernels, padding):
    x = random((40, 48), torch.float32)
    expected = torch.full((64, 64), math.nan if padding == "nan" else 0.0, device="cuda")
    expected[:40, :48] = x
    results = []
    for launch, kind in launches(kernels, "copy_2d"):
        out = torch.ones(64, 64, device="cuda")
        launch[1, 1](describe(x, [64, 64], kind, padding=padding), describe(out, [64, 64], kind))
        torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
        results.append(out)
    assert same_bits(results[0], results[1])
    assert same_bits(results[0], results[2])


@pytest.mark.parametrize("n", [256, 1000, 5])
def test_one_dimension(kernels, n):
    x = random((n,), torch.float32)
    out = torch.zeros_like(x)
    a, b = (describe(tensor, [256]) for tensor in (x, out))
    kernels("copy_1d")[cdiv(n, 256),](a, b)
    assert same_bits(out, x)


def test_three_dimensions(kernels):
    x = random((9, 33, 64), torch.float16)
    out = torch.zeros_like(x)
    a, b = (describe(tensor, [4, 16, 32]) for tensor in (x, out))
    kernels("copy_3d")[3, 3, 2](a, b)
    assert same_bits(out, x)


def test_shape_and_strides_reach_the_kernel(kernels):
    x = random((20, 64), torch.float32)[:, 8:40]
    for launch, kind in launches(kernels, "descriptor_facts"):
        out = outputs(4, torch.int64)[0]
        launch[1,](describe(x, [16, 16], kind), out)
        assert out.tolist() == [20, 32, 64, 1]


@pytest.mark.parametrize("there", [True, False])
def test_descriptors_in_tuples(kernels, there):
    x, more = (random((64, 64), torch.float16, seed) for seed in (1, 2))
    out = torch.zeros_like(x)
    a, b, c = (describe(tensor, [32, 64]) for tensor in (x, out, more))
    kernels("descriptors_in_a_tuple")[2,]((a, b), (c if there else None, 3))
    assert same_bits(out, x + more if there else x)


@pytest.mark.parametrize("block_n", [128, 64])
@pytest.mark.parametrize("config", [{}, {"num_warps": 8, "num_stages": 3}, {"num_warps": 4, "num_stages": 2}])
def test_a_matmul_over_descriptors(kernels, block_n, config):
    m, n, k = 512, 384, 320
    a, b = random((m, k), torch.float16, 1), random((n, k), torch.float16, 2)
    blocks = {"BLOCK_M": 128, "BLOCK_N": block_n, "BLOCK_K": 64}
    asked = config or {"num_warps": 8, "num_stages": 3}
    results = []
    for launch, kind in launches(kernels, "descriptor_matmul"):
        c = torch.zeros(m, n, dtype=torch.float16, device="cuda")
        pairs = ((a, [128, 64]), (b, [block_n, 64]), (c, [128, block_n]))
        launch[4, n // block_n](*(describe(*pair, kind) for pair in pairs), k, **blocks, **asked)
        results.append(c)
    assert same_bits(results[0], results[1])
    assert same_bits(results[0], results[2])
    torch.testing.assert_close(results[0], a @ b.T, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("change", [{"block": [64, 32]}, {"block": [64]}, {"dtype": torch.int16}, {"block": [32, 128]}])
def test_a_descriptor_that_nothing_was_built_for_is_refused(kernels, change):
    x = torch.zeros(64, 128, dtype=change.get("dtype", torch.float16), device="cuda")
    block = change.get("block", [64, 64])
    shaped = x if len(block) == 2 else x.view(-1)
    a = describe(shaped, block)
    with pytest.raises(runtime.NojitError, match="tensordesc"):
        kernels("copy_2d")[1, 1](a, a)


def test_one_descriptor_over_again_and_another_of_the_same_kind(kernels):
    xs = [random((64, 64), torch.float16, seed) for seed in range(3)]
    out = torch.zeros_like(xs[0])
    b = describe(out, [64, 64])
    for x in (*xs, *xs):
        kernels("copy_2d")[1, 1](describe(x, [64, 64]), b)
        assert same_bits(out, x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(32, 64), (100, 192), (33, 1024)])
def test_descriptors_made_on_the_device(kernels, dtype, shape):
    x = random(shape, dtype)
    out, jitted = torch.zeros_like(x), torch.zeros_like(x)
    kernels("device_descriptors")(x, out, *shape)
    jit("device_descriptors")[cdiv(shape[0], 32), cdiv(shape[1], 64)](x, jitted, *shape, BLOCK_M=32, BLOCK_N=64)
    assert same_bits(out, x)
    assert same_bits(jitted, x)


# -- launch attributes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_ctas", [1, 2, 4])
def test_clusters(kernels, num_ctas):
    if num_ctas > 1 and CAPABILITY < (9, 0):
        pytest.skip("needs sm_90")
    x = random((6 * 2048,), torch.float32)
    results = []
    for launch in (kernels("cluster"), jit("cluster")):
        out, sums = torch.zeros_like(x), torch.zeros(6, dtype=torch.int32, device="cuda")
        launch[6,](x, out, sums, BLOCK=2048, num_ctas=num_ctas)
        results.append((out, sums))
    assert same_bits(results[0][0], x * 2)
    assert results[0][1].tolist() == [6000 + program for program in range(6)]
    assert all(same_bits(mine, other) for mine, other in zip(*results, strict=True))


def test_a_cooperative_grid(kernels):
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    counter, out = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(programs, dtype=torch.int32, device="cuda")  # fmt: skip
    kernels("cooperative")[programs,](counter, out)
    assert out.tolist() == [programs] * programs


def test_a_cooperative_grid_that_does_not_fit_is_refused(kernels):
    counter, out = (torch.zeros(1 << 20, dtype=torch.int32, device="cuda") for _ in range(2))
    with pytest.raises(runtime.DriverError, match="COOPERATIVE_LAUNCH_TOO_LARGE"):
        kernels("cooperative")[1 << 20,](counter, out)
    kernels("cooperative")[4,](counter, out)
    assert out[:4].tolist() == [4] * 4


@pytest.mark.skipif(CAPABILITY < (9, 0), reason="needs sm_90")
def test_programmatic_dependent_launches_wait_for_each_other(kernels):
    n = 1 << 20
    tensors = [torch.zeros(n, device="cuda") for _ in range(2)]
    for turn in range(100):
        kernels("pdl")(tensors[turn % 2], tensors[1 - turn % 2], n)
    assert tensors[0].unique().tolist() == [100.0]
    assert tensors[1].unique().tolist() == [99.0]
    kernels("pdl")[cdiv(n, 1024),](tensors[0], tensors[1], n, BLOCK=1024, launch_pdl=True)
    assert tensors[1].unique().tolist() == [101.0]


@pytest.mark.parametrize("stages", [2, 4])
def test_a_constexpr_by_the_name_of_an_option(kernels, stages):
    x = random((300, 1000), torch.float32)
    out, jitted = torch.empty_like(x), torch.empty_like(x)
    for launch, into in ((kernels("row_softmax"), out), (jit("row_softmax"), jitted)):
        launch[64,](into, x, x.stride(0), into.stride(0), *x.shape, BLOCK=1024, num_stages=stages, num_warps=8)
    assert same_bits(out, jitted)
    torch.testing.assert_close(out, x.softmax(-1))


SHARED = [
    {"BLOCK": 64, "BLOCK_K": 32, "num_stages": 2},
    {"BLOCK": 128, "BLOCK_K": 64, "num_stages": 3, "num_warps": 8},
    {"BLOCK": 128, "BLOCK_K": 64, "num_stages": 7, "num_warps": 8},
]


@pytest.mark.parametrize("config", SHARED, ids=["little", "48 KiB", "200 KiB"])
def test_much_shared_memory(kernels, config):
    if config["num_stages"] == 7 and CAPABILITY != (9, 0):
        pytest.skip("needs sm_90")
    block = config["BLOCK"]
    a, b = random((block, 1024), torch.float16, 1), random((1024, block), torch.float16, 2)
    out, jitted = (torch.zeros(block, block, dtype=torch.float16, device="cuda") for _ in range(2))
    kernels("matmul")(a, b, out, 1024, **config)
    jit("matmul")[1,](a, b, jitted, 1024, **config)
    assert same_bits(out, jitted)
    torch.testing.assert_close(out, a @ b, rtol=1e-2, atol=1e-2)
