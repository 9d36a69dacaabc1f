"""Kernels as Triton compiles them, launched on the fake driver: each argument reaches the place that its image has for it.

The fake refuses what differs from the image; here the bytes are compared with what was passed.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections import namedtuple
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

MANIFEST = Path(__file__).resolve().parents[1] / "gpu/launch/launch.toml"
NAMES = ("arguments_30", "cluster", "constexprs", "cooperative", "copy_2d", "copy_in_a_tuple", "descriptors_in_a_tuple",
         "descriptor_matmul_by_config", "device_descriptors", "gluon_copy_laid_out", "matmul", "named_tuple", "pdl", "row_softmax",
         "scalars", "tuple")  # fmt: skip

Kernels = Callable[[str, int], Kernel]
Tile = namedtuple("Tile", "ptr shape scale")  # noqa: PYI024 - as callers write it


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Build the kernels above, by arch."""
    from nojit.aot.cache.cache import Cache
    from nojit.aot.compile.triton import compiler
    from nojit.aot.pipeline.build import build
    from nojit.aot.plan.planner import make_plans

    out = tmp_path_factory.mktemp("launch")
    plans = make_plans([MANIFEST], ["sm_80", "sm_90"], "full", compiler, NAMES)
    result = build(plans, out, compiler, Cache(out / "cache"), lambda: ThreadPoolExecutor(1))
    assert not result.failures
    return {int(path.stem[-2:]): path for path in out.glob("*.nojit")}


@pytest.fixture
def kernels(bundles: dict[int, Path], fakecuda: FakeCuda) -> Iterator[Kernels]:
    """Give a kernel for a device of an arch."""
    opened = []

    def kernel(name: str, arch: int) -> Kernel:
        fakecuda.set_devices(arch)
        opened.append(runtime.load(bundles[arch]))
        return opened[-1].kernel(name)

    yield kernel
    for bundle in opened:
        bundle.close()


@pytest.fixture
def tensor(faketorch: ModuleType) -> Callable[..., Any]:
    return faketorch.Tensor


def describe(
    tensor: Any, shape: tuple[int, ...], block: tuple[int, ...] | None, **how: Any
) -> runtime.TensorDescriptor:
    strides = tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))
    return runtime.TensorDescriptor(tensor, shape, strides, block, **how)


def packed(form: str, *values: Any) -> tuple[bytes, ...]:
    return tuple(struct.pack(f"<{kind}", value) for kind, value in zip(form, values, strict=True))


@pytest.mark.parametrize("arch", [80, 90])
def test_scalars_of_every_width(kernels, tensor, fakecuda, arch):
    ints = (-128, -32768, -(1 << 31), -(1 << 63), 255, 65535, (1 << 32) - 1, (1 << 64) - 1)
    kernels("scalars", arch)[1,](tensor(4096, "int64"), tensor(8192, "float64"), *ints, True, 1.5, 1.5, 1 / 3, 1 / 3)
    expected = packed("QQbhiqBHIQ?eHfdQQ", 4096, 8192, *ints, True, 1.5, 0x3FC0, 1 / 3, 1 / 3, 0, 0)
    assert fakecuda.last_launch().params == expected


@pytest.mark.parametrize("arch", [80, 90])
def test_thirty_arguments(kernels, tensor, fakecuda, arch):
    pointers = [4096 * place for place in range(1, 11)]
    ints, floats = range(100, 115), [place / 3 for place in range(5)]
    tensors = [tensor(address, "float32") for address in pointers]
    kernels("arguments_30", arch)[1,](*tensors, *ints, *floats)
    form = "Q" * 10 + "i" * 15 + "f" * 5 + "QQ"
    assert fakecuda.last_launch().params == packed(form, *pointers, *ints, *floats, 0, 0)


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize(
    ("number", "there", "address"), list(itertools.product((5, 16, 1), (True, False), (4096, 4100)))
)
def test_tuples(kernels, tensor, fakecuda, arch, number, there, address):  # noqa: PLR0917 - fixtures and a point
    x = (tensor(address, "float32"), (number, 0.75), tensor(8192, "float32") if there else None, True)
    kernels("tuple", arch)[1,](x, tensor(1 << 20, "float32"))
    # an int that is 1 and a pointer that is None are compiled in
    values = [("Q", address), ("i", number), ("f", 0.75), ("Q", 8192), ("?", True), ("Q", 1 << 20), ("Q", 0), ("Q", 0)]
    left_out = ({1} if number == 1 else set()) | (set() if there else {3})
    kept = [value for place, value in enumerate(values) if place not in left_out]
    assert fakecuda.last_launch().params == packed("".join(form for form, _ in kept), *(value for _, value in kept))


def test_hints_on_members_are_asked_for_at_every_call(kernels, tensor, fakecuda):
    kernel, chosen = kernels("copy_in_a_tuple", 90), {}
    for _ in range(2):
        for address, n in itertools.product((4096, 4098), (1024, 1000, 1)):
            kernel[1,]((tensor(address), (tensor(1 << 20), n)))
            launch = fakecuda.last_launch()
            assert launch.params[:2] == packed("QQ", address, 1 << 20)
            chosen.setdefault((address, n), set()).add((launch.kernel, len(launch.params)))
    images = {call: image for call, (image,) in chosen.items()}
    assert images[4096, 1024] != images[4098, 1024]
    assert images[4096, 1000] == images[4098, 1000] == images[4098, 1024]
    assert images[4096, 1] == images[4098, 1]
    assert (images[4096, 1][1], images[4096, 1000][1]) == (4, 5)


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize(("cols", "width"), [(7, "i"), (1 << 40, "q")])
def test_named_tuples(kernels, tensor, fakecuda, arch, cols, width):  # noqa: PLR0917 - fixtures and a point
    named = kernels("named_tuple", arch)
    for tile in (Tile, lambda *members: members):
        named[1,](tile(tensor(4096), (3, cols), 0.5), tensor(8192, "float32"))
        assert fakecuda.last_launch().params == packed(f"Qi{width}fQQQ", 4096, 3, cols, 0.5, 8192, 0, 0)


MAPS = (
    # rows of the block, dtype, its bytes, CUtensorMapDataType, box: innermost first, 128 bytes at most
    (64, "float16", 2, 6, (64, 64)),
    (128, "float16", 2, 6, (64, 128)),
    (64, "bfloat16", 2, 9, (64, 64)),
    (64, "float32", 4, 7, (32, 64)),
    (64, "int32", 4, 3, (32, 64)),
)


@pytest.mark.parametrize(
    ("padding", "facts"), [("zero", facts) for facts in MAPS] + [("nan", facts) for facts in MAPS[:4]], ids=str
)
def test_descriptors_as_tensor_maps(kernels, tensor, fakecuda, padding, facts):
    rows, dtype, size, kind, box = facts
    shape = (200, 320)
    copy = kernels("copy_2d", 90)
    a, b = (describe(tensor(address, dtype, shape), shape, (rows, 64), padding=padding) for address in (4096, 1 << 20))
    for _ in range(2):
        copy[4, 5](a, b)
        launch = fakecuda.last_launch()
        for first, address in ((0, 4096), (5, 1 << 20)):
            assert launch.params[first + 1 : first + 5] == packed("iiqq", 200, 320, 320, 1)
            found = launch.tensor_map(first)
            assert (found.element_type, found.address, found.box) == (kind, address, box)
            assert (found.dims, found.strides, found.swizzle) == ((320, 200), (320 * size,), 3)
            assert found.fill == (padding == "nan")
    assert fakecuda.calls("cuTensorMapEncodeTiled") == 2


def test_maps_are_encoded_for_the_layout_that_a_kernel_has(kernels, tensor, fakecuda):
    shape = (200, 320)
    a, b = (describe(tensor(address, "float16", shape), shape, (64, 64)) for address in (4096, 1 << 20))
    kernels("gluon_copy_laid_out", 90)[4, 5](a, b)
    for first, address in ((0, 4096), (5, 1 << 20)):
        found = fakecuda.last_launch().tensor_map(first)
        assert (found.address, found.box, found.swizzle) == (address, (16, 64), 1)


@pytest.mark.parametrize(("asked", "small"), [({}, False), ({"BLOCK_M": 64}, True), ({"num_warps": 8}, False)], ids=str)
def test_a_block_that_the_config_chooses(kernels, tensor, fakecuda, asked, small):
    matmul = kernels("descriptor_matmul_by_config", 90)
    maps = [describe(tensor(4096 << place, "float16", (512, 512)), (512, 512), None) for place in range(3)]
    seen = []
    for _ in range(2):
        matmul[lambda meta: seen.append((meta["BLOCK_M"], meta["BLOCK_K"])) or (4,)](*maps, 512, **asked)
        launch = fakecuda.last_launch()
        assert [launch.tensor_map(first).box[::-1] for first in (0, 5, 10)] == (
            [(64, 32), (128, 32), (64, 64)] if small else [(128, 64), (128, 64), (128, 64)]
        )
    assert seen == [(64, 32) if small else (128, 64)] * 2


def test_blocks_decide_where_they_are_given(kernels, tensor, fakecuda):
    matmul = kernels("descriptor_matmul_by_config", 90)
    tensors = [tensor(4096 << place, "float16", (512, 512)) for place in range(3)]
    for blocks in ([(64, 32), None, None], [None, (128, 32), (64, 128)], [(128, 64)] + [None] * 2):
        described = [describe(each, (512, 512), block) for each, block in zip(tensors, blocks, strict=True)]
        matmul[4,](*described, 512)
        assert fakecuda.last_launch().tensor_map(0).box == ((64, 128) if blocks[0] == (128, 64) else (32, 64))
    with pytest.raises(runtime.NojitError, match="tensordesc"):
        matmul[4,](*(describe(each, (512, 512), (64, 64)) for each in tensors), 512)


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("rounds", [False, True])
def test_descriptors_that_come_apart(kernels, tensor, fakecuda, padding, rounds):
    from triton.tools.tensor_descriptor import TensorDescriptor

    shape = (200, 320)
    a = describe(tensor(4096, "float32", shape), shape, (64, 64), padding=padding, round_f32_to_tf32=rounds)
    kernels("copy_2d", 80)[4, 5](a, a)
    has_flag = "round_f32_to_tf32" in TensorDescriptor.__dataclass_fields__
    flags = (padding == "nan", rounds) if has_flag else (padding == "nan",)
    one = packed("Qqqqq" + "?" * len(flags) + "iiqq", 4096, 200, 320, 320, 1, *flags, 200, 320, 320, 1)
    assert fakecuda.last_launch().params == (*one, *one, *packed("QQ", 0, 0))


@pytest.mark.parametrize("there", [True, False])
def test_descriptors_in_tuples(kernels, tensor, fakecuda, there):
    shape = (64, 64)
    a, b, c = (describe(tensor(address, "float16", shape), shape, (32, 64)) for address in (4096, 8192 * 4, 1 << 20))
    kernels("descriptors_in_a_tuple", 90)[2,]((a, b), (c if there else None, 3))
    launch = fakecuda.last_launch()
    firsts = (0, 5, 10) if there else (0, 5)
    assert [launch.tensor_map(first).address for first in firsts] == [4096, 8192 * 4, 1 << 20][: len(firsts)]
    assert launch.params[-3:] == packed("iQQ", 3, 0, 0)


@pytest.mark.parametrize("first", [True, False])
def test_constexprs_choose_the_image(kernels, tensor, fakecuda, first):
    words = {
        "INT": 7 if first else -1,
        "BOOL": first,
        "WORD": "gelu" if first else "relu",
        "MAYBE": None if first else 3,
    }
    words |= {"DTYPE": DType("fp16" if first else "bf16"), "FUNCTION": FunctionRef(f"kernel.py:{'double' if first else 'negate'}")}  # fmt: skip
    kernel, images = kernels("constexprs", 90), set()
    for number in (0.5, 2.5):
        for pair in ((1, 2), (3, 4)):
            kernel[1,](tensor(4096, "float32"), **words, FLOAT=number, PAIR=pair)
            images.add(fakecuda.last_launch().kernel)
    assert len(images) == 4
    with pytest.raises(runtime.NoMatchingVariantError):
        kernel[1,](tensor(4096, "float32"), **words | {"BOOL": not first}, FLOAT=0.5, PAIR=(1, 2))


def test_launch_attributes(kernels, tensor, fakecuda):
    x, ints = tensor(4096, "float32"), tensor(1 << 20, "int32")
    for ctas in (1, 2, 4):
        kernels("cluster", 90)[6,](x, x, ints, BLOCK=2048, num_ctas=ctas)
        launch = fakecuda.last_launch()
        assert (launch.grid, launch.cluster) == ((6 * ctas, 1, 1), None if ctas == 1 else (ctas, 1, 1))
    kernels("cooperative", 90)[4,](ints, ints)
    assert (fakecuda.last_launch().cooperative, fakecuda.last_launch().pdl) == (True, False)
    kernels("pdl", 90)(x, x, 5000)
    launch = fakecuda.last_launch()
    assert (launch.cooperative, launch.pdl, launch.grid) == (False, True, (5, 1, 1))


def test_options_that_the_manifest_names_may_be_passed(kernels, tensor, fakecuda):
    x, ints = tensor(4096, "float32"), tensor(1 << 20, "int32")
    kernels("pdl", 90)[5,](x, x, 5000, BLOCK=1024, launch_pdl=True)
    assert fakecuda.last_launch().pdl
    kernels("cooperative", 90)[4,](ints, ints, launch_cooperative_grid=True)
    assert fakecuda.last_launch().cooperative
    with pytest.raises(runtime.NoMatchingVariantError, match="launch_pdl"):
        kernels("pdl", 90)[5,](x, x, 5000, launch_pdl=False)
    kernels("cooperative", 90)[4,](ints, ints, launch_pdl=False, num_stages=3)
    assert not fakecuda.last_launch().pdl
    with pytest.raises(runtime.ArgumentError, match="expected launch_pdl=False, as every variant was built"):
        kernels("cooperative", 90)[4,](ints, ints, launch_pdl=True)


def test_a_constexpr_by_the_name_of_an_option(kernels, tensor, fakecuda):
    out, x = tensor(64 * 1000, "float32"), tensor(64 * 1000, "float32")
    softmax, images = kernels("row_softmax", 90), []
    sizes = (1000, 1000, 64, 1000)
    for stages in (4, 2):
        softmax[16,](out, x, *sizes, 1024, stages)
        images.append(fakecuda.last_launch().kernel)
        softmax[16,](out, x, *sizes, num_stages=stages, BLOCK=1024, num_warps=8)
        softmax.bind((16,), num_stages=stages)(out, x, *sizes)
        assert fakecuda.last_launch().kernel == images[-1]
    softmax[lambda meta: (meta["num_stages"],)](out, x, *sizes)
    assert (fakecuda.last_launch().kernel, fakecuda.last_launch().grid) == (images[0], (4, 1, 1))
    assert len({*images}) == 2
    with pytest.raises(runtime.NoMatchingVariantError, match="num_stages"):
        softmax[16,](out, x, *sizes, num_stages=3)
    with pytest.raises(runtime.ArgumentError, match="by position or by name"):
        softmax[16,](out, x, *sizes, 1024, 4, num_stages=4)


def test_shared_and_scratch_memory(kernels, tensor, fakecuda, faketorch):
    x = tensor(4096, "float16")
    matmul = kernels("matmul", 90)
    for num_stages, least in ((2, 0), (3, 48 << 10), (7, 200 << 10)):
        matmul(x, x, x, 1024, num_stages=num_stages)
        assert least <= fakecuda.last_launch().shared_bytes <= 227 << 10
    kernels("device_descriptors", 90)(x, x, 100, 192)
    launch = fakecuda.last_launch()
    assert launch.grid == (4, 3, 1)
    scratch = int.from_bytes(launch.params[-2], "little")
    assert scratch % 128 == 0
    assert faketorch.counts()["allocated"] == 1
