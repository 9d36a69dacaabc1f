"""`nojit clean` deletes superseded bundles with what was written of them, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.aot.cli.conftest import Run
from tests.support.bundles import kernel, make_bundle, target

Document = Callable[..., dict[str, Any]]
ADD = kernel("add", {"n": "i32"})


def put(folder: Path, version: str, *, name: str = "acme", arch: str = "sm_90a", called: str = "") -> Path:
    """Write a bundle and what a build writes beside it."""
    folder.mkdir(exist_ok=True, parents=True)
    on = target(arch)
    path = folder / (called or f"{name}-{version}-{on.arch}.nojit")
    make_bundle(path, kernel("add", {"n": "i32"}, on=on), name=name, version=version, on=on)
    for suffix in (".report.json", ".provenance.json", ".intoto.jsonl"):
        path.with_name(path.name.removesuffix(".nojit") + suffix).write_text("{}")
    return path


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "artifacts"
    for version in ("0.9", "0.10", "0.2"):
        put(folder, version)
    put(folder, "0.1", arch="sm_80")
    put(folder, "0.1", name="other")
    return folder


OLD = {f"acme-{version}-sm_90{suffix}" for version in ("0.2", "0.9") for suffix in (".nojit", ".report.json", ".provenance.json", ".intoto.jsonl")}  # fmt: skip


def test_deletes_older_versions_and_what_lies_beside_them(run: Run, folder: Path) -> None:
    before = files(folder)
    result = run("clean", folder, "--yes")
    assert result.exit_code == 0, result.output
    assert before - files(folder) == OLD
    assert "deleted 2 bundles" in result.stdout
    assert "no bundle has a newer version" in run("clean", folder, "--yes").stdout


def test_a_dry_run_lists_and_deletes_nothing(run: Run, document: Document, folder: Path) -> None:
    before = files(folder)
    written = document("clean", folder, "--dry-run")
    assert not written["deleted"]
    assert [(each["version"], each["arch"]) for each in written["superseded"]] == [("0.2", "sm_90"), ("0.9", "sm_90")]
    assert {Path(path).name for each in written["superseded"] for path in each["files"]} == OLD
    assert written["superseded"][0]["newer"] == str(folder / "acme-0.10-sm_90.nojit")
    shown = run("clean", folder, "--dry-run").stdout
    assert "acme-0.9-sm_90.nojit" in shown
    assert "acme-0.10-sm_90.nojit" in shown
    assert files(folder) == before


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_without_a_terminal_nothing_is_deleted_unasked(run: Run, folder: Path, words: tuple[str, ...]) -> None:
    before = files(folder)
    result = run("clean", folder, *words)
    assert result.exit_code == 2
    assert "expected --yes to delete 2 bundles, or a terminal to confirm on" in result.stderr
    assert files(folder) == before


def test_what_no_build_writes_stays(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    put(folder, "1.0")
    renamed = put(folder, "0.5", called="mine.nojit")
    (folder / "acme-0.4-sm_90.nojit").write_bytes(b"not a bundle")
    (folder / "acme-0.3-sm_90.nojit").symlink_to(put(tmp_path / "elsewhere", "0.3"))
    (folder / "acme-0.2-sm_90.report.json").write_text("an orphan")
    (folder / "notes.txt").write_text("mine")
    (folder / "acme-0.1-sm_90.nojit").mkdir()
    before = files(folder)
    result = run("clean", folder, "--yes")
    assert result.exit_code == 0
    assert files(folder) == before
    assert f"kept: {renamed}: expected the name that a build gives, acme-0.5-sm_90.nojit" in result.stderr
    assert "kept: " in result.stderr.replace(str(renamed), "")
    assert (tmp_path / "elsewhere/acme-0.3-sm_90.nojit").exists()


def test_one_folder_supersedes_nothing_of_another(run: Run, tmp_path: Path) -> None:
    first, second = put(tmp_path / "a", "1.0"), put(tmp_path / "b", "2.0")
    run("clean", tmp_path / "a", tmp_path / "b", "--yes")
    assert first.exists()
    assert second.exists()


def test_without_arguments_artifacts_and_what_builds_put_below(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "expected a folder of bundles, got no such folder - at artifacts" in run("clean").stderr
    assert f"expected a folder of bundles, got a file - at {__file__}" in run("clean", __file__).stderr
    for place in ("artifacts", "artifacts/tuning", "artifacts/debug", "artifacts/mine"):
        put(tmp_path / place, "1.0")
        put(tmp_path / place, "2.0")
    assert run("clean", "--yes").exit_code == 0
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*1.0*.nojit"))
    assert left == ["artifacts/mine/acme-1.0-sm_90.nojit"]


def test_wheels_hold_the_newest_version_with_a_note(run: Run, document: Document, folder: Path, tmp_path: Path) -> None:
    for path in {*folder.glob("*.intoto.jsonl"), *folder.glob("other*"), *folder.glob("*sm_80*")}:
        path.unlink()
    result = run("wheel", folder, "--out", tmp_path / "dist")
    assert result.exit_code == 0, result.stderr
    assert (
        f"skipped {folder / 'acme-0.9-sm_90.nojit'}: acme-0.10-sm_90.nojit, a newer version, lies beside it"
        in result.stderr
    )
    assert files(tmp_path / "dist") == {"acme-0.10-py3-none-any.whl", "acme_sm90-0.10-py3-none-any.whl"}
    named = document("wheel", folder / "acme-0.9-sm_90.nojit", "--out", tmp_path / "old")
    assert all("-0.9-" in file["path"] for file in named["files"])
