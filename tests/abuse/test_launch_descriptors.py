"""Tensor descriptors of any geometry: encoded as CUDA wants them, kept while they are equal, or refused by name."""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nojit import runtime
from nojit.runtime.errors import ArgumentError, DriverError, NojitError, NoMatchingVariantError
from nojit.runtime.kernel import Kernel

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make
from tests.support.bundles import target
from tests.support.tensors import PointerTensor

PARAMS = {"n": "i32", "block": "tensordesc<fp16[64,64]>"}
FLOAT32, INT32, TFLOAT32, NAN_FILL = 7, 3, 11, 1


class Bag:
    """Has the attributes of a descriptor, and checks none of them."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def described(tensor: Any, **changes: Any) -> Bag:
    words = {"base": tensor, "shape": (5, 64), "strides": (64, 1), "block_shape": (64, 64)}
    return Bag(**words | changes)


class Restless:
    """A descriptor whose block is gone when it is asked for again."""

    __slots__ = ("base", "blocks", "shape", "strides")

    def __init__(self, base: Any) -> None:
        self.base, self.shape, self.strides = base, (5, 64), (64, 1)
        self.blocks: list[Any] = []

    @property
    def block_shape(self) -> Any:
        return self.blocks.pop(0)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "stride": ({"strides": (60, 1)}, "strides to be multiples of 16 bytes"),
    "negative stride": ({"strides": (-64, 1)}, "a descriptor's stride of less than 2^40 bytes, got -64"),
    "large stride": ({"strides": (2**40, 1)}, "a descriptor's stride of less than 2^40 bytes"),
    "huge stride": ({"strides": (2**63, 1)}, "too big"),
    "last stride": ({"strides": (64, 2)}, "the last to be 1, got 2"),
    "empty": ({"shape": (0, 64)}, "positive sizes, got 0"),
    "negative": ({"shape": (-1, 64)}, "positive sizes, got -1"),
    "large": ({"shape": (2**32 + 1, 64)}, "at most 2^32, got 4294967297"),
    "large for the kernel": ({"shape": (2**31, 64)}, "got 2147483648"),
    "float in the shape": ({"shape": (5.0, 64)}, "'float' object cannot be interpreted as an integer"),
    "shape of str": ({"shape": "ab"}, "'str' object cannot be interpreted as an integer"),
    "no shape": ({"shape": None}, "not iterable"),
    "ranks that differ": ({"shape": (5,)}, "as many strides and block dimensions as the shape has"),
    "rank 0": ({"shape": (), "strides": (), "block_shape": ()}, "expected 1 to 5 dimensions"),
    "rank 6": ({"shape": (1,) * 6, "strides": (1,) * 6, "block_shape": (1,) * 6}, "expected 1 to 5 dimensions"),
    "empty block": ({"block_shape": (0, 64)}, "positive sizes, got 0"),
    "other block": ({"block_shape": (64, 32)}, "tensordesc<fp16[64,32]>"),
    "other rank": ({"shape": (5, 6, 64), "strides": (384, 64, 1), "block_shape": (1, 64, 64)}, "expected tensordesc"),
    "padding": ({"padding": "one"}, "expected 'zero' or 'nan', got 'one'"),
    "padding of int": ({"padding": 1}, "expected 'zero' or 'nan', got 1"),
    "no base": ({"base": None}, "a tensor as its base, got NoneType"),
    "base of int": ({"base": 4096}, "a tensor as its base, got int"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_descriptor_is_refused_by_name(make: Make, tensor: Any, fakecuda: FakeCuda, case: str) -> None:
    changes, words = WRONG[case]
    copy = make(PARAMS)
    for _ in range(2):
        with pytest.raises((ArgumentError, NoMatchingVariantError), match=re.escape(words)) as caught:
            copy[(1,)](1, described(tensor(0x1000), **changes))
        assert "block" in str(caught.value)
        copy[(1,)](1, described(tensor(0x1000)))
    assert fakecuda.launch_count() == 2
    # 2^31 rows are too many for the kernel's i32, and not for the map
    assert fakecuda.calls("cuTensorMapEncodeTiled") == (2 if case == "large for the kernel" else 1)


def test_a_block_is_asked_for_once(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    copy = make(PARAMS)
    block = Restless(tensor(0x1000))
    block.blocks = [None, None]  # the first where its type is met
    copy[(1,)](1, block)
    for size in ((64, 64), [64, 64], None):
        block.blocks = [size, "none"]
        copy[(1,)](1, block)
        assert block.blocks == ["none"]
    assert fakecuda.launch_count() == 4


def test_a_descriptor_can_leave_its_block_open(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    copy = make(PARAMS)
    for block in (None, (64, 64), None):
        copy[(1,)](1, described(tensor(0x1000), block_shape=block))
        assert fakecuda.last_launch().tensor_map(1).box == (64, 64)
    rank = described(tensor(0x1000), block_shape=None, shape=(5, 6, 64), strides=(384, 64, 1))
    with pytest.raises(NojitError, match=re.escape("got a tensor descriptor of fp16[any,any,any]")):
        copy[(1,)](1, rank)


BASES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "unaligned": (lambda tensor: tensor(0x1008), "base aligned to 16 bytes, got 0x1008"),
    "unaligned offset": (lambda tensor: tensor(0x1000, byte_offset=8), "base aligned to 16 bytes"),
    "on the host": (lambda tensor: tensor(0x1000, device_type=1), "in host memory"),
    "of another dtype": (lambda tensor: tensor(0x1000, "float32"), r"tensordesc<fp32\[64,64\]>"),
    "on another device": (lambda tensor: tensor(0x1000, device=1), "expected cuda:0, where x lies, got cuda:1"),
}


@pytest.mark.parametrize("case", BASES)
def test_a_descriptors_base_is_a_tensor_of_the_call(make: Make, tensor: Any, fakecuda: FakeCuda, case: str) -> None:
    make_base, words = BASES[case]
    copy = make({"x": "*fp16", "block": "tensordesc<fp16[64,64]>"})
    with pytest.raises(NojitError, match=words):
        copy[(1,)](tensor(0x2000), described(make_base(tensor)))
    copy[(1,)](tensor(0x2000), described(tensor(0x1000)))
    assert fakecuda.last_launch().tensor_map(1).address == 0x1000


@pytest.mark.parametrize("value", [None, 5, 1.0, (1, 2), "x"], ids=repr)
def test_what_is_no_descriptor_is_refused(make: Make, fakecuda: FakeCuda, value: Any) -> None:
    with pytest.raises((ArgumentError, NoMatchingVariantError), match="block"):
        make(PARAMS)[(1,)](1, value)


def test_a_pointer_and_a_descriptor_are_not_each_other(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    with pytest.raises(ArgumentError, match="got a pointer to fp16"):
        make(PARAMS)[(1,)](1, tensor(0x1000))
    with pytest.raises(NojitError, match="x"):
        make({"x": "*fp16"})[(1,)](described(tensor(0x1000)))
    assert fakecuda.launch_count() == 0


@pytest.mark.parametrize("order", [("x", "block"), ("block", "x")], ids=["tensor first", "descriptor first"])
def test_objects_of_one_type_can_be_tensor_and_descriptor(
    make: Make, tensor: Any, fakecuda: FakeCuda, order: tuple[str, str]
) -> None:
    class Both(Bag):
        """A type of which nothing is known yet."""

    types = {"x": "*fp16", "block": "tensordesc<fp16[64,64]>"}
    values = {
        "x": Both(data_ptr=lambda: 0x2000, dtype="fp16", device="cuda:0"),
        "block": Both(**vars(described(tensor(0x1000)))),
    }
    copy = make({name: types[name] for name in order})
    for _ in range(2):
        copy[(1,)](**values)
    assert fakecuda.last_launch().tensor_map(order.index("block")).address == 0x1000


# together at most 2^62 bytes
SIZES = st.one_of(st.integers(1, 2**22), st.integers(1, 2000))
GEOMETRY = st.tuples(
    st.integers(1, 2**48).map(lambda number: number * 16),
    st.tuples(SIZES, SIZES),
    st.one_of(*(st.integers(0, 2**bits).map(lambda number: number * 8) for bits in (8, 35)), st.just(2**39 - 8)),
    st.booleans(),
)


@pytest.fixture
def copy(make: Make) -> Kernel:
    return make(PARAMS)


@pytest.mark.parametrize("version", [13000, 13020])
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(geometry=GEOMETRY)
def test_any_geometry_is_encoded_as_it_is(
    copy: Kernel, tensor: Any, fakecuda: FakeCuda, version: int, geometry: tuple[int, tuple[int, int], int, bool]
) -> None:
    address, shape, stride, pads_nan = geometry
    fakecuda.set_devices(90, driver_version=version)
    padding = "nan" if pads_nan else "zero"
    copy[(1,)](7, runtime.TensorDescriptor(tensor(address), shape, (stride, 1), (64, 64), padding))
    launch = fakecuda.last_launch()
    encoded = launch.tensor_map(1)
    assert (encoded.address, encoded.dims, encoded.strides) == (address, shape[::-1], (2 * stride,))
    assert (encoded.box, encoded.steps, encoded.fill) == ((64, 64), (1, 1), pads_nan)
    assert launch.ints()[0] == 7
    assert launch.ints()[2:6] == (*shape, stride, 1)


def test_an_equal_descriptor_is_encoded_once(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    copy = make(PARAMS)
    for _ in range(3):
        copy[(1,)](1, runtime.TensorDescriptor(tensor(0x1000), (5, 64), (64, 1), (64, 64)))
    assert fakecuda.calls("cuTensorMapEncodeTiled") == 1
    changes: list[dict[str, Any]] = [
        {"base": tensor(0x2000)}, {"shape": (6, 64)}, {"strides": (72, 1)}, {"padding": "nan"}, {"shape": (5, 63)}
    ]  # fmt: skip
    for number, change in enumerate(changes):
        copy[(1,)](1, described(tensor(0x1000), **change))
        assert fakecuda.calls("cuTensorMapEncodeTiled") == 2 + number, change
    for number in range(100):
        copy[(1,)](1, described(tensor(0x1000 + 16 * number)))
        assert fakecuda.last_launch().tensor_map(1).address == 0x1000 + 16 * number


def test_a_warmup_makes_the_map(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    copy, call = make(PARAMS), (1, described(tensor(0x1000)))
    copy.warmup(*call)
    assert fakecuda.calls("cuTensorMapEncodeTiled") == 1
    copy[(1,)](*call)
    assert fakecuda.calls("cuTensorMapEncodeTiled") == 1
    with pytest.raises(ArgumentError, match="strides to be multiples of 16 bytes"):
        copy.warmup(1, described(tensor(0x1000), strides=(60, 1)))
    assert copy.warmup(*call)


@pytest.mark.parametrize("apart", [16, 4096, 8 << 20, (1 << 32) + 4096])
def test_each_layer_of_a_model_finds_its_weights(make: Make, tensor: Any, fakecuda: FakeCuda, apart: int) -> None:
    copy, layers = make(PARAMS), 160
    for _ in range(3):
        for layer in range(layers):
            copy[(1,)](1, described(tensor(0x1000 + apart * layer)))
            assert fakecuda.last_launch().tensor_map(1).address == 0x1000 + apart * layer
    # a set may be full before others are
    assert fakecuda.calls("cuTensorMapEncodeTiled") <= layers * 1.1


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t) for name in ["arena", "_1", "_2", "_3", "hblkhd", "_5", "_6", "uordblks", "_8", "_9"]
    )


def bytes_in_use() -> int:
    """Return what the process has from malloc."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    told = mallinfo()
    return int(told.uordblks + told.hblkhd)


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="asks glibc 2.33 or later for the memory in use"
)
def test_maps_that_are_kept_are_bounded(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    copy = make(PARAMS)
    copy[(1,)](1, described(tensor(0x1000)))
    before = bytes_in_use()
    if before == 0:
        pytest.skip("a sanitizer's allocator does not tell the memory in use")
    for rows in range(1, 5000):
        copy[(1,)](1, described(tensor(0x1000), shape=(rows, 64)))
        assert fakecuda.last_launch().tensor_map(1).dims == (64, rows)
    assert 64 << 10 < bytes_in_use() - before < 192 << 10
    assert fakecuda.calls("cuTensorMapEncodeTiled") > 4000


def test_a_tensor_beyond_64_bits_is_not_small(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    copy, rows, stride = make(PARAMS), 2**24 + 2, 2**39 - 8
    try:
        copy[(1,)](7, runtime.TensorDescriptor(tensor(0x1000), (rows, 64), (stride, 1), (64, 64)))
    finally:
        fakecuda.violations()


def test_each_device_encodes_its_own(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    copy = make(PARAMS)
    for device in (0, 1, 0, 1):
        copy[(1,)](1, described(tensor(0x1000, device=device)))
        assert fakecuda.last_launch().device == device
    assert fakecuda.calls("cuTensorMapEncodeTiled") == 2
    assert fakecuda.context() == (0, None)


def test_a_map_that_cannot_be_made_is_not_kept(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    copy = make(PARAMS)
    fakecuda.fail("cuTensorMapEncodeTiled", 1, call=0)
    with pytest.raises(DriverError, match="cuTensorMapEncodeTiled failed"):
        copy[(1,)](1, described(tensor(0x1000)))
    copy[(1,)](1, described(tensor(0x1000)))
    assert fakecuda.calls("cuTensorMapEncodeTiled") == 2


def test_a_map_is_still_good_in_a_new_context(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    copy = make(PARAMS)
    copy[(1,)](1, described(tensor(0x1000)))
    for rows in (5, 6):
        fakecuda.lose_context(0)
        copy[(1,)](1, described(tensor(0x1000), shape=(rows, 64)))
        assert fakecuda.last_launch().tensor_map(1).dims == (64, rows)


@pytest.mark.parametrize(("padding", "rounds"), [("zero", False), ("nan", True)])
def test_a_device_without_maps_gets_the_parts(
    make: Make, tensor: Any, fakecuda: FakeCuda, padding: str, rounds: bool
) -> None:
    fakecuda.set_devices(80)
    copy = make({"n": "i32", "block": "tensordesc<fp32[8,4]>"}, on=target("sm_80"), file={"on": target("sm_80")})
    # no map is made, so that no rule of maps holds: an odd address, an odd stride, many rows
    copy[(1,)](7, Bag(base=tensor(0x1004, "float32"), shape=(2**31 - 1, 3), strides=(5, 1), block_shape=(8, 4),
                      padding=padding, round_f32_to_tf32=rounds))  # fmt: skip
    assert fakecuda.calls("cuTensorMapEncodeTiled") == 0
    values = fakecuda.last_launch().ints()
    assert values[:6] == (7, 0x1004, 2**31 - 1, 3, 5, 1)
    assert values[6:12] == (padding == "nan", rounds, 2**31 - 1, 3, 5, 1)


def test_rounding_to_tf32_is_of_fp32(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    copy = make({"block": "tensordesc<fp32[64,32]>"})
    for rounds, kind in ((False, FLOAT32), (True, TFLOAT32)):
        copy[(1,)](described(tensor(0x1000, "float32"), block_shape=(64, 32), round_f32_to_tf32=rounds))
        assert fakecuda.last_launch().tensor_map(0).element_type == kind


@pytest.mark.parametrize(("dtype", "name"), [("i32", "int32"), ("fp64", "float64"), ("fp16", "float16")])
def test_rounding_is_refused_for_other_types(
    make: Make, tensor: Any, fakecuda: FakeCuda, dtype: str, name: str
) -> None:
    copy = make({"block": f"tensordesc<{dtype}[64,16]>"})
    try:
        with pytest.raises(ArgumentError, match="round_f32_to_tf32"):
            copy[(1,)](described(tensor(0x1000, name), block_shape=(64, 16), round_f32_to_tf32=True))
    finally:
        fakecuda.violations()


def test_nan_is_refused_as_the_padding_of_ints(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    copy = make({"block": "tensordesc<i32[64,32]>"})
    with pytest.raises(ArgumentError, match="padding"):
        copy[(1,)](described(tensor(0x1000, "int32"), block_shape=(64, 32), padding="nan"))
    assert fakecuda.calls("cuTensorMapEncodeTiled") == 0


@pytest.mark.parametrize("dtype", ["fp8e4nv", "fp8e5"])
def test_nan_is_refused_as_the_padding_of_maps_of_bytes(make: Make, fakecuda: FakeCuda, dtype: str) -> None:
    copy = make({"block": f"tensordesc<{dtype}[64,32]>"})
    tensor, words = PointerTensor(0x1000, dtype), {"strides": (64, 1), "block_shape": (64, 32)}
    with pytest.raises(ArgumentError, match=f"padding 'nan' to be of floats of 16 bits or more, got {dtype}"):
        copy[(1,)](described(tensor, padding="nan", **words), stream=0)
    assert fakecuda.calls("cuTensorMapEncodeTiled") == 0
    copy[(1,)](described(tensor, **words), stream=0)
    assert fakecuda.launch_count() == 1
