"""`nojit init`: a first manifest says what a kernel's source makes sure, asks for the rest, and builds once it is answered."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from nojit.aot.cli.group import cli
from nojit.aot.manifest.reader import load_manifest
from nojit.runtime.errors import ManifestError

pytestmark = pytest.mark.triton

HEAD = "import triton\nimport triton.language as tl\n\n\n"

POINTERS = """@triton.jit
def add_kernel(x_ptr, y, out_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + tl.load(y + offsets, mask=mask), mask=mask)
"""

TUNED = """def drop_slow(configs, named_args, **kwargs):
    return configs


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 64, "BLOCK_K": 32}, num_warps=4, num_stages=2),
        triton.Config({"BLOCK_M": 128, "BLOCK_K": 64}, num_warps=8),
    ],
    key=["M", "K"],
    prune_configs_by={"early_config_prune": drop_slow},
)
@triton.jit(do_not_specialize=["seed"])
def rows_kernel(A, B, M, K, stride_am, stride_ak, seed, eps, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, ACT: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    total = tl.zeros((BLOCK_M,), tl.float32) + eps + seed
    for start in range(0, K, BLOCK_K):
        cols = start + tl.arange(0, BLOCK_K)
        a = tl.load(A + rows[:, None] * stride_am + cols[None, :] * stride_ak, mask=rows[:, None] < M, other=0)
        total += tl.sum(a, 1)
    tl.store(B + rows, total, mask=rows < M)
"""

HEURISTICS = """@triton.heuristics(
    {
        "EVEN": lambda args: args["n_cols"] % args["BLOCK"] == 0,
        "HAS_BIAS": lambda args: args["bias_ptr"] is not None,
        "WIDTH": lambda args: triton.next_power_of_2(args["n_cols"]),
        "num_warps": lambda args: 8 if args["n_cols"] > 1024 else 4,
        "ODD": lambda args: looked_up[args["n_cols"]],
    }
)
@triton.jit
def norm_kernel(
    x_ptr, bias_ptr, n_cols, BLOCK: tl.constexpr = 256, EVEN: tl.constexpr = False, HAS_BIAS: tl.constexpr = False,
    WIDTH: tl.constexpr = 1, ODD: tl.constexpr = 0, CAUSAL: tl.constexpr = True, MODE: tl.constexpr = "sum",
):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    if HAS_BIAS:
        x += tl.load(bias_ptr + tl.arange(0, BLOCK))
    tl.store(x_ptr + tl.arange(0, BLOCK), x)
"""

ALIASED = """@triton.jit
def row_kernel(x, out_ptr, x_stride, seed: tl.int64, mask_ptr: tl.const):
    row = x + tl.program_id(0)
    tl.store(out_ptr, tl.load(row + x_stride) + seed + tl.load(mask_ptr))
"""

DESCRIPTOR = """@triton.jit
def copy_kernel(a_desc, out, sizes, BLOCK: tl.constexpr):
    tile = a_desc.load([tl.program_id(0) * sizes[0], 0])
    out.store([0, 0], tile)
"""

TUPLE = """@triton.jit
def sum_kernel(inputs, out_ptr, *more):
    total = tl.load(inputs[0])
    for i in tl.static_range(len(inputs)):
        total += tl.load(inputs[i])
    tl.store(out_ptr, total)
"""

GLUON = """from triton.experimental import gluon
from triton.experimental.gluon import language as ttgl


@gluon.jit
def scale_kernel(x_ptr, n, scale: "fp32", BLOCK: ttgl.constexpr):
    layout: ttgl.constexpr = ttgl.BlockedLayout([1], [32], [4], [0])
    offsets = ttgl.program_id(0) * BLOCK + ttgl.arange(0, BLOCK, layout=layout)
    x = ttgl.load(x_ptr + offsets, mask=offsets < n)
    ttgl.store(x_ptr + offsets, x * scale, mask=offsets < n)
"""

SURE = """@triton.jit
def fill_kernel(out_ptr: "*fp32", n_elements, value: "fp32", BLOCK: tl.constexpr = 256, TWICE: tl.constexpr = False):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if TWICE:
        value = value * 2
    tl.store(out_ptr + offsets, value, mask=offsets < n_elements)
"""

Draft = Callable[..., tuple[dict[str, Any], str]]


def invoke(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, [str(word) for word in words], prog_name="nojit")
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Draft:
    """Write a source and its first manifest; return the kernel's entry and the text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOJIT_CACHE_DIR", str(tmp_path / "cache"))

    def write(source: str, function: str) -> tuple[dict[str, Any], str]:
        (tmp_path / "kernel.py").write_text(HEAD + source, encoding="utf-8")
        invoke("init", f"kernel.py:{function}", "-o", tmp_path / "demo.toml", "--force")
        text = (tmp_path / "demo.toml").read_text(encoding="utf-8")
        (entry,) = tomllib.loads(text)["kernel"]
        return entry, text

    return write


def asked(value: object) -> bool:
    return isinstance(value, str) and value.startswith("FILL IN: ")


def answer(path: Path, answers: dict[str, str]) -> None:
    """Replace questions by TOML: the value of a key, whole."""
    text = path.read_text(encoding="utf-8")
    for key, value in answers.items():
        text, count = re.subn(rf"^{key} = .*FILL IN.*$", f"{key} = {value}", text, flags=re.MULTILINE)
        assert count, key
    path.write_text(text, encoding="utf-8")


def test_pointers_are_known_and_their_dtypes_are_asked(draft: Draft, tmp_path: Path) -> None:
    entry, _ = draft(POINTERS, "add_kernel")
    assert (entry["name"], entry["source"]) == ("add_kernel", "kernel.py:add_kernel")
    for name in ("x_ptr", "y", "out_ptr"):
        assert entry["params"][name].startswith(f"FILL IN: the pointer {name}: *fp16, ")
    assert entry["params"]["n_elements"] == "i32"
    assert entry["hints"] == [
        {"x_ptr": 16, "y": 16, "out_ptr": 16},
        {"x_ptr": 16, "y": 16, "out_ptr": 16, "n_elements": 16},
    ]
    assert asked(entry["configs"][0]["BLOCK"])
    answer(tmp_path / "demo.toml", dict.fromkeys(("x_ptr", "y", "out_ptr"), '"*fp32"') | {"BLOCK": "128"})
    invoke("build", tmp_path / "demo.toml", "--dry-run")


def test_an_offset_is_no_pointer_and_annotations_are_kept(draft: Draft) -> None:
    entry, _ = draft(ALIASED, "row_kernel")
    assert entry["params"]["x"].startswith("FILL IN: the type of x: a pointer such as")
    assert (entry["params"]["x_stride"], entry["params"]["seed"]) == ("i32", "i64")
    assert entry["params"]["mask_ptr"].startswith("FILL IN: the pointer mask_ptr to constants: *kfp16")


def test_an_autotuner_gives_configs_and_its_key_and_pruning_are_named(draft: Draft, tmp_path: Path) -> None:
    entry, text = draft(TUNED, "rows_kernel")
    params = entry["params"]
    assert [name for name in params if asked(params[name])] == ["A", "B", "seed"]
    assert "the pointer A" in params["A"]
    assert [params[name] for name in ("M", "K", "stride_am", "stride_ak")] == ["i32"] * 4
    assert params["eps"] == "fp32"
    assert entry["configs"] == [
        {"BLOCK_M": 64, "BLOCK_K": 32, "num_stages": 2},
        {"BLOCK_M": 128, "BLOCK_K": 64, "num_warps": 8},
    ]
    assert "# the autotuner drops configs at run time by drop_slow: " in text
    assert '# key = ["M", "K"]' in text
    assert "do_not_specialize: takes no hint" in text
    assert all("seed" not in hints for hints in entry["hints"])
    assert "write 1 for a stride that is 1 in your calls: stride_am, stride_ak" in text
    assert asked(entry["matrix"]["ACT"][0])
    answers = {"A": '"*fp16"', "B": '"*fp32"', "seed": '"i32"', "ACT": '["relu"]'}
    answer(tmp_path / "demo.toml", answers)
    invoke("build", tmp_path / "demo.toml", "--dry-run")


def test_bool_heuristics_become_expressions_and_others_are_asked(draft: Draft, tmp_path: Path) -> None:
    entry, _ = draft(HEURISTICS, "norm_kernel")
    derived = entry["derived"]
    assert (derived["EVEN"], derived["HAS_BIAS"]) == ("n_cols % BLOCK == 0", "has(bias_ptr)")
    assert 'expr = "next_pow2(n_cols)", values = [...]' in derived["WIDTH"]
    assert "looked_up[args['n_cols']]" in derived["ODD"]
    assert asked(derived["ODD"])
    assert "with a final ? as it can be None" in entry["params"]["bias_ptr"]
    assert "the option num_warps, which a heuristic computes" in entry["configs"][0]["num_warps"]
    assert entry["configs"][0]["BLOCK"] == 256
    assert entry["matrix"] == {"CAUSAL": [False, True], "MODE": ["sum"]}
    answers = {"x_ptr": '"*fp16"', "bias_ptr": '"*fp16?"', "ODD": '"n_cols > 3"', "num_warps": "8"}
    answer(tmp_path / "demo.toml", answers | {"WIDTH": '{ expr = "next_pow2(n_cols)", values = [256] }'})
    invoke("build", tmp_path / "demo.toml", "--dry-run")


def test_descriptors_and_tuples_are_told_by_their_use(draft: Draft) -> None:
    params, _ = draft(DESCRIPTOR, "copy_kernel")
    for name in ("a_desc", "out"):
        assert f"the tensor descriptor {name}: its element and block" in params["params"][name]
    assert "the types of the tuple sizes" in params["params"]["sizes"]
    params, _ = draft(TUPLE, "sum_kernel")
    assert "the types of the tuple inputs" in params["params"]["inputs"]
    assert "the types of the tuple more" in params["params"]["more"]
    assert "hints" in params


def test_the_block_that_a_hook_sets_is_named(draft: Draft) -> None:
    hook = "def set_block(nargs):\n    nargs['a_desc'].block_shape = [1, nargs['BLOCK']]\n\n\n"
    tuned = "@triton.autotune(configs=[triton.Config({'BLOCK': 64}, pre_hook=set_block)], key=[])\n"
    entry, _ = draft(f"{hook}{tuned}{DESCRIPTOR}", "copy_kernel")
    assert "pre_hook of the first triton.Config sets [1, 64]" in entry["params"]["a_desc"]
    assert entry["configs"] == [{"BLOCK": 64}]
    assert "ignores" not in entry


def test_a_gluon_kernel_is_read_as_any_other(draft: Draft, tmp_path: Path) -> None:
    entry, _ = draft(GLUON, "scale_kernel")
    assert (entry["params"]["n"], entry["params"]["scale"]) == ("i32", "fp32")
    answer(tmp_path / "demo.toml", {"x_ptr": '"*fp16"', "BLOCK": "128"})
    invoke("build", tmp_path / "demo.toml", "--dry-run")


@pytest.mark.slow
def test_a_manifest_without_questions_builds_as_it_is(draft: Draft, tmp_path: Path) -> None:
    entry, text = draft(SURE, "fill_kernel")
    assert "FILL IN" not in text
    assert entry["params"] == {"out_ptr": "*fp32", "n_elements": "i32", "value": "fp32"}
    assert entry["matrix"] == {"TWICE": [False, True]}
    invoke("build", tmp_path / "demo.toml", "--arch", "sm_90", "--out", tmp_path / "out")
    assert list((tmp_path / "out").glob("fill-kernel-0.1-sm_90.nojit"))


def test_what_a_bundle_does_not_do_is_asked(draft: Draft) -> None:
    source = f"@triton.autotune(configs=[triton.Config({{'BLOCK': 64}})], key=[], reset_to_zero=['x_ptr'])\n{POINTERS}"
    entry, _ = draft(source, "add_kernel")
    assert entry["ignores"][0].startswith("FILL IN: reset_to_zero if your calls do not need reset_to_zero=['x_ptr'] of")


def test_the_build_refuses_every_question_by_its_place(draft: Draft, tmp_path: Path) -> None:
    draft(POINTERS, "add_kernel")
    with pytest.raises(ManifestError) as caught:
        load_manifest(tmp_path / "demo.toml")
    assert [mistake.key for mistake in caught.value.mistakes if isinstance(mistake, ManifestError)] == [
        "$.kernel[0].params.x_ptr",
        "$.kernel[0].params.y",
        "$.kernel[0].params.out_ptr",
        "$.kernel[0].configs[0].BLOCK",
    ]
    said = invoke("build", tmp_path / "demo.toml", "--dry-run", code=1).stderr
    assert "expected the pointer x_ptr: *fp16" in said
    assert "got a place that nojit init left open: replace the string - at " in said


def test_without_out_the_manifest_goes_to_standard_output(draft: Draft, tmp_path: Path) -> None:
    _, text = draft(POINTERS, "add_kernel")
    result = invoke("init", "kernel.py:add_kernel")
    assert result.stdout == text
    assert result.stderr == "4 places to fill in: search the manifest for FILL IN\n"


@pytest.mark.parametrize("exists", [True, False])
def test_a_source_is_named_relative_to_the_manifest(draft: Draft, tmp_path: Path, exists: bool) -> None:
    draft(SURE, "fill_kernel")
    if exists:
        (tmp_path / "manifests").mkdir()
    path = tmp_path / "manifests/fill.toml"
    invoke("init", "kernel.py:fill_kernel", "-o", path, "--arch", "sm_90")
    assert tomllib.loads(path.read_text())["kernel"][0]["source"] == "../kernel.py:fill_kernel"
    assert tomllib.loads(path.read_text())["bundle"]["archs"] == ["sm_90"]
    invoke("build", path, "--dry-run")
    assert "overwrite it with --force" in invoke("init", "kernel.py:fill_kernel", "-o", path, code=1).stderr
    assert "got a folder - at " in invoke("init", "kernel.py:fill_kernel", "-o", path.parent, "--force", code=1).stderr


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("kernel.py", 2, "expected FILE.py:FUNCTION or package.module:FUNCTION, got 'kernel.py'"),
        ("kernel.py:", 2, "expected FILE.py:FUNCTION"),
        ("none.py:f", 1, "expected a file with a @triton.jit function, got no such file - at none.py"),
        ("kernel.py:strange", 1, "strange"),
        ("kernel.py:plain", 1, "expected a @triton.jit function, got function kernel.py:plain"),
        ("no.such.module:f", 1, "expected to import no.such.module"),
    ],
)
def test_what_is_no_kernel_is_refused(draft: Draft, source: str, code: int, said: str) -> None:
    draft(f"def plain(x):\n    return x\n\n\n{POINTERS}", "add_kernel")
    assert said in invoke("init", source, code=code).stderr
