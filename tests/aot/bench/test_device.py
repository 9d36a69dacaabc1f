"""`benchmarks/device.py` runs everything once, in as many calls as it takes, and says how each run ended."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.aot.bench.conftest import BENCHMARKS, load_script
from tests.gpu.shares import JUDGE, read_launched, share_of, taken, write_launched

ROOT = BENCHMARKS.parent
FAILS = "print('1 failed'); print('FAILED tests/gpu/test_a.py::test_b - boom'); print('last'); raise SystemExit(1)"


@pytest.fixture(scope="module")
def device() -> ModuleType:
    # what is imported by others first
    for name in ("processes", "served"):
        load_script(name)
    return load_script("device")


@pytest.fixture
def bundles(tmp_path: Path) -> Path:
    (tmp_path / "a.nojit").write_bytes(b"bundle")
    return tmp_path


@pytest.fixture
def scripted(device, monkeypatch, tmp_path):
    """Have the benchmarks be these programs; return what calls the script, and the names of the runs it began."""
    journal = tmp_path / "journal"

    def call(programs: dict[str, str], *words: str) -> tuple[int, list[str]]:
        note = "import sys; open(sys.argv[1], 'a').write(sys.argv[2] + '\\n'); "
        runs = [
            device.Run(name, (sys.executable, "-c", note + program, str(journal), name))
            for name, program in programs.items()
        ]
        monkeypatch.setattr(device, "bench", lambda _bundles, _out: runs)
        journal.write_text("")
        code = device.main([str(tmp_path), "--out", str(tmp_path / "out"), "--only", "bench", *words])
        return code, journal.read_text().split()

    return call


def results(folder: Path) -> dict[str, dict[str, object]]:
    runs: dict[str, dict[str, object]] = json.loads((folder / "out/results.json").read_text())["runs"]
    return runs


def test_how_each_run_ended(scripted, bundles, capsys, device, monkeypatch):
    monkeypatch.setattr(device, "LEAST_SECONDS", 0.1)
    started = time.monotonic()
    scripted({"one": "pass"})
    # many times what a run takes on this machine now
    limit = max(1, 20 * (time.monotonic() - started))
    code, began = scripted(
        {"good": "print('fine')", "bad": FAILS, "slow": "import signal; signal.pause()"}, "--limit", str(limit)
    )
    assert (code, began) == (1, ["good", "bad", "slow"])
    runs = results(bundles)
    assert [(name, run["status"], run["last"], run["failed"]) for name, run in runs.items()] == [
        ("good", 0, "fine", []),
        ("bad", 1, "last", ["tests/gpu/test_a.py::test_b - boom"]),
        ("slow", None, "", []),
    ]
    printed = capsys.readouterr().out
    assert "    tests/gpu/test_a.py::test_b - boom" in printed
    assert printed.endswith("3 runs; skipped: none; failed: bad, slow\n")
    with zipfile.ZipFile(bundles / "out/logs.zip") as archive:
        assert archive.namelist() == ["good.log", "bad.log", "slow.log"]
        assert archive.read("good.log") == b"fine\n"


def test_what_there_is_no_time_for_is_not_begun_and_fails(scripted, bundles):
    assert scripted({"one": "pass", "two": "pass"}, "--budget", "5") == (1, [])
    assert [run["status"] for run in results(bundles).values()] == [None, None]


def test_a_later_call_goes_on_where_an_earlier_one_ended(scripted, bundles, tmp_path):
    earlier = tmp_path / "earlier.json"
    scripted({"quick": "pass", "bad": FAILS, "long": "import time; time.sleep(.5); raise SystemExit(1)"})
    (bundles / "out/results.json").rename(earlier)
    code, began = scripted({"quick": "pass", "bad": "pass", "long": "pass", "new": "pass"}, "--earlier", str(earlier))
    assert (code, began) == (0, ["long", "bad", "new"])
    assert {name: run["status"] for name, run in results(bundles).items()} == dict.fromkeys(("quick", *began), 0)


def skips(status: int) -> str:
    """Spell a program that ends as tests do which are all skipped."""
    return f"print('SKIPPED [2] ...'); print('2 skipped, 1 deselected in 0.02s'); raise SystemExit({status})"


@pytest.mark.parametrize("status", [0, 5])
def test_tests_that_are_all_skipped_are_neither_done_nor_failed(scripted, bundles, capsys, status):
    code, began = scripted({"good": "print('2 passed, 1 skipped in 0.1s')", "left": skips(status)})
    assert (code, began) == (0, ["good", "left"])
    assert {name: (run["status"], run["skipped"]) for name, run in results(bundles).items()} == {
        "good": (0, False),
        "left": (status, True),
    }
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in printed[:2]] == [["good", "done"], ["left", "skipped"]]
    assert printed[2] == "2 runs; skipped: left; failed: none"


def test_a_failure_beside_skipped_tests_is_one(scripted):
    assert scripted({"good": "pass", "bad": FAILS, "none": skips(5)})[0] == 1


@pytest.mark.parametrize(
    "program",
    [
        skips(1),
        "print('3 deselected in 0.02s'); raise SystemExit(5)",
        "print('no tests ran in 0.02s'); raise SystemExit(5)",
        "print('1 skipped, 1 error in 0.02s'); raise SystemExit(5)",
        "raise SystemExit(5)",
    ],
)
def test_what_ran_no_tests_for_another_reason_failed(scripted, bundles, program):
    assert scripted({"good": "pass", "none": program})[0] == 1
    assert not results(bundles)["none"]["skipped"]


def test_where_all_is_skipped_nothing_was_shown(scripted, capsys):
    assert scripted({"one": skips(5), "two": skips(0)})[0] == 1
    assert capsys.readouterr().out.endswith("2 runs; skipped: one, two; failed: none\n")


@pytest.mark.parametrize("status", [0, 5])
def test_skipped_tests_run_again_in_a_later_call(scripted, bundles, tmp_path, status):
    earlier = tmp_path / "earlier.json"
    scripted({"good": "pass", "none": skips(status)})
    (bundles / "out/results.json").rename(earlier)
    assert scripted({"good": "pass", "none": "pass"}, "--earlier", str(earlier)) == (0, ["none"])
    assert {name: run["skipped"] for name, run in results(bundles).items()} == {"good": False, "none": False}


@pytest.mark.parametrize(
    ("module", "ended"),
    [
        ("import pytest\npytest.skip('no', allow_module_level=True)\n", "skipped"),
        ("import pytest\n@pytest.mark.skip(reason='no')\ndef test_a(): pass\n", "skipped"),
        ("import pytest\n@pytest.mark.skip(reason='no')\ndef test_a(): pass\ndef test_b(): pass\n", "done"),
        ("", "exit 5"),
    ],
    ids=["module", "tests", "some", "none"],
)
def test_pytest_says_so(device, tmp_path, module, ended):
    (tmp_path / "test_it.py").write_text(module)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir")
    run = device.Run("it", (*command, str(tmp_path), str(tmp_path / "test_it.py")))
    record = device.Record(tmp_path, "", launched=tmp_path)
    device.follow(run, record, device.Limits(600, float("inf")))
    assert record.outcomes["it"].ended == ended


def test_other_bundles_make_everything_run_again(scripted, bundles, tmp_path, capsys):
    earlier = tmp_path / "earlier.json"
    scripted({"one": "pass"})
    (bundles / "out/results.json").rename(earlier)
    (bundles / "a.nojit").write_bytes(b"another")
    assert scripted({"one": "pass"}, "--earlier", str(earlier)) == (0, ["one"])
    assert "are not those of the earlier call: everything runs" in capsys.readouterr().out


def test_every_module_of_tests_runs_and_large_ones_in_shares(device, tmp_path):
    runs = device.runs_of_tests(tmp_path, tmp_path)
    modules = {path.stem for path in (ROOT / "tests/gpu").glob("test_*.py")} - {"test_jit_equality"}
    assert {run.name.split()[0] for run in runs} == modules
    assert {run.name.split()[0] for run in device.judges(tmp_path, tmp_path)} <= set(device.SHARES) <= modules
    for module, count in device.SHARES.items():
        shares = [dict(run.environment).get("NOJIT_TEST_SHARE") for run in runs if run.name.split()[0] == module]
        assert shares == ([f"{number}/{count}" for number in range(1, count + 1)] if count > 1 else [None])


def test_modules_and_tests_can_be_chosen_and_keep_their_judge(device, tmp_path, capsys):
    runs = device.runs_of_tests(tmp_path, tmp_path, ["test_conv", "test_graphs"], "wide and not long")
    assert [run.name for run in runs] == ["test_conv 1/3", "test_conv 2/3", "test_conv 3/3", "test_graphs"]
    assert {run.command[-2:] for run in runs} == {("-k", f"(wide and not long) or {JUDGE}")}
    assert [run.name for run in device.judges(tmp_path, tmp_path, ["test_conv", "test_graphs"])] == [
        "test_conv variants"
    ]
    with pytest.raises(SystemExit):
        device.main([str(tmp_path), "--out", str(tmp_path), "--modules", "test_cone"])
    assert "--modules: expected some of test_operators" in capsys.readouterr().err


def test_the_script_and_the_tests_agree_on_the_judge(device):
    assert device.JUDGE == JUDGE
    holders = [path for path in (ROOT / "tests/gpu").glob("test_*.py") if f"def {JUDGE}(" in path.read_text()]
    assert {path.stem for path in holders} >= {run.name.split()[0] for run in device.judges(Path(), Path())} > set()


def test_the_script_and_the_tests_agree_on_families(device):
    from tests.gpu.families import FAMILIES

    assert set(device.TESTED) == set(FAMILIES)
    assert {name: family.shares for name, family in FAMILIES.items() if family.shares > 1} == device.PARTS


def test_a_bundle_that_is_there_is_compared_in_parts(device, tmp_path):
    names = [run.name for run in device.equality(tmp_path, tmp_path)]
    assert len(names) == len(set(names)) == sum(device.PARTS.get(family, 1) for family in device.TESTED)
    assert [run.name for run in device.ahead(tmp_path, tmp_path)] == ["equality compile"]
    assert len(device.equality(None, tmp_path)) == len(device.TESTED)
    assert device.ahead(None, tmp_path) == []
    assert [run.name for run in device.equality(None, tmp_path, ["flex"])] == ["equality flex"]
    assert {run.name for run in device.check(tmp_path, ["flex"])} == {"memcheck flex", "racecheck flex"}


def test_shares_have_each_test_once_and_all_have_the_judge():
    names = ["test_a", "test_a", "test_b", JUDGE, "test_c", "test_c", "test_d"]
    shares = [taken(range(7), names, share_of(f"{number}/3")) for number in (1, 2, 3)]
    assert shares == [[0, 3, 4], [1, 3, 5], [2, 3, 6]]
    assert taken(range(7), names, share_of("1/1")) == list(range(7))


@pytest.mark.parametrize("spelled", ["", "1", "0/2", "3/2", "a/b", "1/2/3", "-1/2"])
def test_what_is_no_share(spelled):
    with pytest.raises(ValueError, match="expected NOJIT_TEST_SHARE to be such as 2/5"):
        share_of(spelled)


def test_what_shares_launched_comes_together(tmp_path):
    write_launched(tmp_path, "test_a", "1/2", {"add": {1, 5}, "mul": set()})
    write_launched(tmp_path, "test_a", "2/2", {"add": {2}})
    write_launched(tmp_path, "test_b", "1/2", {"add": {9}})
    assert read_launched(tmp_path, "test_a") == {"add": {1, 2, 5}, "mul": set()}


class Steered:
    """Stands for what gives kernels: each has variants 0 to 3."""

    def __init__(self, **launched: set[int]) -> None:
        self.tallies = {name: self.tally(rows) for name, rows in launched.items()}

    def tally(self, rows: set[int]) -> SimpleNamespace:
        return SimpleNamespace(rows=rows, variants=4, table=SimpleNamespace(label=str))

    def __call__(self, name: str) -> None:
        self.tallies.setdefault(name, self.tally(set()))


def test_the_judge_waits_for_all_shares(monkeypatch, tmp_path):
    from tests.gpu.steering import assert_all_launched

    monkeypatch.setenv("NOJIT_TEST_LAUNCHED", str(tmp_path))
    for share, rows in (("1/2", {0, 1}), ("2/2", {3})):
        monkeypatch.setenv("NOJIT_TEST_SHARE", share)
        with pytest.raises(pytest.skip.Exception, match="judged where all shares have run"):
            assert_all_launched(Steered(add=rows))
    monkeypatch.delenv("NOJIT_TEST_SHARE")
    with pytest.raises(AssertionError, match="no call of the tests runs\\nadd: 2"):
        assert_all_launched(Steered())
    monkeypatch.setenv("NOJIT_TEST_SHARE", "2/2")
    with pytest.raises(pytest.skip.Exception):
        assert_all_launched(Steered(add={2, 3}))
    monkeypatch.delenv("NOJIT_TEST_SHARE")
    assert_all_launched(Steered())


def test_a_share_of_a_module_leaves_the_rest_out(tmp_path, monkeypatch):
    """In a process of its own, as the script starts it."""
    (tmp_path / "conftest.py").write_text("from tests.gpu.conftest import pytest_collection_modifyitems\n")
    numbers = (
        "import pytest\n@pytest.mark.parametrize('number', range(5))\ndef test_a(number): print(f'ran {number}')\n"
    )
    (tmp_path / "test_it.py").write_text(f"{numbers}def {JUDGE}(): print('judged')\ndef test_z(): print('ran z')\n")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("NOJIT_TEST_SHARE", "2/2")
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-s",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        ".",
        ".",
    )
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600).stdout
    assert [line.lstrip(".") for line in ran.split("\n")[:4]] == ["ran 1", "ran 3", "judged", "ran z"]
    assert "4 passed, 3 deselected" in ran
