"""Serving this process: policies, hostile calls, and the way back."""

from __future__ import annotations

import importlib.util
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import triton
import triton.language as tl
from nojit import runtime
from nojit.runtime import loader
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import (
    ArgumentError,
    BundleError,
    CompileError,
    NoMatchingVariantError,
    SettingError,
)
from nojit.runtime.fallback.policy import MissWarning
from nojit.runtime.recording.closure import capture
from nojit.runtime.recording.drift import fingerprint
from nojit.runtime.recording.origins import Origins
from nojit.runtime.serve import kernel_lookup, session
from nojit.runtime.serve.hosts import ATTRIBUTE
from triton.compiler.compiler import ASTSource
from triton.runtime import autotuner, build, jit

from tests.fakecuda import FakeCuda
from tests.runtime.serve.conftest import Recorded, Serve
from tests.runtime.serve.programs import kernels
from tests.support.bundles import kernel, make_bundle
from tests.support.tensors import PointerTensor

pytestmark = pytest.mark.triton
Tensors = list[PointerTensor]


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch, default_stream: None) -> None:
    """Let Triton have no driver of its own."""
    monkeypatch.setattr(triton.runtime.driver, "_active", None)
    monkeypatch.setattr(triton.runtime.driver, "_default", None)


@pytest.fixture
def original(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Replace what Triton would do with a missed call by a list of such calls."""
    calls: list[tuple[Any, ...]] = []

    def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> str:
        calls.append((function, args, grid, warmup, kwargs))
        return "compiled"

    monkeypatch.setattr(jit.JITFunction, "run", run)
    return calls


def counts_of(name: str) -> tuple[int, int, int]:
    """Return launches, misses and nearest configs of the last served function of a name."""
    found = [each for each in runtime.counters().served if each.function.endswith(f":{name}")]
    return found[-1].launches, found[-1].misses, found[-1].nearest_configs


# -- calls that nothing serves


def test_a_function_without_a_kernel_names_itself_and_the_command(served: Serve, tensors: Tensors) -> None:
    served()
    with pytest.raises(NoMatchingVariantError) as caught:
        kernels.unrecorded[(1,)](tensors[0], BLOCK=16)
    message = str(caught.value)
    assert "no bundle has a kernel of tests.runtime.serve.programs.kernels:unrecorded" in message
    assert "nojit record" in message
    assert counts_of("unrecorded") == (0, 1, 0)


@pytest.mark.parametrize(
    ("arguments", "named", "difference"),
    [
        ((4096,), {"BLOCK": 128}, "BLOCK is 64"),
        ((4096,), {"num_warps": 2}, "num_warps is 4"),
        ((4096,), {"num_ctas": 2}, "num_ctas is 1"),
        ((4096,), {"maxnreg": 32}, "maxnreg"),
        ((4096,), {"launch_pdl": True}, "no recorded call passed the option launch_pdl, got launch_pdl=True"),
        ((4096,), {"nonsense": 3}, "no recorded call passed the option nonsense"),
        ((4096.0,), {}, "n: expected"),
        ((None,), {}, "n: expected"),
    ],
)
def test_another_call_says_what_differs(
    served: Serve, tensors: Tensors, arguments: tuple[Any, ...], named: dict[str, Any], difference: str
) -> None:
    served()
    with pytest.raises(NoMatchingVariantError) as caught:
        kernels.add[(4,)](*tensors, *arguments, **named)
    message = str(caught.value)
    assert difference in message
    assert "kernels:add was recorded, but not this call of it" in message
    assert "nojit record" in message
    assert "manifest" not in message
    assert counts_of("add") == (0, 1, 0)


def test_options_with_tritons_defaults_are_no_difference(served: Serve, tensors: Tensors) -> None:
    served()
    kernels.add[(4,)](*tensors, 4096, num_warps=4, num_stages=3, num_ctas=1, enable_fp_fusion=True, debug=False)
    assert counts_of("add") == (1, 0, 0)


def test_a_kernel_of_which_nothing_was_built_is_a_miss_that_says_so(
    recorded: Recorded, fakecuda: FakeCuda, tensors: Tensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_another(file: BundleFile) -> Origins:
        known = origins_of(file)
        closure = capture(kernels.unrecorded)
        more = {"kernel": "unrecorded", "qualname": "unrecorded", "fingerprint": fingerprint(closure)}
        return replace(known, kernels=(*known.kernels, replace(known.kernels[0], **more)))

    origins_of = kernel_lookup._origins_of
    monkeypatch.setattr(kernel_lookup, "_origins_of", with_another)
    with session.serve(recorded.bundle, miss="error"):
        with pytest.raises(NoMatchingVariantError, match=r"kernels:unrecorded was recorded, but the build left it out"):
            kernels.unrecorded[(1,)](tensors[0], BLOCK=16)
        kernels.add[(4,)](*tensors, 4096)


def test_another_dtype_is_a_miss(served: Serve, tensors: Tensors) -> None:
    served()
    half = PointerTensor(0x10000, "torch.float16")
    with pytest.raises(NoMatchingVariantError, match="x_ptr"):
        kernels.add[(4,)](half, *tensors[1:], 4096)


def test_a_tensor_in_host_memory_stays_an_argument_error(served: Serve, tensors: Tensors) -> None:
    served()
    host = PointerTensor(0x10000, "torch.float32", device="cpu")
    with pytest.raises(ArgumentError, match="CUDA tensor"):
        kernels.add[(4,)](host, *tensors[1:], 4096)


def test_another_arch_names_both(served: Serve, tensors: Tensors, fakecuda: FakeCuda) -> None:
    fakecuda.set_devices(80)
    served()
    with pytest.raises(NoMatchingVariantError, match="device is sm_80: nojit build --arch sm_80"):
        kernels.add[(4,)](*tensors, 4096)


def test_another_version_of_triton_names_both(served: Serve, tensors: Tensors, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = triton.__version__
    monkeypatch.setattr(triton, "__version__", "3.7.0")
    served()
    with pytest.raises(NoMatchingVariantError, match=f"recorded with Triton {recorded}, and this process has 3.7.0"):
        kernels.add[(4,)](*tensors, 4096)


def test_a_build_of_the_recorded_version_is_no_other_version(
    served: Serve, tensors: Tensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton, "__version__", f"{triton.__version__}+git1234")
    served()
    kernels.add[(4,)](*tensors, 4096)


# -- drift


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., ModuleType]:
    """Import the program's kernels under their own name, with a change of the text."""

    def load(old: str, new: str) -> ModuleType:
        text = Path(kernels.__file__).read_text(encoding="utf-8")
        assert old in text
        path = tmp_path / "kernels.py"
        path.write_text(text.replace(old, new), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(kernels.__name__, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_an_unchanged_copy_of_the_source_is_served(
    served: Serve, tensors: Tensors, edited: Callable[..., ModuleType]
) -> None:
    served()
    edited("A program's kernels", "The kernels of a program").add[(4,)](*tensors, 4096)


def test_a_drifted_kernel_is_never_launched(
    served: Serve, tensors: Tensors, edited: Callable[..., ModuleType], fakecuda: FakeCuda
) -> None:
    served()
    changed = edited("tl.load(x_ptr + offs, mask=mask) + tl.load", "tl.load(x_ptr + offs, mask=mask) - tl.load")
    with pytest.raises(NoMatchingVariantError) as caught:
        changed.add[(4,)](*tensors, 4096)
    message = str(caught.value)
    assert "kernels:add is not the function that was recorded" in message
    assert "the source text of tests.runtime.serve.programs.kernels:add differs (recorded closure " in message
    assert fakecuda.launch_count() == 0


def test_a_drifted_function_among_the_constexprs_is_a_miss(
    served: Serve, tensors: Tensors, edited: Callable[..., ModuleType], fakecuda: FakeCuda
) -> None:
    served()
    changed = edited("return x * 2", "return x * 4")
    given = {"DTYPE": tl.float16, "BLOCK": 16}
    kernels.apply[(1,)](tensors[0], 1.5, FN=kernels.scaled, **given)
    with pytest.raises(
        NoMatchingVariantError, match=r"constexpr .*kernels:scaled is another function than the recorded"
    ):
        kernels.apply[(1,)](tensors[0], 1.5, FN=changed.scaled, **given)
    with pytest.raises(NoMatchingVariantError, match="FN"):
        kernels.apply[(1,)](tensors[0], 1.5, FN=kernels.add, **given)
    assert fakecuda.launch_count() == 1


# -- policies


@pytest.mark.parametrize("miss", ["jit", "warn"])
def test_other_policies_let_triton_run_a_miss(original: list[Any], served: Serve, tensors: Tensors, miss: str) -> None:
    served(miss=miss)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MissWarning)
        for _ in range(2):
            assert kernels.add[(4,)](*tensors, 4096, num_warps=2) == "compiled"
            assert kernels.unrecorded[(1,)](tensors[0], BLOCK=16) == "compiled"
    function, args, grid, warmup, kwargs = original[0]
    assert (function, grid, warmup, kwargs) == (kernels.add, (4,), False, {"num_warps": 2})
    assert args == (*tensors, 4096)
    assert len(original) == 4
    warned = [str(each.message) for each in caught if each.category is MissWarning]
    assert len(warned) == (2 if miss == "warn" else 0)
    assert counts_of("add") == (0, 2, 0)


def test_a_warning_names_the_line_of_the_call(original: list[Any], served: Serve, tensors: Tensors) -> None:
    served(miss="warn")
    with pytest.warns(MissWarning, match="kernels:add") as caught:
        kernels.add[(4,)](*tensors, 4096, num_warps=2)
    assert caught[0].filename == __file__
    with pytest.warns(MissWarning, match="unrecorded") as caught:
        kernels.unrecorded[(1,)](tensors[0], BLOCK=16)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "decorate",
    [
        triton.autotune(configs=[triton.Config({"BLOCK": 16})], key=[]),
        triton.heuristics({"BLOCK": lambda _: 16}),
        lambda function: triton.autotune(configs=[triton.Config({})], key=[])(
            triton.heuristics({"BLOCK": lambda _: 16})(function)
        ),
    ],
    ids=["autotuner", "heuristics", "both"],
)
def test_a_warning_names_the_line_of_a_call_through_decorators(
    original: list[Any], served: Serve, tensors: Tensors, decorate: Callable[[Any], Any]
) -> None:
    served(miss="warn")
    with pytest.warns(MissWarning, match="unrecorded") as caught:
        decorate(kernels.unrecorded)[(1,)](tensors[0])
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("name", "compile_it"),
    [
        ("triton.compile", lambda: triton.compile(None)),
        ("triton.compile", lambda: triton.compiler.compile(None)),
        ("triton.JITFunction._do_compile", lambda: kernels.add._do_compile(*[None] * 7)),
        ("triton.compiler.ASTSource", lambda: ASTSource(kernels.add, {})),
        ("triton.runtime.build._build", lambda: build._build("x", "x.c", ".", [], [], [], [])),
        # what calls it, which older versions name otherwise
        (
            "triton.runtime.build._build",
            lambda: getattr(build, "compile_so_from_src", getattr(build, "compile_module_from_src", None))(
                "int x;", "unique_name"
            ),
        ),
        ("ptxas", lambda: triton.backends.backends["nvidia"].compiler.make_cubin(None, "", {}, None, 90)),
    ],
)
def test_compiling_is_an_error_with_its_name(
    served: Serve, name: str, compile_it: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    serving = served()
    with pytest.raises(CompileError, match=name):
        compile_it()
    serving.close()
    failures: list[Exception] = []
    try:
        compile_it()
    except Exception as error:  # noqa: BLE001 - Triton's own errors, now that it runs
        failures.append(error)
    assert not any(isinstance(each, CompileError) for each in failures)


def test_a_policy_that_compiles_refuses_nothing(served: Serve) -> None:
    served(miss="jit")
    assert ASTSource(kernels.add, {}).name == "add"


# -- autotuners


def test_an_unrecorded_key_takes_the_nearest_config_and_is_counted(
    served: Serve, tensors: Tensors, fakecuda: FakeCuda
) -> None:
    served()
    kernels.tuned[(1,)](tensors[0], 64)
    near = kernels.tuned.best_config
    kernels.tuned[(1,)](tensors[0], 80)
    assert kernels.tuned.best_config is near
    kernels.tuned[(1,)](tensors[0], 1 << 14)
    assert kernels.tuned.best_config is not near
    assert counts_of("tuned") == (3, 0, 2)


def test_an_autotuner_without_a_near_winner_is_a_miss_and_times_nothing(served: Serve, tensors: Tensors) -> None:
    served()
    half = PointerTensor(0x10000, "torch.float16")
    with pytest.raises(NoMatchingVariantError, match=r"no recorded choice of .*kernels:tuned's autotuner is near"):
        kernels.tuned[(1,)](half, 64)


def test_the_autotuner_has_its_own_cache_again(served: Serve, tensors: Tensors) -> None:
    before = kernels.tuned.cache
    serving = served()
    kernels.tuned[(1,)](tensors[0], 64)
    serving.close()
    assert kernels.tuned.cache is before
    assert not before


def test_warming_an_autotuner_up_prepares_the_recorded_configs(served: Serve, tensors: Tensors) -> None:
    served()
    warmed = kernels.tuned.warmup(tensors[0], 64, grid=(1,))
    assert {each.metadata.num_warps for each in warmed} < {1, 2, 4}
    assert warmed


# -- the process


def test_the_end_gives_triton_back(served: Serve, tensors: Tensors) -> None:
    def state() -> list[object]:
        return [
            *(vars(jit.JITFunction).get(name) for name in ("run", "__getitem__")),
            *(vars(autotuner.Autotuner).get(name) for name in ("run", "warmup")),
            triton.compile.__code__,
            build._build.__code__,
            ASTSource.__init__.__code__,
            triton.runtime.driver._active,
            triton.runtime.driver._default,
            [*sys.meta_path],
            vars(kernels.add).get(ATTRIBUTE),
        ]

    before = state()
    with served():
        kernels.add[(4,)](*tensors, 4096)
        assert state() != before
    assert state() == before


def test_a_start_that_fails_leaves_triton_as_it_was(served: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, code = object(), triton.compile.__code__
    monkeypatch.setattr(triton.runtime.driver, "_active", driver)
    captured = [1]
    # the last of the functions that are to refuse
    monkeypatch.setattr(build, "_build", lambda: captured)
    with pytest.raises(
        RuntimeError, match=r"expected triton\.runtime\.build\._build to be a function without captured"
    ):
        served()
    assert triton.runtime.driver._active is driver
    assert triton.compile.__code__ is code
    assert "nojit" not in vars(jit.JITFunction)["run"].__module__


def test_a_second_call_replaces_the_first(recorded: Recorded, served: Serve, tensors: Tensors) -> None:
    first = served()
    kernels.add[(4,)](*tensors, 4096)
    second = served()
    kernels.add[(4,)](*tensors, 4096)
    # the end of the first is no end of the second
    first.close()
    kernels.add[(4,)](*tensors, 4096)
    assert counts_of("add") == (2, 0, 0)
    second.close()
    assert ATTRIBUTE not in vars(kernels.add)


def test_the_driver_answers_without_compiling(served: Serve) -> None:
    served()
    driver = triton.runtime.driver.active
    assert driver.get_current_device() == 0
    assert driver.get_current_stream(0) == 0
    assert driver.get_device_capability() == (9, 0)
    assert (driver.get_current_target().backend, driver.get_current_target().arch) == ("cuda", 90)
    properties = driver.utils.get_device_properties(0)
    assert properties["multiprocessor_count"] == 132
    assert properties["max_shared_mem"] == 227 << 10
    assert {"max_num_regs", "warpSize", "sm_clock_rate", "mem_clock_rate", "mem_bus_width"} < properties.keys()
    triton.runtime.driver.reset_active()
    assert triton.runtime.driver.active is driver


def test_preloading_leaves_nothing_for_a_launch_to_load(served: Serve, tensors: Tensors) -> None:
    before = runtime.counters().loaded
    served(preload=True)
    loaded = runtime.counters().loaded
    assert loaded > before
    kernels.add[(4,)](*tensors, 4096)
    kernels.tuned[(1,)](tensors[0], 64)
    assert runtime.counters().loaded == loaded


def test_another_device_is_preloaded_before_its_first_launch(served: Serve, fakecuda: FakeCuda) -> None:
    served(preload=True)
    # once for each variant and device
    here = fakecuda.calls("cuKernelGetFunction")
    assert here > 3
    there = [PointerTensor(0x10000 * number, "torch.float32", device="cuda:1") for number in (1, 2, 3)]
    kernels.add[(4,)](*there, 4096)
    assert fakecuda.calls("cuKernelGetFunction") == 2 * here
    kernels.pair[(1,)](there[0], (PointerTensor(0x40000, "torch.float16", device="cuda:1"), 7), True)
    kernels.tuned[(1,)](there[0], 64)
    assert fakecuda.calls("cuKernelGetFunction") == 2 * here
    assert fakecuda.launch_count() == 3


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Begin a capture, as torch tells of it."""
    cuda = SimpleNamespace(
        is_initialized=lambda: True, is_current_stream_capturing=lambda: True, current_device=lambda: 0
    )
    bindings = SimpleNamespace(_cuda_getCurrentRawStream=lambda _device: 0)
    return lambda: monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, _C=bindings))


def test_loading_during_a_capture_warns(served: Serve, tensors: Tensors, capturing: Callable[[], None]) -> None:
    served()
    capturing()
    with pytest.warns(RuntimeWarning, match="kernel add is loaded while a CUDA graph is captured"):
        kernels.add[(4,)](*tensors, 4096)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        kernels.add[(4,)](*tensors, 4096)


def test_the_first_launch_of_a_preloaded_kernel_may_be_captured(
    served: Serve, tensors: Tensors, capturing: Callable[[], None]
) -> None:
    served(preload=True)
    capturing()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        kernels.add[(4,)](*tensors, 4096)
        kernels.tuned[(1,)](tensors[0], 64)


def test_preloading_a_device_during_a_capture_warns(served: Serve, capturing: Callable[[], None]) -> None:
    served(preload=True)
    capturing()
    there = [PointerTensor(0x10000 * number, "torch.float32", device="cuda:1") for number in (1, 2, 3)]
    with pytest.warns(RuntimeWarning, match=r"all kernels are loaded while .*: before the capture call preload\(\)"):
        kernels.add[(4,)](*there, 4096)


def test_threads_share_one_handle(served: Serve, tensors: Tensors, fakecuda: FakeCuda) -> None:
    served()
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        for _ in range(20):
            kernels.add[(4,)](*tensors, 4096)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fakecuda.launch_count() == 160
    assert counts_of("add") == (160, 0, 0)


def test_a_launcher_keeps_its_own_grid(served: Serve, tensors: Tensors, fakecuda: FakeCuda) -> None:
    served()
    launchers = [kernels.add[lambda _, side=side: (side,)] for side in (2, 3)]
    for launcher in launchers:
        launcher(*tensors, 4096)
    assert [each.grid for each in fakecuda.launches()] == [(2, 1, 1), (3, 1, 1)]


# -- bundles and settings


def test_a_bundle_without_origins_is_refused(tmp_path: Path, fakecuda: FakeCuda) -> None:
    path = make_bundle(tmp_path / "plain.nojit", kernel("add", {"x": "*fp32"}))
    with pytest.raises(BundleError, match="built from a recording: nojit build RECORDING"):
        session.serve(path)
    assert session._current is None


def test_a_refused_bundle_leaves_the_process_as_it_was(tmp_path: Path, served: Serve, tensors: Tensors) -> None:
    served()
    with pytest.raises(FileNotFoundError):
        session.serve(tmp_path / "nowhere")
    kernels.add[(4,)](*tensors, 4096)


@pytest.mark.parametrize(
    ("bundles", "options", "what"),
    [
        (3, {}, "expected the path of a bundle"),
        ([], {}, "expected the path of a bundle"),
        ("x", {"miss": "eror"}, "expected miss to be error, warn or jit, got 'eror'; did you mean 'error'"),
    ],
)
def test_wrong_arguments_say_what_is_right(bundles: Any, options: dict[str, Any], what: str) -> None:
    with pytest.raises(ArgumentError, match=what):
        session.serve(bundles, **options)


def test_variables_say_what_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOJIT_SERVE", "x")
    monkeypatch.setenv("NOJIT_SERVE_PRELOAD", "yes")
    with pytest.raises(SettingError, match="expected 0 or 1, got 'yes' - at NOJIT_SERVE_PRELOAD"):
        session.start()
    monkeypatch.setenv("NOJIT_SERVE", ":")
    with pytest.raises(SettingError, match="NOJIT_SERVE"):
        session.start()
    monkeypatch.setenv("NOJIT_SERVE", "")
    assert session.start() is None


def test_the_first_bundle_with_a_kernel_serves_it(recorded: Recorded, served: Serve, tensors: Tensors) -> None:
    with session.serve([recorded.bundle, recorded.bundle]), loader.load(recorded.bundle) as bundle:
        kernels.add[(4,)](*tensors, 4096)
        assert counts_of("add") == (1, 0, 0)
        assert runtime.counters().served[-1].bundle == bundle.files[0].id
