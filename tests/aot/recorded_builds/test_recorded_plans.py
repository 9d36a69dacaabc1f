"""Bundles of recordings: exactly what was recorded, with the machine code of Triton's JIT, launched as recorded."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import triton
import triton.language as tl
from nojit import runtime
from nojit.aot.cache.cache import Cache
from nojit.aot.compile.triton import compiler
from nojit.aot.pipeline.build import build
from nojit.aot.plan.plan import Plan
from nojit.aot.recorded_builds.inputs import read_recordings
from nojit.aot.recorded_builds.recorded_plans import make_plans
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import ArgumentError, ManifestError, NoMatchingVariantError, RecordingError
from nojit.runtime.loader import Bundle
from nojit.runtime.values import FunctionRef
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.runtime.jit import create_function_from_signature

from tests.aot.recorded_builds import programs
from tests.fakecuda import FakeCuda
from tests.runtime.recording.programs import kernels
from tests.support.recordings import Recorder, Tensor

pytestmark = pytest.mark.triton

Built = Callable[..., Bundle]


def plans_of(folder: Path, *archs: str, **asked: Any) -> list[Plan]:
    return make_plans(read_recordings([folder]), archs, compiler, name="demo", **asked)


@pytest.fixture
def built(fakecuda: FakeCuda, tmp_path: Path, recorder: Recorder) -> Iterator[Built]:
    """Build what was recorded, and open the bundle."""
    opened: list[Bundle] = []

    def make(*archs: str) -> Bundle:
        folder = tmp_path / f"out{len(opened)}"
        folder.mkdir()
        plans = plans_of(tmp_path / "r", *archs)
        result = build(plans, folder, compiler, Cache(tmp_path / "cache"), lambda: ThreadPoolExecutor(1))
        assert not result.failures, result.failures
        opened.append(runtime.load(folder))
        return opened[-1]

    yield make
    for bundle in opened:
        bundle.close()


@pytest.fixture
def tensor(faketorch: ModuleType) -> Callable[..., Any]:
    return faketorch.Tensor


def jit_image(tmp_path: Path, function: Any, *args: Any, **kwargs: Any) -> bytes:
    """Compile a call as `JITFunction.run` does."""
    target = GPUTarget("cuda", 90, 32)
    backend = make_backend(target)
    kwargs |= {"debug": function.debug or False}
    bound, found, options = create_function_from_signature(function.signature, function.params, backend)(
        *args, **kwargs
    )
    with warnings.catch_warnings():
        # Triton 3.9 says that a default will change
        warnings.simplefilter("ignore")
        options, signature, constants, attrs = function._pack_args(backend, kwargs, bound, found, options)
    with triton.knobs.compilation.scope(), triton.knobs.cache.scope():
        triton.knobs.compilation.disable_line_info = True
        triton.knobs.compilation.always_compile = True
        triton.knobs.cache.dir = str(tmp_path / "triton")
        make = GluonASTSource if function.is_gluon() else triton.compiler.ASTSource
        source = make(function, signature, constants, attrs)
        return bytes(triton.compile(source, target=target, options=options.__dict__).asm["cubin"])


WIDE = gl.BlockedLayout([2], [32], [4], [0])
SLICED = gl.SliceLayout(0, gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0]))

CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (kernels.kernel, (Tensor(), 7, 5), {"BLOCK": 64}),
    (kernels.kernel, (Tensor("fp32", 4100), 16, 1), {"BLOCK": 128, "num_warps": 8, "DTYPE": tl.float16}),
    (kernels.kernel, (Tensor(), 7, 5), {"BLOCK": 64, "ACT": "relu", "num_stages": 1}),
    (kernels.make(4), (Tensor(),), {"BLOCK": 64}),
    (kernels.with_activation, (Tensor(), kernels.squash), {"BLOCK": 64}),
    (programs.add, (Tensor(), Tensor(), 1), {"BLOCK": 64, "maxnreg": 64, "enable_fp_fusion": False}),
    (programs.own_warps, (Tensor(),), {"BLOCK": 64, "num_warps": 2}),
    (programs.optional, (Tensor(), None, 1.5), {}),
    (programs.optional, (Tensor(), (Tensor(address=4100), 1), 3), {"DTYPE": tl.float16, "MODE": "none"}),
    (programs.checked, (Tensor("i32"),), {}),
    (programs.with_rest, (Tensor("i32"), 16, 3), {}),
    (programs.colored, (Tensor("i32"), programs.Color.RED), {}),
    (programs.laid_out, (Tensor("i32"), 256, WIDE), {}),
    (programs.laid_out, (Tensor("i32"), 256, SLICED, (WIDE, SLICED)), {"num_warps": 4}),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_an_image_is_that_of_tritons_own_compile(built: Built, recorder: Recorder, tmp_path: Path, number: int) -> None:
    function, args, kwargs = CALLS[number]
    recorder.call(function, *args, **({"debug": True} if function.debug else {}), **kwargs)
    built()
    with BundleFile(tmp_path / "out0/demo-1.0-sm_90.nojit") as bundle:
        assert [*bundle.images()] == [jit_image(tmp_path, function, *args, **kwargs)]


def test_the_package_is_not_needed_and_neither_is_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    project.mkdir()
    source = Path(programs.__file__).read_text().replace("import triton\n", "import absent_package\nimport triton\n")
    (project / "stranger.py").write_text(source)
    (project / "absent_package.py").write_text("")
    monkeypatch.syspath_prepend(str(project))
    stranger = importlib.import_module("stranger")
    Recorder(tmp_path / "r").call(stranger.add, Tensor(), Tensor(), 7, BLOCK=64)
    for file in project.iterdir():
        if file.is_file():
            file.unlink()
    code = (
        "import sys\nfrom nojit.aot.cli import main\nsys.modules['torch'] = None\n"
        f"sys.argv = ['nojit', 'build', {str(tmp_path / 'r')!r}, '--out', {str(tmp_path / 'out')!r}, "
        f"'--cache-dir', {str(tmp_path / 'cache')!r}, '-j', '1']\nmain()"
    )
    made = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    with BundleFile(tmp_path / "out/r-1.0-sm_90.nojit") as bundle:
        assert [*bundle.kernels] == ["add"]
        assert b"absent" not in b"".join(bundle.stream())


# -- what calls run --------------------------------------------------------------------------------------------------


def test_a_call_without_options_is_one_with_tritons_defaults(
    built: Built, recorder: Recorder, fakecuda: FakeCuda, tensor: Callable[..., Any]
) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, num_warps=8)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    add = built().kernel("add")
    x, y = tensor(4096, "float32"), tensor(8192, "float32")
    for given, warps in (({}, 4), ({"num_warps": 8}, 8), ({"num_warps": 4, "num_stages": 3}, 4)):
        add[(1,)](x, y, 7, 64, stream=0, **given)
        assert fakecuda.launches()[-1].block == (32 * warps, 1, 1)
    with pytest.raises(NoMatchingVariantError, match="num_warps"):
        add[(1,)](x, y, 7, 64, stream=0, num_warps=2)
    with pytest.raises(NoMatchingVariantError, match="num_stages"):
        add[(1,)](x, y, 7, 64, stream=0, num_stages=2)


def test_an_option_of_no_recorded_call_is_a_miss_unless_it_is_the_default(
    built: Built, recorder: Recorder, tensor: Callable[..., Any]
) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    add = built().kernel("add")
    x = tensor(4096, "float32")
    add[(1,)](x, x, 7, 64, stream=0, enable_fp_fusion=True)
    with pytest.raises(ArgumentError, match="enable_fp_fusion"):
        add[(1,)](x, x, 7, 64, stream=0, enable_fp_fusion=False)


def test_an_option_that_one_call_passed_keeps_its_default_for_others(
    built: Built, recorder: Recorder, tensor: Callable[..., Any]
) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, enable_fp_fusion=False)
    add = built().kernel("add")
    x = tensor(4096, "float32")
    plain = add.warmup(x, x, 7, 64)
    assert add.warmup(x, x, 7, 64, enable_fp_fusion=False).variant != plain.variant
    assert add.warmup(x, x, 7, 64, enable_fp_fusion=True).variant == plain.variant


def test_a_constexpr_with_the_name_of_an_option_is_one_axis(
    built: Built, recorder: Recorder, fakecuda: FakeCuda, tensor: Callable[..., Any]
) -> None:
    recorder.call(programs.own_warps, Tensor(), BLOCK=64, num_warps=2)
    kernel = built().kernel("own_warps")
    kernel[(1,)](tensor(4096, "float32"), BLOCK=64, num_warps=2, stream=0)
    assert fakecuda.launches()[-1].block == (64, 1, 1)
    assert [param.name for param in kernel.params] == [
        "x_ptr",
        "BLOCK",
        "num_warps",
        "num_stages",
        "num_ctas",
        "maxnreg",
    ]


def test_defaults_of_the_function_hold_dtypes_too(built: Built, recorder: Recorder, tensor: Callable[..., Any]) -> None:
    recorder.call(programs.optional, Tensor(), None, 1.5)
    built().kernel("optional")[(1,)](tensor(4096, "float32"), None, 1.5, stream=0)


def test_a_function_as_constexpr_is_passed_by_its_name(
    built: Built, recorder: Recorder, tensor: Callable[..., Any]
) -> None:
    recorder.call(kernels.with_activation, Tensor(), kernels.squash, BLOCK=64)
    kernel = built().kernel("with_activation")
    kernel[(1,)](tensor(4096, "float32"), kernels.squash, 64, stream=0)
    with pytest.raises(NoMatchingVariantError):
        kernel[(1,)](tensor(4096, "float32"), FunctionRef("other:squash"), 64, stream=0)


def test_a_layout_of_gluon_as_constexpr_selects_by_its_text(
    built: Built, recorder: Recorder, tensor: Callable[..., Any]
) -> None:
    recorder.call(programs.laid_out, Tensor("i32"), 256, WIDE)
    recorder.call(programs.laid_out, Tensor("i32"), 256, SLICED)
    kernel, x = built().kernel("laid_out"), tensor(4096, "int32")
    wide, sliced = (kernel.warmup(x, 256, layout).variant for layout in (WIDE, SLICED))
    assert wide != sliced
    kernel[(1,)](x, 256, gl.constexpr(gl.BlockedLayout([2], [32], [4], [0])), stream=0)
    with pytest.raises(NoMatchingVariantError, match="BlockedLayout"):
        kernel[(1,)](x, 256, gl.BlockedLayout([4], [32], [4], [0]), stream=0)


def test_a_member_of_an_enum_as_constexpr_selects_by_its_name(
    built: Built, recorder: Recorder, tensor: Callable[..., Any]
) -> None:
    recorder.call(programs.colored, Tensor("i32"), programs.Color.RED)
    kernel = built().kernel("colored")
    kernel[(1,)](tensor(4096, "int32"), programs.Color.RED, stream=0)
    with pytest.raises(NoMatchingVariantError, match=r"Color\.BLUE"):
        kernel[(1,)](tensor(4096, "int32"), programs.Color.BLUE, stream=0)


def test_a_member_of_an_enum_that_the_source_does_not_name_is_refused(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.own_warps, Tensor(), 64, programs.Color.RED)
    (plan,) = plans_of(tmp_path / "r")
    assert "names the enum" in plan.refused[0].message


def test_params_after_args_are_passed_by_name(built: Built, recorder: Recorder, tensor: Callable[..., Any]) -> None:
    recorder.call(programs.with_rest, Tensor("i32"), 16, 3, num_warps=8)
    built().kernel("with_rest")[(1,)](tensor(4096, "int32"), 32, 5, num_warps=8, stream=0)


# -- which specializations -------------------------------------------------------------------------------------------


def labels(plan: Plan) -> list[str]:
    return [variant.label() for kernel in plan.kernels for variant in kernel.variants]


def test_trials_are_built_on_request_alone(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=128, trial=True)
    assert plans_of(tmp_path / "r")[0].count() == 1
    assert plans_of(tmp_path / "r", trials=True)[0].count() == 2


def test_an_arch_that_was_recorded_gets_its_own_and_another_one_gets_all(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=128)
    Recorder(tmp_path / "r", arch="sm_80").call(programs.add, Tensor(), Tensor(), 7, BLOCK=128)
    counts = {plan.arch: plan.count() for plan in plans_of(tmp_path / "r")}
    assert counts == {"sm_80": 1, "sm_90": 2}
    assert plans_of(tmp_path / "r", "sm_100")[0].count() == 2


def test_several_recordings_merge_into_one_bundle(tmp_path: Path) -> None:
    Recorder(tmp_path / "a").call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    Recorder(tmp_path / "b").call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    Recorder(tmp_path / "b").call(programs.checked, Tensor("i32"), debug=True)
    recorded = read_recordings([tmp_path / "a", tmp_path / "b"])
    (plan,) = make_plans(recorded, (), compiler, name="demo")
    assert [kernel.spec.name for kernel in plan.kernels] == ["add", "checked"]
    assert plan.count() == 2


def test_kernels_with_one_name_get_digests_that_do_not_depend_on_others(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(kernels.make(4), Tensor(), BLOCK=64)
    recorder.call(kernels.make(5), Tensor(), BLOCK=64)
    names = [kernel.spec.name for kernel in plans_of(tmp_path / "r")[0].kernels]
    assert [name.rpartition("_")[0] for name in names] == ["make_scaled", "make_scaled"]
    recorder.call(programs.optional, Tensor(), None, 1.5)
    assert {*names} < {kernel.spec.name for kernel in plans_of(tmp_path / "r")[0].kernels}


def test_keys_do_not_depend_on_where_a_recording_lies_or_what_else_it_holds(tmp_path: Path) -> None:
    def key(folder: str, *others: int) -> str:
        recorder = Recorder(tmp_path / folder)
        for block in others:
            recorder.call(kernels.make(block), Tensor(), BLOCK=block)
        recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
        kernel = next(each for each in plans_of(tmp_path / folder)[0].kernels if each.spec.name == "add")
        return compiler.variant_keys(kernel.variants, kernel.source, kernel.place)[0]

    assert key("a") == key("b", 64, 128)


def test_a_kernel_is_chosen_by_its_name_or_qualified_name(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(kernels.make(4), Tensor(), BLOCK=64)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    for name in ("make_scaled", "make.<locals>.scaled"):
        (plan,) = plans_of(tmp_path / "r", kernels=[name])
        assert ([kernel.spec.name for kernel in plan.kernels], plan.only) == (["make_scaled"], ("make_scaled",))
    with pytest.raises(ManifestError, match="did you mean 'add'"):
        plans_of(tmp_path / "r", kernels=["ad"])


# -- what cannot be built --------------------------------------------------------------------------------------------


def test_options_that_an_arch_cannot_take_are_named_for_each_specialization(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, num_ctas=2)
    (plan,) = plans_of(tmp_path / "r", "sm_80")
    assert plan.count() == 1
    (refused,) = plan.refused
    assert "num_ctas > 1 requires" in refused.message
    assert "num_ctas=2" in refused.label
    assert [each.count() for each in plans_of(tmp_path / "r", "sm_90")] == [2]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"options": [["sched5reg", 2]]}, "this nojit does not know it"),
        ({"options": [["arch", "sm90"]]}, "follows from the architecture"),
        ({"types": [["x_ptr", "*fp17"], ["y_ptr", "*fp32"], ["n", "i32"]]}, "fp17"),
        ({"params": ["x_ptr", "y_ptr", "n"]}, "record again"),
    ],
)
def test_a_specialization_that_no_build_can_take_is_named(recorder, tmp_path: Path, change, words) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, change=change)
    (plan,) = plans_of(tmp_path / "r")
    assert plan.count() == 1
    assert [words in refused.message for refused in plan.refused] == [True]


def test_a_runtime_param_with_the_name_of_an_option_is_refused(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.stages_at_run_time, Tensor("i32"), 3)
    (plan,) = plans_of(tmp_path / "r")
    assert (plan.kernels, "rename the param" in plan.refused[0].message) == ((), True)


def test_two_functions_of_one_name_cannot_be_told_apart(recorder: Recorder, tmp_path: Path) -> None:
    first, second = (activation(scale) for scale in (2, 3))
    recorder.call(kernels.with_activation, Tensor(), first, BLOCK=64)
    recorder.call(kernels.with_activation, Tensor(), second, BLOCK=64)
    (plan,) = plans_of(tmp_path / "r")
    assert plan.count() == 1
    assert "expected one function named" in plan.refused[0].message


def activation(scale: int) -> Any:
    factor = tl.constexpr(scale)

    @triton.jit
    def scaled(x):
        return x * factor

    return scaled


def test_a_refusal_stops_the_build_and_keep_going_builds_the_rest(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, num_ctas=2)
    plans = plans_of(tmp_path / "r", "sm_80")

    def run(**asked: bool) -> Any:
        return build(plans, tmp_path / "out", compiler, Cache(tmp_path / "c"), lambda: ThreadPoolExecutor(1), **asked)

    stopped = run()
    assert (stopped.stopped, len(stopped.failures), stopped.reports[0].variants) == (True, 1, ())
    assert not [*(tmp_path / "out").glob("*.nojit")]
    for _ in range(2):
        result = run(keep_going=True)
        assert (result.stopped, len(result.failures), len(result.reports[0].variants)) == (False, 1, 1)


def test_a_recording_without_the_closure_of_a_kernel_is_refused(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, change={"closure": "0" * 64})
    with pytest.raises(RecordingError, match="pass the files of all processes"):
        plans_of(tmp_path / "r")


def test_an_empty_recording_is_refused(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, trial=True)
    with pytest.raises(RecordingError, match="--trials"):
        plans_of(tmp_path / "r")


# -- many constexprs -------------------------------------------------------------------------------------------------


def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> Any:
    names = [f"C{number}" for number in range(count)]
    params = ", ".join(f"{name}: tl.constexpr" for name in names)
    source = (
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        f"def many(x_ptr, {params}):\n    tl.store(x_ptr, {' + '.join(names)})\n"
    )
    (tmp_path / "many_constexprs.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "many_constexprs", raising=False)
    return importlib.import_module("many_constexprs").many


def test_constexprs_that_never_vary_leave_the_axes_of_a_kernel_with_too_many(
    built: Built, recorder: Recorder, tmp_path: Path, monkeypatch, tensor: Callable[..., Any]
) -> None:
    function = many(tmp_path, monkeypatch, 70)
    values = [*range(69)]
    recorder.call(function, Tensor("i32"), *values, 1)
    recorder.call(function, Tensor("i32"), *values, 2)
    kernel = built().kernel("many")
    x = tensor(4096, "int32")
    kernel[(1,)](x, *values, 1, stream=0)
    kernel[(1,)](x, *values, 2, stream=0)
    for changed in ([9, *values[1:], 1], [*values, 3], [*values[:-1], 9, 1]):
        with pytest.raises(NoMatchingVariantError):
            kernel[(1,)](x, *changed, stream=0)


def test_more_constexprs_that_vary_than_a_bundle_holds_are_refused(recorder, tmp_path: Path, monkeypatch) -> None:
    function = many(tmp_path, monkeypatch, 70)
    recorder.call(function, Tensor("i32"), *range(70))
    recorder.call(function, Tensor("i32"), *range(1, 71))
    with pytest.raises(RecordingError, match="at most 64"):
        plans_of(tmp_path / "r")
