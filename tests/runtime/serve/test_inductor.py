"""Kernels that torch.compile generates: recorded from Inductor's autotuner, and launched from a bundle without a compile."""

import json
import threading

import pytest
import torch._inductor.config as settings
import triton
from nojit.aot.compile.triton.closures import functions_of
from nojit.runtime.recording import generated_kernels, inductor_hooks
from nojit.runtime.recording.closure import digest_of
from nojit.runtime.recording.drift import drift_of, fingerprint
from nojit.runtime.recording.winner_spelling import config_by_name
from nojit.runtime.serve import inductor
from torch._inductor.runtime import triton_helpers, triton_heuristics
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.runtime.recording.programs.generated import Kernel, Told, compiled, load, pointwise

pytestmark = pytest.mark.triton


@pytest.fixture(autouse=True)
def no_driver(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setattr(triton_helpers, "set_driver_to_gpu", lambda: None)
    with settings.patch(use_static_triton_launcher=False):
        yield


class Server:
    def __init__(self, known):
        self.known = known

    def generated(self, function, key):
        del function
        return self.known.get(key)


def test_a_key_depends_on_no_device_and_no_path():
    first, second = load(pointwise(device=0, count=132)), load(pointwise(device=3, count=114))
    assert first.filename != second.filename
    assert generated_kernels.key_of(first) == generated_kernels.key_of(second)
    assert digest_of(generated_kernels.capture_generated(first.fn)) == digest_of(
        generated_kernels.capture_generated(second.fn)
    )


def test_another_constant_in_the_text_is_another_closure():
    known = fingerprint(generated_kernels.capture_generated(load(pointwise(constant=1.0)).fn))
    assert not drift_of(load(pointwise(constant=1.0)).fn, known)
    assert "source text" in drift_of(load(pointwise(constant=2.0)).fn, known)


def test_a_specialization_is_what_inductor_compiled():
    autotuner = load(pointwise())
    config, source, options = compiled(autotuner)
    found = generated_kernels.read_generated(autotuner.fn, source, options, arch="sm_90", closure="c")
    assert (found["module"], found["qualname"]) == ("torch._inductor", "triton_poi_fused_tanh_0")
    assert found["types"] == [["in_ptr0", "*fp32"], ["out_ptr0", "*fp32"], ["xnumel", "i32"]]
    assert found["hints"] == [["in_ptr0", 16], ["out_ptr0", 16]]
    assert found["constexprs"] == [["XBLOCK", config.kwargs["XBLOCK"]]]
    assert dict(found["options"])["sanitize_overflow"] is False
    assert json.loads(json.dumps(found)) == found


def test_a_closure_of_a_generated_kernel_compiles_to_inductors_machine_code():
    autotuner = load(pointwise())
    _, source, options = compiled(autotuner)
    made = functions_of(generated_kernels.capture_generated(autotuner.fn), "recording")[0]
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.disable_line_info = True
        triton.knobs.compilation.always_compile = True
        images = [
            triton.compile(
                ASTSource(function, source.signature, source.constants, source.attrs),
                target=GPUTarget("cuda", 90, 32),
                options=options,
            ).asm["cubin"]
            for function in (autotuner.fn, made)
        ]
    assert images[0] == images[1]


def test_a_recorded_kernel_is_launched_with_inductors_grid_and_nothing_is_compiled(monkeypatch):
    autotuner = load(pointwise())
    recorded = config_by_name(autotuner.configs[0])
    key, block = generated_kernels.key_of(autotuner), autotuner.configs[0].kwargs["XBLOCK"]
    kernel = Kernel()
    end = inductor.install(Server({key: inductor.Generated(kernel, recorded, {"num_warps": recorded["num_warps"]})}))
    monkeypatch.setattr(triton, "compile", None)
    try:
        from torch._inductor.async_compile import AsyncCompile

        served = AsyncCompile().triton("triton_poi_fused_tanh_0", pointwise(device=0, count=1))
        served.run("in", "out", 5000, stream=7)
        served.run("in", "out", 100, stream=8)
    finally:
        end()
    assert [each.grid for each in kernel.launches] == [(-(-5000 // block), 1, 1), (1, 1, 1)]
    assert [each.args for each in kernel.launches] == [("in", "out", 5000), ("in", "out", 100)]
    assert kernel.launches[0].kwargs == {"stream": 7, "XBLOCK": block, "num_warps": recorded["num_warps"]}


def test_a_config_that_tuning_found_is_taken_although_the_autotuner_does_not_list_it():
    autotuner = load(pointwise())
    recorded = {"XBLOCK": 2048, "num_warps": 2, "num_ctas": 1, "num_stages": 1}
    kernel = Kernel()
    end = inductor.install(Server({generated_kernels.key_of(autotuner): inductor.Generated(kernel, recorded, {})}))
    try:
        autotuner.precompile()
        autotuner.run("in", "out", 5000, stream=7)
    finally:
        end()
    assert kernel.launches[0].grid == (3, 1, 1)
    assert kernel.launches[0].kwargs["XBLOCK"] == 2048
    assert autotuner.launchers[0].config.num_warps == 2


def test_without_a_recording_inductor_goes_on_alone():
    autotuner = load(pointwise())
    end = inductor.install(Server({}))
    ran = []
    try:
        autotuner._precompile_worker = lambda: ran.append("compiled")
        autotuner.compile_results = []
        autotuner._make_launchers = lambda: ran.append("launchers")
        autotuner._dynamic_scale_rblock = lambda: None
        autotuner.precompile()
    finally:
        end()
    assert ran == ["compiled", "launchers"]


def test_threads_compile_in_this_process_too():
    def seen():
        found = []
        thread = threading.Thread(target=lambda: found.append(settings.compile_threads))
        thread.start()
        thread.join()
        return found[0]

    before = seen()
    for begin in (lambda: inductor.install(Server({})), lambda: inductor_hooks.watch(Told())):
        end = begin()
        assert seen() == 1
        end()
    assert seen() == before


def test_the_end_restores_inductor_and_its_settings():
    before = (triton_heuristics.CachingAutotuner.precompile, triton_helpers.set_driver_to_gpu, settings.compile_threads)
    inductor.install(Server({}))()
    after = (triton_heuristics.CachingAutotuner.precompile, triton_helpers.set_driver_to_gpu, settings.compile_threads)
    assert before == after
    compile_before, run_before = triton.compile, triton_heuristics.CachingAutotuner.run
    inductor_hooks.watch(Told())()
    assert (triton.compile, triton_heuristics.CachingAutotuner.run) == (compile_before, run_before)


def test_two_servers_may_end_in_any_order():
    tuner = triton_heuristics.CachingAutotuner
    before, autotuner = (tuner.precompile, triton_helpers.set_driver_to_gpu), load(pointwise())
    recorded = inductor.Generated(Kernel(), {"XBLOCK": 2048, "num_warps": 2, "num_ctas": 1, "num_stages": 1}, {})
    end_first = inductor.install(Server({generated_kernels.key_of(autotuner): recorded}))
    end_second = inductor.install(Server({}))
    end_first()
    asked = []
    autotuner._precompile_worker = lambda: asked.append("compiled")
    autotuner.compile_results = []
    autotuner._make_launchers = lambda: None
    autotuner._dynamic_scale_rblock = lambda: None
    autotuner.precompile()
    assert asked == ["compiled"], "the first server serves no more"
    end_second()
    # what the second one put back was the first one's, which has ended
    tuner.precompile(autotuner)
    assert asked == ["compiled", "compiled"]
    tuner.precompile, triton_helpers.set_driver_to_gpu = before


def test_who_replaced_inductors_functions_later_keeps_its_own():
    tuner = triton_heuristics.CachingAutotuner
    before = tuner.precompile
    end = inductor.install(Server({}))

    def theirs(self):
        return None

    tuner.precompile = theirs
    end()
    assert tuner.precompile is theirs
    tuner.precompile = before


def test_two_watches_may_end_in_any_order():
    before, autotuner, first, second = settings.compile_threads, load(pointwise()), Told(), Told()
    ends = [inductor_hooks.watch(told) for told in (first, second)]
    config = autotuner.configs[0]
    autotuner._precompile_config(config)
    ends[0]()
    assert settings.compile_threads == 1
    with_launcher(autotuner, config)
    autotuner.run("in", "out", 5, stream=0)
    ends[1]()
    assert (len(first.won), len(second.won)) == (0, 1)
    assert settings.compile_threads == before
    autotuner.run("in", "out", 5, stream=0)
    assert (len(second.launches), second.failures) == (1, [])


def with_launcher(autotuner, config):
    """Give an autotuner a launcher that does nothing, as if Inductor had selected a config."""

    def launcher(in_ptr0, out_ptr0, xnumel, stream):
        del in_ptr0, out_ptr0, xnumel, stream

    launcher.config, launcher.cache_hash, launcher.store_cubin = config, "", False
    config.found_by_coordesc = True
    autotuner.launchers = [launcher]
    return autotuner


def test_the_winner_is_told_once_and_launches_at_powers_of_two():
    autotuner, told = load(pointwise()), Told()
    config = autotuner.configs[0]
    end = inductor_hooks.watch(told)
    try:
        autotuner._precompile_config(config)
        with_launcher(autotuner, config)
        for _ in range(5):
            autotuner.run("in", "out", 5000, stream=0)
    finally:
        end()
    ((known, _, _, won, names),) = told.won
    assert (known, won, names) == (autotuner, config, ("in_ptr0", "out_ptr0", "xnumel"))
    grid = (-(-5000 // config.kwargs["XBLOCK"]), 1, 1)
    assert told.launches == [(number, grid, ("in", "out", 5000)) for number in (1, 2, 4)]
    assert told.failures == []


def test_a_second_watch_is_told_of_a_kernel_that_the_first_saw_compiled():
    autotuner = load(pointwise())
    config, first, second = autotuner.configs[0], Told(), Told()
    for told in (first, second):
        end = inductor_hooks.watch(told)
        try:
            if told is first:
                autotuner._precompile_config(config)
                with_launcher(autotuner, config)
            autotuner.run("in", "out", 5, stream=0)
        finally:
            end()
    assert [len(each.won) for each in (first, second)] == [1, 1]


def test_a_kernel_that_was_compiled_before_the_watch_is_lacking():
    autotuner, told = load(pointwise()), Told()
    with_launcher(autotuner, autotuner.configs[0])
    end = inductor_hooks.watch(told)
    try:
        autotuner.run("in", "out", 5, stream=0)
        autotuner.run("in", "out", 5, stream=0)
    finally:
        end()
    ((function, what),) = told.lacks
    assert function is autotuner.fn
    assert "start to record before" in what
    assert told.launches == []
