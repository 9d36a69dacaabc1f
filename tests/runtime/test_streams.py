"""On which stream each kind of launch is launched: never on another than the one on which its data is made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from nojit.runtime import TensorDescriptor, _core
from nojit.runtime.errors import ArgumentError, StreamWarning
from nojit.runtime.kernel import Kernel

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make
from tests.support.bundles import kernel, make_bundle
from tests.support.tensors import InterfaceTensor, OldTorch, PointerTensor, WrappingTensor

ADDRESS = 0x4000_0000


@pytest.fixture(params=[0, 1], ids=["cuda:0", "cuda:1"])
def device(request: pytest.FixtureRequest, fakecuda: FakeCuda) -> int:
    ordinal: int = request.param
    fakecuda.add_memory(ADDRESS, 4096, device=ordinal)
    fakecuda.make_current(ordinal)
    return ordinal


def array(**more: Any) -> InterfaceTensor:
    return InterfaceTensor(ADDRESS, **{"version": 2} | more)


Arguments = Callable[[OldTorch, Any, str], tuple[Any, ...]]

OF_TORCH: Mapping[str, Arguments] = {
    "a tensor": lambda torch, _, where: (torch.Tensor(ADDRESS, device=where),),
    "a parameter": lambda torch, _, where: (torch.Parameter(ADDRESS, device=where),),
    "a tensor that is wrapped": lambda torch, _, where: (
        WrappingTensor(torch.Tensor(ADDRESS, device=where), ADDRESS, device=where),
    ),
    "a tensor beside an array that names a stream": lambda torch, _, where: (
        array(version=3, stream=7),
        torch.Tensor(ADDRESS, device=where),
    ),
    "an address": lambda *_: (ADDRESS,),
    "an array of version 2": lambda *_: (array(),),
    "an array whose data is ready": lambda *_: (array(version=3, stream=None),),
    "a tensor of an unknown make": lambda _torch, _, where: (PointerTensor(ADDRESS, device=where),),
}


@pytest.mark.parametrize("kind", OF_TORCH)
def test_torchs_current_stream_is_used_where_no_argument_has_the_exchange_api(
    make: Make, fakecuda: FakeCuda, old_torch: OldTorch, device: int, kind: str
) -> None:
    add = make({"x": "*fp16", "y": "*fp16?", "n": "i32"}, grid=["n"], defaults={"y": None})
    streams = [fakecuda.stream(device) for _ in range(2)]
    arguments = OF_TORCH[kind](old_torch, None, f"cuda:{device}")
    for stream in (*streams, 0):
        old_torch.streams[device] = stream
        for launch in (add[(1,)], add.bind((1,)), add, add.bind()):
            launch(*arguments, n=3)
            assert (fakecuda.last_launch().device, fakecuda.last_launch().stream) == (device, stream)
    for launch in (add[(1,)], add):
        launch(*arguments, n=3, stream=streams[1])
        assert fakecuda.last_launch().stream == streams[1]


def test_torchs_current_stream_is_used_for_what_tuples_and_descriptors_hold(
    make: Make, fakecuda: FakeCuda, old_torch: OldTorch
) -> None:
    old_torch.streams[0] = fakecuda.stream()
    tensor = old_torch.Tensor(ADDRESS)
    make({"x": "(*fp16,(i32,*fp16))"})[(1,)]((tensor, (3, tensor)))
    assert fakecuda.last_launch().stream == old_torch.streams[0]
    make({"x": "tensordesc<fp16[16]>"})[(1,)](TensorDescriptor(tensor, [16], [1], [16]))
    assert fakecuda.last_launch().stream == old_torch.streams[0]
    make({"n": "i32"})[(1,)](3)
    assert fakecuda.last_launch().stream == old_torch.streams[0], "a capture sees it, or it breaks the capture"


def test_a_tensor_with_the_exchange_api_that_is_wrapped_gives_stream_and_scratch(
    make: Make, fakecuda: FakeCuda, faketorch: ModuleType, tensor: Any, no_torch: None
) -> None:
    stream = fakecuda.stream()
    faketorch.set_stream(0, stream)
    add = make({"x": "*fp16"}, launch={"global_scratch_bytes": 8})
    add[(1,)](WrappingTensor(tensor(ADDRESS, "uint8"), ADDRESS))
    assert fakecuda.last_launch().stream == stream
    assert faketorch.counts()["allocated"] == 1


def test_tritons_own_wrapper_is_looked_into(make: Make, fakecuda: FakeCuda, old_torch: OldTorch) -> None:
    jit = pytest.importorskip("triton.runtime.jit")
    base = old_torch.Tensor(ADDRESS)
    base.data, base.shape = base, (4,)
    old_torch.streams[0] = fakecuda.stream()
    make({"x": "*fp8e5"})[(1,)](jit.TensorWrapper(base, "fp8e5"))
    assert fakecuda.last_launch().stream == old_torch.streams[0]


def test_operators_that_replay_a_call_launch_on_torchs_current_stream(
    make: Make, fakecuda: FakeCuda, old_torch: OldTorch
) -> None:
    add = make({"x": "*fp16", "n": "i32"}, grid=["n"])
    replay = _core.Recipe(1, ((add, (None, 3), (), ((0, 0),), False),), (0,))
    for stream in (fakecuda.stream(), fakecuda.stream(), 0):
        old_torch.streams[0] = stream
        replay(old_torch.Tensor(ADDRESS))
        assert fakecuda.last_launch().stream == stream


def test_the_exchange_api_comes_before_torch(
    make: Make, fakecuda: FakeCuda, faketorch: ModuleType, tensor: Any, old_torch: OldTorch
) -> None:
    old_torch.streams[0], current = fakecuda.stream(), fakecuda.stream()
    faketorch.set_stream(0, current)
    make({"x": "*fp16", "y": "*fp16"})[(1,)](old_torch.Tensor(ADDRESS), tensor(ADDRESS))
    assert fakecuda.last_launch().stream == current


@pytest.mark.parametrize("stream", [1, 2], ids=["legacy default", "per-thread default"])
def test_an_array_may_name_one_of_the_default_streams(
    make: Make, fakecuda: FakeCuda, old_torch: OldTorch, stream: int
) -> None:
    fakecuda.add_memory(ADDRESS, 4096)
    old_torch.streams[0] = fakecuda.stream()
    make({"x": "*fp16"})[(1,)](array(version=3, stream=stream))
    assert fakecuda.last_launch().stream == stream


def test_an_array_that_leaves_the_default_stream_open_is_refused(make: Make, fakecuda: FakeCuda) -> None:
    fakecuda.add_memory(ADDRESS, 4096)
    with pytest.raises(ArgumentError, match=r"expected a stream of None, 1 .* or a handle, got 0 - at argument x"):
        make({"x": "*fp16"})[(1,)](array(version=3, stream=0))
    assert fakecuda.launch_count() == 0


@pytest.mark.usefixtures("no_torch")
def test_a_call_that_says_no_stream_warns_and_is_launched_on_the_default_one(make: Make, fakecuda: FakeCuda) -> None:
    fakecuda.add_memory(ADDRESS, 4096)
    add = make({"x": "*fp16"})
    for value in (ADDRESS, array(), PointerTensor(ADDRESS)):
        with pytest.raises(StreamWarning, match=r"kernel add is launched on the default stream: .* pass stream="):
            add[(1,)](value)
        add[(1,)](value, stream=0)
    assert [launch.stream for launch in fakecuda.launches()] == [0, 0, 0]
    # who says that its data is ready for any stream says enough, and so does a call that passes no memory
    add[(1,)](array(version=3, stream=None))
    add[(1,)](0)
    make({"n": "i32"})[(1,)](3)
    assert fakecuda.launch_count() == 6


def without_driver(_device: int) -> int:
    raise RuntimeError("CUDA driver version is insufficient for CUDA runtime version")


@pytest.mark.parametrize(
    "torch",
    [
        SimpleNamespace(),
        SimpleNamespace(_C=SimpleNamespace()),
        SimpleNamespace(_C=SimpleNamespace(_cuda_getCurrentRawStream=without_driver)),
        None,
    ],
)
def test_a_torch_that_knows_no_cuda_is_as_none(
    make: Make, fakecuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, torch: object
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(StreamWarning):
        make({"x": "*fp16"})[(1,)](ADDRESS)
    make({"x": "*fp16"})[(1,)](ADDRESS, stream=fakecuda.stream())


def test_what_torch_says_of_its_stream_is_quoted(make: Make, fakecuda: FakeCuda, old_torch: OldTorch) -> None:
    def fail(device: int) -> int:
        raise RuntimeError(f"no device {device}")

    for asked in (fail, lambda _: "a stream"):
        old_torch._C._cuda_getCurrentRawStream = asked
        with pytest.raises(
            ArgumentError, match="expected torch to say which stream is current: pass stream="
        ) as caught:
            make({"x": "*fp16"})[(1,)](old_torch.Tensor(ADDRESS))
        assert caught.value.argument == "stream"
    assert fakecuda.launch_count() == 0


SILENT = """
import sys
from nojit import runtime
first, second = (runtime.load(sys.argv[1]).kernel(name) for name in ("first", "second"))
for _ in range(3):
    first[(1,)](4096)
    second[(1,)](4096)
assert "torch" not in sys.modules
"""


def test_the_warning_comes_once_in_a_process(fakecuda: FakeCuda, tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "two.nojit", *(kernel(name, {"x": "*fp16"}) for name in ("first", "second")))
    command = [sys.executable, "-W", "always", "-c", SILENT, str(path)]
    done = subprocess.run(command, env=fakecuda.environment(90), capture_output=True, text=True, check=True)
    assert done.stderr.count("StreamWarning: kernel first is launched on the default stream") == 1
    assert done.stderr.count("StreamWarning") == 1


class CupyStream:
    """As ``cupy.cuda.Stream``."""

    def __init__(self, handle: int) -> None:
        self.ptr = handle


def test_a_stream_of_cupy_can_be_given(make: Make, fakecuda: FakeCuda) -> None:
    stream = fakecuda.stream()
    add: Kernel = make({"x": "*fp16"})
    add[(1,)](ADDRESS, stream=CupyStream(stream))
    assert fakecuda.last_launch().stream == stream
    for wrong in ("a stream", True, 1.5, object()):
        with pytest.raises(ArgumentError, match="expected a stream: an int, or an object with"):
            add[(1,)](ADDRESS, stream=wrong)
