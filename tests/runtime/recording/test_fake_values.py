"""Values of tensors without memory: those that are known exactly, and programs that ask for others."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from nojit.runtime.errors import FakeValueError  # noqa: E402 - after the check for torch
from nojit.runtime.recording.fake.machine import gpu  # noqa: E402
from nojit.runtime.recording.fake.writes import may_write  # noqa: E402

from tests.runtime.recording.fake_kernels import add_kernel, ways_kernel  # noqa: E402

PROBLEMS = []

# Triton 3.9 warns once of a default of the next version
pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")


@pytest.fixture(autouse=True)
def machine():
    PROBLEMS.clear()
    with gpu("sm_90", on_problem=lambda what, where: PROBLEMS.append((what, where))) as machine:
        yield machine


def unknown(*size, dtype=torch.float32):
    return torch.empty(*size, dtype=dtype, device="cuda")


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda: unknown(3).sum().item(), "Tensor.item() of float32[] on cuda:0"),
        (lambda: unknown(2).tolist(), "Tensor.item() of float32[] on cuda:0"),
        (lambda: bool(unknown(1) > 0), "Tensor.item() of bool[1] on cuda:0"),
        (lambda: int(unknown(1, dtype=torch.int64)), "Tensor.item() of int64[1] on cuda:0"),
        (lambda: unknown(3)[unknown(3) > 0], "Tensor.nonzero(), or an index that is a mask of float32[3] on cuda:0"),
        (lambda: torch.unique(unknown(3)), "torch.unique() of float32[3] on cuda:0"),
        (lambda: torch.equal(unknown(3), unknown(3)), "torch.equal() of float32[3] on cuda:0"),
        (lambda: unknown(3).cpu().numpy(), "Tensor.numpy() of float32[3] on cpu"),
        (
            lambda: torch.zeros(3).copy_(unknown(3)),
            "aten.copy_.default, which writes values of a GPU into float32[3] on cpu",
        ),
        (lambda: torch.randint(5, (3,), device="cuda").max().item(), "Tensor.item() of int64[] on cuda:0"),
    ],
)
def test_a_program_that_needs_values_stops_there(ask, what):
    with pytest.raises(FakeValueError) as caught:
        ask()
    assert caught.value.got == what
    assert [(what, caught.value.where)] == PROBLEMS
    assert f"test_fake_values.py:{ask.__code__.co_firstlineno}" in caught.value.where


def test_an_operator_without_a_fake_implementation_stops_the_program(monkeypatch):
    library = torch.library.Library("nojit_test_fake", "DEF")
    library.define("opaque(Tensor x) -> Tensor")
    library.impl("opaque", lambda x: x.clone(), "CUDA")
    # as if in C++: what is Python runs
    monkeypatch.setattr(torch.library, "_impls", set())
    with pytest.raises(FakeValueError, match=r"nojit_test_fake.opaque.default, an operator without a meta or fake"):
        torch.ops.nojit_test_fake.opaque(unknown(3))
    library._destroy()


def test_values_from_the_cpu_are_known():
    lengths = torch.tensor([0, 3, 5, 9], dtype=torch.int32, device="cuda")
    assert lengths.tolist() == [0, 3, 5, 9]
    assert (lengths[1:] - lengths[:-1]).max().item() == 4
    assert torch.arange(3).cuda().cumsum(0)[-1].item() == 3
    assert lengths.cpu().numpy().tolist() == [0, 3, 5, 9]
    assert (lengths > 3).nonzero().flatten().tolist() == [2, 3]
    assert torch.repeat_interleave(lengths[:3]).tolist() == [1, 1, 1, 2, 2, 2, 2, 2]
    assert unknown(4, 2)[lengths > 3].shape == (2, 2)
    assert torch.ones_like(unknown(2)).tolist() == [1, 1]
    assert torch.equal(torch.ones_like(unknown(())), torch.tensor(1.0, device="cuda"))


def test_known_values_follow_writes_through_views():
    values = torch.zeros(4, dtype=torch.int64, device="cuda")
    values[1:3].fill_(7)
    values[3] = 2
    assert values.tolist() == [0, 7, 7, 2]
    values += 1
    assert values.tolist() == [1, 8, 8, 3]


def test_a_source_that_changes_later_changes_no_copy():
    source = torch.zeros(2, dtype=torch.int64)
    copied = source.cuda()
    source.fill_(5)
    assert copied.tolist() == [0, 0]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda values: values.copy_(unknown(4, dtype=torch.int64)),
        lambda values: values[:2].random_(),
        lambda values: values.add_(unknown(4, dtype=torch.int64)),
        lambda values: add_kernel[(1,)](values, values, values, 4, BLOCK=16),
    ],
)
def test_values_become_unknown_when_unknown_ones_are_written(spoil):
    values = torch.zeros(4, dtype=torch.int64, device="cuda")
    view = values[2:]
    spoil(values)
    with pytest.raises(FakeValueError):
        values[0].item()
    with pytest.raises(FakeValueError):
        view[0].item()


@pytest.mark.parametrize(
    "compute",
    [
        lambda: torch.tensor([0.1, 0.2], device="cuda").sum(),
        lambda: torch.tensor([1, 3], device="cuda").float().mean(),
        lambda: torch.tensor([1.5], device="cuda").exp(),
        lambda: torch.tensor([1, 1], device="cuda").argmax(),
        lambda: torch.tensor([1, 1], device="cuda").sort().indices[0],
        lambda: torch.rand(1, device="cuda") * 0,
    ],
)
def test_what_a_gpu_may_compute_otherwise_is_unknown(compute):
    with pytest.raises(FakeValueError):
        compute().item()


def test_a_launch_leaves_what_it_only_reads_known():
    lengths = torch.tensor([1, 2, 3], device="cuda")
    add_kernel[(1,)](lengths, lengths, unknown(3), 3, BLOCK=16)
    assert lengths.tolist() == [1, 2, 3]


def test_the_source_of_a_kernel_shows_what_it_writes():
    params = ways_kernel.arg_names[:-1]
    assert {param for param in params if not may_write(ways_kernel, param)} == {"read_ptr"}
