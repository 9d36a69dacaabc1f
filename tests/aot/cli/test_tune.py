"""The commands of `nojit tune` that work without a GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.cli.commands.tune import select as tune_select
from nojit.aot.tune.select.summaries import table_facts
from nojit.runtime.tuning.tuned_tables import read_tuned

from tests.aot.cli.conftest import Run
from tests.aot.tune.imports.test_importers import moe, server
from tests.aot.tune.synthetic import plain_time, write_database

Document = Callable[..., dict[str, Any]]
MANIFEST = """
[[kernel]]
name = "toy"
source = "demo:toy"
params = { x_ptr = "*{dtype}", m = "i32", n = "i32", heads = "i32" }
matrix = { dtype = ["fp16", "bf16"], CAUSAL = [false, true] }
configs = [{ BLOCK_M = 128, BLOCK_N = 64, num_warps = 8 }]

[kernel.tuning]
key = ["m", "n * heads"]
alike = { dtype = [["bf16", "fp16"]] }
"""


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Measurements, in a folder that has no manifests."""
    monkeypatch.chdir(tmp_path)
    return write_database(tmp_path / "toy.db")


@pytest.fixture
def manifests(write_manifest: Callable[..., Path]) -> Path:
    return write_manifest(MANIFEST).parent


def test_select_writes_a_table_and_tells_the_curve(run: Run, database: Path, manifests: Path, tmp_path: Path) -> None:
    result = run("tune", "select", database, "--manifests", manifests, "--loss", 0)
    assert result.exit_code == 0, result.output
    path = tmp_path / "manifests/tuned/toy.nvidia-h200.toml"
    table = read_tuned(path)
    assert dict(table.entries[0].where)["dtype"] == ("bf16", "fp16")
    origin = dict(table.origin)
    assert origin["tool"].startswith("nojit tune select ")
    assert origin["driver"] == "580.82.07"
    assert origin["database"].startswith("sha256:")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "bf16, fp16: 3 of 12 configs, 4 problems" in lines
    assert "3 0.0% 0.0% chosen" in lines


def test_select_in_json(document: Document, database: Path, tmp_path: Path) -> None:
    written = document("tune", "select", database, "--out", tmp_path / "t", "--max-configs", 2, "--loss", 0)
    assert (written["loss"], written["max_configs"]) == (0.0, 2)
    (table,) = written["tables"]
    assert (table["kernel"], table["arch"], table["rows"]) == ("toy", "sm_90", 4)
    (group,) = table["groups"]
    # no manifest: what the database says of `alike`, which is nothing
    assert group["dtypes"] == ["bf16"]
    assert group["kept"] is False
    assert len(group["configs"]) == 2
    assert [step["configs"] for step in group["curve"]] == [1, 2]


def test_select_says_when_the_loss_is_not_kept(run: Run, database: Path) -> None:
    result = run("tune", "select", database, "--max-configs", 1)
    assert result.exit_code == 0
    assert "toy, bf16: --loss is not met: the worst problem loses" in result.stderr
    assert "no manifest of toy: dtypes are tuned separately" in result.stderr


def test_tables_in_the_default_folder_ask_for_no_manifests(run: Run, database: Path, tmp_path: Path) -> None:
    for words in (("select",), ("select",), ("evaluate",), ("report", "--out", tmp_path / "page.html")):
        result = run("tune", words[0], database, *words[1:])
        assert result.exit_code == 0, result.output
    assert (tmp_path / "manifests/tuned/toy.nvidia-h200.toml").is_file()


def test_select_says_when_the_search_was_cut_short(
    run: Run, database: Path, manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*facts: Any) -> Any:
        found = table_facts(*facts)
        return replace(found, groups=tuple(replace(group, exact=False) for group in found.groups))

    monkeypatch.setattr(tune_select, "table_facts", cut)
    result = run("tune", "select", database, "--manifests", manifests)
    assert result.stderr.splitlines() == ["toy, bf16, fp16: the search was cut short; a better set may exist"]


def test_select_leaves_a_file_of_somebody_else_alone(run: Run, database: Path, tmp_path: Path) -> None:
    folder = tmp_path / "manifests/tuned"
    folder.mkdir(parents=True)
    (folder / "toy.nvidia-h200.toml").write_text("# mine\n")
    (folder.parent / "none.toml").touch()
    words = ("tune", "select", database, "--manifests", tmp_path / "no")
    assert "expected a manifest file or a folder" in run(*words).stderr
    (folder.parent / "none.toml").unlink()
    folder.rename(tmp_path / "out")
    folder.parent.rmdir()
    refused = run("tune", "select", database, "--out", tmp_path / "out")
    assert refused.exit_code == 1
    assert "replace it anyway with --force" in refused.stderr
    assert run("tune", "select", database, "--out", tmp_path / "out", "--force").exit_code == 0


def test_evaluate_compares_with_the_best(run: Run, document: Document, database: Path) -> None:
    assert run("tune", "select", database, "--loss", 0, "--out", "tables").exit_code == 0
    words = ("tune", "evaluate", database, "--tables", "tables", "--min-geomean", 0.95, "--min-worst", 0.85)
    written = document(*words)
    assert (written["use"], written["mean_share"], written["worst_share"], written["kept"]) == ("held_out", 1, 1, True)
    (kernel,) = written["kernels"]
    assert {one["problem"] for one in kernel["problems"]} == {"600x64", "3000x128"}
    lines = [" ".join(line.split()) for line in run(*words).stdout.splitlines()]
    assert lines == ["kernel device problems mean worst unknown", "toy NVIDIA H200 2 1.000 1.000 0"]
    detailed = [" ".join(line.split()) for line in run(*words, "-v").stdout.splitlines()]
    assert any("600x64 bf16 ok" in line for line in detailed)
    # what all configs have is said once
    (title,) = [line for line in detailed if line.startswith("toy, all with ")]
    assert "BLOCK_N=64" in title
    assert detailed[-1].endswith("BLOCK_M=32 (38.4 us) BLOCK_M=32 (38.4 us)")


def test_evaluate_fails_below_a_bar(run: Run, document: Document, database: Path) -> None:
    assert run("tune", "select", database, "--loss", 0, "--max-configs", 1, "--out", "tables").exit_code == 0
    words = ("tune", "evaluate", database, "--tables", "tables")
    assert run(*words).exit_code == 0
    assert document(*words, "--min-worst", 0.99, code=1)["kept"] is False
    assert document(*words, "--min-geomean", 0.99, code=1)["kept"] is False


def test_evaluate_names_a_missing_table(run: Run, database: Path, tmp_path: Path) -> None:
    other = write_database(tmp_path / "other.db", kernel="another")
    assert run("tune", "select", other, "--out", "tables").exit_code == 0
    result = run("tune", "evaluate", database, "--tables", "tables")
    assert result.exit_code == 1
    assert (
        "expected a tuned table of kernel toy for sm_90, got another (sm_90); write one with nojit tune select"
        in result.stderr
    )
    (tmp_path / "empty").mkdir()
    assert "expected a folder with tuned tables" in run("tune", "evaluate", database, "--tables", "empty").stderr


def test_repeated_runs_are_compared(run: Run, document: Document, database: Path, tmp_path: Path) -> None:
    slower = write_database(
        tmp_path / "b.db", time=lambda c, m, k: plain_time(c, m, k) * (1 if c["BLOCK_M"] != 64 else 0.5)
    )
    same = document("tune", "evaluate", database, "--repeat", database, "--max-drift", 0)
    assert (same["worst_drift"], same["kept"], len(same["drifts"])) == (0.0, True, 4)
    other = document("tune", "evaluate", database, "--repeat", slower, "--max-drift", 2, code=1)
    assert other["kept"] is False
    one = ("--loss", 100, "--max-configs", 1)
    drifts = document("tune", "evaluate", database, "--repeat", slower, *one)["drifts"]
    assert len({drift["first"] for drift in drifts}) == 1 < len({drift["first"] for drift in other["drifts"]})
    told = run("tune", "evaluate", database, "--repeat", slower).stdout
    assert "the second run's selection differs by" in told
    assert "toy, more than 2% apart" in told


def test_a_repeat_of_some_kernels_is_compared_by_those(
    run: Run, document: Document, database: Path, tmp_path: Path
) -> None:
    both = write_database(tmp_path / "both.db")
    write_database(both, kernel="another")
    written = document("tune", "evaluate", both, "--repeat", database)
    assert (written["left_out"], {one["kernel"] for one in written["drifts"]}) == (["another"], {"toy"})
    said = "skipped, only one database has them: another"
    assert said in run("tune", "evaluate", database, "--repeat", both).stderr
    other = write_database(tmp_path / "other.db", kernel="another")
    refused = run("tune", "evaluate", database, "--repeat", other)
    assert (refused.exit_code, "expected a kernel that both databases measured" in refused.stderr) == (1, True)


def test_a_table_with_another_key_is_refused(run: Run, database: Path) -> None:
    assert run("tune", "select", database, "--out", "tables").exit_code == 0
    path = Path("tables/toy.nvidia-h200.toml")
    path.write_text(path.read_text().replace('key = ["m", "n * heads"]', 'key = ["m", "n"]'))
    result = run("tune", "evaluate", database, "--tables", "tables")
    assert (
        "expected the key that toy was measured with (m, n * heads), got m, n; write the table again" in result.stderr
    )
    path.write_text(path.read_text().replace('key = ["m", "n"]', 'key = ["m", "n*heads"]'))
    assert run("tune", "evaluate", database, "--tables", "tables").exit_code == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("select", "none.db"), 1, "expected a database of measurements"),
        (
            ("select", "toy.db", "--use", "bars"),
            1,
            "expected measurements of problems for 'bars'; measure them with nojit tune run, got none",
        ),
        (("select", "toy.db", "--kernel", "toi"), 1, "expected a measured kernel: toy, got 'toi'; did you mean 'toy'?"),
        (("select", "toy.db", "--loss", "nan"), 2, "--loss"),
        (("select", "."), 1, "got a folder - at ."),
        (("select", "toy.db", "--max-configs", "0"), 2, "--max-configs"),
        (("evaluate", "toy.db", "--tables", "no.toml"), 1, "no.toml"),
        (
            ("evaluate", "toy.db", "--tables", "no"),
            1,
            "expected a tuned table or a folder of them, got no such path - at no; write tables with nojit tune select",
        ),
        (("evaluate", "toy.db", "--min-worst", "2"), 2, "--min-worst"),
        (("evaluate", "toy.db", "--min-geomean", "nan"), 2, "--min-geomean"),
        (("evaluate", "toy.db", "--max-drift", "2"), 2, "expected --max-drift with --repeat"),
        (("evaluate", "toy.db", "--repeat", "toy.db", "--min-worst", "1"), 2, "expected --min-worst without --repeat"),
        (("evaluate", "toy.db", "--repeat", "toy.db", "--use", "tune"), 2, "expected --use without --repeat"),
        (("evaluate", "toy.db", "--max-configs", "2"), 2, "expected --max-configs with --repeat"),
        (("selct", "toy.db"), 2, "did you mean"),
    ],
)
def test_mistakes_are_named(run: Run, database: Path, words: tuple[str, ...], code: int, said: str) -> None:
    result = run("tune", *words)
    assert (result.exit_code, said in result.stderr) == (code, True), result.stderr


IMPORT = ("--kernel", "moe", "--arch", "sm_90", "--multiprocessors", 132, "--memory-bytes", 85045280768)


def test_what_no_table_can_hold_is_not_imported(run: Run, tmp_path: Path) -> None:
    path = server(tmp_path, {"1": moe(16)})
    words = ("tune", "import", *IMPORT, "--key", "tokens", "--out", tmp_path / "out")
    folder = run(*words, tmp_path)
    assert folder.exit_code == 1
    assert f"expected a file of Triton's autotuner or of an LLM server, got a folder - at {tmp_path}" in folder.stderr
    for option in ("--multiprocessors", "--memory-bytes"):
        huge = run(*words, path, option, 2**63)
        assert huge.exit_code == 2
        assert "is not in the range" in huge.stderr
    assert not (tmp_path / "out").exists()


def test_a_servers_configs_become_a_table(run: Run, document: Document, tmp_path: Path) -> None:
    path = server(tmp_path, {"1": moe(16), "64": moe(64)})
    words = ("tune", "import", path, *IMPORT, "--key", "tokens", "--where", "dtype=fp16", "--where", "dtype=bf16")
    words += ("--where", "EVEN=true", "--where", "TOP=2", "--rename", "BLOCK_SIZE_M=BLOCK_M", "--out", tmp_path / "out")
    written = document(*words)
    assert (written["configs"], written["rows"], written["formats"]) == (2, 2, ["server"])
    table = read_tuned(written["path"])
    assert table.device.name == "NVIDIA H100 80GB HBM3"
    assert table.entries[0].where == (("dtype", ("fp16", "bf16")), ("EVEN", (True,)), ("TOP", (2,)))
    assert dict(table.origin)["tool"].startswith("nojit tune import ")
    assert run(*words).stdout.endswith("2 configs, 2 rows\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--key", "a b"), "--key"),
        (("--key", "tokens", "--where", "dtype"), "expected NAME=VALUE, got 'dtype'"),
        (("--key", "tokens", "--arch", "gfx90a"), "--arch"),
    ],
)
def test_wrong_usage_of_import_is_named(run: Run, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    path = server(tmp_path, {"1": moe(16)}, "x.json")
    result = run("tune", "import", path, *IMPORT, *words)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    unnamed = run("tune", "import", path, *IMPORT, "--key", "tokens")
    assert "expected --device-name NAME: the files name none" in unnamed.stderr


def test_report_writes_a_page_and_tables(document: Document, database: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    written = document("tune", "report", database, "--out", tmp_path / "r.html", "--markdown", tmp_path / "r.md")
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert "| `toy` | bf16 |" in (tmp_path / "r.md").read_text()
    (one,) = written["classes"]
    assert (one["kernel"], one["problems"], one["configs"]) == ("toy", 4, 12)
    assert one["importance"]["shares"][0]["factors"]
    assert written["tables"][0]["kernel"] == "toy"


def test_report_judges_tables_by_problems_held_out(document: Document, database: Path, run: Run) -> None:
    pytest.importorskip("sklearn")
    words = ("tune", "report", database, "--out", "r.html", "--markdown", "r.md")
    # no tables in the default place: nothing to judge, and nothing said
    assert document(*words)["quality"] == []
    assert "Quality of the tuned tables" not in Path("r.html").read_text()
    write_database(database, kernel="another")
    assert run("tune", "select", database, "--kernel", "toy", "--loss", 0, "--out", "tables").exit_code == 0
    another, toy = document(*words, "--tables", "tables")["quality"]
    assert (toy["kernel"], toy["use"], toy["problems"], toy["unknown"]) == ("toy", "held_out", 2, 0)
    assert (toy["mean_share"], toy["worst_share"]) == (1.0, 1.0)
    assert (another["unknown"], another["mean_share"], another["worst_problem"]) == (2, None, "")
    assert "<h2>Quality of the tuned tables</h2>" in Path("r.html").read_text()
    page = Path("r.md").read_text()
    assert "Quality of the tuned tables:" in page
    assert "| `another` | held_out | 2 | 2 | - | - | - |" in page
    assert "got no such path - at no" in run(*words, "--tables", "no").stderr


def test_a_page_without_marks_is_refused_before_anything_is_written(run: Run, database: Path) -> None:
    pytest.importorskip("sklearn")
    Path("r.md").write_text("mine\n")
    assert run("tune", "report", database, "--out", "r.html", "--markdown", "r.md").exit_code == 1
    os.mkfifo("fifo.md")
    result = run("tune", "report", database, "--out", "r.html", "--markdown", "fifo.md")
    assert "error: expected a page in Markdown, got a FIFO - at fifo.md" in result.stderr
    assert not Path("r.html").exists()


def test_a_fifo_for_a_tuned_table_is_not_waited_for(run: Run, database: Path) -> None:
    os.mkfifo("fifo.toml")
    result = run("tune", "evaluate", database, "--tables", "fifo.toml")
    assert (result.exit_code, "expected a tuned table, got a FIFO - at fifo.toml" in result.stderr) == (1, True)


def test_report_names_the_extra_that_it_needs(run: Run, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, "sklearn.ensemble", raising=False)
    for name in [name for name in sys.modules if name.startswith("nojit.aot.tune.report.measurements")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "nojit.aot.tune.report.importance", raising=False)
    result = run("tune", "report", database, "--out", "r.html")
    assert result.exit_code == 1
    assert "pip install 'nojit[tune]'" in result.stderr
