"""Launches on a simulated GPU: specialized as on a real one, reported, and never run."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from nojit.runtime.errors import FakeValueError  # noqa: E402 - after the check for torch
from nojit.runtime.recording.fake.machine import gpu  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

from tests.runtime.recording.fake_kernels import add_kernel, tuned_kernel  # noqa: E402

# Triton 3.9 warns once of a default of the next version
pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")


@pytest.fixture
def machine():
    with gpu("sm_90", count=2) as machine:
        yield machine


def vector(size=64, dtype=torch.float32):
    return torch.empty(size, dtype=dtype, device="cuda")


def test_a_launch_is_reported_with_its_facts(machine):
    x, out = vector(), vector()
    add_kernel[(3, 2)](x, x[1:], out, 1, BLOCK=32, num_warps=8)
    (launch,) = machine.launches
    assert launch.function is add_kernel
    assert launch.arguments["y_ptr"].storage_offset() == 1
    assert launch.arguments["BLOCK"] == 32
    assert launch.specialization == (
        ("*fp32", "D"),
        ("*fp32", ""),
        ("*fp32", "D"),
        ("constexpr", 1),
        ("constexpr", 32),
    )
    assert launch.options["num_warps"] == 8
    assert launch.grid == (3, 2, 1)
    assert (launch.warmup, launch.trial, launch.device) == (False, False, 0)


def test_grids_may_be_functions_of_the_arguments(machine):
    add_kernel[lambda args: (triton.cdiv(args["n"], args["BLOCK"]),)](vector(), vector(), vector(), 100, BLOCK=32)
    assert machine.launches[0].grid == (4, 1, 1)


def test_a_grid_of_unknown_values_stops_the_program(machine):
    x = vector(dtype=torch.int32)
    with pytest.raises(FakeValueError, match=r"Tensor\.item\(\) of int32\[\] on cuda:0 - at .*test_fake_launches\.py"):
        add_kernel[(x.max(),)](x, x, x, 64, BLOCK=32)
    assert machine.launches == []


def test_launches_go_to_the_current_device(machine):
    x = torch.empty(64, device="cuda:1")
    with torch.cuda.device(1):
        add_kernel[(1,)](x, x, x, 64, BLOCK=32)
    assert machine.launches[0].device == 1


def real(tensor, storages):
    """Return a tensor of the CPU with the same layout in a storage that is aligned as the allocator's."""
    storage = tensor.untyped_storage()
    if id(storage) not in storages:
        memory = torch.empty(storage.nbytes() + 512, dtype=torch.uint8)
        storages[id(storage)] = memory[-memory.data_ptr() % 512 :]
    if not tensor.numel():
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    memory = storages[id(storage)][: storage.nbytes() // tensor.itemsize * tensor.itemsize]
    return memory.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def with_memory(value, storages):
    if isinstance(value, FakeTensor):
        return real(value, storages)
    if isinstance(value, TensorDescriptor):
        return dataclasses.replace(value, base=real(value.base, storages))
    return tuple(with_memory(each, storages) for each in value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.int64])
@pytest.mark.parametrize("offset", [0, 1, 2, 4, 8, 16, 17])
def test_tensors_are_specialized_as_tensors_with_memory(machine, dtype, offset):
    base = vector(256, dtype)
    views = (base[offset:], base.view(16, 16)[:, offset % 16 :], base[offset:offset])
    values = (True, 1, 16, 17, 1 << 31, 1 << 63, 0.5, None)
    for n in (*values, (views[0], 16), TensorDescriptor(base, [256], [1], [16])):
        add_kernel[(1,)](*views, n, BLOCK=16)
    for launch in machine.launches:
        storages = {}
        arguments = {name: with_memory(value, storages) for name, value in launch.arguments.items()}
        _, specialization, _ = add_kernel.create_binder()[-1](**arguments)
        assert launch.specialization == tuple(specialization)


def test_a_warmup_is_reported_and_its_kernel_launches(machine):
    x = vector()
    kernel = add_kernel.warmup(x, x, x, 99, BLOCK=64, grid=(1,))
    kernel[(5, 1, 1)](x, x, x, 99, 64)
    warmup, launch = machine.launches
    assert (warmup.warmup, warmup.grid) == (True, None)
    assert (launch.warmup, launch.grid) == (False, (5, 1, 1))
    assert launch.specialization == warmup.specialization


@pytest.mark.triton
def test_a_kernel_is_compiled_when_its_facts_are_asked_for(machine):
    x = vector()
    kernel = add_kernel[(1,)](x, x, x, 64, BLOCK=64)
    assert kernel._compiled is None
    assert kernel.n_regs > 0
    assert kernel.n_spills == 0
    assert kernel.metadata.num_warps == 4
    assert kernel.metadata.shared == 0
    assert len(kernel.asm["cubin"]) > 1000


@pytest.mark.triton
def test_kernels_that_the_program_compiled_are_reported(machine):
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(add_kernel, signature, {(4,): 32}, {(0,): [["tt.divisibility", 16]]})
    x = vector()
    triton.compile(source, options={"num_warps": 2})[(2, 1, 1)](x, x, x, 5, 32)
    (launch,) = machine.launches
    assert launch.specialization[:2] == (("*fp32", "D"), ("*fp32", None))
    assert launch.specialization[4] == ("constexpr", 32)
    assert launch.options["num_warps"] == 2
    assert launch.arguments["n"] == 5


def test_autotuners_take_the_first_config_and_time_nothing(machine):
    x = vector()
    tuned_kernel[lambda args: (triton.cdiv(args["n"], args["BLOCK"]),)](x, 100)
    (launch,) = machine.launches
    assert {name: launch.arguments[name] for name in ("BLOCK", "EVEN", "TWICE")} == {
        "BLOCK": 64,
        "EVEN": True,
        "TWICE": 128,
    }
    assert launch.grid == (2, 1, 1)
    assert not launch.trial


def test_autotuners_may_try_every_config():
    with gpu("sm_90", trials="all") as machine:
        tuned_kernel[lambda args: (triton.cdiv(args["n"], args["BLOCK"]),)](vector(), 99)
    found = [(launch.arguments["BLOCK"], launch.options["num_warps"], launch.trial) for launch in machine.launches]
    assert found == [(64, 4, True), (128, 8, True), (64, 4, False)]


def test_pruned_configs_are_not_tried():
    with gpu("sm_90", trials="all") as machine:
        tuner = triton.autotune(
            [triton.Config({"BLOCK": block}) for block in (16, 32, 64)],
            key=["n"],
            prune_configs_by={"early_config_prune": lambda configs, *_args, **_named: configs[1:]},
        )(add_kernel)
        tuner[(1,)](vector(), vector(), vector(), 64)
    assert [launch.arguments["BLOCK"] for launch in machine.launches] == [32, 64, 32]


def test_nothing_of_a_simulation_stays_in_triton():
    caches = dict(add_kernel.device_caches), dict(tuned_kernel.cache)
    active, run = triton.runtime.driver._active, triton.runtime.JITFunction.run
    with gpu("sm_90"):
        x = vector()
        add_kernel[(1,)](x, x, x, 64, BLOCK=16)
        tuned_kernel[(1,)](x, 100)
        assert triton.runtime.driver.active.get_current_target().arch == 90
    assert (dict(add_kernel.device_caches), dict(tuned_kernel.cache)) == caches
    assert (triton.runtime.driver._active, triton.runtime.JITFunction.run) == (active, run)
    with gpu("sm_80") as machine:
        add_kernel[(1,)](vector(), vector(), vector(), 64, BLOCK=16)
        assert triton.runtime.driver.active.get_current_target().arch == 80
    assert len(machine.launches) == 1


def test_launches_go_to_the_given_listener():
    found = []
    with gpu("sm_90", on_launch=found.append) as machine:
        add_kernel[(1,)](vector(), vector(), vector(), 64, BLOCK=16)
    assert [launch.grid for launch in found] == [(1, 1, 1)]
    assert machine.launches == []
