"""Serving single functions: a package's own kernels come from its bundles, and the process stays as it is."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nojit
import pytest
import triton
import triton.language as tl
from nojit import runtime
from nojit.runtime.errors import ArgumentError, NoMatchingVariantError
from nojit.runtime.fallback.policy import MissWarning
from nojit.runtime.serve import single_functions
from nojit.runtime.serve.hosts import ATTRIBUTE
from triton.runtime import jit

from tests.fakecuda import FakeCuda
from tests.runtime.serve.conftest import Recorded, Serve
from tests.runtime.serve.programs import kernels
from tests.runtime.serve.test_session import Tensors, _no_driver, edited, original

pytestmark = pytest.mark.triton
__all__ = ["_no_driver", "edited", "original"]


def test_a_function_launches_from_the_bundle_and_the_process_stays_as_it_is(
    recorded: Recorded, fakecuda: FakeCuda, tensors: Tensors
) -> None:
    before = [vars(jit.JITFunction).get(name) for name in ("run", "__getitem__")], triton.runtime.driver._active
    launcher = nojit.serve_function(kernels.add, recorded.bundle, miss="error")
    launcher[(4,)](*tensors, 4096)
    launcher[lambda meta: (meta["BLOCK"],)](*tensors, 4096)
    assert [each.grid for each in fakecuda.launches()] == [(4, 1, 1), (64, 1, 1)]
    after = [vars(jit.JITFunction).get(name) for name in ("run", "__getitem__")], triton.runtime.driver._active
    assert before == after
    assert ATTRIBUTE not in vars(kernels.add)
    served = runtime.counters().served[-1]
    assert (served.function, served.launches) == ("tests.runtime.serve.programs.kernels:add", 2)


def test_a_package_may_ask_for_a_launcher_before_each_launch(
    recorded: Recorded, fakecuda: FakeCuda, tensors: Tensors, tmp_path: Path
) -> None:
    before = len(runtime.counters().served)
    bundles = shutil.copytree(recorded.bundle, tmp_path / "bundles")
    first, second = (nojit.serve_function(kernels.add, bundles, miss="error") for _ in range(2))
    for _ in range(3):
        nojit.serve_function(kernels.add, bundles, miss="error")[(4,)](*tensors, 4096)
    assert first is second
    assert [each.launches for each in runtime.counters().served[before:]] == [3]


@pytest.mark.parametrize(("miss", "warns"), [("jit", False), ("warn", True)])
def test_a_miss_goes_to_triton(  # noqa: PLR0917 - fixtures
    original: list[Any],
    recorded: Recorded,
    fakecuda: FakeCuda,
    tensors: Tensors,
    recwarn: pytest.WarningsRecorder,
    miss: str,
    warns: bool,
) -> None:
    for function, arguments in ((kernels.add, (*tensors, 4096)), (kernels.unrecorded, (tensors[0],))):
        launcher = nojit.serve_function(function, recorded.bundle, miss=miss)
        assert launcher[(4,)](*arguments, BLOCK=16) == "compiled"
    assert [each[0] for each in original] == [kernels.add, kernels.unrecorded]
    warned = [each for each in recwarn if each.category is MissWarning]
    assert [each.filename for each in warned] == [__file__] * (2 * warns)


def test_a_drifted_function_is_a_miss(recorded: Recorded, fakecuda: FakeCuda, tensors: Tensors, edited: Any) -> None:
    changed = edited("tl.load(x_ptr + offs, mask=mask) + tl.load", "tl.load(x_ptr + offs, mask=mask) - tl.load")
    launcher = nojit.serve_function(changed.add, recorded.bundle, miss="error")
    with pytest.raises(NoMatchingVariantError, match="is not the function that was recorded"):
        launcher[(4,)](*tensors, 4096)
    assert fakecuda.launch_count() == 0


def test_a_drifted_function_among_the_constexprs_is_a_miss(
    recorded: Recorded, fakecuda: FakeCuda, tensors: Tensors, edited: Any
) -> None:
    launcher = nojit.serve_function(kernels.apply, recorded.bundle, miss="error")
    with pytest.raises(NoMatchingVariantError, match="is another function than the recorded"):
        launcher[(1,)](tensors[0], 1.5, FN=edited("return x * 2", "return x * 4").scaled, DTYPE=tl.float16, BLOCK=16)


def test_a_module_may_have_another_name(
    recorded: Recorded, fakecuda: FakeCuda, tensors: Tensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels.add.fn, "__module__", "kernels_of_version_2")
    nojit.serve_function(kernels.add, recorded.bundle, miss="error")[(4,)](*tensors, 4096)
    assert fakecuda.launch_count() == 1


def test_the_error_is_of_the_function_s_own_module(
    recorded: Recorded, fakecuda: FakeCuda, tensors: Tensors, edited: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = edited("tl.load(x_ptr + offs, mask=mask) + tl.load", "tl.load(x_ptr + offs, mask=mask) - tl.load")
    nojit.serve_function(kernels.unrecorded, recorded.bundle, miss="error")
    known = single_functions._servers[(str(recorded.bundle),), "error", False]._lookup._kernels
    # another module has a function of the name too
    monkeypatch.setitem(known, ("other", "add"), known["tests.runtime.serve.programs.kernels", "add"])
    launcher = nojit.serve_function(changed.add, recorded.bundle, miss="error")
    with pytest.raises(NoMatchingVariantError, match=r"^tests\.runtime\.serve\.programs\.kernels:add is not the"):
        launcher[(4,)](*tensors, 4096)


def test_a_function_that_no_bundle_serves_is_one_event_at_its_first_call(
    recorded: Recorded, fakecuda: FakeCuda, tensors: Tensors, tmp_path: Path
) -> None:
    bundles = shutil.copytree(recorded.bundle, tmp_path / "bundles")
    heard: list[Any] = []
    listener = runtime.events.add(heard.append)
    try:
        launcher = nojit.serve_function(kernels.unrecorded, bundles, miss="error")
        assert "miss" not in [each.kind for each in heard]
        for _ in range(2):
            with pytest.raises(NoMatchingVariantError):
                launcher[(1,)](tensors[0], BLOCK=16)
    finally:
        runtime.events.remove(listener)
    (missed,) = (each for each in heard if each.kind == "miss")
    assert missed.kernel == "tests.runtime.serve.programs.kernels:unrecorded"


def test_a_served_process_answers_a_miss_of_a_package(recorded: Recorded, served: Serve, tensors: Tensors) -> None:
    launcher = nojit.serve_function(kernels.unrecorded, recorded.bundle)
    served()
    with pytest.raises(NoMatchingVariantError, match="no bundle has a kernel of"):
        launcher[(1,)](tensors[0], BLOCK=16)


@pytest.mark.parametrize("function", [kernels.tuned, kernels.guessed, kernels.add.fn, None])
def test_another_object_is_refused(recorded: Recorded, function: Any) -> None:
    with pytest.raises(ArgumentError, match=r"expected a @triton.jit function, without decorators around it"):
        nojit.serve_function(function, recorded.bundle)


@pytest.mark.parametrize(("bundles", "options"), [(7, {}), ("x", {"miss": "eror"})])
def test_a_bad_argument_is_named_with_the_function(bundles: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=r"at nojit\.serve_function$"):
        nojit.serve_function(kernels.add, bundles, **options)


@pytest.mark.parametrize("preload", [False, True])
def test_a_package_may_load_every_variant_before_its_first_launch(
    recorded: Recorded, fakecuda: FakeCuda, tensors: Tensors, tmp_path: Path, preload: bool
) -> None:
    bundles = shutil.copytree(recorded.bundle, tmp_path / "bundles")
    nojit.serve_function(kernels.add, bundles, miss="error", preload=preload)[(4,)](*tensors, 4096)
    # once for each variant
    assert (fakecuda.calls("cuKernelGetFunction") > 3) is preload


def test_a_missing_bundle_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        nojit.serve_function(kernels.add, tmp_path / "nowhere")


def test_a_relative_path_is_another_folder_after_a_change_of_the_working_directory(
    recorded: Recorded, fakecuda: FakeCuda, tensors: Tensors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(recorded.bundle, tmp_path / "one/artifacts")
    (tmp_path / "other/artifacts").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "one")
    launcher = nojit.serve_function(kernels.add, "artifacts/", miss="error")
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match="found none"):
        nojit.serve_function(kernels.add, "artifacts/", miss="error")
    assert nojit.serve_function(kernels.add, tmp_path / "one/artifacts", miss="error") is launcher
    launcher[(4,)](*tensors, 4096)
    assert fakecuda.launch_count() == 1


def test_without_triton_the_stand_in_s_functions_are_served(recorded: Recorded, without_triton: Any) -> None:
    script = f"""
import json, nojit
from nojit.runtime.errors import NoMatchingVariantError
from tests.fakecuda import FakeCuda
from tests.runtime.serve.programs import kernels
from tests.support.tensors import PointerTensor
tensors = [PointerTensor(0x10000 * number, "torch.float32") for number in (1, 2, 3)]
import warnings
warnings.simplefilter("ignore")
nojit.serve_function(kernels.add, {str(recorded.bundle)!r})[(4,)](*tensors, 4096)
from nojit import runtime
print(json.dumps(runtime.counters().served[-1].launches))
"""
    variables = {name: recorded.environment[name] for name in ("NOJIT_LIBCUDA", "FAKECUDA_DEVICES")}
    assert without_triton(script, **variables) == 1
