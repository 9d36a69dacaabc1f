"""Tensors of every make, their devices, and the streams that go with them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from nojit.runtime import TensorDescriptor, loader
from nojit.runtime.errors import (
    ArgumentError,
    DriverError,
    NoMatchingVariantError,
)

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make
from tests.support.bundles import kernel, make_bundle, target
from tests.support.tensors import InterfaceTensor, PointerTensor, StreamObject

# tensors


def other_tensors(address: int) -> list[Any]:
    return [
        PointerTensor(address, "torch.float16", "cuda:0"),
        PointerTensor(address, "fp16", "cuda"),
        InterfaceTensor(address, "float16"),
        address,
    ]


@pytest.mark.parametrize("which", range(4), ids=["data_ptr", "triton spelling", "array interface", "address"])
def test_tensors_of_any_make_are_pointers(make: Make, fakecuda: FakeCuda, which: int) -> None:
    fakecuda.add_memory(0x4000_0000, 4096)
    add = make({"x": "*fp16"})
    value = other_tensors(0x4000_0010)[which]
    for _ in range(2):
        add[(1,)](value, stream=0)
        assert fakecuda.last_launch().ints()[0] == 0x4000_0010


def test_a_read_only_array_is_taken_like_any_other(make: Make, fakecuda: FakeCuda) -> None:
    fakecuda.add_memory(0x4000_0000, 4096)
    make({"x": "*fp16"})[(1,)](InterfaceTensor(0, data=(0x4000_0010, True)), stream=0)
    assert fakecuda.last_launch().ints()[0] == 0x4000_0010


def test_an_array_is_launched_on_the_stream_that_it_names(
    make: Make, tensor: Any, faketorch: ModuleType, fakecuda: FakeCuda
) -> None:
    fakecuda.add_memory(0x4000_0000, 4096)
    first, second, given, current = (fakecuda.stream() for _ in range(4))
    faketorch.set_stream(0, current)
    add = make({"x": "*fp16", "y": "*fp16?"})
    silent, x, y = (InterfaceTensor(0x4000_0000, stream=stream) for stream in (None, first, second))
    for bound in (add[(1,)], add.bind((1,))):
        for arguments, named, expected in [
            ((silent, None), {}, 0),
            ((x, None), {}, first),
            ((silent, x), {}, first),
            ((x, y), {}, first),
            ((0x4000_0000, y), {}, second),
            ((x, tensor(0x1000)), {}, current),
            ((x, y), {"stream": given}, given),
            ((silent, silent), {}, 0),
        ]:
            bound(*arguments, **named)
            assert fakecuda.last_launch().stream == expected


def test_an_address_needs_a_param_of_one_dtype(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make({"x": "*{a}", "y": "*{b}"}, matrix={"a": ["fp16", "fp32"], "b": ["i32"]})
    add[(1,)](tensor(0x1000), 2**64 - 16)
    assert fakecuda.last_launch().ints()[1] == 2**64 - 16
    with pytest.raises(
        ArgumentError,
        match=r"x: expected a typed pointer, one of \*fp16, \*fp32; pass a tensor, got an untyped address",
    ):
        add[(1,)](0x1000, 0x2000)


def test_memory_that_the_driver_does_not_know_is_refused(make: Make) -> None:
    with pytest.raises(ArgumentError, match="expected memory that the CUDA driver knows, got address 0x"):
        make({"x": "*fp16"})[(1,)](InterfaceTensor(0x7FFF_0000_0000))


def test_tensors_in_host_memory_are_refused(make: Make, tensor: Any) -> None:
    torch = pytest.importorskip("torch")
    add = make({"x": "*fp16"})
    for value in (torch.zeros(4, dtype=torch.float16), tensor(0x1000, device_type=1), PointerTensor(16, device="cpu")):
        with pytest.raises(
            ArgumentError,
            match=r"expected a CUDA tensor, got .* in host memory that is not pinned - at argument x of kernel add",
        ):
            add[(1,)](value)
    assert add.explain(torch.zeros(4, dtype=torch.float16)).chosen


HOST, VIEW = 0x7100_0000, 0x5100_0000


def host_tensors(tensor: Any, address: int) -> list[Any]:
    return [tensor(address, device_type=1), PointerTensor(address, device="cpu")]


@pytest.mark.parametrize("which", range(2), ids=["exchange", "data_ptr"])
def test_pinned_host_memory_is_passed_by_the_address_that_devices_know(
    make: Make, tensor: Any, fakecuda: FakeCuda, which: int
) -> None:
    fakecuda.pin_memory(HOST, 4096, VIEW)
    add = make({"x": "*fp16", "y": "*fp16?"}, hints=[{"x": 16}])
    depth = fakecuda.context()
    for offset in (16, 24):
        value = host_tensors(tensor, HOST + offset)[which]
        for arguments, device in (((value, None), 0), ((value, tensor(0x1000, device=1)), 1)):
            for launch in (add[(1,)], add.bind((1,))):
                launch(*arguments, stream=0)
                assert fakecuda.last_launch().device == device
                assert fakecuda.last_launch().ints()[0] == VIEW + offset
        make({"x": "(i32,*fp16)"})[(1,)]((3, value), stream=0)
        assert fakecuda.last_launch().ints()[1] == VIEW + offset
    described = TensorDescriptor(host_tensors(tensor, HOST)[which], [64, 64], [64, 1], [64, 64])
    make({"x": "tensordesc<fp16[64,64]>"})[(1,)](described, stream=0)
    assert fakecuda.last_launch().tensor_map(0).address == VIEW
    assert fakecuda.context() == depth
    with pytest.raises(ArgumentError, match="in host memory that is not pinned"):
        add[(1,)](host_tensors(tensor, HOST + 4096)[which], None, stream=0)


def test_the_device_whose_tensors_come_first_is_asked_for_its_view(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    fakecuda.pin_memory(HOST, 4096, VIEW)
    add = make({"x": "*fp16", "y": "*fp16"})
    fakecuda.lose_context(1)
    add[(1,)](tensor(0x1000, device=1), host_tensors(tensor, HOST)[0])
    assert fakecuda.last_launch().ints()[:2] == (0x1000, VIEW)


@pytest.mark.parametrize("dtype", ["complex64", "float32x4"])
def test_dtypes_that_triton_has_not_are_refused(make: Make, tensor: Any, dtype: str) -> None:
    with pytest.raises(ArgumentError, match="expected a tensor of a dtype that Triton has, got DLPack type code"):
        make({"x": "*fp16"})[(1,)](tensor(0x1000, dtype))
    with pytest.raises(ArgumentError, match=r"Triton has no dtype torch\.complex64"):
        make({"x": "*fp16"})[(1,)](PointerTensor(0x1000, "torch.complex64"))


@pytest.mark.parametrize(
    ("dtype", "near"), [("torch.floa16", "float16"), ("fp_16", "fp16"), ("bfloat", "bfloat16"), ("uin32", "uint32")]
)
def test_a_dtype_that_is_unknown_names_the_nearest(make: Make, dtype: str, near: str) -> None:
    with pytest.raises(ArgumentError, match=rf"Triton has no dtype {dtype}; did you mean '{near}'\?"):
        make({"x": "*fp16"})[(1,)](PointerTensor(0x1000, dtype))
    with pytest.raises(ArgumentError, match=rf"Triton has no dtype {dtype}; did you mean '{near}'\?"):
        make({"x": "*fp16"}).explain(PointerTensor(0x1000, dtype), arch="sm_90")


@pytest.mark.parametrize(
    ("dtype", "advice"),
    [
        ("float8_e8m0fnu", r"pass its bytes, tensor\.view\(torch\.uint8\), to a param of type '\*u8'"),
        ("float4_e2m1fn_x2", r"pass its bytes, tensor\.view\(torch\.uint8\)"),
        ("complex64", r"pass its parts, torch\.view_as_real\(tensor\)"),
    ],
)
def test_a_dtype_that_triton_has_not_is_named_with_what_to_pass(make: Make, dtype: str, advice: str) -> None:
    torch = pytest.importorskip("torch")
    named = rf"Triton has no dtype torch\.{dtype}; {advice}"
    add = make({"x": "*u8"})
    for argument in (PointerTensor(0x1000, f"torch.{dtype}"), torch.empty(4, dtype=getattr(torch, dtype))):
        for call in (add[(1,)], add.explain):
            with pytest.raises(ArgumentError, match=named):
                call(argument)


@pytest.mark.parametrize("spelling", ["i1", "u1"])
def test_tritons_spellings_of_a_bool_take_bools_alone(
    make: Make, tensor: Any, fakecuda: FakeCuda, spelling: str
) -> None:
    add = make({"x": f"*{spelling}", "y": f"(*k{spelling},i32)", "n": "i32"}, hints=[{"x": 16}])
    for _ in range(2):  # the second time from the plans
        for address in (0x1000, 0x1001):
            x = tensor(address, "bool")
            add[(1,)](x, (PointerTensor(0x2000, "torch.bool"), 3), 4)
            assert fakecuda.last_launch().ints()[:4] == (address, 0x2000, 3, 4)
    assert add.explain(x, (tensor(0x2000, "bool"), 3), 4).chosen
    for other in ("uint8", "int8"):
        with pytest.raises(NoMatchingVariantError):
            add[(1,)](tensor(0x1000, other), (x, 3), 4)


@pytest.mark.parametrize("device", ["cuda:-1", "cuda:", "cuda:x", "cuda:1x", "cuda:4294967296", "cuda: 1"])
def test_a_device_that_is_none_is_refused(make: Make, fakecuda: FakeCuda, device: str) -> None:
    add = make({"x": "*fp16"})
    for call in (add[(1,)], add.explain):
        with pytest.raises(ArgumentError, match=f"expected a device such as cuda:0, got {device} - at argument x"):
            call(PointerTensor(0x1000, device=device))
    assert fakecuda.launch_count() == 0


def test_a_negative_ordinal_is_not_read_as_any_device(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make({"x": "*fp16"})
    for call in (add[(1,)], add.explain):
        for ordinal in (-1, -2, -3):
            with pytest.raises(ArgumentError, match=f"expected a device such as cuda:0, got cuda:{ordinal} - at"):
                call(tensor(0x1000, device=ordinal))
    for ask in (add.preload, add.fits):
        with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_DEVICE"):
            ask(-1)
    with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_DEVICE"):
        add.explain(tensor(0x1000), device=-1)
    assert fakecuda.launch_count() == 0


def test_views_and_managed_memory_are_tensors_too(
    make: Make, tensor: Any, faketorch: ModuleType, fakecuda: FakeCuda
) -> None:
    add = make({"x": "*fp16", "y": "*fp16"})
    add[(1,)](tensor(0x1000, byte_offset=24), tensor(0, shape=(0,)))
    assert fakecuda.last_launch().ints()[:2] == (0x1018, 0)
    managed, pinned = 13, 3
    add[(1,)](tensor(0x1000, device_type=managed), tensor(0x2000, device=1, device_type=2))
    assert fakecuda.last_launch().device == 1
    add[(1,)](tensor(0x1000, device_type=pinned), faketorch.SlowTensor(0x3000))
    assert fakecuda.last_launch().ints()[:2] == (0x1000, 0x3000)
    add[(1,)](faketorch.NewerTensor(0x5000), tensor(0x1000))
    assert fakecuda.last_launch().ints()[0] == 0x5000
    with pytest.raises(ArgumentError, match="ForeignTensor"):
        add[(1,)](faketorch.ForeignTensor(0x5000), tensor(0x1000))


def test_a_tensor_that_has_elements_and_no_memory_is_refused(
    make: Make, faketorch: ModuleType, fakecuda: FakeCuda
) -> None:
    add = make({"x": "*fp16"})
    for kind in (faketorch.Tensor, faketorch.SlowTensor):
        for shape in ((), (4,), (2, 3)):
            for call in (add[(1,)], add.explain):
                with pytest.raises(ArgumentError, match=r"expected a tensor with memory, got .* - at argument x"):
                    call(kind(0, shape=shape))
        for device in (0, 1):
            add[(1,)](kind(0, shape=(4, 0), device=device))
            assert (fakecuda.last_launch().device, fakecuda.last_launch().ints()[0]) == (device, 0)
    assert fakecuda.launch_count() == 4


def test_stand_ins_of_torch_are_refused(make: Make, fakecuda: FakeCuda) -> None:
    torch = pytest.importorskip("torch", minversion="2.10")
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    add = make({"x": "*fp32"})
    with fake.FakeTensorMode(), pytest.raises(ArgumentError, match="expected a tensor with memory, got a fake tensor"):
        add[(1,)](torch.empty(4, device="cuda:0"))
    with pytest.raises(ArgumentError, match="expected a tensor with memory, got a tensor of zeros without memory"):
        add.explain(torch._efficientzerotensor(4))
    assert add.explain(torch.empty(0)).chosen
    assert fakecuda.launch_count() == 0


ODD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "meta": (lambda torch: torch.empty(4, device="meta"), "a meta tensor, which has a shape and no memory"),
    "coo": (lambda torch: torch.eye(4).to_sparse(), r"a sparse tensor of layout torch.sparse_coo; pass the tensors"),
    "csr": (lambda torch: torch.eye(4).to_sparse_csr(), "a sparse tensor of layout torch.sparse_csr"),
    "mkldnn": (lambda torch: torch.eye(4).to_mkldnn(), "an opaque tensor of layout torch._mkldnn"),
    "nested": (lambda torch: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), "a nested tensor; pass its"),
    "jagged": (
        lambda torch: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged),
        "a nested tensor; pass its",
    ),
    "quantized": (lambda torch: torch.quantize_per_tensor(torch.zeros(4), 1.0, 0, torch.qint8), "a quantized tensor"),
    "functional": (
        lambda torch: torch._to_functional_tensor(torch.zeros(4)),
        "a functional tensor, which torch traces",
    ),
}


@pytest.mark.filterwarnings("ignore:Sparse|The PyTorch API of nested|.*beta state|.*quantize:UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ODD)
def test_a_tensor_without_plain_memory_is_named_with_its_kind(make: Make, fakecuda: FakeCuda, kind: str) -> None:
    torch = pytest.importorskip("torch")
    build, words = ODD[kind]
    try:
        value = build(torch)
    except RuntimeError as error:
        pytest.skip(f"this torch makes none: {error}")
    add = make({"x": "*fp32", "y": "(*fp32,i32)?"}, defaults={"y": None})
    calls = [lambda: add[(1,)](value), lambda: add.explain(value, arch="sm_90"), lambda: add[(1,)](0, (value, 1))]
    for call, argument in zip(calls, "xxy", strict=True):
        with pytest.raises(ArgumentError, match=f"expected a tensor with memory, got {words}") as caught:
            call()
        assert caught.value.argument == argument
        assert "\n" not in str(caught.value)
        assert caught.value.__cause__ is None, "torch's own trace would be shown with it"
    assert fakecuda.launch_count() == 0


def test_a_tensor_inside_of_a_transform_is_named_with_its_kind(make: Make) -> None:
    torch = pytest.importorskip("torch")
    add = make({"x": "*fp32"})

    def call(value: Any) -> Any:
        with pytest.raises(ArgumentError, match=r"got a tensor inside torch\.vmap or a transform"):
            add[(1,)](value)
        return value.sum()

    torch.vmap(call)(torch.zeros(2, 3))
    torch.func.grad(call)(torch.zeros(3))


def test_a_frameworks_error_is_quoted_by_its_first_line(make: Make) -> None:
    class Tensor(PointerTensor):
        def data_ptr(self) -> int:
            raise RuntimeError("no data\nframe #0: c10::Error")

    with pytest.raises(ArgumentError, match=r"got RuntimeError: no data - at argument x of kernel add$"):
        make({"x": "*fp16"})[(1,)](Tensor(0x1000))


def forwarding() -> Callable[[Any], Any]:
    class Forwarding:
        __slots__ = ("to",)

        def __init__(self, to: Any) -> None:
            self.to = to

        def __getattr__(self, name: str) -> Any:
            return getattr(self.to, name)

    return Forwarding


def slotted() -> Callable[[Any], Any]:
    class Slotted:
        __slots__ = ("base", "block_shape", "data_ptr", "device", "dtype", "shape", "strides")

        def __init__(self, to: Any) -> None:
            for name in self.__slots__:
                if hasattr(to, name):
                    setattr(self, name, getattr(to, name))

    return Slotted


class Described(TensorDescriptor):
    """A descriptor that weak references can be made to."""


@pytest.mark.parametrize("order", [1, -1], ids=["tensor first", "descriptor first"])
@pytest.mark.parametrize(
    "kind", [forwarding, slotted, lambda: weakref.proxy], ids=["__getattr__", "__slots__", "proxy"]
)
def test_objects_of_one_type_may_be_tensors_and_descriptors(
    make: Make, tensor: Any, fakecuda: FakeCuda, kind: Callable[[], Callable[[Any], Any]], order: int
) -> None:
    stands_for = kind()
    take, copy = make({"x": "*fp16"}), make({"x": "tensordesc<fp16[16]>"})
    pointer, described = PointerTensor(0x1000), Described(tensor(0x2000), [16], [1], [16])
    for launch, value in [(take, pointer), (copy, described)][::order] * 2:
        launch[(1,)](stands_for(value), stream=0)
    assert fakecuda.launch_count() == 4


def test_a_framework_that_fails_is_quoted(make: Make, tensor: Any, faketorch: ModuleType) -> None:
    faketorch.fail("export")
    with pytest.raises(ArgumentError, match="BufferError: faketorch was told to fail - at argument x") as caught:
        make({"x": "*fp16"})[(1,)](tensor(0x1000))
    assert isinstance(caught.value.__cause__, BufferError)
    faketorch.fail("export", False)
    faketorch.fail("stream")
    with pytest.raises(RuntimeError, match="faketorch was told to fail"):
        make({"x": "*fp16"})[(1,)](tensor(0x1000))


def test_real_torch_tensors_are_read(make: Make) -> None:
    torch = pytest.importorskip("torch")
    add = make({"x": "*{dtype}"}, matrix={"dtype": ["fp16", "bf16", "fp32", "i64", "i1", "fp8e4nv", "fp8e5"]})
    for dtype, name in ((torch.float16, "fp16"), (torch.bfloat16, "bf16"), (torch.bool, "i1"), (torch.float8_e4m3fn, "fp8e4nv"),
                        (torch.float8_e5m2, "fp8e5"), (torch.int64, "i64")):  # fmt: skip
        value = torch.zeros(4).to(dtype)[1:]
        _, (arguments, _, _) = add._facts(value)
        assert arguments == {"x": ("pointer", name, value.data_ptr())}
    value = torch.nn.Parameter(torch.zeros(4))
    assert add._facts(value)[1][0]["x"] == ("pointer", "fp32", value.data_ptr())


# devices and streams


def test_the_tensors_device_decides(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make(launch={"shared_bytes": 100_000})
    for device in (1, 0, 1):
        add[(1,)](tensor(0x1000, device=device), tensor(0x2000, device=device), 5)
        assert fakecuda.last_launch().device == device
    assert fakecuda.calls("cuLibraryLoadData") == 1
    assert fakecuda.calls("cuKernelSetAttribute") == 4, "two on each device"
    with pytest.raises(ArgumentError, match=r"expected cuda:1, where x lies, got cuda:0 - at argument y of kernel add"):
        add[(1,)](tensor(0x1000, device=1), tensor(0x2000, device=0), 5)


def test_a_call_leaves_the_threads_context_as_it_was(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make()
    add[(1,)](tensor(0x1000, device=1), tensor(0x2000, device=1), 5)
    assert fakecuda.context() == (0, None)
    fakecuda.make_current(0)
    add[(1,)](tensor(0x1000, device=1), tensor(0x2000, device=1), 5)
    assert fakecuda.last_launch().device == 1
    assert fakecuda.context() == (1, 0)
    pushes = fakecuda.calls("cuCtxPushCurrent_v2")
    add[(1,)](tensor(0x1000), tensor(0x2000), 5)
    assert fakecuda.calls("cuCtxPushCurrent_v2") == pushes
    fakecuda.fail("cuLaunchKernel", 1)
    with pytest.raises(DriverError):
        add[(1,)](tensor(0x1000, device=1), tensor(0x2000, device=1), 5)
    assert fakecuda.context() == (1, 0)


def test_a_call_without_tensors_runs_on_the_current_device(make: Make, fakecuda: FakeCuda) -> None:
    add = make({"n": "i32"})
    add[(1,)](1)
    assert fakecuda.last_launch().device == 0
    fakecuda.make_current(1)
    add[(1,)](1)
    assert fakecuda.last_launch().device == 1


def test_the_stream_is_the_frameworks_unless_given(
    make: Make, tensor: Any, faketorch: ModuleType, fakecuda: FakeCuda
) -> None:
    class TorchStream:
        def __init__(self, handle: int) -> None:
            self.cuda_stream = handle

    add = make({"x": "*fp16"})
    streams = [fakecuda.stream(), fakecuda.stream(), fakecuda.stream(1)]
    faketorch.set_stream(0, streams[0])
    faketorch.set_stream(1, streams[2])
    for arguments, named, expected in (
        ((tensor(0x1000),), {}, streams[0]),
        ((tensor(0x1000),), {"stream": None}, streams[0]),
        ((tensor(0x1000, device=1),), {}, streams[2]),
        ((tensor(0x1000),), {"stream": streams[1]}, streams[1]),
        ((tensor(0x1000),), {"stream": TorchStream(streams[1])}, streams[1]),
        ((tensor(0x1000),), {"stream": StreamObject(streams[1])}, streams[1]),
        ((tensor(0x1000),), {"stream": 0}, 0),
    ):
        add[(1,)](*arguments, **named)
        assert fakecuda.last_launch().stream == expected


@pytest.mark.parametrize(
    ("device", "read"),
    [(None, ["sm_80", "sm_90a"]), (0, ["sm_80"]), (1, ["sm_90a"]), (2, ["sm_80", "sm_90a"])],
    ids=str,
)
def test_a_first_launch_where_a_device_runs_reads_no_other_bundle(
    tmp_path: Path, fakecuda: FakeCuda, tensor: Any, device: int | None, read: list[str]
) -> None:
    for arch in ("sm_80", "sm_90a"):
        make_bundle(tmp_path / f"{arch}.nojit", kernel("add", {"x": "*fp16"}, on=target(arch)), on=target(arch))
    fakecuda.set_devices(86, 90, 120)
    bundle = loader.load(tmp_path)
    if device is not None:
        fakecuda.make_current(device)
    before = fakecuda.calls("cuInit")
    add = bundle.kernel("add")
    assert fakecuda.calls("cuInit") == before
    add[(1,)](tensor(0x1000, device=0 if device == 0 else 1))
    # a device that nothing fits says nothing: the first of the bundles is read
    assert [file.index.target.image_arch for file in bundle.files if file._parts] == read


def test_the_nearest_bundle_serves_a_device(tmp_path: Path, fakecuda: FakeCuda, tensor: Any) -> None:
    for arch in ("sm_80", "sm_90a", "sm_100f"):
        make_bundle(tmp_path / f"{arch}.nojit", kernel("add", {"x": "*fp16"}, on=target(arch)), on=target(arch))
    fakecuda.set_devices(86, 90, 103)
    add = loader.load(tmp_path).kernel("add")
    for device, arch in enumerate(("sm_80", "sm_90a", "sm_100f")):
        add[(1,)](tensor(0x1000, device=device))
        assert fakecuda.last_launch().device == device
        assert add._bundles.bundle_for((86, 90, 103)[device]).images.file.index.target.image_arch == arch
    fakecuda.set_devices(120)
    fresh = loader.load(tmp_path).kernel("add")
    message = (
        "bundle has sm_80, sm_90a, sm_100f; device is sm_120: nojit build --arch sm_120 builds for it - at kernel add"
    )
    with pytest.raises(NoMatchingVariantError, match=message):
        fresh[(1,)](tensor(0x1000))
    with pytest.raises(NoMatchingVariantError, match="device is sm_75"):
        fresh.explain(tensor(0x1000), arch="sm_75")
