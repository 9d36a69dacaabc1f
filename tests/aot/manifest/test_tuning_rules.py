"""Mistakes in `[kernel.tuning]`: refused at reading, with line, key path and the nearest right spelling."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nojit.aot.manifest.reader import load_manifest
from nojit.runtime.errors import ManifestError

from tests.aot.conftest import KERNEL

HEAD = KERNEL + (
    'params = { x = "*{dtype}", n = "{index}", rows = "i32?", scale = "fp32", shape = "(i32, i32)" }\n'
    'matrix = { dtype = ["fp16", "bf16"], index = ["i32", "i64"], FLAG = [true, 1] }\n'
    "configs = [{ BLOCK = 64, SPLIT = 1 }, { BLOCK = 32, SPLIT = 2, num_warps = 8 }]\n"
    "[kernel.tuning]\n"
)
KEY = 'key = ["n"]\n'
SPACE = HEAD + KEY + "[[kernel.tuning.space]]\nSPLIT = 1\n"


def without_columns(error: ManifestError, path: Path) -> str:
    return re.sub(r"(demo\.toml:\d+):\d+", r"\1", str(error).replace(str(path), "demo.toml"))


def test_a_whole_tuning_arrives(write_manifest):
    text = HEAD + (
        'key = ["n", "rows * n"]\nbucket = "pow2"\nwhen = "FLAG == true"\nmax_spill_bytes = 16\n'
        'alike = { dtype = [["fp16", "bf16"]], FLAG = [[true, 1]] }\napart = ["index"]\n'
        'names = ["n", "area"]\nterms = ["cdiv(area, BLOCK * multiprocessors)", "n"]\n'
        '[[kernel.tuning.space]]\nBLOCK = [32, 64]\nSPLIT = 1\nnum_warps = [4]\nwhen = "BLOCK > 32"\narchs = ["sm_90"]\n'
        '[[kernel.tuning.space]]\nBLOCK = 64\nSPLIT = [1, 2]\nmaxnreg = [64, 128]\nrequires = "n > 1"\n'
    )
    tuning = load_manifest(write_manifest(text)).kernel[0].tuning
    assert tuning is not None
    assert (tuning.key, tuning.bucket, tuning.when) == (["n", "rows * n"], "pow2", "FLAG == true")
    assert (tuning.max_spill_bytes, tuning.alike["dtype"]) == (16, [["fp16", "bf16"]])
    assert tuning.apart == ["index"]
    assert (tuning.names, tuning.terms) == (["n", "area"], ["cdiv(area, BLOCK * multiprocessors)", "n"])
    assert [table["BLOCK"] for table in tuning.space] == [[32, 64], 64]


def test_the_defaults(write_manifest):
    tuning = load_manifest(write_manifest(HEAD + KEY)).kernel[0].tuning
    assert tuning is not None
    assert (tuning.bucket, tuning.when, tuning.alike, tuning.max_spill_bytes, tuning.space) == (
        ("quarter_pow2", "true", {}, 0, [])
    )
    assert (tuning.names, tuning.terms) == ([], [])


def test_what_grows_with_the_batch(write_manifest):
    batch = HEAD.replace("[kernel.tuning]", 'batch = ["rows", "n"]\n[kernel.tuning]')
    assert load_manifest(write_manifest(batch + KEY)).kernel[0].batch == ["rows", "n"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ('["row"]', "expected an int param (n, rows), got 'row'; did you mean 'rows'? - at demo.toml:15 $.kernel[0].batch[0]"),
        ('["n", "scale"]', "expected an int param (n, rows), got 'scale' - at demo.toml:15 $.kernel[0].batch[1]"),
        ('["n", "rows", "n"]', "expected each param once, got 'n' - at demo.toml:15 $.kernel[0].batch[2]"),
    ],
)  # fmt: skip
def test_mistakes_in_what_grows_with_the_batch(write_manifest, names, expected):
    path = write_manifest(HEAD.replace("[kernel.tuning]", f"batch = {names}\n[kernel.tuning]") + KEY)
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert without_columns(caught.value, path) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD + 'key = ["row"]\n', "expected an int param (n, rows), got 'row'; did you mean 'rows'? - at demo.toml:16 $.kernel[0].tuning.key[0]"),
        (HEAD + 'key = ["scale", "dtype"]\n', "2 mistakes\n  expected an int param (n, rows), got 'scale'"),
        (HEAD + 'key = ["x"]\n', "expected an int param (n, rows), got 'x' - at demo.toml:16 $.kernel[0].tuning.key[0]"),
        (HEAD + 'key = ["scale"]\n', "expected an int param (n, rows), got 'scale'"),
        (HEAD + 'key = ["shape"]\n', "expected an int param (n, rows), got 'shape'"),
        (HEAD + 'key = ["BLOCK * n"]\n', "expected an int param (n, rows), got 'BLOCK'"),
        (HEAD + 'key = ["n *"]\n', " - at demo.toml:16 $.kernel[0].tuning.key[0]"),
        (HEAD + 'key = ["4"]\n', "expected an expression over int params, got '4'"),
        (HEAD + 'key = ["n", "n"]\n', "expected each expression once, got 'n' - at demo.toml:16 $.kernel[0].tuning.key[1]"),
        (HEAD + f"key = {['n'] * 9}\n", "expected an array of at most 8"),
        (HEAD + KEY + 'terms = ["n"]\n', "expected 1 names, one for each number of the key, got 0 - at demo.toml:15 $.kernel[0].tuning.names"),
        (HEAD + KEY + 'names = ["a", "b"]\nterms = ["a"]\n', "expected 1 names, one for each number of the key, got 2 - at demo.toml:17"),
        (HEAD + KEY + 'apart = ["indx"]\n', "expected an axis of the matrix, got 'indx'; did you mean 'index'? - at demo.toml:17 $.kernel[0].tuning.apart[0]"),
        (HEAD + KEY + 'apart = ["BLOCK"]\n', "expected an axis of the matrix, got 'BLOCK'"),
        (HEAD + KEY + 'names = ["a"]\nterms = ["n"]\n', "expected one of a, multiprocessors, BLOCK, SPLIT, got 'n' - at demo.toml:18 $.kernel[0].tuning.terms[0]"),
        (HEAD + KEY + 'names = ["a"]\nterms = ["a", "a +"]\n', " - at demo.toml:18 $.kernel[0].tuning.terms[1]"),
        (HEAD + KEY + 'names = ["a"]\nterms = ["a > 3"]\n', "expected a number, got 'a > 3' - at demo.toml:18 $.kernel[0].tuning.terms[0]"),
        (HEAD + KEY + "names = ['a']\nterms = [\"a * 'x'\"]\n", "expected a number, got \"a * 'x'\""),
        (HEAD + KEY + 'names = ["a"]\nterms = ["dtype"]\n', "expected one of a, multiprocessors, BLOCK, SPLIT, got 'dtype'"),
        (HEAD + KEY + 'names = ["true"]\n', "expected a name of its own, got 'true'"),
        (HEAD + KEY + 'names = ["a", "b"]\n', "expected 1 names, one for each number of the key, got 2"),
        (HEAD + KEY + 'names = ["BLOCK"]\n', "expected a name of its own, got 'BLOCK' - at demo.toml:17 $.kernel[0].tuning.names[0]"),
        (HEAD + 'key = ["n", "rows"]\nnames = ["a", "a"]\n', "expected a name of its own, got 'a' - at demo.toml:17 $.kernel[0].tuning.names[1]"),
        (HEAD + KEY + 'names = ["multiprocessors"]\n', "expected a name of its own, got 'multiprocessors'"),
        (HEAD + KEY + "max_spill_bytes = -1\n", "expected an int of at least 0, got -1 - at demo.toml:17 $.kernel[0].tuning.max_spill_bytes"),
        (HEAD + KEY + 'alike = { dtyp = [["fp16", "bf16"]] }\n', "expected an axis of the matrix, got 'dtyp'; did you mean 'dtype'?"),
        (HEAD + KEY + 'alike = { dtype = [["fp16", "fp32"]] }\n', "expected a value of axis 'dtype', ['fp16', 'bf16'], got 'fp32'"),
        (HEAD + KEY + "alike = { FLAG = [[true, 1.0]] }\n", "expected a value of axis 'FLAG', [True, 1], got 1.0"),
        (HEAD + KEY + 'alike = { dtype = [["fp16", "bf16"], ["fp16", "bf16"]] }\n', "expected each value in one group, got 'fp16'"),
        (HEAD + KEY + 'alike = { dtype = [["fp16"]] }\n', "expected an array of at least 2"),
        (SPACE + "BLOK = [1]\n", "expected a constexpr of the configs or one of num_warps, num_stages, num_ctas, maxnreg, toolchain, got 'BLOK'; did you mean 'BLOCK'? - at demo.toml:19 $.kernel[0].tuning.space[0].BLOK"),
        (SPACE + "BLOCK = 1\nnum_warp = [4]\n", "got 'num_warp'; did you mean 'num_warps'? - at demo.toml:20"),
        (SPACE + "BLOCK = 1\nwhne = 'true'\n", "got 'whne'; did you mean 'when'?"),
        (SPACE + "BLOCK = 1\nenable_fp_fusion = [true, false]\n", "got 'enable_fp_fusion', which a call cannot pass to select a config: set it in [kernel.options]"),
        (SPACE + "BLOCK = []\n", "expected a value, or a list of them, got [] - at demo.toml:19 $.kernel[0].tuning.space[0].BLOCK"),
        (SPACE + "BLOCK = [1, 2, 1]\n", "expected each value once, got 1"),
        (SPACE + "BLOCK = [1, true]\nnum_warps = [4, 3]\n", "got 3 - at demo.toml:20 $.kernel[0].tuning.space[0].num_warps[1]"),
        (SPACE + "BLOCK = 1\nnum_stages = true\n", "expected int, got True"),
        (SPACE + "BLOCK = 1\nwhen = [1]\n", "expected an expression, got [1]"),
        (SPACE + "BLOCK = 1\narchs = []\n", "expected a list of archs, got []"),
        (SPACE, "expected a value for 'BLOCK', as the configs have, got none - at demo.toml:17 $.kernel[0].tuning.space[0]"),
        (SPACE + "BLOCK = 1\n[[kernel.tuning.space]]\nBLOCK = 1\n", "expected a value for 'SPLIT', as the configs have, got none - at demo.toml:20 $.kernel[0].tuning.space[1]"),
    ],
)  # fmt: skip
def test_mistakes(write_manifest, text, expected):
    path = write_manifest(text)
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert expected in without_columns(caught.value, path)
