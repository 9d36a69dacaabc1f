"""Every rule of a manifest by its message: what was expected, what was found, the file, line and key path."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from nojit.aot.manifest.reader import find_manifests, load_manifest
from nojit.aot.manifest.spec import DerivedSpec
from nojit.runtime.errors import ManifestError

from tests.aot.conftest import HEADER, KERNEL, ROOT

MANIFESTS = sorted((ROOT / "manifests").glob("*.toml"))

# the tests below add lines after these: the first of them is line 12
assert (HEADER + KERNEL).count("\n") == 11


def mistake(path: Path) -> str:
    """Return the message of the only mistake, without its column: `TestPlaces` is about columns."""
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    return re.sub(r"(demo\.toml:\d+):\d+", r"\1", str(caught.value).replace(str(path), "demo.toml"))


class TestReading:
    def test_a_small_manifest_has_every_default(self, write_manifest):
        manifest = load_manifest(write_manifest(KERNEL))
        (kernel,) = manifest.kernel
        assert (manifest.schema, manifest.bundle.name, manifest.bundle.version) == (1, "demo", "1.0")
        assert (kernel.params, kernel.grid, kernel.matrix, kernel.hints, kernel.derived) == ({}, [], {}, [], {})
        assert (kernel.configs, kernel.options, kernel.exclude) == ([{}], {}, [])
        assert (kernel.core, kernel.aligned_only, kernel.tuning) == ("true", "", None)

    def test_every_field_arrives(self, write_manifest):
        text = KERNEL + (
            'grid = ["cdiv(n, BLOCK)"]\ncore = "BLOCK == 64"\naligned_only = "TMA"\n'
            '[kernel.params]\nx_ptr = "*{dtype}?"\nn = "i32"\n[kernel.matrix]\ndtype = ["fp16"]\nFLAG = [true, 1, 1.0]\n'
            "[[kernel.hints]]\nx_ptr = 16\n[[kernel.hints]]\nn = 1\n"
            '[kernel.derived]\nEVEN = "n == 1"\nSPLIT = { expr = "n // 2", values = [1, 2] }\n'
            '[[kernel.configs]]\nBLOCK = 64\nnum_warps = 8\narchs = ["sm_90"]\nwhen = "FLAG == true"\nrequires = "n > 1"\n'
            '[kernel.options]\nenable_fp_fusion = false\n[[kernel.exclude]]\nwhen = "BLOCK > 64"\n'
            '[kernel.tuning]\nkey = ["n"]\nbucket = "exact"\n'
        )
        (kernel,) = load_manifest(write_manifest(text)).kernel
        assert kernel.hints == [{"x_ptr": 16}, {"n": 1}]
        assert [type(value) for value in kernel.matrix["FLAG"]] == [bool, int, float]
        assert kernel.derived == {"EVEN": "n == 1", "SPLIT": DerivedSpec(expr="n // 2", values=[1, 2])}
        assert kernel.configs[0]["requires"] == "n > 1"
        assert kernel.options == {"enable_fp_fusion": False}
        assert kernel.tuning is not None
        assert (kernel.tuning.key, kernel.tuning.bucket) == (["n"], "exact")

    def test_no_such_file(self, tmp_path):
        assert "expected a manifest, a TOML file in UTF-8, got No such file or directory" in mistake(
            tmp_path / "absent.toml"
        )

    def test_an_int_that_python_does_not_read(self, tmp_path):
        path = tmp_path / "long.toml"
        path.write_text("schema = " + "9" * 10_000)
        assert "expected TOML, got Exceeds the limit (4300 digits)" in mistake(path)

    def test_not_utf_8(self, tmp_path):
        path = tmp_path / "latin.toml"
        path.write_bytes('name = "é"'.encode("latin-1"))
        message = mistake(path)
        assert message.startswith(
            "expected a manifest, a TOML file in UTF-8, got byte 0xe9 at offset 8, which is no UTF-8"
        )
        assert message.endswith(" - at demo.toml")

    def test_a_byte_order_mark_is_passed_over(self, write_manifest):
        path = write_manifest(KERNEL)
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert load_manifest(path).kernel

    def test_not_toml_says_the_line(self, write_manifest):
        message = mistake(write_manifest("\n[[kernel\n"))
        assert message.startswith("expected TOML, got ")
        assert message.endswith(" - at demo.toml:8")

    @pytest.mark.parametrize("value", ["[" * 3000 + "]" * 3000, "{ a = " * 3000 + "1" + " }" * 3000])
    def test_values_without_end_are_bad_toml(self, write_manifest, value):
        assert "expected arrays and tables that nest less deeply" in mistake(write_manifest(f"x = {value}\n"))

    def test_a_duplicate_key_is_bad_toml(self, write_manifest):
        assert mistake(write_manifest(KERNEL + 'name = "twice"\n')).startswith("expected TOML, got Cannot overwrite")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("schem = 2\n", "expected one of the keys schema, bundle, kernel, got 'schem'; did you mean 'schema'? - at demo.toml:12 $.schem"),
        ('[[kernl]]\nname = "more"\n', "got 'kernl'; did you mean 'kernel'? - at demo.toml:12 $.kernl"),
        ("matrx = { A = [1] }\n", "got 'matrx'; did you mean 'matrix'? - at demo.toml:12 $.kernel[0].matrx"),
        ("zebra = 1\n", "got 'zebra' - at demo.toml:12 $.kernel[0].zebra"),
        ('[kernel.tuning]\nkeys = ["n"]\n', "expected one of the keys key, bucket, names, terms, when, alike, apart, unaligned, max_spill_bytes, space, got 'keys'; did you mean 'key'? - at demo.toml:13 $.kernel[0].tuning.keys"),
        ('[[kernel.exclude]]\nwhen = "true"\n[[kernel.exclude]]\nwhne = "true"\n', "expected the key when, got 'whne'; did you mean 'when'? - at demo.toml:15 $.kernel[0].exclude[1].whne"),
        ('[kernel.derived]\nE = { expt = "n", values = [1] }\n', "expected one of the keys expr, values, got 'expt'; did you mean 'expr'? - at demo.toml:13 $.kernel[0].derived.E.expt"),
        ("[kernel.options]\nnum_warp = 4\n", "got 'num_warp'; did you mean 'num_warps'? - at demo.toml:13 $.kernel[0].options.num_warp"),
        ("[bundle]\n", "expected TOML"),
    ],
    ids=["top", "array", "kernel", "nothing near", "tuning", "exclude", "derived", "options", "toml"],
)  # fmt: skip
def test_unknown_keys_name_the_nearest_right_spelling(write_manifest, text, expected):
    if text.startswith("schem"):
        path = write_manifest("", header=HEADER.replace("schema = 1", "schema = 1\nschem = 2") + KERNEL)
        expected = expected.replace(":12 ", ":2 ")
    else:
        path = write_manifest(KERNEL + text)
    assert expected in mistake(path)


def test_an_unknown_key_of_the_bundle(write_manifest):
    path = write_manifest(KERNEL, header=HEADER.replace("archs", "arch"))
    expected = "expected one of the keys name, version, archs, toolchains, got 'arch'; did you mean 'archs'? - at demo.toml:6 $.bundle.arch"
    assert mistake(path) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("schema = 1\n", "", "expected a value for 'schema', got none - at demo.toml:1 $"),
        ('version = "1.0"\n', "", "expected a value for 'version', got none - at demo.toml:3 $.bundle"),
        ('archs = ["sm_90"]\n', "", "expected a value for 'archs', got none - at demo.toml:3 $.bundle"),
        ('source = "demo:add_kernel"\n', "", "expected a value for 'source', got none - at demo.toml:8 $.kernel[0]"),
        (KERNEL, "", "expected a value for 'kernel', got none - at demo.toml:1 $"),
        ("schema = 1", "schema = 2", "expected 1, got 2 - at demo.toml:1 $.schema"),
        ("schema = 1", 'schema = "1"', "expected 1, got '1' - at demo.toml:1 $.schema"),
        ("schema = 1", "schema = true", "expected 1, got true - at demo.toml:1 $.schema"),
        ('version = "1.0"', "version = 1.0", "expected a string, got 1.0 - at demo.toml:5 $.bundle.version"),
        ('archs = ["sm_90"]', "archs = []", "expected an array that is not empty, got [] - at demo.toml:6 $.bundle.archs"),
        ('archs = ["sm_90"]', "archs = [90]", "expected a string, got 90 - at demo.toml:6 $.bundle.archs[0]"),
        ("[[kernel]]", "[kernel]", "expected an array, got {'name': 'add', 'source': 'demo:add_kernel'} - at demo.toml:8 $.kernel"),
    ],
)  # fmt: skip
def test_missing_and_mistyped_fields(write_manifest, old, new, expected):
    text = HEADER + KERNEL
    assert old in text
    assert mistake(write_manifest(text.replace(old, new), header="")) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("params = 3\n", "expected a table, got 3 - at demo.toml:12 $.kernel[0].params"),
        ('[kernel.params]\nn = "i32"\nm = 32\n', "expected a string, got 32 - at demo.toml:14 $.kernel[0].params.m"),
        ('[kernel.params]\nn = "i32"\n"a b" = "i32"\n', "got 'a b' - at demo.toml"),
        ('grid = ["1", "2", "3", "4"]\n', "expected an array of at most 3, got ['1', '2', '3', '4'] - at demo.toml:12 $.kernel[0].grid"),
        ('grid = ["1", ""]\n', "expected a string that is not empty, got '' - at demo.toml:12 $.kernel[0].grid[1]"),
        ("[kernel.matrix]\nA = [1]\nB = []\n", "expected an array that is not empty, got [] - at demo.toml:14 $.kernel[0].matrix.B"),
        ("[[kernel.hints]]\nx = 16\n[[kernel.hints]]\ny = 1\nx = 8\n", "expected 1 or 16, got 8 - at demo.toml:16 $.kernel[0].hints[1].x"),
        ("[[kernel.hints]]\nx = true\n", "expected 1 or 16, got true - at demo.toml:13 $.kernel[0].hints[0].x"),
        ("hints = [{}]\n", "expected a table that is not empty, got {} - at demo.toml:12 $.kernel[0].hints[0]"),
        ("[kernel.derived]\nA = 3\n", "expected a string or a table, got 3 - at demo.toml:13 $.kernel[0].derived.A"),
        ('[kernel.derived]\nA = { expr = "n", values = [] }\n', "expected an array that is not empty, got [] - at demo.toml:13 $.kernel[0].derived.A.values"),
        ('[kernel.derived]\nA = { expr = "n", values = [true] }\n', "expected an int, got true - at demo.toml:13 $.kernel[0].derived.A.values[0]"),
        ('[kernel.derived]\nA = { expr = "n" }\n', "expected a value for 'values', got none - at demo.toml:13 $.kernel[0].derived.A"),
        ('core = ""\n', "expected a string that is not empty, got '' - at demo.toml:12 $.kernel[0].core"),
        ("configs = []\n", "expected an array that is not empty, got [] - at demo.toml:12 $.kernel[0].configs"),
        ('[kernel.tuning]\nkey = ["n"]\nbucket = "pow3"\n', "expected 'exact' or 'pow2' or 'quarter_pow2' or 'sixteenth_pow2', got 'pow3'; did you mean 'pow2'? - at demo.toml:14 $.kernel[0].tuning.bucket"),
        ("[kernel.tuning]\nkey = []\n", "expected an array that is not empty, got [] - at demo.toml:13 $.kernel[0].tuning.key"),
    ],
)  # fmt: skip
def test_a_kernels_fields(write_manifest, text, expected):
    assert expected in mistake(write_manifest(KERNEL + text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"add"', '"two words"'),
        ('"add"', '"../add"'),
        ('"add"', '""'),
        ('"add"', '"add\\n"'),
        ('"add"', f'"{"a" * 201}"'),
        ('"demo"', '"de/mo"'),
        ('"demo"', '"demo\\n"'),
        ('"1.0"', '"v1"'),
        ('"1.0"', '"1.0/.."'),
        ('"1.0"', '"1.0\\n"'),
        ('"demo:add_kernel"', '"demo.add_kernel"'),
        ('"demo:add_kernel"', '"demo:add kernel"'),
        ('"demo:add_kernel"', '"demo:add_kernel\\n"'),
    ],
)
def test_names_are_keys_and_never_paths(write_manifest, old, new):
    message = mistake(write_manifest((HEADER + KERNEL).replace(old, new), header=""))
    assert message.startswith(("expected a name of ", "expected a version of ", "expected package.module:function or "))
    assert "regex" not in message
    assert f"got {new.replace(chr(34), chr(39))[:70]}" in message or len(new) > 100


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("num_warps", "3", "expected one of 1, 2, 4, 8, 16, 32, got 3"),
        ("num_warps", "'8'", "expected int, got '8'"),
        ("num_warps", "true", "expected int, got True"),
        ("num_warps", "8.0", "expected int, got 8.0"),
        ("num_stages", "0", "expected one of 1 to 16, got 0"),
        ("num_stages", "17", "expected one of 1 to 16, got 17"),
        ("num_ctas", "3", "expected one of 1, 2, 4, 8, 16, got 3"),
        ("maxnreg", "256", "expected one of 8 to 255, got 256"),
        ("enable_fp_fusion", "1", "expected bool, got 1"),
        ("launch_pdl", "'yes'", "expected bool, got 'yes'"),
        ("ptx_options", "3", "expected str, got 3"),
    ],
)
@pytest.mark.parametrize("place", ["configs", "options"])
def test_options_in_range(write_manifest, place, option, value, expected):
    header = "[[kernel.configs]]\nBLOCK = 1\n[[kernel.configs]]" if place == "configs" else "[kernel.options]"
    message = mistake(write_manifest(f"{KERNEL}{header}\n{option} = {value}\n"))
    line, path = (15, "configs[1]") if place == "configs" else (13, "options")
    assert message == f"{expected} - at demo.toml:{line} $.kernel[0].{path}.{option}"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("archs = 'sm_90'", "expected a list of archs, got 'sm_90'"),
        ("archs = []", "expected a list of archs, got []"),
        ("archs = [90]", "expected a list of archs, got [90]"),
        ("when = true", "expected an expression, got true"),
        ("requires = ['n']", "expected an expression, got ['n']"),
    ],
)
def test_rules_of_a_config(write_manifest, rule, expected):
    key = rule.split(" ", 1)[0]
    message = mistake(write_manifest(f"{KERNEL}[[kernel.configs]]\n{rule}\n"))
    assert message == f"{expected} - at demo.toml:13 $.kernel[0].configs[0].{key}"


class TestLines:
    def test_of_the_right_kernel(self, write_manifest):
        text = KERNEL + "[kernel.params]\nn = 'i32'\n" + KERNEL.replace('"add"', '"sub"') + "[kernel.params]\nn = 1\n"
        assert mistake(write_manifest(text)).endswith("demo.toml:20 $.kernel[1].params.n")

    def test_never_of_another_kernel(self, write_manifest):
        text = KERNEL + "tuning = { key = [], bucket = 'pow2' }\n" + KERNEL.replace('"add"', '"sub"')
        text += "params = { n = 'i32' }\n[kernel.tuning]\nkey = ['n']\n"
        assert mistake(write_manifest(text)).endswith("demo.toml:12 $.kernel[0].tuning.key")

    def test_not_of_a_unicode_line_separator(self, write_manifest):
        text = "\n# one line to every editor:\u2028 this is not the next one" + KERNEL + "core = 3\n"
        assert mistake(write_manifest(text)).endswith("demo.toml:13 $.kernel[0].core")

    def test_of_a_dotted_key(self, write_manifest):
        text = HEADER.replace("[bundle]\n", "").replace("schema = 1\n\n", "schema = 1\nbundle.")
        text = text.replace("\nversion = ", "\nbundle.version = 1\n#").replace("\narchs", "\nbundle.archs")
        message = mistake(write_manifest(text + KERNEL, header=""))
        assert message == "expected a string, got 1 - at demo.toml:3 $.bundle.version"


def test_duplicate_kernels(write_manifest):
    message = mistake(write_manifest(KERNEL + KERNEL))
    assert (
        message
        == "expected each kernel name once, got 'add' in kernel[0] too; rename one - at demo.toml:14 $.kernel[1].name"
    )


def test_long_values_are_cut(write_manifest):
    message = mistake(write_manifest(f"{KERNEL}params = '{'x' * 500}'\n"))
    assert "..." in message
    assert len(message) < 200


class TestFinding:
    def test_files_as_given_and_folders_sorted_each_once(self, tmp_path):
        for name in ("b.toml", "a.toml", "c.txt"):
            (tmp_path / name).touch()
        (tmp_path / "folder.toml").mkdir()
        found = find_manifests([tmp_path / "b.toml", tmp_path, tmp_path / "b.toml"])
        assert found == [tmp_path / "b.toml", tmp_path / "a.toml"]

    def test_an_empty_folder(self, tmp_path):
        with pytest.raises(
            ManifestError, match=r"expected a folder with \*.toml manifests, got a folder without any - at "
        ):
            find_manifests([tmp_path])

    def test_no_such_place(self, tmp_path):
        with pytest.raises(ManifestError, match="got no such path"):
            find_manifests([tmp_path / "absent"])

    def test_what_is_neither_a_file_nor_a_folder(self, tmp_path):
        os.mkfifo(tmp_path / "x.toml")
        with pytest.raises(ManifestError, match="got a FIFO - at "):
            find_manifests([tmp_path / "x.toml"])


def test_there_are_manifests():
    assert MANIFESTS
    for path in MANIFESTS:
        load_manifest(path)
