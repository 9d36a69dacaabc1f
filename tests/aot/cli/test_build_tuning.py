"""`nojit build --tuning`: what it compiles, what it leaves out, what it says of both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.provenance.statement import read_statement, statement_path
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.table.tuning import Tuning

from tests.aot.cli.conftest import MANIFEST, Run
from tests.aot.conftest import HEADER
from tests.aot.fake_compiler import FakeCompiler

Use = Callable[..., FakeCompiler]
Document = Callable[..., dict[str, Any]]
BUNDLE = "demo-tuning-1.0-sm_90.nojit"
SPACE = """
[[kernel.tuning.space]]
BLOCK = [64, 128, 512]
num_warps = [2, 4]
when = "BLOCK > 64 or num_warps == 2"
"""
TUNED = MANIFEST.replace(
    '\n[[kernel]]\nname = "neg"', f'\n[kernel.tuning]\nkey = ["n"]\n{SPACE}\n[[kernel]]\nname = "neg"'
)
TABLE = """
schema = 1
kernel = "add"
key = ["n"]
device = { name = "NVIDIA H200", arch = "sm_90", multiprocessors = 132, memory_bytes = 150754820096 }
config = [{ BLOCK = 512 }]
entry = [{ rows = [{ at = [1024], use = [0] }] }]
"""


@pytest.fixture
def tuned(write_manifest: Callable[..., Path]) -> Path:
    """A manifest of one kernel with a space and one without."""
    return write_manifest(TUNED)


def test_builds_the_space_of_the_kernels_that_have_one(
    run: Run, use_compiler: Use, tuned: Path, tmp_path: Path
) -> None:
    compiler = use_compiler()
    result = run("build", tuned, "--tuning", "--out", tmp_path / "out", "-j", 1)
    assert result.exit_code == 0, result.output
    # the manifest's two configs are of four warps, and one of them is in the space too
    assert len(compiler.compiled()) == 12
    assert "left out by 'BLOCK > 64 or num_warps == 2'" in result.stdout
    with BundleFile(tmp_path / "out" / BUNDLE) as bundle:
        assert {name: bundle.entry(name).variants for name in bundle.kernels} == {"add": 12}
        table = bundle.table("add")
        blocks = [(dict(c.constexprs)["BLOCK"], dict(c.options)["num_warps"]) for c in table.configs]
        assert blocks == [(128, 4), (256, 4), (64, 2), (128, 2), (512, 2), (512, 4)]
        assert table.tuning is not None
        assert (table.tuning.key, table.tuning.tables) == (("n",), ())


def test_failures_are_pruned_and_tried_again(
    run: Run, document: Document, use_compiler: Use, tuned: Path, tmp_path: Path
) -> None:
    use_compiler(mishaps={"BLOCK=512 num_warps=4": "fail", "BLOCK=512 num_warps=2": "exit"})
    words = ("build", tuned, "--tuning", "--out", tmp_path / "out", "-j", 1)
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert "FAILED" not in result.stderr
    rows = [line.split() for line in result.stdout.splitlines() if "does not compile" in line]
    assert rows == [["add", "4", "does", "not", "compile"]]
    written = document(*words)
    (report,) = written["bundles"]
    assert (report["up_to_date"], report["failures"], len(report["variants"])) == (False, [], 8)
    assert sorted({each["reason"] for each in report["pruned"]}) == [
        "does not compile",
        "left out by 'BLOCK > 64 or num_warps == 2'",
    ]
    assert {each["kernel"] for each in report["pruned"]} == {"add"}
    assert any(each["detail"] == "expected to compile, got a fake failure" for each in report["pruned"])


def test_a_second_build_is_up_to_date_and_says_again_what_was_pruned(
    run: Run, document: Document, use_compiler: Use, tuned: Path, tmp_path: Path
) -> None:
    compiler = use_compiler()
    words = ("build", tuned, "--tuning", "--out", tmp_path / "out", "-j", 1)
    run(*words)
    (report,) = document(*words)["bundles"]
    assert (report["up_to_date"], len(report["pruned"]), len(compiler.compiled())) == (True, 2, 12)
    assert "pruned because" in run(*words, "-v").stdout


def test_a_kernel_of_which_nothing_is_left_is_an_error(
    run: Run, use_compiler: Use, tuned: Path, tmp_path: Path
) -> None:
    use_compiler(mishaps={"add": "fail"})
    result = run("build", tuned, "--tuning", "--out", tmp_path / "out", "-j", 1)
    assert result.exit_code == 1
    assert "expected a config of add to measure, got every one pruned: 12 does not compile, 2 left out" in result.stderr
    assert not (tmp_path / "out" / BUNDLE).exists()


@pytest.mark.parametrize(("limit", "pruned"), [(0, ["spills over 0 bytes of a thread"] * 2), (8, [])])
def test_spilling_configs_are_pruned(
    document: Document, use_compiler: Use, write_manifest: Callable[..., Path], limit: int, pruned: list[str]
) -> None:
    use_compiler()
    # the fake spills 8 bytes where a label says so
    space = f"max_spill_bytes = {limit}\n[[kernel.tuning.space]]\nBLOCK = ['spills', 64]\n"
    path = write_manifest(TUNED.replace(SPACE, space))
    (report,) = document("build", path, "--tuning", "--out", path.parent / "out", "-j", 1)["bundles"]
    assert [each["reason"] for each in report["pruned"]] == pruned
    assert len(report["variants"]) == 8 - len(pruned)


def test_dry_run_counts_what_rules_leave_out(run: Run, use_compiler: Use, tuned: Path) -> None:
    compiler = use_compiler()
    result = run("build", tuned, "--tuning", "--dry-run")
    assert "12 variants in 1 bundle" in result.stdout
    assert "left out by" in result.stdout
    assert compiler.compiled() == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ("--kernel", "neg"),
            "expected a kernel with a [[kernel.tuning.space]]: add one, or leave out --tuning or --retune, got 'neg'",
        ),
        (("--kernel", "ad"), "expected a kernel of the manifests, got 'ad'; did you mean 'add'?"),
        (("--profile", "core"), "expected --profile full with --tuning"),
        (("--profile", "core", "--retune"), "expected --profile full with --retune"),
        (("--retune", "--no-tuned"), "expected --retune without --no-tuned"),
    ],
)
def test_refusals(run: Run, use_compiler: Use, tuned: Path, words: tuple[str, ...], expected: str) -> None:
    use_compiler()
    result = run("build", tuned, "--tuning", *words, "--dry-run")
    assert result.exit_code == (2 if expected.startswith("expected --") else 1)
    assert expected in result.stderr


def test_goes_into_a_folder_of_its_own(
    run: Run, use_compiler: Use, tuned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_compiler()
    monkeypatch.chdir(tuned.parent)
    assert run("build", tuned, "--tuning", "-j", 1).exit_code == 0
    assert (tuned.parent / "artifacts" / "tuning" / BUNDLE).is_file()


def test_without_any_space_there_is_nothing_to_build(run: Run, use_compiler: Use, manifest: Path) -> None:
    use_compiler()
    result = run("build", manifest, "--tuning", "--dry-run")
    assert result.exit_code == 1
    assert (
        result.stderr
        == f"error: expected a kernel with a [[kernel.tuning.space]]: add one, or leave out --tuning or --retune, got none - at {manifest}\n"
    )


def test_a_bundle_without_any_space_is_named_beside_others(
    run: Run, use_compiler: Use, tuned: Path, write_manifest: Callable[..., Path]
) -> None:
    use_compiler()
    plain = write_manifest(MANIFEST, name="plain.toml", header=HEADER.replace('"demo"', '"plain"'))
    result = run("build", tuned, plain, "--tuning", "--dry-run", "--arch", "sm_80", "--arch", "sm_90")
    assert result.exit_code == 0
    assert result.stderr == "plain-tuning has no kernel with a [[kernel.tuning.space]]: nothing to build\n"


def test_tuned_tables_are_used_unless_they_are_not_to_be(document: Document, use_compiler: Use, tuned: Path) -> None:
    use_compiler()
    (tuned.parent / "tuned").mkdir()
    (tuned.parent / "tuned" / "add.toml").write_text(TABLE, encoding="utf-8")
    words = ("build", tuned, "--dry-run", "--kernel", "add")
    by_tables, by_hand = (document(*words, *more)["bundles"][0]["kernels"][0] for more in ((), ("--no-tuned",)))
    assert (by_tables["variants"], by_tables["tuned"]) == (4, ["NVIDIA H200"])
    assert (by_hand["variants"], by_hand["tuned"]) == (8, [])


def test_a_bundle_to_tune_again_has_the_configs_of_manifests_and_tables(
    run: Run, use_compiler: Use, tuned: Path, tmp_path: Path
) -> None:
    use_compiler(toolchains=("3.9", "3.6"))
    (tuned.parent / "tuned").mkdir()
    (tuned.parent / "tuned" / "add.toml").write_text(TABLE, encoding="utf-8")
    result = run("build", tuned, "--retune", "--out", tmp_path / "out", "-j", 1)
    assert result.exit_code == 0, result.output
    with BundleFile(tmp_path / "out" / BUNDLE) as bundle:
        found = [
            (dict(config.constexprs)["BLOCK"], dict(config.options)["toolchain"])
            for config in bundle.table("add").configs
        ]
        assert found == [(block, name) for block in (128, 256, 512) for name in ("3.9", "3.6")]
        assert bundle.table("add").tuning == Tuning(("n",), "quarter_pow2")
    statement = read_statement(statement_path(tmp_path / "out" / BUNDLE)).recipe()
    assert (statement.tuning, statement.retune, statement.toolchains) == (True, True, ("3.9", "3.6"))


def test_without_a_table_only_the_manifests_configs_are_tuned_again(
    run: Run, document: Document, use_compiler: Use, tuned: Path
) -> None:
    use_compiler()
    (bundle,) = document("build", tuned, "--retune", "--dry-run")["bundles"]
    assert [(each["name"], each["variants"]) for each in bundle["kernels"]] == [("add", 4)]
    said = "no tuned table for sm_90 of add: only the configs of their manifests are built; --tuning builds their whole spaces"
    assert said in run("build", tuned, "--retune", "--dry-run").stderr.splitlines()
    (tuned.parent / "tuned").mkdir()
    (tuned.parent / "tuned" / "add.toml").write_text(TABLE, encoding="utf-8")
    for option in ("--retune", "--tuning"):
        assert "no tuned table" not in run("build", tuned, option, "--dry-run").stderr


@pytest.mark.parametrize(("limit", "warned"), [(4, True), (8, False)])
def test_tuned_variants_that_spill_more_than_their_space_allows_are_warned_of(
    *,
    run: Run,
    document: Document,
    use_compiler: Use,
    write_manifest: Callable[..., Path],
    limit: int,
    warned: bool,
) -> None:
    use_compiler()
    space = f"max_spill_bytes = {limit}\n[[kernel.tuning.space]]\nBLOCK = ['spills', 64]\n"
    path = write_manifest(TUNED.replace(SPACE, space))
    (path.parent / "tuned").mkdir()
    (path.parent / "tuned/add.toml").write_text(TABLE.replace("BLOCK = 512", "BLOCK = 'spills'"))
    words = ("build", path, "--arch", "sm_90", "--out", path.parent / "out", "-j", 1)
    assert ("max_spill_bytes is 4: tune it again" in run(*words).stderr) == warned
    # an up-to-date bundle is still out of tune
    (report,) = document(*words)["bundles"]
    assert report["up_to_date"]
    aligned = [each for each in report["tuned_spills"] if ":16" in each["label"]]
    assert report["tuned_spills"] == aligned
    assert {(each["kernel"], each["spill_bytes"], each["max_spill_bytes"]) for each in aligned} == (
        {("add", 8, 4)} if warned else set()
    )
    assert sum(each["spill_bytes"] > 4 for each in report["variants"]) > len(aligned)
