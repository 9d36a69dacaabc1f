"""Operators whose kernels no bundle holds, and the functions that the library's kernels are compiled from."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nojit import runtime
from nojit.kernels import library, manifest_kernels, unbuilt
from nojit.runtime.discovery.discover import Found
from nojit.runtime.errors import ArgumentError, KernelNotFoundError, NoMatchingVariantError
from nojit.runtime.expr import expression as expr
from nojit.runtime.fallback import jit_functions
from nojit.runtime.fallback import policy as miss_policy
from nojit.runtime.observe import events
from nojit.runtime.table.parts import Param

from tests.fakecuda import FakeCuda
from tests.runtime.fallback.test_jit import Function, make_torch
from tests.support.bundles import kernel, make_bundle

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = {
    words["name"]: words
    for path in sorted((ROOT / "manifests").glob("*.toml"))
    for words in tomllib.loads(path.read_text(encoding="utf-8"))["kernel"]
}


def function_of(kernel: str) -> Any:
    module, _, name = manifest_kernels.source_of(kernel).partition(":")
    return getattr(importlib.import_module(module), name)


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def set_to(name: str) -> None:
        monkeypatch.setenv("NOJIT_MISS", name)
        miss_policy.policy.cache_clear()

    monkeypatch.setattr(jit_functions, "_sources", {})
    monkeypatch.setattr("nojit.runtime.discovery.discover.survey", lambda _: ([], [], []))
    with library.override(library._from_bundles, devices=frozenset({"cuda"})):
        yield set_to
    miss_policy.policy.cache_clear()


def tensor_of(faketorch: Any, address: int, dtype: str) -> Any:
    class Tensor(faketorch.Tensor):
        def data_ptr(self) -> int:
            return address

    return Tensor(address, dtype)


# -- what the manifests say ------------------------------------------------------------------------------------------


def test_every_kernel_of_the_manifests_is_known():
    assert manifest_kernels.FOLDER == ROOT / "manifests"
    assert {name: manifest_kernels.source_of(name) for name in ENTRIES} == {
        name: words["source"] for name, words in ENTRIES.items()
    }
    assert manifest_kernels.source_of("no_such_kernel") is None


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_every_function_is_one_of_tritons_and_has_the_params_of_its_manifest(name: str):
    runtime_jit = pytest.importorskip("triton.runtime.jit")
    function = function_of(name)
    assert isinstance(function, runtime_jit.JITFunction)
    assert {param.name for param in function.params if not param.is_constexpr} == {*ENTRIES[name]["params"]}
    assert jit_functions.function_of(name, "nojit-kernels") is function
    assert jit_functions.function_of(name, "nojit-kernels-debug") is function


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_every_rule_of_every_config_can_be_read(name: str):
    pytest.importorskip("triton")
    made = unbuilt.unbuilt(name)
    for config in made._base.configs:
        expr.parse(config.requires or "true")
    for text in (*made._base.grid, *(item.expression for item in made._base.derived)):
        expr.parse(text)
    assert made._base.grid


# -- operators -------------------------------------------------------------------------------------------------------


def test_by_default_a_kernel_of_no_bundle_is_an_error(policy):
    policy("error")
    with pytest.raises(KernelNotFoundError, match=r"set NOJIT_BUNDLES, .* run nojit build, got none with 'gelu'$"):
        library.get("gelu")


@pytest.mark.parametrize("name", ["warn", "jit"])
def test_a_kernel_of_no_bundle_and_no_manifest_stays_an_error(policy, name: str):
    policy(name)
    expected = r"set NOJIT_BUNDLES, .*; the JIT cannot make its calls: no manifest of the library lists it, got none with 'no_such'$"
    with pytest.raises(KernelNotFoundError, match=expected):
        library.get("no_such")


def test_without_triton_it_stays_an_error(policy, monkeypatch):
    policy("jit")
    jit_functions.load.cache_clear()
    monkeypatch.setattr(jit_functions, "find_spec", lambda name: None)
    with pytest.raises(KernelNotFoundError, match="the JIT cannot make its calls: Triton is not installed"):
        library.get("gelu")


def test_a_kernel_that_a_bundle_holds_is_the_bundles(policy, monkeypatch, tmp_path, fakecuda: FakeCuda):
    policy("jit")
    path = make_bundle(tmp_path / "a.nojit", kernel("gelu", {"n": "i32"}))
    monkeypatch.setattr("nojit.runtime.discovery.discover.survey", lambda _: ([Found(path, "test")], [], []))
    monkeypatch.setattr(library, "_open", library._open.__wrapped__)
    library.get("gelu")[(1,)](7)
    assert fakecuda.launch_count() == 1


def test_its_calls_are_made_by_the_manifest(policy, monkeypatch, faketorch, fakecuda: FakeCuda):
    pytest.importorskip("triton")
    policy("warn")
    said: list[Any] = []
    listener = events.add(said.append)
    real = function_of("vector_add")
    function = Function(*real.arg_names)
    function.params = real.params  # type: ignore[attr-defined]
    runtime.register_source("vector_add", function, bundle="nojit-kernels")
    monkeypatch.setitem(sys.modules, "torch", make_torch())
    x, y, out = (tensor_of(faketorch, 0x1000 * (1 + place), "bfloat16") for place in range(3))
    try:
        add = library.get("vector_add")
        assert not library.is_built("vector_add")
        with pytest.warns(
            runtime.MissWarning, match="kernel vector_add: no bundle at hand holds this kernel; Triton compiles"
        ):
            add(x, y, out, 5000)
        add(x, y, out, 5001)
        with pytest.warns(runtime.MissWarning):
            add[(3,)](x, y, out, 5001, TILES=2)
    finally:
        events.remove(listener)
    (config,) = ENTRIES["vector_add"]["configs"]
    named = {"input_ptr": x, "other_ptr": y, "out_ptr": out, "n": 5000, **config}
    assert function.calls == [
        ((5,), named),
        ((5,), named | {"n": 5001}),
        ((3, 1, 1), named | {"n": 5001, "TILES": 2}),
    ]
    assert [(event.kind, event.kernel, event.bundle, event.device) for event in said] == [
        ("miss", "vector_add", "", 0)
    ] * 3
    assert fakecuda.launch_count() == 0


def test_its_table_is_that_of_the_calls_arch_and_case(policy, monkeypatch, faketorch, fakecuda: FakeCuda):
    """Rules at build time choose among the configs: by arch, by dtype, by what the call means."""
    pytest.importorskip("triton")
    policy("jit")
    real = function_of("flash_attention_fwd")
    function = Function(*real.arg_names)
    function.params = real.params  # type: ignore[attr-defined]
    runtime.register_source("flash_attention_fwd", function)
    monkeypatch.setitem(sys.modules, "torch", make_torch())
    attend = library.get("flash_attention_fwd")
    assert not attend.fits(0)
    for dtype, width in (("bfloat16", 64), ("bfloat16", 128), ("float32", 128), ("float32", 64)):
        pointers = [tensor_of(faketorch, 0x1000 * (1 + place), dtype) for place in range(4)]
        numbers = {
            "batch": 2, "heads": 3, "group": 1, "q_len": 300, "kv_len": 300, "head_dim": width, "v_dim": width,
            "left": 0, "right": 0,
        }  # fmt: skip
        strides = {name: 64 for name in real.arg_names if name.startswith("stride_")}
        attend(*pointers, None, 0.5, **numbers, **strides, MASK="none", BLOCK_D=width, BLOCK_DV=width)
    chosen = [(named["BLOCK_M"], named["BLOCK_N"], named["num_warps"], named["EVEN_D"]) for _, named in function.calls]
    assert chosen == [(128, 64, 4, True), (128, 128, 8, True), (64, 16, 8, True), (64, 32, 8, True)]
    assert [grid for grid, _ in function.calls] == [(3 * 6,), (3 * 6,), (5 * 6,), (5 * 6,)]
    assert len(attend._tables) == 4
    with pytest.raises(ArgumentError, match="expected a value for MASK, one of 'none', 'causal', 'window'"):
        attend(*pointers, None, 0.5, **numbers, **strides, BLOCK_D=width, BLOCK_DV=width)
    with pytest.raises(
        NoMatchingVariantError,
        match="no bundle at hand holds this kernel; the JIT cannot make the call: the call violates `requires`",
    ):
        attend(*pointers, None, 0.5, **numbers, **strides, MASK="none", BLOCK_D=64, BLOCK_DV=128)


def test_a_table_says_of_a_config_what_its_descriptors_blocks_are():
    pytest.importorskip("triton")
    from nojit.runtime.call.call_facts import Argument, CallFacts

    entry = manifest_kernels.manifest_kernel_of("bmm_sm90")
    params = tuple(Param(param.name, param.is_constexpr) for param in function_of("bmm_sm90").params)
    arguments = {
        name: Argument("descriptor", (0,) * 4, "bf16") if "tensordesc" in kind else Argument("int", 1)
        for name, kind in entry.words["params"].items()
    }
    meant = {"PANEL": 64, "TRANS_A": False, "TRANS_B": False, "EPILOGUE": False, "ROWS": 64}
    table = manifest_kernels.table_of(
        entry, manifest_kernels.blank_table(entry, params), CallFacts(arguments, meant, arch=90)
    )
    assert {axis.name: axis.values for axis in table.axes if not axis.is_type} == {k: (v,) for k, v in meant.items()}
    assert len(table.columns["case"]) == len(table.columns["config"]) > 0
    assert all("{" not in kind and not kind.endswith("?") for types in table.signatures for kind in types)
    blocks = {"tensordesc<bf16[1,1,64,64]>", "tensordesc<fp16[1,1,64,64]>"}
    assert {types[0] for types in table.signatures} == blocks


def test_an_arch_of_the_manifest_stands_for_a_device():
    entry = SimpleNamespace(archs=("sm_80", "sm_90", "sm_120"))
    assert [manifest_kernels.arch_for(entry, capability) for capability in (75, 80, 89, 90, 100, 121)] == [
        80,
        80,
        80,
        90,
        90,
        120,
    ]


def test_a_launch_by_name_has_its_arguments_in_the_order_of_the_params() -> None:
    named = {"pitch": 6, "in_ptr": "in", "out_ptr": "out", "rows": 2, "width": 3, "stride_z": 4, "stride_row": 5}
    found = manifest_kernels.by_position("bmm_pad", (), {**named, "count": 1, "BLOCK": 64})
    assert found == (("in", "out", 1, 2, 3, 4, 5, 6), {"BLOCK": 64})
    assert manifest_kernels.by_position("no manifest has it", (1,), {"n": 2}) == ((1,), {"n": 2})


@pytest.mark.parametrize(
    ("count", "names", "what"),
    [
        (2, ["count", "rows", "width", "stride_z", "pitch"], "no value of stride_row"),
        (8, ["rows"], "two values of rows"),
    ],
)
def test_a_launch_by_name_gives_each_param_one_value(count: int, names: list[str], what: str) -> None:
    with pytest.raises(TypeError, match=f"bmm_pad: expected a value for each param, got {what}"):
        manifest_kernels.by_position("bmm_pad", range(count), dict.fromkeys(names, 1))
