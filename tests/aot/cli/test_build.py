"""`nojit build`: what it writes, what it says, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.cli.progress.build_progress import Lines
from nojit.aot.pack.bundle import pack
from nojit.aot.provenance.statement import statement_path
from nojit.runtime.bundle.file import BundleFile

from tests.aot.cli.conftest import Run
from tests.aot.fake_compiler import FakeCompiler

Use = Callable[..., FakeCompiler]
Document = Callable[..., dict[str, Any]]
BUNDLE = "demo-1.0-sm_90.nojit"


def test_builds_what_the_manifest_says(run: Run, use_compiler: Use, manifest: Path, tmp_path: Path) -> None:
    compiler = use_compiler()
    result = run("build", manifest, "--out", tmp_path / "out", "-j", 1)
    assert result.exit_code == 0, result.output
    assert len(compiler.compiled()) == 9
    with BundleFile(tmp_path / "out" / BUNDLE) as bundle:
        bundle.verify()
        assert {name: bundle.entry(name).variants for name in bundle.kernels} == {"add": 8, "neg": 1}
        assert bundle.id in result.stdout
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.startswith("  ")}
    assert rows["add"][1:3] == ["8", "0"]
    assert rows["neg"][1:3] == ["1", "0"]
    assert "9 variants (0 cached)" in result.stdout
    assert "9 of 9 compiled" in result.stderr


def test_second_build_is_up_to_date_and_a_lost_bundle_comes_from_the_cache(
    run: Run, use_compiler: Use, manifest: Path, tmp_path: Path
) -> None:
    compiler = use_compiler()
    words = ("build", manifest, "--out", tmp_path / "out", "-j", 1)
    run(*words)
    first = (tmp_path / "out" / BUNDLE).read_bytes()
    again = run(*words)
    assert "is up to date" in again.stdout
    assert "everything is up to date" in again.stdout
    (tmp_path / "out" / BUNDLE).unlink()
    cached = run(*words)
    assert "9 variants (9 cached)" in cached.stdout
    assert (tmp_path / "out" / BUNDLE).read_bytes() == first
    assert len(compiler.compiled()) == 9


def test_json_is_the_only_standard_output(
    document: Document, use_compiler: Use, manifest: Path, tmp_path: Path
) -> None:
    use_compiler()
    written = document("build", manifest, "--out", tmp_path / "out", "-j", 1)
    assert (written["command"], written["stopped"], written["dry_run"]) == ("build", False, False)
    (bundle,) = written["bundles"]
    assert bundle["path"] == str(tmp_path / "out" / BUNDLE)
    assert bundle["toolchain"]["fake"] == "1.0"
    assert len(bundle["variants"]) == 9
    assert bundle["variants"][0].keys() >= {"kernel", "label", "key", "registers", "spill_bytes", "cached"}
    assert bundle["bundle_bytes"] == (tmp_path / "out" / BUNDLE).stat().st_size


def test_quiet_says_nothing(run: Run, use_compiler: Use, manifest: Path, tmp_path: Path) -> None:
    use_compiler()
    result = run("build", manifest, "--out", tmp_path / "out", "-j", 1, "-q")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_verbose_lists_each_variant(run: Run, use_compiler: Use, manifest: Path, tmp_path: Path) -> None:
    use_compiler()
    result = run("build", manifest, "--out", tmp_path / "out", "-j", 1, "-v")
    assert sum("add sm_90 dtype=" in line for line in result.stdout.splitlines()) == 8


def test_dry_run_counts_and_writes_nothing(
    run: Run, document: Document, use_compiler: Use, manifest: Path, tmp_path: Path
) -> None:
    compiler = use_compiler()
    before = sorted(tmp_path.rglob("*"))
    words = ("build", manifest, "--out", tmp_path / "out", "--dry-run", "--arch", "sm_80", "--arch", "sm_90")
    result = run(*words)
    assert result.exit_code == 0
    assert ["demo", "add", "8", "8"] in [line.split() for line in result.stdout.splitlines()]
    assert "18 variants in 2 bundles; nothing was compiled or written" in result.stdout
    counts = [bundle["variants"] for bundle in document(*words)["bundles"]]
    assert counts == [9, 9]
    assert compiler.compiled() == []
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_refuses_too_many_variants_and_names_the_axis(
    document: Document, run: Run, use_compiler: Use, manifest: Path
) -> None:
    use_compiler()
    values = ", ".join(map(str, range(400)))
    text = manifest.read_text().replace(
        'dtype = ["fp16", "bf16"]', f'dtype = ["fp16", "bf16"], A = [{values}], B = [{values}]'
    )
    manifest.write_text(text)
    written = document("build", manifest, "--dry-run", code=1)
    (mistake,) = written["error"]["mistakes"]
    assert mistake["what"] == "expected at most 250,000 variants of add for sm_90, before `exclude`"
    assert mistake["got"].startswith("1,280,000, from 400 values of axis 'A', 400 values of axis 'B'")
    assert (mistake["line"], mistake["key"]) == (12, "$.kernel[0].matrix.A")
    assert "at most 1,000,000 variants" in run("build", manifest, "--dry-run", "--max-variants", 1_000_000).stderr


def test_a_kernel_of_more_variants_than_a_bundle_holds_is_refused_before_it_is_compiled(
    document: Document, use_compiler: Use, manifest: Path
) -> None:
    use_compiler()
    manifest.write_text(f"{manifest.read_text()}matrix = {{ A = {[*range(331)]}, B = {[*range(100)]} }}\n")
    (mistake,) = document("build", manifest, "--dry-run", code=1)["error"]["mistakes"]
    assert mistake["what"] == "expected at most 32,768 variants of a kernel in a bundle"
    assert mistake["got"].startswith(
        "more, from 331 values of axis 'A', 100 values of axis 'B'; cut the values of axis 'A'"
    )


def test_dry_run_checks_the_sources(run: Run, use_compiler: Use, write_manifest: Callable[..., Path]) -> None:
    use_compiler()
    path = write_manifest('[[kernel]]\nname = "add"\nsource = "demo:nothing"\nparams = { x = "i32" }\n')
    result = run("build", path, "--dry-run")
    assert result.exit_code == 1
    assert "demo:nothing" in result.stderr


def test_profile_kernel_and_repeated_archs_narrow_the_build(
    document: Document, use_compiler: Use, manifest: Path, tmp_path: Path
) -> None:
    use_compiler()
    words = ("build", manifest, manifest, "--kernel", "add", "--profile", "core", "--arch", "sm_80", "--arch", "sm_80")
    written = document(*words, "--out", tmp_path / "out", "-j", 1)
    (bundle,) = written["bundles"]
    assert {variant["kernel"] for variant in bundle["variants"]} == {"add"}
    assert len(bundle["variants"]) == 4
    assert bundle["path"].endswith("demo-1.0-sm_80.nojit")


def test_arch_without_variants_is_said(
    run: Run, use_compiler: Use, write_manifest: Callable[..., Path], tmp_path: Path
) -> None:
    use_compiler()
    path = write_manifest(
        '[[kernel]]\nname = "neg"\nsource = "demo:neg_kernel"\nparams = { x_ptr = "*fp32" }\n'
        'configs = [{ archs = ["sm_90"] }]\n'
    )
    both = run("build", path, "--arch", "sm_80", "--arch", "sm_90", "--out", tmp_path / "out", "-j", 1)
    assert both.exit_code == 0
    assert "demo has no variant for sm_80" in both.stderr
    assert [file.name for file in sorted((tmp_path / "out").glob("*.nojit"))] == [BUNDLE]
    none = run("build", path, "--arch", "sm_80", "--out", tmp_path / "out", "-j", 1)
    assert none.exit_code == 1
    assert "expected a variant to build" in none.stderr


def test_kernels_that_need_a_newer_triton_are_named_once(
    run: Run, document: Document, use_compiler: Use, manifest: Path, tmp_path: Path
) -> None:
    use_compiler(version="3.6.0")
    text = manifest.read_text()
    manifest.write_text(text.replace('name = "neg"', 'name = "neg"\ntriton = ">=3.7"'))
    words = ("build", manifest, "--arch", "sm_80", "--arch", "sm_90", "--out", tmp_path / "out", "-j", 1)
    note = "demo leaves out neg, which needs Triton >=3.7: this build has 3.6.0; "
    # the last builds nothing: the bundles are up to date
    for more in (["--dry-run"], [], []):
        lines = run(*words, *more).stderr.splitlines()
        assert [line for line in lines if "neg" in line] == [
            note + "install a newer one, or add --toolchain VERSION=VENV"
        ]
        absent = document(*words, *more)["absent"]
        assert absent == [{"bundle": "demo", "kernel": "neg", "archs": ["sm_80", "sm_90"], "triton": ">=3.7"}]
    alone = run(*words, "--kernel", "neg", "--dry-run")
    assert alone.exit_code == 1
    assert note in alone.stderr


def test_kernels_without_variants_are_named(
    run: Run, document: Document, use_compiler: Use, manifest: Path, tmp_path: Path
) -> None:
    use_compiler()
    text = manifest.read_text().replace("configs = [", 'configs = [{ BLOCK = 64, archs = ["sm_80"] }, ')
    manifest.write_text(f'{text}configs = [{{ archs = ["sm_100"] }}]\n')
    words = ("build", manifest, "--arch", "sm_80", "--arch", "sm_90", "--out", tmp_path / "out", "-j", 1)
    for more in (["--dry-run"], []):
        lines = run(*words, *more).stderr.splitlines()
        assert "neg of demo has no variant for sm_80, sm_90 in profile full" in lines
        absent = document(*words, *more)["absent"]
        assert absent == [{"bundle": "demo", "kernel": "neg", "archs": ["sm_80", "sm_90"], "triton": ""}]
    # nothing went wrong
    assert run(*words, "--dry-run", "-q").stderr == run("-q", *words, "--dry-run").stderr == ""
    assert document(*words, "--dry-run", "--kernel", "add")["absent"] == []
    # what a whole bundle lacks is said once, of the bundle
    lines = run(*words, "--dry-run", "--kernel", "neg", "--arch", "sm_100").stderr.splitlines()
    assert lines == [f"demo has no variant for {arch} in profile full: nothing to build" for arch in ("sm_80", "sm_90")]


def test_what_is_said_while_a_bar_is_shown_goes_by_it(
    run: Run, use_compiler: Use, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_compiler()
    said: list[str] = []
    manifest.write_text(f'{manifest.read_text()}configs = [{{ archs = ["sm_100"] }}]\n')
    monkeypatch.setattr("nojit.aot.cli.progress.build_progress.Lines", lambda _write: Lines(said.append))
    result = run("build", manifest, "--dry-run", "--arch", "sm_80", "--arch", "sm_90")
    assert result.stderr == ""
    assert said == ["neg of demo has no variant for sm_80, sm_90 in profile full"]
    run("build", manifest, "--dry-run", "--kernel", "neg", "--arch", "sm_80")
    assert said[1:] == ["demo has no variant for sm_80 in profile full: nothing to build"]


def test_failure_ends_the_build_and_writes_no_bundle(
    run: Run, document: Document, use_compiler: Use, manifest: Path, tmp_path: Path
) -> None:
    use_compiler(mishaps={"neg": "fail"})
    words = ("build", manifest, "--out", tmp_path / "out", "-j", 1)
    result = run(*words)
    assert result.exit_code == 1
    assert "FAILED neg sm_90" in result.stderr
    assert "  | line 2" in result.stderr
    assert result.stderr.count("a fake failure") == 1
    quiet = run(*words, "-q")
    assert quiet.stderr.splitlines()[:2] == [line for line in result.stderr.splitlines() if line[:3] in {"FAI", "  |"}]
    assert "no bundle was written; --keep-going builds the rest" in result.stderr
    assert not list((tmp_path / "out").glob("*.nojit"))
    written = document(*words, code=1)
    assert written["stopped"] is True
    assert written["bundles"][0]["failures"][0]["log"] == "line 1\nline 2"


def test_keep_going_builds_the_rest_and_still_exits_1(
    run: Run, use_compiler: Use, manifest: Path, tmp_path: Path
) -> None:
    use_compiler(mishaps={"dtype='bf16' BLOCK=256": "exit"})
    result = run("build", manifest, "--out", tmp_path / "out", "-j", 1, "--keep-going")
    assert result.exit_code == 1
    assert "2 variants failed: missing from the bundles" in result.stderr
    with BundleFile(tmp_path / "out" / BUNDLE) as bundle:
        assert bundle.entry("add").variants == 6


def test_many_failures_are_cut_short(run: Run, use_compiler: Use, manifest: Path, tmp_path: Path) -> None:
    use_compiler(mishaps={"sm_": "fail"})
    words = ("build", manifest, "--arch", "sm_80", "--arch", "sm_90", "--out", tmp_path / "out", "-j", 1, "-k")
    result = run(*words)
    assert "and 8 more failures: -v shows all" in result.stderr
    assert result.stderr.count("a fake failure") == 10
    verbose = run(*words, "-v").stderr
    assert "more failures" not in verbose
    assert verbose.count("a fake failure") == 18


def test_timeout_fails_the_variant(run: Run, use_compiler: Use, manifest: Path, tmp_path: Path) -> None:
    use_compiler(mishaps={"neg": "hang"})
    result = run("build", manifest, "--kernel", "neg", "--out", tmp_path / "out", "-j", 1, "--timeout", 2)
    assert result.exit_code == 1
    assert "within 2 s" in result.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[[kernel]]\nname = "add"\nsouce = "demo:add_kernel"\n', "did you mean 'source'?"),
        ("[[kernel]\n", "demo.toml"),
    ],
)
def test_wrong_manifest(
    run: Run, use_compiler: Use, write_manifest: Callable[..., Path], text: str, expected: str
) -> None:
    use_compiler()
    result = run("build", write_manifest(text), "--dry-run")
    assert result.exit_code == 1
    assert expected in result.stderr
    assert result.stderr.count("\n") == 1


def test_no_such_kernel(run: Run, use_compiler: Use, manifest: Path) -> None:
    use_compiler()
    result = run("build", manifest, "--kernel", "ad", "--dry-run")
    assert result.exit_code == 1
    assert "did you mean 'add'?" in result.stderr
    result = run("build", manifest, "--kernel", "zebra", "--dry-run")
    assert result.exit_code == 1
    assert "got 'zebra'; there are add, neg" in result.stderr


def test_missing_manifest_empty_folder_and_missing_default(
    run: Run, use_compiler: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_compiler()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for words, named in (([tmp_path / "no.toml"], "no.toml"), ([tmp_path / "empty"], "empty"), ([], "manifests")):
        result = run("build", *words)
        assert result.exit_code == 1
        assert named in result.stderr


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        (("--name", "x"), "set name in the manifest's [bundle]"),
        (("--trials",), "leave out --trials"),
    ],
)
def test_options_of_recordings_are_refused_for_manifests(
    run: Run, manifest: Path, option: tuple[str, ...], instead: str
) -> None:
    result = run("build", manifest, *option)
    assert result.exit_code == 2
    assert f"expected a recording with {option[0]}, got only manifests: {manifest}; {instead}" in result.stderr


@pytest.mark.parametrize(
    "option", [("--profile", "core"), ("--tuning",), ("--retune",), ("--no-tuned",), ("--max-variants", "7")]
)
def test_options_of_manifests_are_refused_for_recordings(run: Run, tmp_path: Path, option: tuple[str, ...]) -> None:
    result = run("build", tmp_path / "r.nojitrec", *option)
    assert result.exit_code == 2
    assert (
        f"expected a manifest with {option[0]}, got only recordings: {tmp_path}/r.nojitrec; leave out" in result.stderr
    )


def test_more_processes_than_any_machine_has_are_refused(run: Run, manifest: Path) -> None:
    for command in ("build", "verify"):
        result = run(command, manifest, "--jobs", 10**20)
        assert result.exit_code == 2
        assert "is not in the range 1<=x<=1024" in result.stderr


def test_cache_that_is_no_folder(run: Run, use_compiler: Use, manifest: Path, tmp_path: Path) -> None:
    use_compiler()
    (tmp_path / "file").write_text("")
    result = run("build", manifest, "--cache-dir", tmp_path / "file", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "expected a cache folder" in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_out_that_cannot_be_written(run: Run, use_compiler: Use, manifest: Path, tmp_path: Path) -> None:
    use_compiler()
    for out in ("/dev/full", "/proc/out"):
        result = run("build", manifest, "--out", out, "-j", 1)
        assert result.exit_code == 1
        assert out in result.stderr
        assert "Traceback" not in result.stderr


def test_out_is_looked_at_before_anything_is_compiled(
    run: Run, use_compiler: Use, manifest: Path, tmp_path: Path
) -> None:
    compiler = use_compiler()
    (tmp_path / "out").write_text("a file")
    result = run("build", manifest, "--out", tmp_path / "out", "-j", 1)
    assert result.exit_code == 1
    assert f"expected a folder to write to, got a file - at {tmp_path / 'out'}" in result.stderr
    assert compiler.compiled() == []
    if Path("/proc").is_dir():
        result = run("build", manifest, "--out", "/proc/no/such", "-j", 1)
        assert result.exit_code == 1
        said = "got one that cannot be written to at /proc - at /proc/no/such"
        assert f"expected a folder to write to, {said}" in result.stderr
        assert compiler.compiled() == []


def test_interrupt_at_each_tick_leaves_nothing(
    run: Run, use_compiler: Use, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_compiler()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    # who holds on to the error, as a debugger does, keeps the generator that owns the workers from being collected
    held = []
    for tick in range(9):
        ticks = iter(range(tick))

        class View:
            def planned(self, _event: object) -> None:
                pass

            def changed(self, _counts: object) -> None:
                if next(ticks, None) is None:  # noqa: B023 - used within the same turn
                    held.append(KeyboardInterrupt())
                    raise held[-1]

            def failure(self, text: str) -> None:
                raise AssertionError(text)

            note = failure

        monkeypatch.setattr("nojit.aot.cli.progress.build_progress.Lines", lambda _write: View())
        result = run("build", manifest, "--out", tmp_path / "out", "--cache-dir", tmp_path / f"cache{tick}", "-j", 1)
        assert result.exit_code == 130
        assert list((tmp_path / "tmp").iterdir()) == []
        assert not (tmp_path / "out").exists()
        assert not list((tmp_path / f"cache{tick}").rglob(".*"))


@pytest.mark.parametrize("moment", ["the second bundle is packed", "a twin is planned"])
def test_an_interrupt_leaves_no_bundle_without_its_statement(
    run: Run, use_compiler: Use, manifest: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    use_compiler()
    out = manifest.parent / "out"

    def interrupt(*facts: Any) -> Any:
        if moment == "the second bundle is packed" and not list(out.rglob("*.nojit")):
            return pack(*facts)
        raise KeyboardInterrupt

    where = "cli.building.run_build.twin_plans" if "twin" in moment else "pipeline.build.pack"
    monkeypatch.setattr(f"nojit.aot.{where}", interrupt)
    words = ("--arch", "sm_80", "--arch", "sm_90", "--jobs", 1, "--debug-info", "twin")
    assert run("build", manifest, "--out", out, *words).exit_code == 130
    bundles = list(out.glob("*.nojit"))
    assert len(bundles) == (2 if "twin" in moment else 1)
    assert all(statement_path(bundle).exists() for bundle in bundles)


@pytest.mark.triton
def test_real_compiler_end_to_end(run: Run, document: Document, tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(
        "import triton\nimport triton.language as tl\n\n\n"
        "@triton.jit\n"
        "def fill_kernel(out_ptr, value, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out_ptr + at, value, mask=at < n)\n"
    )
    (tmp_path / "fill.toml").write_text(
        'schema = 1\n[bundle]\nname = "fill"\nversion = "1"\narchs = ["sm_80"]\n'
        '[[kernel]]\nname = "fill"\nsource = "kernel.py:fill_kernel"\ngrid = ["cdiv(n, BLOCK)"]\n'
        'params = { out_ptr = "*fp32", value = "fp32", n = "i32" }\nconfigs = [{ BLOCK = 256 }]\n'
    )
    result = run("build", tmp_path / "fill.toml", "--out", tmp_path / "out", "-j", 1)
    assert result.exit_code == 0, result.output
    path = tmp_path / "out" / "fill-1-sm_80.nojit"
    assert document("verify", path)["ok"] is True
    shown = document("inspect", path, "--kernel", "fill")
    assert shown["variants"][0]["registers"] > 0
    run("extract", path, "--kernel", "fill", "--out", tmp_path / "cubins")
    (cubin,) = (tmp_path / "cubins").glob("*.cubin")
    assert cubin.read_bytes().startswith(b"\x7fELF")
