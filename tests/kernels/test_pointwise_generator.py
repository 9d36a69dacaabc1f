"""The generator of pointwise kernels: what is committed is what it writes, what it refuses, and how operands are tiled."""

from __future__ import annotations

import ast
import errno
import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nojit.aot.manifest.reader import load_manifest
from nojit.aot.variants.expand import expand_kernel
from nojit.kernels import library, pointwise
from nojit.kernels.pointwise.__main__ import generate, generate_own, main
from nojit.kernels.pointwise.op_from_spec import OTHERS
from nojit.kernels.pointwise.spec import read_specs, specify
from nojit.kernels.pointwise.tiling import Rectangles, holds, tile
from nojit.runtime.errors import ManifestError
from nojit.runtime.expr import expression as expr

ROOT = Path(__file__).resolve().parents[2]
SPECS = ROOT / "kernels/pointwise/operators.toml"
HEAD = 'schema = 1\n[bundle]\nname = "own"\nversion = "1"\narchs = ["sm_80", "sm_90"]\n'
ENTRY = '[[operator]]\nname = "own"\ninputs = ["x", "y"]\nexpression = "x * y"\n'


def test_what_is_committed_is_what_is_written():
    for path, text in generate_own().items():
        assert path.read_text() == text, f"run python -m nojit.kernels.pointwise: {path.name} is not of its specs"


def test_the_command_writes_a_module_and_a_manifest(tmp_path):
    specs, out = tmp_path / "own.toml", tmp_path / "built"
    specs.write_text(HEAD + ENTRY)
    subprocess.run([sys.executable, "-m", "nojit.kernels.pointwise", specs, "--out", out], check=True)
    assert {path.name for path in out.iterdir()} == {"own.toml", "own_kernels.py"}
    ast.parse((out / "own_kernels.py").read_text())
    manifest = load_manifest(out / "own.toml")
    assert [spec.name for spec in manifest.kernel] == ["own", "own_rectangles"]
    assert all(expand_kernel(spec, "sm_90", "here").variants for spec in manifest.kernel)


def test_the_command_does_not_overwrite_the_specs(tmp_path):
    specs = tmp_path / "own.toml"
    specs.write_text(HEAD + ENTRY)
    done = subprocess.run(
        [sys.executable, "-m", "nojit.kernels.pointwise", specs, "--out", tmp_path], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"expected --out to be another folder" in done.stderr
    assert specs.read_text() == HEAD + ENTRY


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[", "expected TOML"),
        (HEAD + ENTRY.replace("x * y", "foo(x) + y"), "expected a function, got 'foo'"),
        (HEAD + ENTRY + "keyx = 1\n", "got 'keyx'"),
        (HEAD + ENTRY.replace('"own"', '"own op"'), "expected a name for an operator"),
        (HEAD + ENTRY + 'derivative = "x"\n', "expected a table of text for derivative, got 'x'"),
        (HEAD + ENTRY + "choice = {}\n", "expected text for choice, got {}"),
        (HEAD + ENTRY + "index = []\n", 'expected ["i32"], ["i64"] or ["i32", "i64"] for index, got []'),
        (HEAD.replace("sm_80", "sm90") + ENTRY, "got 'sm90'; did you mean 'sm_90'?"),
        (HEAD.replace('["sm_80", "sm_90"]', '"sm_80"') + ENTRY, "expected an array of archs, got 'sm_80'"),
        (HEAD.replace('version = "1"', "version = 1") + ENTRY, "expected text, got 1"),
        (HEAD.replace("version", "versoin") + ENTRY, "got 'versoin'; did you mean 'version'?"),
    ],
)
def test_a_mistake_in_a_file_of_specs_is_told_in_one_line(tmp_path, monkeypatch, capsys, text, expected):
    specs = tmp_path / "own.toml"
    specs.write_text(text)
    monkeypatch.setattr(sys, "argv", ["pointwise", str(specs), "--out", str(tmp_path / "built")])
    with pytest.raises(SystemExit, match="1"):
        main()
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert expected in said
    assert str(specs) in said
    assert not (tmp_path / "built").exists()


def test_files_that_cannot_be_read_or_written_are_told_in_one_line(tmp_path, monkeypatch, capsys):
    specs = tmp_path / "own.toml"
    specs.write_text(HEAD + ENTRY)
    for words, place in (
        ((tmp_path / "none.toml",), tmp_path / "none.toml"),
        ((tmp_path,), tmp_path),
        ((specs, "--out", specs), specs),
        ((specs, "--out", specs / "in"), specs / "in"),
        ((specs, "--out", "/proc/none"), "/proc/none"),
    ):
        monkeypatch.setattr(sys, "argv", ["pointwise", *map(str, words)])
        with pytest.raises(SystemExit, match="1"):
            main()
        said = capsys.readouterr().err
        assert said.startswith("error: ")
        assert said.endswith(f" - at {place}\n")


def test_files_are_put_in_place_whole(tmp_path, monkeypatch):
    specs, out = tmp_path / "own.toml", tmp_path / "built"
    specs.write_text(HEAD + ENTRY)
    out.mkdir()
    (out / "own_kernels.py").write_text("old")

    def full(_path, _target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    monkeypatch.setattr(sys, "argv", ["pointwise", str(specs), "--out", str(out)])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert [path.name for path in out.iterdir()] == ["own_kernels.py"]
    assert (out / "own_kernels.py").read_text() == "old"


def test_what_ships_is_written_in_a_checkout_only(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("nojit.kernels.pointwise.__main__._CHECKOUT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["pointwise"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "expected SPECS" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.triton
def test_a_generated_kernel_compiles(tmp_path):
    from nojit.aot.cli.group import cli

    (tmp_path / "specs").mkdir()
    specs = tmp_path / "specs/own.toml"
    specs.write_text(
        HEAD + ENTRY.replace("x * y", "where(x < 0, tanh(x) / y, exp(y) + sqrt(abs(x)))") + 'dtypes = ["fp32"]'
    )
    for name, text in generate(specs).items():
        (tmp_path / name).write_text(text)
    command = ["build", str(tmp_path / "own.toml"), "--arch", "sm_90", "--out", str(tmp_path / "out"), "--jobs", "1"]
    with pytest.raises(SystemExit) as ended:
        cli.main(command, prog_name="nojit")
    assert ended.value.code == 0
    assert (tmp_path / "out/own-1-sm_90.nojit").exists()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("", r"expected at least one table \[\[operator\]\]"),
        (ENTRY + "kind = 1", "got 'kind'; did you mean 'kinds'"),
        (ENTRY.replace("x * y", "x * z"), "expected one of x, y, got 'z'"),
        (ENTRY.replace("x * y", "x"), "expected the expression to use 'y'"),
        (ENTRY.replace('"own"', '"own kernel"'), "expected a name for an operator"),
        (ENTRY.replace('"own"', '"import"'), "not reserved, got 'import'"),
        (ENTRY.replace('["x", "y"]', '["x", "class"]'), "not reserved, got 'class'"),
        (ENTRY.replace('["x", "y"]', '"x"'), "expected an array of text for inputs"),
        (ENTRY.replace('"x * y"', "3"), "expected text or a table of text for expression"),
        (ENTRY + 'dtypes = ["fp8"]', "got 'fp8'"),
        (ENTRY + 'dtypes = ["fp16", "fp16"]', "each once"),
        (ENTRY.replace("x * y", "x / y") + 'dtypes = ["i32"]', "expected only float dtypes for own"),
        (ENTRY.replace("x * y", "x * y * s") + 'scalars = ["s"]\ndtypes = ["fp64"]', "expected no fp64 for own"),
        (ENTRY + 'kinds = ["rr"]', "expected 2 letters in each of kinds"),
        (ENTRY + 'kinds = ["tc"]', "expected 2 letters in each of kinds"),
        (ENTRY + 'index = ["u8"]', r'expected \["i32"\], \["i64"\] or \["i32", "i64"\] for index'),
        (ENTRY + 'choice = "how"', "expected operator own to have one expression, or a choice"),
        (ENTRY.replace('"x * y"', '{ a = "x * y" }'), "expected operator own to have one expression, or a choice"),
        (ENTRY.replace('"x * y"', '{ a = "x * y" }') + 'choice = "block"', "not reserved, got 'block'"),
        (
            ENTRY.replace('"x * y"', '{ a = "x * y", b = "x + y" }') + 'choice = "how"\ngradient = true',
            "expected all choices of own to have gradients over the same inputs, for one kernel",
        ),
        (ENTRY + 'derivative = { x = "grad" }', "expected a derivative for each input"),
        (ENTRY + 'derivative = { x = "grad * y", y = "grad * q" }', "expected one of grad, x, y, got 'q'"),
        (ENTRY + ENTRY, "expected operators with distinct names"),
        (ENTRY + 'gradient = "yes"', "expected true or false for gradient"),
        ('[[operator]]\nname = "own"', "expected the keys inputs, expression"),
        ("[[operator", "expected TOML"),
    ],
)
def test_specs_are_refused(tmp_path, entry, message):
    specs = tmp_path / "own.toml"
    specs.write_text(HEAD + entry)
    with pytest.raises(ManifestError, match=message):
        read_specs(specs)


@pytest.mark.parametrize("text", ["x * y\n# nojit", 'x * y"""', "x * y; import os", "x\\\n* y", "x.T * y"])
def test_no_text_of_a_spec_reaches_code(tmp_path, text):
    specs = tmp_path / "own.toml"
    specs.write_text(HEAD + ENTRY.replace('"x * y"', f"'''{text}'''"))
    with pytest.raises(ManifestError):
        read_specs(specs)


def test_line_breaks_stay_out_of_code(tmp_path):
    specs = tmp_path / "own.toml"
    specs.write_text(HEAD + ENTRY.replace('"x * y"', "'''\nx\n  * y\n'''"))
    assert '"""Write ``x * y``."""' in generate(specs)["own_kernels.py"]


def test_two_operators_of_one_name_are_told_apart():
    pointwise.define(specify("test_twice", ("x",), "x * 2"))
    pointwise.define(specify("test_twice", ("x",), "x * 2"))
    with pytest.raises(ValueError, match="expected a name that no other operator has, got 'test_twice'"):
        pointwise.define(specify("test_twice", ("x",), "x * 3"))


def test_names_of_the_librarys_operators_are_taken():
    names = ["sub", "conv", "block_sparse_softmax_", "flex_decoding"]
    # in a process that has imported none of them
    code = f"""
from nojit.kernels import pointwise
for name in {names}:
    try:
        pointwise.define(pointwise.specify(name, ["x", "y"], "y - x"))
    except ValueError as error:
        print(error)
from nojit.kernels.conv import conv2d
from nojit.kernels.pointwise import sub
"""
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    for name, line in zip(names, told.splitlines(), strict=True):
        assert line.startswith("expected a name that no ")
        assert line.endswith(f", got {name!r}")


@pytest.mark.parametrize("name", ["foo_out", "foo_bwd", "foo_rectangles"])
def test_names_that_other_operators_and_kernels_would_have_are_refused(name):
    with pytest.raises(ValueError, match=f"does not end in _out, _bwd, _rectangles, got '{name}'"):
        specify(name, ("x",), "x * 2")


def test_all_operators_of_the_library_are_known():
    code = """
import importlib, pkgutil, torch
import nojit.kernels
for module in pkgutil.walk_packages(nojit.kernels.__path__, "nojit.kernels."):
    if module.name.endswith(".op"):
        importlib.import_module(module.name)
print(*(name.removeprefix("nojit::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("nojit::")))
"""
    listed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    own = {spec.name for spec in read_specs(SPECS).operators}
    assert {name.removesuffix("_out").removesuffix("_bwd") for name in listed} == own | OTHERS


@pytest.mark.parametrize(("size", "rows", "width"), [(384, 3, 128), (1 << 20, 256, 4096), (128, 2, 64), (100, 1, 100)])
def test_one_dimension_is_cut_into_rows_where_some_width_fits(size, rows, width):
    tiles = tile((size,), (((size,), (2,)), ((1,), (1,)), ((size,), (1,))))
    assert (tiles.nx, tiles.ny, tiles.n0, tiles.n1) == (width, rows, 1, 1)
    along = [steps[3] for steps in tiles.strides]
    assert along == [2, 0, 1]
    assert [steps[2] for steps in tiles.strides] == [step * width if rows > 1 else 0 for step in along]


@given(st.data())
def test_rectangles_reach_each_element_once_and_right(data):
    """Walk the rectangles of random operands in Python: every tensor's offsets are those of its strides."""
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), max_size=5)))
    strides = []
    for _ in range(3):
        order = data.draw(st.permutations(range(len(shape))))
        steps, step = [0] * len(shape), 1
        for place in order:
            steps[place] = step
            step *= shape[place] + data.draw(st.sampled_from([0, 0, 0, 1]))
        strides.append(tuple(0 if data.draw(st.booleans()) and len(strides) < 2 else each for each in steps))
    tiles = tile(shape, tuple((shape, steps) for steps in strides))
    places = list(itertools.product(*(range(size) for size in shape)))
    strides = [[step if size > 1 else 0 for step, size in zip(steps, shape, strict=True)] for steps in strides]
    wanted = sorted(tuple(sum(map(int.__mul__, place, steps)) for steps in strides) for place in places)
    if tiles is None:
        return
    if isinstance(tiles, int):
        assert wanted == [(place, place, place) for place in range(tiles)]
        return
    sizes = (tiles.n1, tiles.n0, tiles.ny, tiles.nx)
    walked = itertools.product(*(range(size) for size in sizes))
    assert wanted == sorted(tuple(sum(map(int.__mul__, place, steps)) for steps in tiles.strides) for place in walked)
    for letter, (_, _, sy, sx) in zip(tiles.kinds, tiles.strides, strict=True):
        assert {"r": sx == 1, "c": sx == 0, "t": sy == 1, "s": True}[letter]


def test_whole_vectors_are_what_manifests_require():
    spec = {one.name: one for one in load_manifest(ROOT / "manifests/pointwise.toml").kernel}["mul_rectangles"]
    rules = {
        config["when"].split("'")[1]: expr.parse(config["requires"]) for config in spec.configs if "requires" in config
    }
    assert set(rules) == {"rrr", "rcr", "crr", "rtr"}
    for kinds, numbers in itertools.product(rules, itertools.product((16, 24), repeat=4)):
        nx, ny, step, address = numbers
        letters = {"r": (step, 1), "c": (step, 0), "t": (1, step)}
        strides = tuple((step, 0, *letters[letter]) for letter in kinds)
        tiles = Rectangles(nx, ny, 1, 1, strides, kinds, ())
        names = {"nx": nx, "ny": ny, "n0": 1, "n1": 1}
        for name, each in zip(("input", "other", "out"), strides, strict=True):
            names[f"{name}_ptr"] = expr.Pointer(address)
            names |= {f"{name}_s{way}": value for way, value in zip("10yx", each, strict=True)}
        assert holds(tiles, kinds, [address] * 3) is rules[kinds].evaluate(names), (kinds, numbers)


@pytest.mark.parametrize(
    ("shapes", "turned", "kinds"),
    [
        (((32, 48), (32, 48)), (), None),
        (((32, 48), (48,)), (), "rrr"),
        (((32, 48), (32, 1)), (), "rcr"),
        (((32, 1), (32, 48)), (), "crr"),
        (((32, 48), ()), (), "rcr"),
        (((33, 47), (33, 1)), (), "sss"),
        (((33, 47), (47,)), (), "rrr"),
        (((32, 48), (48, 32)), (1,), "rtr"),
        (((48, 32), (32, 48)), (0,), "rtr"),
        (((48, 32), (48, 32)), (0, 1), None),
    ],
)
def test_what_kinds_are_launched(shapes, turned, kinds):
    launches = []
    with library.override(lambda name: lambda *args, **named: launches.append((name, named))):
        operands = [torch.ones(shape) for shape in shapes]
        pointwise.mul(*(x.t() if place in turned else x for place, x in enumerate(operands)))
    assert launches == ([("mul", {})] if kinds is None else [("mul_rectangles", {"KINDS": kinds})])
