"""A simulated GPU in torch: what it answers, and what its tensors are."""

from __future__ import annotations

import copy
import pickle
import sys
import threading

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from nojit.runtime.errors import FakeValueError, SettingError  # noqa: E402 - after the check for torch
from nojit.runtime.recording.fake.machine import Machine, gpu  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor  # noqa: E402

# torch's own, of what torch.compile imports
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@pytest.fixture
def machine():
    with gpu("sm_90", count=2) as machine:
        yield machine


def test_torch_reports_the_simulated_gpus(machine):
    assert torch.cuda.is_available()
    assert torch.cuda.is_initialized()
    assert torch.cuda.device_count() == 2
    assert torch.cuda.get_device_capability() == (9, 0)
    assert torch.cuda.get_device_name("cuda:1") == "NVIDIA H100 80GB HBM3"
    assert torch.cuda.get_device_properties(0).multi_processor_count == 132
    assert torch.cuda.mem_get_info()[1] == 80 << 30
    assert torch.cuda.is_bf16_supported()
    assert torch.version.cuda
    assert torch.accelerator.current_accelerator().type == "cuda"


def test_a_device_that_is_not_simulated_is_refused(machine):
    with pytest.raises(AssertionError, match="expected one of the CUDA devices 0 to 1 of a target, got 2"):
        torch.cuda.get_device_name(2)
    with pytest.raises(AssertionError, match="got cuda:7"):
        torch.zeros(1, device="cuda:7")


def test_the_current_device_follows_contexts(machine):
    with torch.cuda.device(1):
        assert torch.cuda.current_device() == 1
        assert torch.zeros(1, device="cuda").device == torch.device("cuda:1")
        assert torch.zeros(1).cuda().device == torch.device("cuda:1")
    assert torch.cuda.current_device() == 0
    torch.cuda.set_device("cuda:1")
    assert torch.zeros(1).to("cuda").device == torch.device("cuda:1")


def test_streams_and_events_are_always_done(machine):
    default = torch.cuda.current_stream()
    assert default.cuda_stream == 0
    assert torch._C._cuda_getCurrentRawStream(0) == 0
    stream = torch.cuda.Stream()
    assert isinstance(stream, torch.cuda.Stream)
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        assert torch._C._cuda_getCurrentRawStream(0) == stream.cuda_stream != 0
    with stream:
        assert torch.cuda.current_stream() == stream
    assert torch.cuda.current_stream() == default
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    stream.wait_event(event)
    torch.cuda.synchronize()
    assert event.query()
    torch.zeros(3, device="cuda").record_stream(stream)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: torch.cuda.Event().elapsed_time(torch.cuda.Event()),
        lambda: torch.cuda.CUDAGraph(),  # noqa: PLW0108 - the class is replaced
        lambda: torch.cuda.graph(None),
        lambda: pickle.dumps(torch.zeros(2, device="cuda")),
        lambda: torch.zeros(2, device="cuda").__dlpack__(),
    ],
)
def test_what_only_a_gpu_can_do_stops_the_program(machine, ask):
    with pytest.raises(FakeValueError, match=r"test_fake\.py:\d+; compute the value on the CPU"):
        ask()


def test_convolutions_keep_channels_last_as_cudnn_does(machine):
    layer = torch.nn.Conv2d(3, 8, 3).cuda()
    x = torch.zeros(1, 3, 8, 8, device="cuda")
    assert layer(x).is_contiguous()
    last = layer.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last).requires_grad_())
    assert last.stride() == (288, 1, 48, 8)
    last.sum().backward()
    assert layer.weight.grad.is_contiguous(memory_format=torch.channels_last)


def test_types_are_named_as_on_a_gpu(machine):
    assert torch.zeros(1, device="cuda").type() == "torch.cuda.FloatTensor"
    assert torch.zeros(1, device="cuda").type(torch.float16).dtype == torch.float16


def test_a_compiled_function_runs_eagerly_if_torch_is_told_so(machine):
    with torch._dynamo.config.patch(disable=True):
        assert torch.compile(lambda x: x + 1)(torch.zeros(1)).item() == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(3, device="cuda"),
        lambda: torch.tensor([1.0, 2.0], device="cuda"),
        lambda: torch.as_tensor([1.0, 2.0], device="cuda"),
        lambda: torch.rand(3).to("cuda"),
        lambda: torch.rand(3).cuda(),
        lambda: torch.rand(3).to(0),
        lambda: torch.rand(3).to(device="cuda", dtype=torch.float16),
        lambda: torch.rand(3).to(torch.rand(3, device="cuda")),
        lambda: torch.rand(3, device="cuda").new_empty(2),
        lambda: torch.rand(3, device="cuda").new_tensor([1.0]),
        lambda: torch.rand(3, device="cuda").new(2, 3),
        lambda: torch.randn(3, generator=torch.Generator("cuda").manual_seed(1), device="cuda"),
        lambda: torch.full_like(torch.rand(3, device="cuda"), 2) * torch.tensor(3.0),
        lambda: torch.nn.functional.dropout(torch.rand(3, device="cuda"), 0.5),
        lambda: torch.nn.Linear(2, 2, device="cuda").weight,
        lambda: torch.nn.Linear(2, 2).to("cuda").weight,
    ],
)
def test_tensors_of_the_gpu_have_no_memory(machine, make):
    tensor = make()
    assert isinstance(tensor, FakeTensor)
    assert tensor.device == torch.device("cuda:0")
    assert tensor.is_cuda
    assert not tensor.is_cpu
    assert tensor.get_device() == 0


def test_default_devices_apply(machine):
    with torch.device("cuda"):
        assert torch.zeros(3).is_cuda
        assert torch.tensor([1, 2]).is_cuda
    torch.set_default_device("cuda:1")
    try:
        assert torch.zeros(3).device == torch.device("cuda:1")
        assert torch.tensor([1, 2]).device == torch.device("cuda:1")
    finally:
        torch.set_default_device(None)


def test_tensors_of_the_cpu_stay_real(machine):
    tensor = torch.arange(4.0)
    assert type(tensor) is torch.Tensor
    assert tensor.sum().item() == 6
    assert tensor.pin_memory().tolist() == [0, 1, 2, 3]
    assert torch.zeros(2, pin_memory=True).tolist() == [0, 0]
    assert torch.empty(2, device="meta").is_meta


def test_addresses_are_those_of_torchs_allocator(machine):
    storages = [torch.empty(5, device="cuda", dtype=dtype) for dtype in (torch.int8, torch.float64, torch.bfloat16)]
    addresses = [each.data_ptr() for each in storages]
    assert [address % 512 for address in addresses] == [0, 0, 0]
    assert len(set(addresses)) == 3
    assert all(address > 1 << 40 for address in addresses)
    assert torch.empty(0, device="cuda").data_ptr() == 0


def test_views_share_the_address_of_their_storage(machine):
    base = torch.empty(4, 8, device="cuda", dtype=torch.float16)
    address = base.data_ptr()
    assert base[1:].data_ptr() == address + 16
    assert base[:, 3].data_ptr() == address + 6
    assert base.view(32)[5:].data_ptr() == address + 10
    assert base.t().data_ptr() == base.detach().data_ptr() == base.untyped_storage().data_ptr() == address
    view = base[1:]
    del base
    assert view.data_ptr() == address + 16
    assert view.clone().data_ptr() % 512 == 0


def test_gradients_flow_through_custom_functions(machine):
    threads = []

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            threads.append(threading.current_thread())
            assert ctx.saved_tensors[0].data_ptr() % 512 == 0
            return gradient * torch.full((), 2.0).to("cuda:1")

    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)).to("cuda:1")
    x = torch.randn(2, 4, device="cuda:1", requires_grad=True)
    Twice.apply(layer(x)).sum().backward()
    assert x.grad.device == layer[0].weight.grad.device == torch.device("cuda:1")
    assert threads == [threading.current_thread()]


def test_a_step_of_training_runs(machine):
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    loss = torch.nn.functional.cross_entropy(
        model(torch.randint(10, (6,), device="cuda")), torch.randint(10, (6,)).cuda()
    )
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    assert loss.device == torch.device("cuda:0")


def test_parameters_keep_their_identity_and_ties_when_they_move(machine):
    model = torch.nn.Sequential(torch.nn.Embedding(4, 4), torch.nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    weight = model[0].weight
    weight.note = "kept"
    assert model.to("cuda")[0].weight is model[1].weight is weight
    assert isinstance(weight, torch.nn.Parameter)
    assert weight.is_cuda
    assert weight.is_leaf
    assert weight.note == "kept"
    model.half()
    assert model[1].weight is weight
    assert weight.dtype == torch.float16
    weight.data = torch.zeros(4, 4, device="cuda:1")
    assert weight.device == torch.device("cuda:1")


def test_modules_are_copied(machine):
    model = torch.nn.Linear(2, 2).cuda()
    copied = copy.deepcopy(model)
    assert copied.weight.is_cuda
    assert copied.weight.data_ptr() != model.weight.data_ptr()


def test_inference_mode_and_checkpoints_work(machine):
    layer = torch.nn.Linear(4, 4).cuda()
    with torch.inference_mode():
        assert layer(torch.zeros(2, 4, device="cuda")).is_cuda
    x = torch.zeros(2, 4, device="cuda", requires_grad=True)
    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert x.grad.is_cuda


def test_other_threads_see_the_gpu_too(machine):
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.zeros(2, device="cuda").device))
    thread.start()
    thread.join()
    assert found == [torch.device("cuda:0")]


def test_random_states_are_kept(machine):
    torch.manual_seed(3)
    torch.cuda.manual_seed(7)
    assert torch.cuda.initial_seed() == 7
    state = torch.cuda.get_rng_state()
    torch.cuda.manual_seed_all(8)
    torch.cuda.set_rng_state(state)
    assert torch.cuda.initial_seed() == 7
    assert isinstance(torch.Generator("cuda:1"), torch.Generator)
    assert torch.Generator("cuda:1").device == torch.device("cuda:1")
    assert isinstance(torch.default_generator, torch.Generator)


def test_everything_is_as_before_when_the_simulation_ends():
    def state():
        owners = (
            torch,
            torch.cuda,
            torch.Tensor,
            torch.nn.Module,
            torch._C,
            torch.UntypedStorage,
            threading.Thread,
            FakeTensor,
        )
        return [{name: id(value) for name, value in vars(owner).items()} for owner in owners], list(sys.meta_path)

    with gpu("sm_90"):
        pass
    before = state()
    with gpu("sm_80"):
        assert state() != before
        assert torch.cuda.get_device_capability() == (8, 0)
    assert state() == before
    assert torch.zeros(2).to("cpu").tolist() == [0, 0]
    assert not torch.cuda.is_available()


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("tensors.Tensors", "_patch_threads"),
        ("launches.Launches", "_patch_autotuner"),
        ("compiled.Compiles", "_patch_triton"),
        ("compiled", "choose_attention"),
    ],
)
def test_a_start_or_a_stop_that_fails_leaves_nothing_behind(monkeypatch, place, name):
    def fail(*_args):
        raise RuntimeError("no start")

    with gpu("sm_90"):
        pass
    graphs = "torch._inductor.cudagraph_trees"
    state = lambda: ([*sys.meta_path], sys.modules.get(graphs), torch.zeros, torch.cuda.is_available())  # noqa: E731
    before = state()
    with monkeypatch.context() as patch:
        patch.setattr(f"nojit.runtime.recording.fake.{place}.{name}", fail)
        with pytest.raises(RuntimeError, match="no start"):
            Machine("sm_90").start()
    assert state() == before
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="no start"), gpu("sm_90"):
        patch.setattr(torch.compiler, "reset", fail)
    assert state() == before
    with gpu("sm_80"):
        assert torch.zeros(1, device="cuda").is_cuda
    assert type(torch.zeros(1)) is torch.Tensor


def test_a_process_has_one_simulation():
    machine = Machine("sm_90")
    machine.start()
    try:
        with (
            pytest.raises(SettingError, match="expected no simulated GPU in this process, got one of sm_90"),
            gpu("sm_80"),
        ):
            pass
        assert torch.cuda.get_device_capability() == (9, 0)
    finally:
        machine.stop()
    machine.stop()


def test_errors_survive_pickling(machine):
    with pytest.raises(FakeValueError) as caught:
        torch.zeros(2, device="cuda").random_().sum().item()
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
