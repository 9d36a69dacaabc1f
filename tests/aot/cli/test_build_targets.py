"""`nojit build --plan` and `--toolchain`: what they print, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.aot.cli.conftest import Run
from tests.aot.fake_compiler import FakeCompiler

Use = Callable[..., FakeCompiler]
Document = Callable[..., dict[str, Any]]


def test_a_plan_shows_the_target_of_each_kernel_and_writes_no_bundle(
    run: Run, document: Document, use_compiler: Use, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = manifest.parent / "out"
    monkeypatch.setattr(FakeCompiler, "archs", lambda _: ())
    use_compiler(same_image=True, mishaps={"neg sm_103": "fail"})
    archs = [word for arch in ("sm_90", "sm_100", "sm_103") for word in ("--arch", arch)]
    words = ("build", manifest, "--plan", "--out", out, "-j", 1, *archs)
    result = run(*words)
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["add", "sm_100f", "8", "-", "-", "sm_100", "sm_103", "sm_107", "-"] in rows
    assert [
        "neg",
        "sm_100",
        "1",
        "-",
        "-",
        "sm_100",
        *["1", "of", "1", "do", "not", "compile", "for", "sm_103"],
    ] in rows
    assert [
        "neg",
        "sm_103",
        "1",
        "1",
        "-",
        "sm_103",
        *["1", "of", "1", "do", "not", "compile", "for", "sm_103"],
    ] in rows
    assert "1 variant failed; the same command without --plan says why" in result.stderr
    assert "--arch sm_90: 2 kernels" in result.stdout
    assert "--arch sm_100f --kernel add: 1 kernel" in result.stdout
    assert not (out).exists()
    targets = document(*words)["targets"]
    assert [one["failed"] for one in targets] == [0, 0, 0, 0, 1]
    assert [(one["kernel"], one["arch"], one["chips"]) for one in targets] == [
        ("add", "sm_90", ["sm_90"]),
        ("add", "sm_100f", ["sm_100", "sm_103"]),
        ("neg", "sm_90", ["sm_90"]),
        ("neg", "sm_100", ["sm_100"]),
        ("neg", "sm_103", ["sm_103"]),
    ]


@pytest.mark.parametrize("words", [("--dry-run",), ("--debug-info", "twin")])
def test_a_plan_takes_no_option_of_what_it_does_not_write(run: Run, manifest: Path, words: tuple[str, ...]) -> None:
    result = run("build", manifest, "--plan", *words)
    assert result.exit_code == 2
    assert "expected --plan without --dry-run and --debug-info: it writes no bundle" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--toolchain", "new"), "expected a version of Triton such as 3.6 or 3.6.0, or 3.6=VENV with a virtual"),
        (("--toolchain", "3.6="), "got '3.6='"),
        (("--toolchain", "3.6=a", "--toolchain", "3.6=b"), "expected each toolchain once, got 3.6 twice"),
    ],
)
def test_a_toolchain_is_a_version_and_a_place(run: Run, manifest: Path, words: tuple[str, ...], message: str) -> None:
    result = run("build", manifest, *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_missing_environment_ends_the_build_before_it_compiles(run: Run, manifest: Path, tmp_path: Path) -> None:
    result = run("build", manifest, "--out", tmp_path / "out", "--toolchain", f"3.6={tmp_path / 'none'}")
    assert result.exit_code == 1
    assert (
        f"expected a virtual environment with Triton, or its Python: python -m venv {tmp_path / 'none'}"
        in result.stderr
    )
    assert not (tmp_path / "out").exists()


def test_an_executor_takes_one_toolchain(run: Run, use_compiler: Use, manifest: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    use_compiler(toolchains=("3.9", "3.6"))
    result = run("build", manifest, "--out", tmp_path / "out", "--executor", "dask://127.0.0.1:9")
    assert result.exit_code == 1
    assert "expected one toolchain with --executor" in result.stderr
