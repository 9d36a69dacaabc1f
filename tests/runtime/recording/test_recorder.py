"""What a recorder keeps of launches, warm-ups and autotuners, and that the program does not notice it."""

import gc
import threading
from pathlib import Path

import pytest

pytest.importorskip("triton")
import nojit
import triton
import triton.language as tl
from nojit.runtime.errors import RecordingError
from nojit.runtime.recording import session
from nojit.runtime.recording.file import read_recording
from triton.compiler.compiler import CompiledKernel
from triton.experimental import gluon
from triton.runtime import jit
from triton.runtime.autotuner import Autotuner

from tests.runtime.recording.programs.gpu import Tensor


@triton.jit
def shift(x):
    return x + 1


def make_scale():
    # a function of its own for each test: Triton caches kernels by function
    @triton.jit
    def scale(x, y, n, ratio, BLOCK: tl.constexpr, F: tl.constexpr = None):
        tl.store(y, shift(tl.load(x)))

    return scale


def make_tuned(keys=("n",), configs=None, **settings):
    configs = configs or [triton.Config({"BLOCK": block}, num_warps=2) for block in (16, 32, 64)]

    @triton.autotune(configs=configs, key=list(keys), **settings)
    @triton.jit
    def tuned(x, y, n, BLOCK: tl.constexpr):
        tl.store(y, tl.load(x))

    return tuned


def one(recording):
    ((digest, found),) = recording.specializations.items()
    return digest, found


def test_a_specialization_is_recorded_once_with_its_launches_and_samples(recorded):
    scale = make_scale()
    with recorded() as recording:
        for number in range(9):
            scale[(number + 2, 3)](Tensor(), Tensor(address=8), number + 2, 0.5, BLOCK=64, num_warps=8)
    digest, found = one(recording)
    assert found["types"] == [["x", "*fp32"], ["y", "*fp32"], ["n", "i32"], ["ratio", "fp32"]]
    assert found["hints"] == [["x", 16]]
    assert found["constexprs"] == [["BLOCK", 64], ["F", None]]
    assert found["options"] == [["num_warps", 8]]
    assert found["arch"] == "sm_90"
    assert recording.launches(digest) == 9
    assert [sample["grid"] for sample in recording.samples[digest]] == [[2, 3], [3, 3], [5, 3], [9, 3]]
    assert [sample["values"] for sample in recording.samples[digest]][:2] == [[["n", 2]], [["n", 3]]]
    definitions = recording.closures[found["closure"]]["definitions"]
    assert [each["qualname"].rpartition(".")[2] for each in definitions] == ["scale", "shift"]
    assert recording.problems == []
    assert recording.to_build() == [digest]


def test_the_process_says_what_ran(recorded):
    with recorded() as recording:
        make_scale()[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64)
    (process,) = recording.processes.values()
    assert (process["triton"], process["arch"], process["fake"]) == (triton.__version__, "sm_90", False)
    assert process["nojit"] == nojit.__version__


def test_calls_that_differ_in_a_type_a_hint_or_a_constexpr_are_specializations(recorded):
    scale = make_scale()
    with recorded() as recording:
        scale[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64)
        scale[(1,)](Tensor(), Tensor(), 1, 0.5, BLOCK=64)
        scale[(1,)](Tensor(), Tensor(), 16, 0.5, BLOCK=64)
        scale[(1,)](Tensor("float16"), Tensor(), 2, 0.5, BLOCK=64)
        scale[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=128)
        scale[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64, F=shift)
        scale[(1,)](Tensor(), Tensor(), 3, 0.5, BLOCK=64)
    assert len(recording.specializations) == 6
    assert len(recording.closures) == 2


def test_a_grid_function_runs_once_for_each_launch(recorded, gpu):
    scale, calls = make_scale(), []

    def grid(meta):
        calls.append(meta["BLOCK"])
        return (triton.cdiv(meta["n"], meta["BLOCK"]),)

    with recorded() as recording:
        for _ in range(5):
            scale[grid](Tensor(), Tensor(), 100, 0.5, BLOCK=64)
    assert len(calls) == 5
    assert [launch for _, launch in gpu.launched] == [(2, 1, 1)] * 5
    digest, _ = one(recording)
    assert recording.samples[digest] == [{"grid": [2], "values": [["n", 100]]}]


def test_a_warm_up_is_no_launch(recorded):
    scale = make_scale()
    with recorded() as recording:
        scale.warmup(Tensor(), Tensor(), 2, 0.5, BLOCK=64, grid=(1,))
        scale.warmup(Tensor(), Tensor(), 2, 0.5, BLOCK=64, grid=(1,))
    digest, _ = one(recording)
    assert recording.warmups == {digest}
    assert recording.launches(digest) == 0
    assert recording.to_build() == [digest]


@pytest.mark.parametrize("first", ["warmup", "launch"])
def test_a_launch_counts_whenever_the_warm_up_is(recorded, first):
    scale = make_scale()
    with recorded() as recording:
        if first == "warmup":
            scale.warmup(Tensor(), Tensor(), 2, 0.5, BLOCK=64, grid=(1,))
        scale[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64)
        scale.warmup(Tensor(), Tensor(), 2, 0.5, BLOCK=64, grid=(1,))
    digest, _ = one(recording)
    assert recording.warmups == set()
    assert recording.launches(digest) == 1


@pytest.mark.parametrize("how", ["warmup", "launch"])
def test_launches_of_a_compiled_kernel_count(recorded, gpu, how):
    scale = make_scale()
    args = Tensor(), Tensor(), 2, 0.5, 64, None
    with recorded() as recording:
        kernel = scale.warmup(*args, grid=(1,)) if how == "warmup" else scale[(1,)](*args)
        for number in range(3):
            kernel[number + 5, 1, 1](*args)
    digest, _ = one(recording)
    assert recording.launches(digest) == 3 + (how == "launch")
    assert {"grid": [5, 1, 1], "values": [["n", 2]]} in recording.samples[digest]
    assert recording.warmups == set()
    assert gpu.launched[-1] == ("scale", (7, 1, 1))


def test_a_compiled_kernel_of_nobody_is_a_problem(recorded, gpu):
    scale = make_scale()
    kernel = gpu.compile(triton.compiler.ASTSource(scale, {}, {}, {}))
    with recorded() as recording:
        kernel[1, 1, 1]()
        kernel[1, 1, 1]()
    ((what, where),) = recording.problems
    assert "triton.compile" in what
    assert where.endswith("scale")


def test_kernels_from_before_the_recording_are_recorded(recorded):
    scale = make_scale()

    def launch():
        return scale[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64)

    launch()
    with recorded() as recording:
        launch()
        launch()
    digest, _ = one(recording)
    assert recording.launches(digest) == 2


def test_devices_of_one_arch_share_a_specialization(recorded, gpu):
    scale = make_scale()
    with recorded() as recording:
        for gpu.device in (0, 1, 1):
            scale[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64)
    digest, _ = one(recording)
    assert recording.launches(digest) == 3


def test_a_failed_compile_is_no_specialization(recorded, gpu):
    scale = make_scale()
    gpu.broken.add("scale")
    with recorded() as recording:
        with pytest.raises(RuntimeError, match="cannot compile"):
            scale[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64)
        shifted = make_tuned(configs=[triton.Config({"BLOCK": 16})])
        shifted[(1,)](Tensor(), Tensor(), 2)
    _, found = one(recording)
    assert found["qualname"].endswith("tuned")


def test_gluon_kernels_are_recorded(recorded):
    from triton.experimental.gluon import language as gl

    @gluon.jit
    def copy(x, n, BLOCK: gl.constexpr):
        pass

    with recorded() as recording:
        copy[(1,)](Tensor(), 2, BLOCK=64)
    _, found = one(recording)
    assert recording.closures[found["closure"]]["definitions"][0]["kind"] == "gluon"


def test_heuristics_and_autotuners_end_in_the_values_that_they_choose(recorded):
    @triton.autotune(configs=[triton.Config({"BLOCK": 16}, num_stages=2)], key=[])
    @triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    @triton.jit
    def kernel(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        pass

    with recorded() as recording:
        kernel[(1,)](Tensor(), 32)
    _, found = one(recording)
    assert found["constexprs"] == [["BLOCK", 16], ["EVEN", True]]
    assert ["num_stages", 2] in found["options"]
    # one config is no choice
    assert recording.winners == []


def test_an_autotuners_trials_are_no_launches_and_its_choice_is_a_winner(recorded):
    tuned = make_tuned()
    with recorded() as recording:
        for _ in range(3):
            tuned[(1,)](Tensor(), Tensor(), 100)
    assert len(recording.specializations) == 3
    (built,) = recording.to_build()
    assert recording.specializations[built]["constexprs"] == [["BLOCK", 64]]
    assert recording.launches(built) == 3
    assert len(recording.trials) == 2
    assert all(recording.launches(digest) == 0 for digest in recording.trials)
    (winner,) = recording.winners
    assert winner["key"] == [["n", 100], ["x.dtype", "float32"], ["y.dtype", "float32"]]
    assert winner["config"] == {
        "kwargs": [["BLOCK", 64]],
        "options": [["num_ctas", 1], ["num_stages", 3], ["num_warps", 2]],
    }
    assert winner["time_ns"] == 125_000
    assert winner["closure"] == recording.specializations[built]["closure"]


def test_every_key_has_a_winner(recorded):
    tuned = make_tuned()
    with recorded() as recording:
        for n in (100, 200, 100, 300):
            tuned[(1,)](Tensor(), Tensor(), n)
    assert sorted(winner["key"][0][1] for winner in recording.winners) == [100, 200, 300]


def test_a_key_of_any_object_has_its_text(recorded):
    configs = [triton.Config({"BLOCK": block}) for block in (16, 32)]

    @triton.autotune(configs=configs, key=["kind"])
    @triton.jit
    def tuned(x, kind: tl.constexpr, BLOCK: tl.constexpr):
        pass

    with recorded() as recording:
        tuned[(1,)](Tensor(), Odd(3))
    assert recording.winners[0]["key"] == [["kind", "Odd(3)"], ["x.dtype", "float32"]]


def test_a_choice_from_before_the_recording_is_a_winner_once_it_is_used(recorded):
    tuned = make_tuned()
    for n in (100, 200):
        tuned[(1,)](Tensor(), Tensor(), n)
    with recorded() as recording:
        tuned[(1,)](Tensor(), Tensor(), 100)
    assert [winner["key"][0] for winner in recording.winners] == [["n", 100]]
    # what was timed may be another key's
    assert len(recording.specializations) == 1


def test_a_trial_of_another_thread_does_not_hide_a_launch(recorded, gpu):
    scale, tuned = make_scale(), make_tuned()
    benchmark = gpu.get_benchmarker()

    def slow(call, quantiles):
        other = threading.Thread(target=lambda: scale[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64))
        other.start()
        other.join()
        return benchmark(call, quantiles)

    gpu.get_benchmarker = lambda: slow
    with recorded() as recording:
        tuned[(1,)](Tensor(), Tensor(), 100)
    launches = {found["qualname"].rpartition(".")[2]: 0 for found in recording.specializations.values()}
    for digest, found in recording.specializations.items():
        launches[found["qualname"].rpartition(".")[2]] += recording.launches(digest)
    assert launches == {"scale": 3, "tuned": 1}


def test_the_listener_of_autotuning_stays(recorded):
    heard = []
    knobs = triton.knobs.autotuning
    if not hasattr(knobs, "listener"):
        pytest.skip("since Triton 3.8")
    with knobs.scope():
        knobs.listener = lambda **facts: heard.append(facts["best_config"])
        with recorded():
            make_tuned()[(1,)](Tensor(), Tensor(), 100)
    assert len(heard) == 1


class Odd:
    def __init__(self, size):
        self.size = size

    def __repr__(self):
        return f"Odd({self.size})"


def test_a_constexpr_that_no_bundle_holds_is_a_problem_once(recorded, gpu):
    scale, odd = make_scale(), Odd(3)
    with recorded() as recording:
        for _ in range(3):
            scale[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=odd)
        scale[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64)
    ((what, where),) = recording.problems
    assert "got Odd" in what
    assert "BLOCK" in what
    assert where.endswith("scale")
    assert len(gpu.launched) == 4
    assert len(recording.specializations) == 1


def test_a_pass_of_the_program_is_a_problem(recorded, monkeypatch):
    runtime = triton.knobs.runtime
    if not hasattr(runtime, "add_stages_inspection_hook"):
        pytest.skip("of a newer Triton")
    with recorded() as recording, runtime.scope():
        runtime.add_stages_inspection_hook = lambda *_: ("key", "hash")
        make_scale()[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64)
    assert recording.specializations == {}
    assert "add_stages_inspection_hook" in recording.problems[0][0]


def test_a_failure_of_the_recorder_is_a_problem_and_the_program_goes_on(recorded, gpu, monkeypatch):
    def fail(*_args):
        raise ZeroDivisionError("of the recorder")

    monkeypatch.setattr("nojit.runtime.recording.recorder.capture", fail)
    with recorded() as recording:
        make_scale()[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64)
    assert recording.problems[0][0] == "ZeroDivisionError: of the recorder"
    assert len(gpu.launched) == 1


def test_a_source_that_cannot_be_read_is_a_problem(recorded, gpu, monkeypatch):
    def fail(*_args):
        raise OSError("could not get source code")

    monkeypatch.setattr("nojit.runtime.recording.recorder.capture", fail)
    with recorded() as recording:
        make_scale()[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64)
    ((what, where),) = recording.problems
    assert what == "expected a kernel whose source can be read, got: could not get source code"
    assert where.endswith("scale")


def test_a_recording_that_cannot_be_written_stops_with_one_line(gpu, tmp_path, monkeypatch, capsys):
    def fail(*_args):
        raise OSError(28, "No space left on device")

    scale = make_scale()
    running = session.record(tmp_path / "x.nojitrec")
    monkeypatch.setattr("nojit.runtime.recording.file.os.write", fail)
    for n in (2, 3, 16):
        scale[(1,)](Tensor(), Tensor(), n, 0.5, BLOCK=64)
    monkeypatch.undo()
    running._end()
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("nojit: recording stopped: expected to write to the recording")
    assert "No space left on device" in first


def test_the_end_of_a_recording_gives_triton_its_functions_back(recorded):
    places = [
        (jit, "compute_cache_key"),
        (CompiledKernel, "launch_metadata"),
        (Autotuner, "run"),
        (Autotuner, "_bench"),
    ]
    before = [getattr(owner, name) for owner, name in places]
    with recorded():
        assert all(getattr(owner, name) is not own for (owner, name), own in zip(places, before, strict=True))
        make_scale()[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64)
    assert [getattr(owner, name) for owner, name in places] == before


def test_a_hook_that_somebody_put_over_ours_stays(recorded, monkeypatch):
    scale, seen = make_scale(), []
    with recorded() as recording:
        ours = jit.compute_cache_key

        def theirs(*args):
            seen.append(args)
            return ours(*args)

        monkeypatch.setattr(jit, "compute_cache_key", theirs)
        scale[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64)
    scale[(1,)](Tensor(), Tensor(), 16, 0.5, BLOCK=64)
    assert jit.compute_cache_key is theirs
    assert len(seen) == 2
    assert len(recording.specializations) == 1


def test_two_recordings_at_once_hold_the_same(gpu, tmp_path):
    scale = make_scale()
    with nojit.record(tmp_path / "a.nojitrec"):
        scale[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64)
        with nojit.record(tmp_path / "b.nojitrec"):
            scale[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64)
    a, b = (read_recording(tmp_path / f"{name}.nojitrec") for name in "ab")
    assert a.specializations == b.specializations
    (digest,) = a.specializations
    assert (a.launches(digest), b.launches(digest)) == (2, 1)


def test_functions_that_are_gone_are_forgotten(recorded):
    with recorded() as recording:
        for _ in range(3):
            scale = make_scale()
            scale[(1,)](Tensor(), Tensor(), 2, 0.5, BLOCK=64)
            # the registry of Triton 3.9 holds the last one of a name
            del scale
            gc.collect()
    digest, _ = one(recording)
    assert recording.launches(digest) == 3


def test_a_recording_without_launches_is_an_error(gpu, tmp_path: Path):
    with pytest.raises(RecordingError, match="nothing was recorded"), nojit.record(tmp_path / "x.nojitrec"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_failure_of_the_block_is_what_the_caller_sees(gpu, tmp_path: Path, capsys):
    with pytest.raises(ZeroDivisionError), nojit.record(tmp_path / "x.nojitrec"):
        raise ZeroDivisionError
    assert "nothing was recorded" in capsys.readouterr().err


def test_another_triton_is_refused_by_name(gpu, tmp_path: Path, monkeypatch):
    monkeypatch.delattr(jit, "compute_cache_key")
    with pytest.raises(RecordingError, match=r"Triton 3\.6 to 3\.9.*without compute_cache_key"):
        nojit.record(tmp_path / "x.nojitrec")
    assert list(tmp_path.iterdir()) == []


def test_the_interpreter_is_refused_by_name(gpu, tmp_path: Path):
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.interpret = True
        with pytest.raises(RecordingError, match="unset TRITON_INTERPRET"):
            nojit.record(tmp_path / "x.nojitrec")


def test_operators_of_torch_are_recorded(recorded):
    torch = pytest.importorskip("torch")
    scale = make_scale()

    @torch.library.triton_op("nojit_test::scaled", mutates_args={})
    def scaled(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        torch.library.wrap_triton(scale)[(1,)](x, y, x.numel(), 0.5, BLOCK=64)
        return y

    with recorded() as recording:
        scaled(torch.ones(8))
    _, found = one(recording)
    assert found["types"][0] == ["x", "*fp32"]


def test_tuples_give_their_ints_to_samples(recorded):
    @triton.jit
    def kernel(x, sizes, BLOCK: tl.constexpr):
        pass

    with recorded() as recording:
        kernel[(1,)](Tensor(), (7, (8, 9)), BLOCK=64)
    digest, _ = one(recording)
    assert recording.samples[digest][0]["values"] == [["sizes.0", 7], ["sizes.1.0", 8], ["sizes.1.1", 9]]


def test_what_inductor_selects_is_recorded(recorded, monkeypatch, tmp_path):
    pytest.importorskip("torch")
    from torch._inductor import config as settings
    from torch._inductor.runtime import triton_helpers

    from tests.runtime.recording.programs.generated import load, pointwise

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setattr(triton_helpers, "set_driver_to_gpu", lambda: None)
    with settings.patch(use_static_triton_launcher=False), recorded() as recording:
        tuner = load(pointwise())
        tuner._precompile_config(tuner.configs[0])

        def launcher(in_ptr0, out_ptr0, xnumel, stream):
            del in_ptr0, out_ptr0, xnumel, stream

        launcher.config, launcher.cache_hash, launcher.store_cubin = tuner.configs[0], "", False
        tuner.configs[0].found_by_coordesc = True
        tuner.launchers = [launcher]
        for _ in range(3):
            tuner.run("in", "out", 5, stream=0)
    digest, found = one(recording)
    assert (found["module"], found["arch"]) == ("torch._inductor", "sm_90")
    assert recording.to_build() == [digest]
    (winner,) = recording.winners
    assert winner["config"]["kwargs"] == [["XBLOCK", tuner.configs[0].kwargs["XBLOCK"]]]
    assert winner["closure"] == found["closure"]
    assert recording.launches(digest) == 3
    assert [(each["grid"], each["values"]) for each in recording.samples[digest]] == [([1, 1, 1], [["xnumel", 5]])]
    assert recording.problems == []
