"""torch.compile on simulated GPUs: Inductor's own kernels and launches, without a compile to machine code."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
pytest.importorskip("torch._inductor")

import triton.language as tl  # noqa: E402 - after the check for Triton
from nojit.runtime.errors import FakeValueError, RecordingError  # noqa: E402 - after the check for torch
from nojit.runtime.recording.fake.machine import gpu  # noqa: E402
from torch import nn  # noqa: E402

from tests.runtime.recording.fake_kernels import add_kernel  # noqa: E402

# of torch's own, and of a default of Triton's next version
pytestmark = [pytest.mark.slow, pytest.mark.triton, pytest.mark.filterwarnings("ignore")]


@triton.autotune([triton.Config({"BLOCK": block}) for block in (32, 64)], key=["n"])
@triton.jit
def tuned_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.load(x_ptr + places, places < n) + tl.load(y_ptr + places, places < n)
    tl.store(out_ptr + places, found, places < n)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    return tmp_path / "inductor"


@pytest.fixture
def problems():
    return []


@pytest.fixture
def machine(problems):
    with gpu("sm_90", on_problem=lambda what, where: problems.append((what, where))) as machine:
        yield machine


def named(machine) -> list[str]:
    return [launch.function.__name__ for launch in machine.launches]


def half(*shape: int, **settings: Any) -> Any:
    return torch.randn(*shape, device="cuda", dtype=torch.float16, **settings)


def test_a_compiled_function_launches_what_inductor_generates(machine):
    compiled = torch.compile(lambda x, y: (x * y).relu())
    for _ in range(2):
        out = compiled(half(64, 100), half(64, 100))
    assert (out.shape, out.device.type) == ((64, 100), "cuda")
    first, second = machine.launches
    assert first.function.__name__ == "triton_poi_fused_mul_relu_0"
    assert (first.arguments["xnumel"], first.arguments["XBLOCK"]) == (6400, 256)
    assert first.grid == second.grid == (25, 1, 1)
    assert first.specialization[:3] == (("*fp16", "D"), ("*fp16", "D"), ("*fp16", "D"))


def test_a_function_that_was_wrapped_before_the_start_is_compiled_too():
    compiled = torch.compile(lambda x: x + 1)
    with gpu("sm_90") as machine:
        compiled(torch.zeros(1, device="cuda"))
        assert named(machine) == ["triton_poi_fused_add_0"]
    with gpu("sm_90") as again:
        compiled(torch.zeros(1, device="cuda"))
        assert named(again) == ["triton_poi_fused_add_0"]


def test_a_torch_without_what_the_simulation_replaces_is_refused_at_every_compile(machine, monkeypatch):
    from torch._inductor.fx_passes import pad_mm

    threads = torch._inductor.config.compile_threads
    with monkeypatch.context() as patch:
        patch.delattr(pad_mm, "get_cached_should_pad")
        for _ in range(2):
            with pytest.raises(RecordingError, match=r"expected torch 2.11 to 2.13.*get_cached_should_pad"):
                torch.compile(lambda x: x + 1)(half(8))
        assert machine.launches == []
    machine.stop()
    assert torch._inductor.config.compile_threads == threads


def test_gradients_launch_kernels_too(machine):
    layer = nn.Linear(64, 64).cuda().half()
    torch.compile(lambda x: nn.functional.gelu(layer(x)))(half(32, 64)).sum().backward()
    assert layer.weight.grad.shape == (64, 64)
    assert any("backward" in name for name in named(machine))


def test_another_shape_makes_a_kernel_of_any_shape(machine):
    compiled = torch.compile(lambda x: x.relu().sum(-1))
    for rows in (64, 96, 128):
        compiled(half(rows, 32))
    assert [launch.grid[0] for launch in machine.launches] == [64, 96, 128]
    fixed, free, again = (launch.function for launch in machine.launches)
    assert fixed is not free
    assert free is again


def test_kernels_of_the_program_are_launched_in_the_graph(machine):
    def add(x, kernel, **block):
        out = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x, out, x.numel(), **block)
        return out * 2

    torch.compile(lambda x: add(x, add_kernel, BLOCK=32), fullgraph=True)(half(64))
    torch.compile(lambda x: add(x, tuned_kernel), fullgraph=True)(half(64))
    assert named(machine)[0::2] == ["add_kernel", "tuned_kernel"]
    assert [launch.grid for launch in machine.launches[::2]] == [(2, 1, 1), (2, 1, 1)]


@pytest.mark.parametrize("compiles", [False, True])
def test_an_operator_of_the_program_launches_its_kernel(machine, compiles):
    @torch.library.triton_op("nojit_test_fake::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        torch.library.wrap_triton(add_kernel)[(2,)](x, x, out, x.numel(), BLOCK=32)
        return out

    (torch.compile(doubled) if compiles else doubled)(half(64))
    assert named(machine) == ["add_kernel"]


def test_a_custom_operator_runs_its_own_code(machine):
    @torch.library.custom_op("nojit_test_fake::tripled", mutates_args=())
    def tripled(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        add_kernel[(2,)](x, x, out, x.numel(), BLOCK=32)
        return out

    tripled.register_fake(torch.empty_like)
    torch.compile(tripled)(half(64))
    assert named(machine) == ["add_kernel"]


def test_an_operator_of_the_older_form_runs_its_own_code(machine):
    library = torch.library.Library("nojit_test_fake_older", "FRAGMENT")
    library.define("tripled(Tensor x) -> Tensor")
    library.define("tripled.out(Tensor x, Tensor(a!) out) -> ()")

    def tripled(x):
        out = torch.empty_like(x)
        add_kernel[(2,)](x, x, out, x.numel(), BLOCK=32)
        return out

    def into(x, out):
        add_kernel[(2,)](x, x, out, x.numel(), BLOCK=64)

    library.impl("tripled", tripled, "CUDA")
    library.impl("tripled.out", into, "CompositeExplicitAutograd")
    torch.library.register_fake("nojit_test_fake_older::tripled", torch.empty_like, lib=library)
    torch.library.register_fake("nojit_test_fake_older::tripled.out", lambda x, out: None, lib=library)
    try:
        x = half(64)
        torch.ops.nojit_test_fake_older.tripled(x)
        torch.ops.nojit_test_fake_older.tripled.out(x, x)
        assert named(machine) == ["add_kernel", "add_kernel"]
    finally:
        library._destroy()


@pytest.mark.parametrize(
    ("arch", "operator"),
    [("sm_90", "_scaled_dot_product_cudnn_attention"), ("sm_80", "_scaled_dot_product_flash_attention")],
)
def test_attention_is_the_architectures_own(arch, operator, folder):
    with gpu(arch) as machine:
        torch.compile(lambda q: nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True) * 2)(
            half(1, 2, 64, 32)
        )
        assert named(machine) == ["triton_poi_fused_mul_0"]
    assert any(operator in file.read_text() for file in folder.rglob("*.py"))


@pytest.mark.parametrize(("dtype", "reports"), [(torch.bool, 1), (torch.float16, 0)])
def test_a_mask_that_torch_converts_for_cudnn_is_reported(machine, problems, dtype, reports):
    mask = torch.ones(64, 64, device="cuda", dtype=dtype)
    compiled = torch.compile(lambda q, mask: nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask) * 2)
    compiled(half(1, 2, 64, 32), mask)
    # a graph is traced several times
    found = {place for place in problems if "bool attn_mask, which torch makes additive for cuDNN" in place[0]}
    assert len(found) == reports
    assert all("test_fake_compiled.py" in where for _, where in found)


def test_an_operator_that_is_one_piece_on_a_gpu_stays_whole(machine, folder):
    norm = nn.RMSNorm(64).to("cuda", torch.float16)
    torch.compile(norm)(half(4, 64)).sum().backward()
    assert named(machine) == [
        "triton_per_fused__fused_rms_norm_0",
        "triton_poi_fused__fused_rms_norm__fused_rms_norm_backward_0",
    ]


def test_an_operator_that_is_one_piece_on_a_gpu_runs_without_a_graph(machine):
    norm, x = nn.RMSNorm(64).to("cuda", torch.float16), half(4, 64).requires_grad_()
    norm(x).sum().backward()
    assert x.grad.shape == (4, 64)
    assert norm.weight.grad.shape == (64,)


def test_attention_that_is_taken_apart_is_reported(machine, problems):
    torch.compile(lambda q: nn.functional.scaled_dot_product_attention(q, q, q))(half(1, 2, 64, 30))
    assert len(machine.launches) > 1
    assert {what.partition(",")[0] for what, _ in problems} == {"scaled_dot_product_attention"}
    assert all("test_fake_compiled.py" in where for _, where in problems)


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_modes_that_capture_or_time_launch_what_the_default_mode_does(machine, mode):
    weight = half(256, 256)
    compiled = torch.compile(lambda x: (x @ weight).relu(), mode=mode)
    for _ in range(3):
        compiled(half(256, 256))
    assert named(machine) == ["triton_poi_fused_relu_0"] * 3


def test_a_compiled_step_of_an_optimizer_makes_its_state_on_the_gpu(machine):
    layer = nn.Linear(8, 8).cuda()
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(2, 8, device="cuda")).sum().backward()
    step = torch.compile(optimizer.step)
    for _ in range(2):
        step()
    assert named(machine) == ["triton_for_fused_0", "triton_for_fused_1"] * 2
    assert all(value.is_cuda for state in optimizer.state.values() for value in state.values())
    assert "_init_group" not in vars(optimizer)


def test_a_graph_that_makes_tensors_while_it_is_traced_stops_the_program(machine):
    table = torch._dynamo.assume_constant_result(lambda: torch.ones(4, device="cuda"))
    with pytest.raises(
        FakeValueError, match=r"a compile of .*, which makes tensors of a GPU - at .*test_fake_compiled\.py"
    ):
        torch.compile(lambda x: x + table())(half(4))


def test_a_value_of_a_gpu_stops_a_compiled_program_too(machine):
    with pytest.raises(
        FakeValueError, match=r"Tensor\.item\(\) of float16\[\] on cuda:0 - at .*test_fake_compiled\.py"
    ):
        torch.compile(lambda x: x * x.sum().item())(half(64))


def test_functions_of_the_cpu_are_compiled_and_run(machine):
    assert torch.compile(lambda x: x * 2 + 1)(torch.ones(2)).tolist() == [3, 3]
    assert machine.launches == []


def test_nothing_that_another_machine_could_read_is_cached(machine, folder):
    torch.compile(lambda x: x.relu())(half(64))
    assert not (folder / "fxgraph").exists()
    assert not (folder / "aotautograd").exists()
    assert not list(folder.rglob("*.best_config"))
