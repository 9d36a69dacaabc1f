from __future__ import annotations

import pytest
from nojit.aot.manifest.options import FIXED, OPTIONS, TOOLCHAIN, option_value
from nojit.runtime.base.launch_options import BUILT_WITH, CONFIG_OPTIONS, TUNABLE
from nojit.runtime.errors import ManifestError


def test_the_runtime_knows_the_options_of_manifests():
    assert {name: option.default for name, option in OPTIONS.items() if name != TOOLCHAIN} == BUILT_WITH


@pytest.mark.parametrize("name", OPTIONS)
def test_a_default_is_a_value_that_can_be_given_or_means_unset(name):
    option = OPTIONS[name]
    if option.optional:
        assert option.default is None
    else:
        option.check(option.default, "here")


def test_bools_and_floats_are_no_ints():
    for value in (True, 4.0, "4", None):
        with pytest.raises(ManifestError, match=r"expected int, got .* - at here"):
            OPTIONS["num_warps"].check(value, "here")
    with pytest.raises(ManifestError, match="expected bool, got 1 - at here"):
        OPTIONS["debug"].check(1, "here")


def test_few_values_are_listed_and_many_are_a_range():
    with pytest.raises(ManifestError, match="expected one of 1, 2, 4, 8, 16, 32, got 64"):
        OPTIONS["num_warps"].check(64, "here")
    with pytest.raises(ManifestError, match="expected one of 8 to 255, got 7"):
        OPTIONS["maxnreg"].check(7, "here")


def test_what_a_call_can_choose_by_is_an_option():
    assert set(TUNABLE) <= OPTIONS.keys()
    assert {*CONFIG_OPTIONS} - {"ir_override"} == {*TUNABLE}


@pytest.mark.triton
def test_every_option_of_tritons_can_be_set_or_is_fixed_for_a_reason():
    from triton.backends.amd.compiler import HIPOptions
    from triton.backends.nvidia.compiler import CUDAOptions

    theirs = CUDAOptions.__dataclass_fields__.keys() | HIPOptions.__dataclass_fields__.keys()
    assert not OPTIONS.keys() & FIXED.keys()
    assert theirs <= OPTIONS.keys() | FIXED.keys()
    # the rest came with later versions than 3.6
    assert OPTIONS.keys() - theirs <= {"clc", "sched4reg", "min_shared_mem", TOOLCHAIN}


def test_words_are_listed():
    with pytest.raises(ManifestError, match="expected one of tf32, tf32x3, ieee, bf16x3, bf16x6, got 'tf64'"):
        OPTIONS["default_dot_input_precision"].check("tf64", "here")


@pytest.mark.parametrize("value", ["lib.bc", {"lib": 1}, ["lib.bc"]])
def test_libraries_are_a_table_of_file_names(value):
    with pytest.raises(ManifestError, match="expected a table of file names, got "):
        OPTIONS["extern_libs"].check(value, "here")
    OPTIONS["extern_libs"].check({"lib": "lib.bc"}, "here")
    assert option_value({"b": "2.bc", "a": "1.bc"}) == (("a", "1.bc"), ("b", "2.bc"))
