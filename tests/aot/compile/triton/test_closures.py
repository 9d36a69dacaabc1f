"""Functions that are made again from a closure compile to the machine code of the originals."""

import sys

import pytest
import triton
import triton.language as tl
from nojit.aot.compile.triton.closures import functions_of
from nojit.runtime.errors import ManifestError
from nojit.runtime.recording.closure import capture, digest_of
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.runtime.recording.programs import annotated, kernels

pytestmark = pytest.mark.triton

KERNEL = (
    {"x_ptr": "*fp32", "n": "i32", "m": "i64", "BLOCK": "constexpr", "DTYPE": "constexpr", "ACT": "constexpr"},
    {(3,): 64, (4,): tl.float32, (5,): None},
)


@pytest.fixture(autouse=True)
def no_line_info(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.disable_line_info = True
        triton.knobs.compilation.always_compile = True
        yield


def compiled(function, signature, constants):
    source = ASTSource(function, signature, constants, {})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": True}).asm["cubin"]


def test_a_kernel_made_again_compiles_to_the_same_machine_code():
    made = functions_of(capture(kernels.kernel), "recording")
    assert compiled(made[0], *KERNEL) == compiled(kernels.kernel, *KERNEL)


def test_a_kernel_made_again_has_the_closure_of_the_original():
    closure = capture(kernels.kernel)
    assert digest_of(capture(functions_of(closure, "recording")[0])) == digest_of(closure)


def test_a_kernel_with_captured_variables_is_made_again():
    signature, constants = {"x_ptr": "*fp32", "BLOCK": "constexpr"}, {(1,): 64}
    original = kernels.make(4)
    assert compiled(functions_of(capture(original), "recording")[0], signature, constants) == compiled(
        original, signature, constants
    )


def test_params_keep_their_annotations_defaults_and_settings():
    made = functions_of(capture(kernels.kernel), "recording")[0]
    for own, recorded in zip(made.params, kernels.kernel.params, strict=True):
        for fact in ("name", "is_constexpr", "annotation_type", "do_not_specialize", "has_default"):
            assert getattr(own, fact) == getattr(recorded, fact), (own.name, fact)
    assert made.params[4].default == tl.float32


def test_a_param_that_is_annotated_with_a_foreign_class_needs_no_such_class(monkeypatch):
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "quoted": "fp32", "BLOCK": "constexpr"}
    original = compiled(annotated.kernel, signature, {(4,): 64})
    closure = capture(annotated.kernel)
    monkeypatch.setitem(sys.modules, "tests.runtime.recording.programs.frame", None)
    (made, _) = functions_of(closure, "recording")
    assert compiled(made, signature, {(4,): 64}) == original
    assert digest_of(capture(made)) == digest_of(closure)
    for own, recorded in zip(made.params, annotated.kernel.params, strict=True):
        assert (own.annotation_type, own.is_constexpr) == (recorded.annotation_type, recorded.is_constexpr)


def test_a_damaged_text_is_an_error_that_names_the_recording():
    closure = capture(kernels.kernel)
    closure["definitions"][0]["text"] = "def kernel(:"
    with pytest.raises(ManifestError, match="record it again"):
        functions_of(closure, "a.nojitrec")
