"""`nojit inspect`, `verify`, `diff` and `extract`: what they say of bundles, whole and damaged."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from nojit.aot.wheel.archive import Wheel, pack_wheel
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import NoMatchingVariantError, PackageError
from nojit.runtime.loader import load
from nojit.runtime.table.parts import Slot
from nojit.runtime.trust.envelope import signed_path

from tests.aot.cli.conftest import Run, scale
from tests.support.bundles import Parts, SyntheticKernel, compress, kernel, make_bundle, target
from tests.support.images import Image, kernel_info
from tests.support.signing import Signer, envelope, make_statement
from tests.support.wheels import put_provider
from tests.support.writer import PlainKernel, write_bundle

Document = Callable[..., dict[str, Any]]
ADDRESS = "*fp32"


def with_rows(synthetic: SyntheticKernel, **columns: dict[int, int]) -> SyntheticKernel:
    """Change the entries of some columns, given by row."""
    changed = {name: synthetic.table.columns[name][:] for name in columns}
    for name, entries in columns.items():
        for row, value in entries.items():
            changed[name][row] = value
    return replace(synthetic, table=replace(synthetic.table, columns=synthetic.table.columns | changed))


# -- inspect ---------------------------------------------------------------------------------------------------------


def test_inspect_sums_up(run: Run, document: Document, bundle: Path) -> None:
    result = run("inspect", bundle)
    assert result.exit_code == 0
    assert "test 1.0 for sm_90" in result.stdout
    assert "driver for CUDA 12.0 or newer" in result.stdout
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.startswith(("scale", "copy"))}
    assert rows["scale"][1:4] == ["4", "1", "4"]
    assert rows["scale"][-1] == "2,048"
    written = document("inspect", bundle)
    with BundleFile(bundle) as opened:
        assert written["bundle"]["digest"] == opened.digest
        assert written["bundle"]["image_bytes"] == sum(map(len, opened.images()))
    assert [one["name"] for one in written["kernels"]] == ["copy", "scale"]
    assert written["kernels"][1]["spilling"] == 0


def test_inspect_counts_spills_and_ranges(document: Document, tmp_path: Path) -> None:
    spilling = with_rows(scale(), spill_bytes={1: 16, 2: 8}, registers={0: 24, 3: 255})
    (facts,) = document("inspect", make_bundle(tmp_path / "x.nojit", spilling))["kernels"]
    assert (facts["spilling"], facts["spill_bytes_max"]) == (2, 16)
    assert (facts["registers_min"], facts["registers_max"]) == (24, 255)


def test_inspect_kernel_lists_variants(run: Run, document: Document, bundle: Path) -> None:
    result = run("inspect", bundle, "--kernel", "scale")
    assert "grid    cdiv(n, BLOCK)" in result.stdout
    assert sum("dtype='fp16'" in line and "x_ptr:16" in line for line in result.stdout.splitlines()) == 1
    written = document("inspect", bundle, "--kernel", "scale")
    assert written["kernel"]["params"][2] == {"name": "BLOCK", "constexpr": True}
    with BundleFile(bundle) as opened:
        table = opened.table("scale")
        for row, variant in enumerate(written["variants"]):
            image = opened.image("scale", table.columns["image"][row])
            assert variant["id"] == table.variant_id(row)
            assert variant["image_sha256"] == hashlib.sha256(image).hexdigest()
            assert variant["image_bytes"] == len(image)


def test_inspect_kernel_types_params(run: Run, tmp_path: Path) -> None:
    params = {"x_ptr": "*{dtype}", "bias_ptr": "*fp32?", "n": "i32", "BLOCK": "constexpr"}
    path = make_bundle(tmp_path / "x.nojit", scale(params=params))
    facts = dict(line.split(maxsplit=1) for line in run("inspect", path, "--kernel", "scale").stdout.splitlines()[1:4])
    assert facts["params"] == "x_ptr: *fp16|*fp32, bias_ptr: *fp32|none, n: i32, BLOCK: constexpr"


def test_inspect_off_a_terminal_breaks_no_line_and_pads_none(run: Run, bundle: Path) -> None:
    lines = run("inspect", bundle, "--kernel", "scale").stdout.splitlines()
    assert sum("dtype=" in line and "num_warps=4" in line for line in lines) == 4
    assert all(line == line.rstrip() for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_neither_a_bundle_nor_its_name_writes_to_the_terminal(run: Run, tmp_path: Path) -> None:
    named = make_bundle(tmp_path / "x\x1b[2J\u202e.nojit", kernel("copy", {"x_ptr": ADDRESS}))
    hostile = make_bundle(tmp_path / "y.nojit", kernel("copy", {"x_ptr": ADDRESS}), version="1\x1b[2J")
    assert "x\\x1b[2J\\u202e.nojit" in run("inspect", named).stdout
    for words in (["inspect", named], ["inspect", hostile], ["verify", tmp_path], ["inspect", named, "--kernel", "z"]):
        result = run(*words)
        assert "\x1b" not in result.stdout + result.stderr
        assert "\u202e" not in result.stdout + result.stderr


def test_inspect_no_such_kernel(run: Run, bundle: Path) -> None:
    result = run("inspect", bundle, "--kernel", "scael")
    assert result.exit_code == 1
    assert "did you mean 'scale'?" in result.stderr


def test_inspect_a_folder_shows_every_bundle(run: Run, document: Document, bundle: Path) -> None:
    make_bundle(bundle.with_name("u.nojit"), kernel("own", {"n": "i32"}), name="other")
    written = document("inspect", bundle.parent)["bundles"]
    assert [one["bundle"]["path"] for one in written] == [str(bundle), str(bundle.with_name("u.nojit"))]
    assert written[0] == {
        key: document("inspect", bundle)[key] for key in ("bundle", "kernels", "provenance", "recording")
    }
    shown = run("inspect", bundle.parent).stdout
    assert shown.index("test 1.0 for sm_90") < shown.index("other 1.0 for sm_90")
    # with a kernel, those that have it
    (one,) = document("inspect", bundle.parent, "--kernel", "own")["bundles"]
    assert one["bundle"]["name"] == "other"
    result = run("inspect", bundle.parent, "--kernel", "onw")
    assert (result.exit_code, "got 'onw'" in result.stderr) == (1, True)
    (bundle.parent / "empty").mkdir()
    assert (
        "expected a folder with *.nojit files: build some with nojit build, got none"
        in run("inspect", bundle.parent / "empty").stderr
    )


@pytest.mark.parametrize("command", ["inspect", "verify", "wheel"])
def test_a_fifo_for_a_bundle_is_named_and_not_waited_for(run: Run, tmp_path: Path, command: str) -> None:
    os.mkfifo(tmp_path / "x.nojit")
    result = run(command, tmp_path / "x.nojit")
    assert result.exit_code == 1
    assert "expected a bundle file, got a FIFO" in result.stderr


def test_inspect_something_else(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.nojit").write_bytes(b"\x7fELF" + bytes(100))
    result = run("inspect", tmp_path / "x.nojit")
    assert result.exit_code == 3
    assert "expected a nojit bundle" in result.stderr


# -- wheels and names ------------------------------------------------------------------------------------------------


@pytest.fixture
def packed(bundle: Path, tmp_path: Path) -> Path:
    """A wheel of a bundle that is signed."""
    Path(signed_path(str(bundle))).write_bytes(envelope(make_statement(bundle), Signer.of("release")))
    statement = Path(signed_path(str(bundle))).read_bytes()
    return make_wheel(tmp_path, {"acme/test.nojit": bundle.read_bytes(), "acme/test.intoto.jsonl": statement})


def make_wheel(folder: Path, files: dict[str, bytes]) -> Path:
    wheel = Wheel("acme", "1.0", files, {"METADATA": b"Metadata-Version: 2.4\nName: acme\nVersion: 1.0\n"})
    path = folder / wheel.file_name
    path.write_bytes(pack_wheel(wheel, "tests"))
    return path


def test_a_wheel_stands_for_the_bundles_in_it(run: Run, document: Document, packed: Path, tmp_path: Path) -> None:
    inside = str(packed / "acme/test.nojit")
    key = tmp_path / "release.pub"
    key.write_text(Signer.of("release").pem)
    result = run("verify", packed, "--key", key)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"OK      {inside}  ")
    assert document("verify", packed)["bundles"][0]["path"] == inside
    assert document("inspect", packed)["bundle"]["path"] == inside
    assert inside in run("inspect", packed).stdout
    assert "got 'scael'" in run("inspect", packed, "--kernel", "scael").stderr
    # nothing is left of it
    assert not list(Path(tempfile.gettempdir()).glob("nojit-wheel-*"))


def test_what_is_wrong_in_a_wheel_is_told_by_its_place_there(run: Run, bundle: Path, tmp_path: Path) -> None:
    whole = bundle.read_bytes()
    path = make_wheel(tmp_path, {"acme/cut.nojit": whole[:-1], "acme/whole.nojit": whole})
    key = tmp_path / "release.pub"
    key.write_text(Signer.of("release").pem)
    result = run("verify", path)
    assert result.exit_code == 3
    assert result.stderr.startswith(f"FAILED  {path / 'acme/cut.nojit'}  expected a file of ")
    assert result.stdout.startswith(f"OK      {path / 'acme/whole.nojit'}  ")
    unsigned = run("verify", path, "--key", key).stderr
    assert f"got no {path / 'acme/whole.intoto.jsonl'}" in unsigned
    for said in (unsigned, run("inspect", path).stderr):
        assert tempfile.gettempdir() + "/nojit-wheel-" not in said
    assert str(path / "acme/cut.nojit") in run("inspect", path).stderr


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_what_is_no_wheel_of_bundles_is_refused(run: Run, tmp_path: Path, command: str) -> None:
    path = tmp_path / "acme.whl"
    assert "expected a bundle file, got no such file" in run(command, path).stderr
    path.write_bytes(b"PK no wheel")
    result = run(command, path)
    assert (result.exit_code, "expected a wheel, got a file that does not end as a zip archive" in result.stderr) == (
        1,
        True,
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("acme/__init__.py", "")
    result = run(command, path)
    assert (result.exit_code, "expected a wheel with *.nojit files, got none" in result.stderr) == (1, True)


def test_a_name_stands_for_what_it_loads(
    run: Run, document: Document, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nojit.runtime.discovery.discover._own_checkout", lambda: None)
    place = put_provider(tmp_path / "site", "acme-kernels-sm90", "acme-kernels") / "a.nojit"
    place.write_bytes(bundle.read_bytes())
    for name in ("acme-kernels", "Acme_Kernels.sm90"):
        assert document("inspect", name)["bundle"]["path"] == str(place)
        assert [one["path"] for one in document("verify", name)["bundles"]] == [str(place)]
    result = run("verify", "acme-kernel", place)
    assert result.exit_code == 1
    assert "FAILED  acme-kernel  expected a bundle file, a folder of bundles, or the name of a bundle" in result.stderr
    assert "did you mean 'acme-kernels'?" in result.stderr
    assert f"OK      {place}" in result.stdout
    assert "did you mean 'acme-kernels'?" in run("inspect", "acme-kernel").stderr
    # what is on disk is no name
    (tmp_path / "acme-kernels").write_bytes(b"another")
    assert "at acme-kernels" in run("inspect", "acme-kernels").stderr


# -- verify ----------------------------------------------------------------------------------------------------------


def test_verify_whole(run: Run, document: Document, bundle: Path) -> None:
    result = run("verify", bundle)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"OK      {bundle}")
    assert document("verify", bundle.parent)["bundles"][0]["variants"] == 5


def test_verify_goes_on_after_a_failure(run: Run, document: Document, bundle: Path) -> None:
    damaged = bundle.with_name("damaged.nojit")
    data = bytearray(bundle.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    absent = bundle.with_name("absent.nojit")
    result = run("verify", damaged, bundle, absent)
    assert result.exit_code == 3
    assert "OK      " in result.stdout
    assert [line.split()[0] for line in result.stderr.splitlines()] == ["FAILED", "FAILED"]
    assert result.stderr.count(str(damaged)) == 1
    written = document("verify", damaged, bundle, absent, code=3)
    assert [one["ok"] for one in written["bundles"]] == [False, True, False]
    assert written["bundles"][0]["error"]["type"] == "BundleIntegrityError"


def test_what_is_not_there_is_no_failed_verification(
    run: Run, document: Document, bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    absent = tmp_path / "absent.nojit"
    for words in (
        ["inspect"],
        ["diff", bundle],
        ["extract", "--kernel", "copy", "--out", tmp_path / "out"],
        ["verify"],
    ):
        assert run(*words, absent).exit_code == 1
    written = document("verify", bundle, tmp_path / "empty", absent, code=1)
    assert [one["ok"] for one in written["bundles"]] == [True, False, False]
    assert "expected a folder with *.nojit files" in written["bundles"][1]["error"]["message"]
    (tmp_path / "empty/acme.whl").touch()
    assert "build some with nojit build, got only wheels - at" in run("inspect", tmp_path / "empty").stderr
    assert written["bundles"][2]["error"]["type"] == "BundleError"


@pytest.mark.parametrize("option", ["--sources", "--jobs", "--ptxas"])
def test_what_a_rebuild_takes_asks_for_one(run: Run, bundle: Path, option: str) -> None:
    result = run("verify", bundle, option, "1")
    assert result.exit_code == 2
    assert f"expected --rebuild with {option}" in result.stderr


def test_verify_every_truncation(run: Run, bundle: Path) -> None:
    data = bundle.read_bytes()
    for length in range(0, len(data), 97):
        bundle.write_bytes(data[:length])
        assert run("verify", bundle, "-q").exit_code == 3


def test_verify_folder_without_bundles(run: Run, tmp_path: Path) -> None:
    result = run("verify", tmp_path)
    assert result.exit_code == 1
    assert "*.nojit" in result.stderr


def _relaunched(**facts: Any) -> SyntheticKernel:
    """A kernel whose table says something else of its launch than its image, with every hash right."""
    honest = kernel("copy", {"x_ptr": ADDRESS, "n": "i32"})
    (launch,) = honest.table.launches
    return replace(honest, table=replace(honest.table, launches=(replace(launch, **facts),)))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"num_warps": 8}, "blocks of (256, 1, 1) threads"),
        ({"num_ctas": 2}, "clusters of 2 CTAs"),
        ({"symbol": "other"}, "expected kernel 'other'"),
        ({"layout": (Slot("x_ptr", ADDRESS),)}, "expected n as i32"),
        ({"layout": tuple(Slot(name, ADDRESS) for name in ("x_ptr", "n", "n", "n"))}, "expected n as i32"),
        (
            {"layout": (Slot("x_ptr", ADDRESS), Slot("n", "i32"))},
            "then $global_scratch and $profile_scratch as pointers",
        ),
        ({"layout": (Slot("x_ptr", "tensordesc<fp16[16]>"),)}, f"expected x_ptr as {ADDRESS}"),
    ],
)
def test_verify_checks_images_against_their_table(
    run: Run, tmp_path: Path, facts: dict[str, Any], expected: str
) -> None:
    path = make_bundle(tmp_path / "x.nojit", _relaunched(**facts))
    result = run("verify", path)
    assert result.exit_code == 3
    assert expected in result.stderr
    assert "kernel copy row 0" in result.stderr


def test_verify_image_that_is_no_cubin(run: Run, tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "x.nojit", replace(kernel("copy", {"x_ptr": ADDRESS}), images=(b"PTX text",)))
    result = run("verify", path)
    assert result.exit_code == 3
    assert "image 0" in result.stderr


def test_verify_refuses_an_image_that_no_variant_uses(run: Run, tmp_path: Path) -> None:
    parts = Parts.of(kernel("copy", {"x_ptr": ADDRESS}), group_images=1)
    spare = replace(parts, images=((*parts.images[0], b"spare"),), group_sizes=((1, 1),))
    (tmp_path / "x.nojit").write_bytes(spare.seal())
    result = run("verify", tmp_path / "x.nojit")
    assert result.exit_code == 3
    assert "in use" in result.stderr


def test_verify_checks_registers_where_the_image_tells(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "told.nojit"
    image = Image("k", kernel_info(((0, 4), (8, 8), (16, 8)))).build()
    path.write_bytes(write_bundle(PlainKernel(images=[image])))
    result = run("verify", path)
    assert result.exit_code == 3
    assert "to use 32 registers, as the variant table says, got 40" in result.stderr


# -- diff ------------------------------------------------------------------------------------------------------------


def test_diff_of_one_bundle(run: Run, bundle: Path) -> None:
    result = run("diff", bundle, bundle, "--exit-code")
    assert (result.exit_code, result.stdout) == (0, "identical, byte for byte\n")


def test_diff_kernels_and_variants(run: Run, document: Document, tmp_path: Path) -> None:
    before = make_bundle(tmp_path / "a.nojit", scale(), kernel("gone", {"x_ptr": ADDRESS}))
    after = make_bundle(
        tmp_path / "b.nojit",
        with_rows(scale(matrix={"dtype": ["fp16", "bf16"]}), registers={0: 40}, spill_bytes={0: 8}),
        kernel("come", {"x_ptr": ADDRESS}),
        version="1.1",
    )
    written = document("diff", before, after)
    assert written["identical"] is False
    assert written["facts"] == [{"name": "version", "before": "1.0", "after": "1.1"}]
    kernels = {one["name"]: one for one in written["kernels"]}
    assert {name: one["status"] for name, one in kernels.items()} == {
        "come": "added",
        "gone": "removed",
        "scale": "changed",
    }
    changed = kernels["scale"]
    assert ["fp32" in one["label"] for one in changed["removed"]] == [True, True]
    assert ["bf16" in one["label"] for one in changed["added"]] == [True, True]
    (one,) = changed["changed"]
    assert {(fact["name"], fact["before"], fact["after"]) for fact in one["changes"]} == {
        ("registers", 32, 40),
        ("spill_bytes", 0, 8),
    }
    assert changed["same"] == 1
    shown = run("diff", before, after)
    assert shown.exit_code == 0
    assert "version: 1.0 -> 1.1" in shown.stdout
    assert "~ scale: 2 variants added, 2 variants removed, 1 changed, 1 alike" in shown.stdout
    assert "32 -> 40" in shown.stdout
    assert "+ scale-" not in shown.stdout
    assert run("diff", before, after, "-v").stdout.count("+ scale-") == 2
    assert run("diff", before, after, "--exit-code", "-q").exit_code == 1


def test_diff_swapped_swaps(document: Document, tmp_path: Path) -> None:
    small, large = (
        make_bundle(tmp_path / f"{len(types)}.nojit", scale(matrix={"dtype": types}))
        for types in (["fp16"], ["fp16", "fp32"])
    )
    (forth,) = document("diff", small, large)["kernels"]
    (back,) = document("diff", large, small)["kernels"]
    assert forth["added"] == back["removed"] != []
    assert forth["removed"] == back["added"] == []


def test_diff_of_code_alone_is_counted(run: Run, tmp_path: Path) -> None:
    first = scale()
    before = make_bundle(tmp_path / "a.nojit", first)
    images = (first.images[0].replace(b"scale 0", b"scale X"), *first.images[1:])
    after = make_bundle(tmp_path / "b.nojit", replace(first, images=images))
    shown = run("diff", before, after).stdout
    assert "1 changed (1 in code only), 3 alike" in shown
    assert "1 of 1 kernel differs; 3 variants alike" in shown
    assert "dtype=" not in run("diff", before, after).stdout
    assert "other  dtype=" in run("diff", before, after, "-v").stdout


def test_diff_matches_variants_whose_toolchain_differs(run: Run, document: Document, tmp_path: Path) -> None:
    def one(name: str, *toolchains: str, code: str = "scale") -> Path:
        made = scale(configs=[{"BLOCK": 256} | ({"toolchain": each} if each else {}) for each in toolchains])
        images = tuple(image.replace(b"scale ", code.encode() + b" ") for image in made.images)
        return make_bundle(tmp_path / f"{name}.nojit", replace(made, images=images))

    alone, first, second = one("a", ""), one("b", "3.6", code="other"), one("c", "3.9")
    for before, after, told in (
        (alone, first, ["", "3.6"]),
        (first, second, ["3.6", "3.9"]),
        (first, alone, ["3.6", ""]),
    ):
        (found,) = document("diff", before, after)["kernels"]
        assert (found["added"], found["removed"], len(found["changed"])) == ([], [], 4)
        facts = {fact["name"]: [fact["before"], fact["after"]] for fact in found["changed"][0]["changes"]}
        assert facts["toolchain"] == told
    shown = run("diff", alone, first).stdout
    assert "toolchain    regs  spill B" in shown
    assert shown.count("none -> 3.6 ") == 4


def test_diff_matches_the_toolchain_whose_code_is_the_same(document: Document, tmp_path: Path) -> None:
    both = scale(configs=[{"BLOCK": 256, "toolchain": each} for each in ("3.6", "3.9")])
    images = tuple(
        image for image, config in zip(both.images, both.table.columns["config"], strict=True) if config == 1
    )
    before = make_bundle(tmp_path / "both.nojit", both)
    after = make_bundle(tmp_path / "alone.nojit", replace(scale(configs=[{"BLOCK": 256}]), images=images))
    (found,) = document("diff", before, after)["kernels"]
    assert [[fact["name"] for fact in one["changes"]] for one in found["changed"]] == [["toolchain"]] * 4
    assert [one["toolchain"] for one in found["removed"]] == ["3.6"] * 4


def test_diff_of_a_redefined_kernel(run: Run, tmp_path: Path) -> None:
    before = make_bundle(tmp_path / "a.nojit", scale())
    after = make_bundle(tmp_path / "b.nojit", scale(grid=["cdiv(n, 2 * BLOCK)"]))
    shown = run("diff", before, after).stdout
    assert "grid - cdiv(n, BLOCK)" in shown
    assert "grid + cdiv(n, 2 * BLOCK)" in shown


def test_diff_puts_configs_into_words(run: Run, document: Document, tmp_path: Path) -> None:
    one, two = {"BLOCK": 128, "num_warps": 4}, {"BLOCK": 256, "num_warps": 8, "requires": "n > 1"}
    before = make_bundle(tmp_path / "a.nojit", scale(configs=[one]))
    after = make_bundle(tmp_path / "b.nojit", scale(configs=[two]))
    shown = run("diff", before, after).stdout
    assert "    configs - BLOCK=128 num_warps=4" in shown
    assert "    configs + BLOCK=256 num_warps=8" in shown
    (added,) = [line for line in shown.splitlines() if "configs +" in line]
    assert added.endswith(" requires n > 1")
    for path, line in ((before, "configs - "), (after, "configs + ")):
        (said,) = [each.split("  ")[-1] for each in shown.splitlines() if line in each]
        assert f"config  {said.removeprefix(line)}\n" in run("inspect", path, "--kernel", "scale").stdout
    (change,) = [one for one in document("diff", before, after)["kernels"][0]["definition"] if one["name"] == "configs"]
    assert change["before"][0]["constexprs"] == [["BLOCK", 128]]


def test_diff_packed_differently(run: Run, tmp_path: Path) -> None:
    before = make_bundle(tmp_path / "a.nojit", scale(), group_images=4)
    after = make_bundle(tmp_path / "b.nojit", scale(), group_images=2)
    assert "packed differently" in run("diff", before, after).stdout


# -- extract ---------------------------------------------------------------------------------------------------------


def test_extract_writes_each_variant(run: Run, document: Document, bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    written = document("extract", bundle, "--kernel", "scale", "--out", out)
    assert len(written["files"]) == 4
    with BundleFile(bundle) as opened:
        table = opened.table("scale")
        for row, file in enumerate(written["files"]):
            image = opened.image("scale", table.columns["image"][row])
            assert Path(file["cubin"]).read_bytes() == image
            facts = json.loads(Path(file["facts"]).read_text())
            assert facts["image_sha256"] == hashlib.sha256(image).hexdigest()
            assert facts["launch"]["shared_bytes"] == 2048
            assert facts["bundle"] == opened.digest
    assert sorted(out.iterdir()) == sorted(Path(file[kind]) for file in written["files"] for kind in ("cubin", "facts"))


def test_extract_one_variant_by_either_id(run: Run, bundle: Path, tmp_path: Path) -> None:
    with BundleFile(bundle) as opened:
        name = opened.table("scale").variant_id(2)
    for number, wanted in enumerate((name, name.removeprefix("scale-"))):
        out = tmp_path / f"out{number}"
        assert run("extract", bundle, "--kernel", "scale", "--variant", wanted, "--out", out).exit_code == 0
        assert sorted(file.name for file in out.iterdir()) == [f"{name}.cubin", f"{name}.json"]
    wrong = run("extract", bundle, "--kernel", "scale", "--variant", name[:-1], "--out", tmp_path / "out2")
    assert wrong.exit_code == 1
    assert f"did you mean '{name}'?" in wrong.stderr
    assert not (tmp_path / "out2").exists()


def test_extract_overwrites_only_if_forced(run: Run, bundle: Path, tmp_path: Path) -> None:
    words = ("extract", bundle, "--kernel", "copy", "--out", tmp_path / "out")
    run(*words)
    (cubin,) = (tmp_path / "out").glob("*.cubin")
    whole = cubin.read_bytes()
    cubin.write_bytes(b"mine")
    refused = run(*words)
    assert refused.exit_code == 1
    assert "--force" in refused.stderr
    assert cubin.read_bytes() == b"mine"
    assert run(*words, "--force").exit_code == 0
    assert cubin.read_bytes() == whole


def test_extract_replaces_a_link_and_never_follows_it(run: Run, bundle: Path, tmp_path: Path) -> None:
    words = ("extract", bundle, "--kernel", "copy", "--out", tmp_path / "out")
    run(*words)
    (cubin,) = (tmp_path / "out").glob("*.cubin")
    precious = tmp_path / "precious"
    cubin.unlink()
    cubin.with_suffix(".json").unlink()
    cubin.symlink_to(precious)
    # a link that leads nowhere is in the way too
    assert run(*words).exit_code == 1
    assert run(*words, "--force").exit_code == 0
    assert not precious.exists()
    assert not cubin.is_symlink()


def test_extract_into_what_is_no_folder(run: Run, bundle: Path) -> None:
    result = run("extract", bundle, "--kernel", "copy", "--out", "/dev/full")
    assert result.exit_code == 1
    assert "Traceback" not in result.stderr


def test_extract_takes_back_what_it_wrote_before_a_failure(
    run: Run, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, data: bytes) -> None:
        if path.suffix == ".json":
            raise PackageError("expected to write a file", got="No space left on device", where=str(path))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)

    monkeypatch.setattr("nojit.aot.cli.commands.extract.write_file", write)
    assert run("extract", bundle, "--kernel", "copy", "--out", tmp_path / "out").exit_code == 1
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    "words", ["inspect A", "inspect A --kernel scale", "verify A B", "diff A B -v", "doctor", "wheel A"]
)
def test_everything_can_be_read_in_sixty_columns(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NOJIT_BUNDLES", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name, warps in (("A", 4), ("B", 8)):
        scale = kernel(
            "scale",
            {"x_ptr": "*{dtype}", "n": "i32", "BLOCK": "constexpr"},
            matrix={"dtype": ["fp16", "fp32"]},
            configs=[{"BLOCK": 256, "num_warps": warps}, {"BLOCK": 512}],
        )
        make_bundle(tmp_path / f"{name}.nojit", scale)
    given = [f"{word}.nojit" if word in {"A", "B"} else word for word in words.split()]
    lines = run(*given).stdout.splitlines()
    assert len(lines) > 1
    # a word that is longer is a path or a digest, and has a line of its own
    assert [line for line in lines if len(line) > 60 and len(line.split()) > 1] == []


def test_archs_come_in_the_order_of_their_numbers(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archs = ("sm_100a", "sm_80", "sm_120a", "sm_90a")
    for arch in archs:
        made = kernel("scale", {"n": "i32"}, on=target(arch))
        make_bundle(tmp_path / f"acme-1.0-{arch}.nojit", made, on=target(arch))
    monkeypatch.setenv("NOJIT_BUNDLES", str(tmp_path))
    ordered = sorted(archs, key=lambda arch: int(arch.strip("sma_")))
    for words in (("inspect", tmp_path), ("verify", tmp_path), ("doctor",)):
        shown = run(*words).stdout
        places = [shown.index(f"acme-1.0-{arch}.nojit") for arch in ordered]
        assert places == sorted(places), words
    add = load(tmp_path).kernel("scale")
    with pytest.raises(NoMatchingVariantError, match="bundle has sm_80, sm_90a, sm_100a, sm_120a; device is sm_75"):
        add.explain(1, arch="sm_75")
    assert "sm_80, sm_90a, sm_100a, sm_120a" in repr(add)


@pytest.mark.parametrize(
    "words", [("inspect",), ("verify",), ("diff", "."), ("extract", "--kernel", "scale", "--out", "."), ("build",)]
)
def test_what_opens_a_file_says_why_it_cannot(
    run: Run, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """It is no wrong usage, which click takes it for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.R_OK)
    assert run(*words, bundle).exit_code != 2


def test_what_the_system_refuses_is_told_with_what_was_expected(run: Run, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 300)
    assert (
        run("inspect", long).stderr == f"error: expected a file or folder to use, got File name too long - at {long}\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        ("inspect",),
        ("verify",),
        ("wheel",),
        ("sign", "--new-key", "key.pem"),
        ("push", "oci://localhost:1/kernels:1"),
        ("build", "--dry-run"),
        ("extract", "--kernel", "scale", "--out", "."),
        ("tune", "run", "--problems", "norm", "--out", "found.db"),
        ("coverage",),
    ],
    ids=lambda words: words[0],
)
def test_a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def refuse(path: Path) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "iterdir", refuse)
    places = (tmp_path, tmp_path) if words[0] == "coverage" else (tmp_path,)
    result = run(*words, *places)
    assert (result.exit_code, "ermission denied" in result.stderr) == (1, True), result.stderr
    assert str(tmp_path) in result.stderr


# -- attachments -----------------------------------------------------------------------------------------------------

NOTES = (("notes.txt", b"built on a Monday"), ("other.json", b"{}"))


@pytest.fixture
def noted(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "noted.nojit", scale(), attachments=NOTES)


def test_inspect_lists_attachments_with_their_sizes(run: Run, document: Document, noted: Path) -> None:
    assert "attachment  notes.txt, 17 B\n" in run("inspect", noted).stdout
    (notes, other) = document("inspect", noted)["bundle"]["attachments"]
    assert (notes["name"], notes["content_bytes"]) == ("notes.txt", 17)
    assert other["stored_bytes"] > other["content_bytes"] == 2


def test_extract_writes_an_attachment_under_its_name(run: Run, document: Document, noted: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    written = document("extract", noted, "--attachment", "notes.txt", "--out", out)
    assert written["files"] == [{"path": str(out / "notes.txt"), "content_bytes": 17}]
    assert [(file.name, file.read_bytes()) for file in out.iterdir()] == [NOTES[0]]
    again = run("extract", noted, "--attachment", "notes.txt", "--out", out)
    assert again.exit_code == 1
    assert "overwrite them with --force, got notes.txt" in again.stderr
    assert run("extract", noted, "--attachment", "notes.txt", "--out", out, "--force").exit_code == 0


def test_extract_of_an_attachment_that_does_not_exist_names_those_that_do(
    run: Run, noted: Path, tmp_path: Path
) -> None:
    wrong = run("extract", noted, "--attachment", "oter.json", "--out", tmp_path / "out")
    assert wrong.exit_code == 1
    assert "expected one of 2 attachments, got 'oter.json'; did you mean 'other.json'?" in wrong.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "expected --kernel or --attachment, got neither"),
        (("--kernel", "scale", "--attachment", "notes.txt"), "expected --kernel or --attachment, got both"),
        (("--attachment", "notes.txt", "--variant", "1234"), "expected --kernel with --variant: add --kernel"),
    ],
)
def test_extract_takes_one_of_a_kernel_and_an_attachment(
    run: Run, noted: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    result = run("extract", noted, *words, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert said in result.stderr


def test_verify_reads_attachments(run: Run, noted: Path) -> None:
    assert run("verify", noted).exit_code == 0
    data = noted.read_bytes()
    at = data.index(b"built on a Monday")
    noted.write_bytes(data[:at] + b"x" + data[at + 1 :])
    result = run("verify", noted)
    assert result.exit_code == 3
    assert "attachment notes.txt" in result.stdout + result.stderr


def test_diff_tells_attachments_by_their_bytes(run: Run, document: Document, noted: Path, tmp_path: Path) -> None:
    changed = (("more.txt", b"m"), ("notes.txt", b"built on a Tuesday"), NOTES[1])
    after = make_bundle(tmp_path / "after.nojit", scale(), attachments=changed)
    more, notes = document("diff", noted, after)["attachments"]
    digests = [
        hashlib.sha256(content).hexdigest() for content in (b"m", *(each[0][1] for each in (NOTES, changed[1:])))
    ]
    assert more == {"name": "more.txt", "before": None, "after": digests[0]}
    assert notes == {"name": "notes.txt", "before": digests[1], "after": digests[2]}
    shown = run("diff", noted, after, "--exit-code")
    assert shown.exit_code == 1
    assert f"attachment more.txt: none -> {digests[0][:12]}\n" in shown.stdout
    assert f"attachment notes.txt: {digests[1][:12]} -> {digests[2][:12]}\n" in shown.stdout
    assert "packed differently" not in shown.stdout


def test_equal_attachments_that_are_stored_differently_do_not_differ(run: Run, noted: Path, tmp_path: Path) -> None:
    after = tmp_path / "after.nojit"
    parts = Parts.of(scale(), attachments=NOTES)
    after.write_bytes(parts.seal(frame=lambda _, raw: compress(raw, 9)))
    before = tmp_path / "before.nojit"
    before.write_bytes(parts.seal(frame=lambda _, raw: compress(raw, 1)))
    assert run("diff", before, after).stdout == "the same kernels, variants and images, packed differently\n"
