"""A build of some kernels keeps the others of the bundle in place, and is still a function of what it was made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime.bundle.file import BundleFile

from tests.aot.cli.conftest import Run
from tests.aot.conftest import HEADER
from tests.aot.fake_compiler import FakeCompiler

Use = Callable[..., FakeCompiler]
Document = Callable[..., dict[str, Any]]
FILE = "demo-1.0-sm_90.nojit"
MUL = '\n[[kernel]]\nname = "mul"\nsource = "demo:neg_kernel"\nparams = { x_ptr = "*fp64" }\n'


def variants(path: Path) -> dict[str, int]:
    with BundleFile(path) as bundle:
        bundle.verify()
        return {name: bundle.entry(name).variants for name in bundle.kernels}


@pytest.fixture
def build(run: Run, use_compiler: Use, tmp_path: Path) -> Callable[..., Any]:
    """Build into a folder; the compiler notes what it compiles."""
    use_compiler()

    def invoke(*words: object, out: str = "out", code: int = 0) -> Any:
        result = run("build", *words, "--out", tmp_path / out, "-j", 1)
        assert result.exit_code == code, result.output
        return result

    return invoke


def test_one_kernel_keeps_the_others_to_the_byte(build: Callable[..., Any], manifest: Path, tmp_path: Path) -> None:
    build(manifest)
    whole = (tmp_path / "out" / FILE).read_bytes()
    result = build(manifest, "--kernel", "neg")
    assert (tmp_path / "out" / FILE).read_bytes() == whole
    assert f"{FILE} keeps add, of {tmp_path / 'out' / FILE} in profile full" in result.stderr
    assert "up to date" in result.stdout


def test_a_changed_kernel_is_built_into_the_bundle_in_place(
    build: Callable[..., Any], manifest: Path, tmp_path: Path
) -> None:
    build(manifest)
    manifest.write_text(manifest.read_text().replace('"*fp32"', '"*fp64"'))
    build(manifest, "--kernel", "neg")
    assert variants(tmp_path / "out" / FILE) == {"add": 8, "neg": 1}
    build(manifest, out="whole")
    # as if everything had been built at once
    assert (tmp_path / "out" / FILE).read_bytes() == (tmp_path / "whole" / FILE).read_bytes()


def test_without_a_bundle_in_place_it_is_built_alone(build: Callable[..., Any], manifest: Path, tmp_path: Path) -> None:
    build(manifest, "--kernel", "neg")
    assert variants(tmp_path / "out" / FILE) == {"neg": 1}
    build(manifest, "--kernel", "add")
    assert variants(tmp_path / "out" / FILE) == {"add": 8, "neg": 1}


@pytest.mark.parametrize("narrowed", ["a kernel", "a kernel that has a manifest of its own", "a manifest"])
def test_a_damaged_bundle_is_not_replaced_by_one_of_some_kernels(
    build: Callable[..., Any], manifest: Path, write_manifest: Callable[..., Path], tmp_path: Path, narrowed: str
) -> None:
    other = write_manifest(MUL, name="mul.toml")
    build(manifest, other)
    place = tmp_path / "out" / FILE
    whole, damaged = place.read_bytes(), place.read_bytes()[:100]
    place.write_bytes(damaged)
    words = {
        "a kernel": (manifest, other, "--kernel", "neg"),
        "a kernel that has a manifest of its own": (manifest, other, "--kernel", "mul"),
        "a manifest": (other,),
    }
    message = f"build all kernels, or use another --out folder, got one that nojit verify refuses - at {place}"
    assert message in build(*words[narrowed], code=1).stderr
    assert place.read_bytes() == damaged
    build(manifest, other)
    assert place.read_bytes() == whole


def test_the_profile_in_place_is_kept(build: Callable[..., Any], manifest: Path, tmp_path: Path) -> None:
    build(manifest, "--profile", "core")
    core = variants(tmp_path / "out" / FILE)
    assert core == {"add": 4, "neg": 1}
    result = build(manifest, "--kernel", "neg")
    assert "in profile core" in result.stderr
    assert variants(tmp_path / "out" / FILE) == core
    said = json.loads((tmp_path / "out" / FILE.replace(".nojit", ".provenance.json")).read_text())
    assert said["predicate"]["buildDefinition"]["externalParameters"]["profile"] == "core"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((["--profile", "core"], ["--profile", "full"]), f"expected --profile core, as {FILE} was built: it also holds add; use the same option, or another --out folder, got full"),
        ((["--no-tuned"], []), f"expected --no-tuned, as {FILE} was built"),
        (([], ["--no-tuned"]), f"expected without --no-tuned, as {FILE} was built"),
    ],
)  # fmt: skip
def test_what_would_mix_is_refused(
    build: Callable[..., Any], manifest: Path, tmp_path: Path, words: tuple[list[str], list[str]], message: str
) -> None:
    first, second = words
    build(manifest, *first)
    before = (tmp_path / "out" / FILE).read_bytes()
    assert message in build(manifest, "--kernel", "neg", *second, code=1).stderr
    assert (tmp_path / "out" / FILE).read_bytes() == before
    build(manifest, "--kernel", "neg", *second, out="other")


def test_without_a_statement_the_profile_is_asked_for(
    build: Callable[..., Any], manifest: Path, tmp_path: Path
) -> None:
    build(manifest)
    (tmp_path / "out" / FILE.replace(".nojit", ".provenance.json")).unlink()
    message = f"expected --profile: no statement names the profile of {FILE}"
    assert message in build(manifest, "--kernel", "neg", code=1).stderr
    build(manifest, "--kernel", "neg", "--profile", "full")
    assert variants(tmp_path / "out" / FILE) == {"add": 8, "neg": 1}


def test_one_manifest_of_a_folder_keeps_what_the_others_have(
    build: Callable[..., Any], manifest: Path, write_manifest: Callable[..., Path], tmp_path: Path
) -> None:
    other = write_manifest(MUL, name="mul.toml")
    build(manifest, other)
    whole = (tmp_path / "out" / FILE).read_bytes()
    assert "keeps add, neg" in build(other).stderr
    assert (tmp_path / "out" / FILE).read_bytes() == whole
    # a manifest of another bundle is not looked at
    (tmp_path / "wrong.toml").write_text(HEADER.replace('"demo"', '"another"') + "zebra = 1\n")
    build(other, "--kernel", "mul")
    assert (tmp_path / "out" / FILE).read_bytes() == whole


def test_what_no_manifest_has_any_longer_goes_with_a_word(
    build: Callable[..., Any], manifest: Path, tmp_path: Path
) -> None:
    text = manifest.read_text()
    manifest.write_text(text + MUL)
    build(manifest)
    manifest.write_text(text)
    result = build(manifest, "--kernel", "neg")
    assert f"{FILE} loses mul, of {tmp_path / 'out' / FILE}: no manifest lists it" in result.stderr
    assert variants(tmp_path / "out" / FILE) == {"add": 8, "neg": 1}


def test_a_new_version_of_one_kernel_keeps_the_others_of_the_old_one(
    build: Callable[..., Any], manifest: Path, tmp_path: Path
) -> None:
    build(manifest)
    manifest.write_text(manifest.read_text().replace('version = "1.0"', 'version = "1.1"'))
    build(manifest, "--kernel", "neg")
    assert variants(tmp_path / "out" / "demo-1.1-sm_90.nojit") == {"add": 8, "neg": 1}


def test_tuning_bundles_keep_kernels_too(build: Callable[..., Any], manifest: Path, tmp_path: Path) -> None:
    tuning = 'tuning = { key = ["n"], space = [{ BLOCK = [128, 512] }] }\n'
    text = manifest.read_text()
    add = text[text.index("[[kernel]]") : text.index('[[kernel]]\nname = "neg"')]
    manifest.write_text(
        text.replace(add, add.rstrip() + "\n" + tuning + add.replace('"add"', '"add2"').rstrip() + "\n" + tuning)
    )
    path = tmp_path / "out" / "demo-tuning-1.0-sm_90.nojit"
    build(manifest, "--tuning")
    whole = path.read_bytes()
    assert [*variants(path)] == ["add", "add2"]
    build(manifest, "--tuning", "--kernel", "add2")
    assert path.read_bytes() == whole


def test_a_dry_run_says_what_is_kept(
    build: Callable[..., Any], document: Document, manifest: Path, tmp_path: Path
) -> None:
    build(manifest)
    (planned,) = document("build", manifest, "--kernel", "neg", "--dry-run", "--out", tmp_path / "out")["bundles"]
    assert (planned["kept"], planned["gone"], planned["profile"], planned["variants"]) == (["add"], [], "full", 9)
