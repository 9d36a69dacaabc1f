"""The schema that editors use takes what the reader takes, and refuses mistakes by itself."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from nojit.aot.manifest.archs import known_archs
from nojit.aot.manifest.options import OPTIONS, TOOLCHAIN
from nojit.aot.manifest.reader import load_manifest
from nojit.aot.manifest.schema import json_schema
from nojit.aot.plan.planner import make_plans
from nojit.runtime import _core
from nojit.runtime.base.launch_options import TUNABLE
from nojit.runtime.errors import ManifestError

from tests.aot.conftest import HEADER, KERNEL, ROOT
from tests.aot.fake_compiler import FakeCompiler, FakeSource

SCHEMA = json_schema()
MANIFESTS = [
    path
    for folder in ("manifests", "examples", "aot", "tests")
    for path in sorted((ROOT / folder).rglob("*.toml"))
    if "kernel" in (data := tomllib.loads(path.read_text(encoding="utf-8"))) and "bundle" in data
]


def mistakes(path: Path) -> list[str]:
    """List what the schema says of a manifest, by its key path."""
    validator = jsonschema.Draft202012Validator(SCHEMA)
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return [error.json_path for error in validator.iter_errors(data)]


def test_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_takes_every_manifest_of_the_project(path: Path) -> None:
    assert load_manifest(path).kernel
    assert mistakes(path) == []


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_name_the_schema(path: Path) -> None:
    """Those that people edit: others are generated, or ship where the schema does not."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    edited = path.parent.name == "manifests" or "examples" in path.parts
    if not edited or path.name == "pointwise.toml":
        return
    assert first.startswith("#:schema ")
    assert (path.parent / first.removeprefix("#:schema ")).resolve() == ROOT / "docs/manifest.schema.json"


RIGHT = """
grid = ["cdiv(n, BLOCK)"]
core = "true"
[kernel.params]
a = "*fp16"
b = "*kbf16?"
c = "*{dtype}?"
d = "{dtype}"
e = "(*fp16?, n: i32)"
f = "tensordesc<{dtype}[{BLOCK}, 64], NVMMASharedLayout(transposed=True)>"
g = "none"
h = "i1"
[kernel.matrix]
dtype = ["fp16"]
A = [1, 1.5, true, "x", [1, 2], { dtype = "torch.float16" }, { dtype = "i32" }, { function = "a.py:f" }, { none = true }]
[kernel.derived]
EVEN = "n > 1"
SOME = { expr = "n", values = [1] }
[[kernel.configs]]
BLOCK = 64
TABLE = [1, 2]
num_warps = 4
extern_libs = { libdevice = "x.bc" }
archs = ["sm_90", "sm_120"]
when = "true"
requires = ""
[kernel.options]
enable_fp_fusion = false
maxnreg = 255
[[kernel.hints]]
a = 16
"e.1" = 1
[kernel.tuning]
key = ["n"]
alike = { A = [[1, 1.5]] }
[[kernel.tuning.space]]
BLOCK = [64, 128]
TABLE = [[1, 2], [3, 4]]
num_warps = [4, 8]
num_stages = 3
"""


def test_takes_every_form_of_a_value(write_manifest: Callable[..., Path]) -> None:
    assert mistakes(write_manifest(KERNEL + RIGHT)) == []


WRONG: list[tuple[str, str]] = [
    ("zebra = 1\n", "$.kernel[0]"),
    ("params = 3\n", "$.kernel[0].params"),
    ('params = { x = "f16" }\n', "$.kernel[0].params.x"),
    ('params = { x = "*fp6" }\n', "$.kernel[0].params.x"),
    ('params = { x = "int" }\n', "$.kernel[0].params.x"),
    ('params = { "a b" = "i32" }\n', "$.kernel[0].params"),
    ("grid = [1]\n", "$.kernel[0].grid[0]"),
    ('grid = ["1", "1", "1", "1"]\n', "$.kernel[0].grid"),
    ("matrix = { A = [] }\n", "$.kernel[0].matrix.A"),
    ("matrix = { A = [{ dtyp = 'fp16' }] }\n", "$.kernel[0].matrix.A[0]"),
    ("matrix = { A = [{ dtype = 'f16' }] }\n", "$.kernel[0].matrix.A[0]"),
    ("matrix = { A = [{ none = false }] }\n", "$.kernel[0].matrix.A[0]"),
    ("matrix = { A = [{}] }\n", "$.kernel[0].matrix.A[0]"),
    ("[[kernel.hints]]\nx = 8\n", "$.kernel[0].hints[0].x"),
    ("hints = [{}]\n", "$.kernel[0].hints[0]"),
    ("[kernel.derived]\nA = 3\n", "$.kernel[0].derived.A"),
    ('[kernel.derived]\nA = ""\n', "$.kernel[0].derived.A"),
    ('[kernel.derived]\nA = { expr = "n" }\n', "$.kernel[0].derived.A"),
    ("configs = []\n", "$.kernel[0].configs"),
    ("configs = [{ num_warps = 3 }]\n", "$.kernel[0].configs[0].num_warps"),
    ("configs = [{ num_warps = '8' }]\n", "$.kernel[0].configs[0].num_warps"),
    ("configs = [{ num_stages = 17 }]\n", "$.kernel[0].configs[0].num_stages"),
    ("configs = [{ num_ctas = 3 }]\n", "$.kernel[0].configs[0].num_ctas"),
    ("configs = [{ maxnreg = 7 }]\n", "$.kernel[0].configs[0].maxnreg"),
    ("configs = [{ enable_fp_fusion = 1 }]\n", "$.kernel[0].configs[0].enable_fp_fusion"),
    ("configs = [{ default_dot_input_precision = 'tf' }]\n", "$.kernel[0].configs[0].default_dot_input_precision"),
    ("configs = [{ archs = ['sm_91'] }]\n", "$.kernel[0].configs[0].archs[0]"),
    ("configs = [{ archs = [] }]\n", "$.kernel[0].configs[0].archs"),
    ("configs = [{ when = true }]\n", "$.kernel[0].configs[0].when"),
    ("configs = [{ BLOCK = {} }]\n", "$.kernel[0].configs[0].BLOCK"),
    ("[kernel.options]\nnum_warp = 4\n", "$.kernel[0].options"),
    ("[kernel.options]\nptx_version = 1\n", "$.kernel[0].options.ptx_version"),
    ("[kernel.options]\nextern_libs = { a = 1 }\n", "$.kernel[0].options.extern_libs.a"),
    ("[[kernel.exclude]]\nwhen = ''\n", "$.kernel[0].exclude[0].when"),
    ("[[kernel.exclude]]\nwhne = 'true'\n", "$.kernel[0].exclude[0]"),
    ("[kernel.tuning]\nkey = []\n", "$.kernel[0].tuning.key"),
    ("[kernel.tuning]\nkey = ['n']\nbucket = 'pow3'\n", "$.kernel[0].tuning.bucket"),
    ("[kernel.tuning]\nkey = ['n']\nmax_spill_bytes = -1\n", "$.kernel[0].tuning.max_spill_bytes"),
    ("[kernel.tuning]\nkey = ['n']\n[[kernel.tuning.space]]\nnum_warps = [4, 3]\n", "$.kernel[0].tuning.space[0].num_warps"),
    ("[kernel.tuning]\nkey = ['n']\n[[kernel.tuning.space]]\nlaunch_pdl = [true]\n", "$.kernel[0].tuning.space[0]"),
    ("[kernel.tuning]\nkey = ['n']\n[[kernel.tuning.space]]\nBLOCK = []\n", "$.kernel[0].tuning.space[0].BLOCK"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place"), WRONG, ids=lambda text: text.strip().replace("\n", " "))
def test_refuses_what_the_reader_refuses(
    write_manifest: Callable[..., Path], tmp_path: Path, text: str, place: str
) -> None:
    path = write_manifest(KERNEL + text)
    # an array of nothing is an array of values
    if "BLOCK = []" not in text:
        assert place in mistakes(path)
    compiler = FakeCompiler(tmp_path / "journal", {"demo:add_kernel": FakeSource(())})
    with pytest.raises(ManifestError):
        make_plans([path], (), "full", compiler)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("schema = 1", "schema = 2", "$.schema"),
        ("sm_90", "sm_91", "$.bundle.archs[0]"),
        ('version = "1.0"', "", "$.bundle"),
        ('"demo"', '"de/mo"', "$.bundle.name"),
        ("[bundle]", "zebra = 1\n[bundle]", "$"),
    ],
)
def test_refuses_a_wrong_head(write_manifest: Callable[..., Path], old: str, new: str, place: str) -> None:
    assert place in mistakes(write_manifest((HEADER + KERNEL).replace(old, new), header=""))


def lists(schema: Any, wanted: list[Any]) -> bool:
    """Say whether a schema lists these values somewhere."""
    if isinstance(schema, dict):
        return schema.get("enum") == wanted or any(lists(each, wanted) for each in schema.values())
    return isinstance(schema, list) and any(lists(each, wanted) for each in schema)


def test_lists_what_editors_complete() -> None:
    kernel = SCHEMA["$defs"]["KernelSpec"]["properties"]
    config = kernel["configs"]["items"]["properties"]
    assert lists(config, [*known_archs(), "sm_100f", "sm_120f"])
    assert lists(config["num_warps"], [1, 2, 4, 8, 16, 32])
    assert {*OPTIONS, "archs", "when", "requires"} == config.keys()
    assert kernel["options"]["properties"].keys() == OPTIONS.keys()
    assert {
        name
        for name, facts in SCHEMA["$defs"]["TuningSpec"]["properties"]["space"]["items"]["properties"].items()
        if facts
    } == {*TUNABLE, TOOLCHAIN, "archs", "when", "requires"}
    assert {*SCHEMA["$defs"]["TuningSpec"]["properties"]["bucket"]["enum"]} == {*_core.BUCKETS}
    assert "*fp8e5" in str(SCHEMA["$defs"]["Type"])
    assert all(facts["description"] for facts in config.values())
