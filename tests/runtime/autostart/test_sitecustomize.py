"""The module that Python imports when it starts, where an environment asks for nojit."""

import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from nojit.runtime.autostart import FOLDER, environment, when_imported

ROOT = Path(__file__).resolve().parents[3]
SEE = "import sys; print(*sorted(name for name in sys.modules if name.partition('.')[0] in {'nojit', 'triton'}))"


def run(code, variables, **more):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        check=False,
        text=True,
        timeout=600,
        **more,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def hidden(folder: Path, text="import os\nos.environ['HIDDEN'] = 'ran'\n"):
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(text)
    return folder


def test_the_folder_comes_first_in_the_path_and_once():
    once = environment({"PYTHONPATH": "/a:/b", "X": "y"}, NOJIT_RECORD="r")
    assert once == {"PYTHONPATH": f"{FOLDER}:/a:/b", "X": "y", "NOJIT_RECORD": "r"}
    assert environment(once) == once
    assert environment({})["PYTHONPATH"] == FOLDER


def test_without_triton_nothing_is_imported(tmp_path):
    assert run(SEE, environment({}, NOJIT_RECORD=str(tmp_path))) == ""


def test_without_the_variable_nothing_waits():
    assert run("import sys; print(*sys.meta_path)", environment({"NOJIT_RECORD": ""})).count("_Waiting") == 0


def test_the_hidden_module_runs(tmp_path):
    folder = hidden(tmp_path / "site")
    variables = environment({"PYTHONPATH": str(folder)}, NOJIT_RECORD=str(tmp_path / "r"))
    code = "import os, sitecustomize; print(os.environ.get('HIDDEN'), sitecustomize.__file__)"
    assert run(code, variables) == f"ran {folder / 'sitecustomize.py'}"


def test_a_failure_of_the_hidden_module_is_reported_as_without_nojit(tmp_path):
    folder = hidden(tmp_path / "site", "raise RuntimeError('of the site')\n")
    results = []
    for given in ({"PYTHONPATH": str(folder)}, environment({"PYTHONPATH": str(folder)})):
        done = subprocess.run(
            [sys.executable, "-c", "print('on')"],
            env={**os.environ, **given},
            capture_output=True,
            check=False,
            text=True,
            timeout=600,
        )
        results.append((done.returncode, done.stdout, done.stderr))
    assert results[0] == results[1]
    assert "of the site" in results[0][2]


def test_a_relative_folder_means_the_one_where_the_first_process_started(tmp_path):
    code = "import os; print(os.environ['NOJIT_RECORD'])"
    assert run(code, environment({}, NOJIT_RECORD="r"), cwd=tmp_path) == str(tmp_path / "r")


def test_the_finder_goes_once_triton_is_imported(tmp_path):
    pytest.importorskip("triton")
    code = """
import sys
from importlib.util import find_spec
find_spec("triton")
import triton
print(*{each._name for each in sys.meta_path if "_Waiting" in str(each)}, triton.runtime.jit.compute_cache_key.__module__)
print("exec_module" in vars(triton.__spec__.loader), triton.runtime.jit.compute_cache_key.__wrapped__ is not None)
"""
    assert run(code, environment({}, NOJIT_RECORD=str(tmp_path))).splitlines() == [
        "torch._inductor.runtime.triton_heuristics triton.runtime.jit",
        "False True",
    ]


def test_two_may_wait_for_one_module_and_a_third_may_leave(tmp_path, monkeypatch):
    (tmp_path / "awaited.py").write_text("LOADED = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen, finders = [], list(sys.meta_path)
    for name in ("first", "second"):
        when_imported("awaited", lambda name=name: seen.append((name, sys.modules["awaited"].LOADED)))
    when_imported("awaited", lambda: seen.append("left"))()
    import awaited

    assert sorted(seen) == [("first", True), ("second", True)]
    assert sys.meta_path == finders
    assert "exec_module" not in vars(awaited.__spec__.loader)
    when_imported("awaited", lambda: seen.append("at once"))
    assert seen[-1] == "at once"
    del sys.modules["awaited"]


def test_a_failed_import_is_awaited_again(tmp_path, monkeypatch):
    module = tmp_path / "awaited.py"
    module.write_text("raise RuntimeError\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    leave = when_imported("awaited", lambda: seen.append("imported"))
    with pytest.raises(RuntimeError):
        import_module("awaited")
    assert seen == []
    module.write_text("LOADED = 1\n")
    import_module("awaited")
    assert seen == ["imported"]
    assert not leave()
    del sys.modules["awaited"]


def test_every_import_fails_until_the_start_succeeds(tmp_path, monkeypatch):
    (tmp_path / "awaited.py").write_text("LOADED = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders, calls = list(sys.meta_path), []

    def start():
        calls.append("start")
        if len(calls) < 3:
            raise ValueError("no bundle")

    when_imported("awaited", start)
    for _ in range(2):
        with pytest.raises(ValueError, match="no bundle"):
            import_module("awaited")
    import_module("awaited")
    assert (len(calls), sys.meta_path) == (3, finders)
    del sys.modules["awaited"]


def test_every_search_for_an_absent_module_fails_until_the_start_succeeds():
    finders, calls = list(sys.meta_path), []

    def start():
        # it looks for the module itself
        calls.append(find_spec("awaited_nowhere"))
        if len(calls) < 3:
            raise ValueError("no bundle")

    when_imported("awaited_nowhere", start, start)
    for _ in range(2):
        with pytest.raises(ValueError, match="no bundle"):
            import_module("awaited_nowhere")
    with pytest.raises(ModuleNotFoundError):
        import_module("awaited_nowhere")
    assert (calls, sys.meta_path) == ([None] * 3, finders)


def test_a_program_that_catches_the_error_of_serving_cannot_import_triton_after_it(tmp_path):
    package = tmp_path / "triton"
    package.mkdir()
    (package / "__init__.py").write_text("")
    code = """
for _ in range(2):
    try:
        import triton
    except FileNotFoundError as error:
        print("refused")
"""
    given = environment({"PYTHONPATH": str(tmp_path)}, NOJIT_SERVE=str(tmp_path / "nowhere"), NOJIT_MISS="error")
    assert run(code, given) == "refused\nrefused"


def test_a_python_without_nojit_goes_on(tmp_path):
    # Triton of a program whose Python lacks nojit
    package = tmp_path / "triton"
    package.mkdir()
    (package / "__init__.py").write_text("")
    code = "import sys; sys.modules['nojit'] = None\nimport triton; print('on')"
    given = environment({"PYTHONPATH": str(tmp_path)}, NOJIT_RECORD=str(tmp_path / "r"))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **given},
        capture_output=True,
        check=False,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout) == (0, "on\n")
    assert done.stderr.startswith("nojit: expected to follow NOJIT_RECORD, got ModuleNotFoundError")


# -- nojit-autoserve: the same module, from a .pth file

AUTOSERVE = ROOT / "autoserve"
WAITING = "import sys; print(*sorted(each._name for each in sys.meta_path if '_Waiting' in str(each)))"
AWAITED = "torch._inductor.runtime.triton_heuristics triton triton"
BOTH = {"NOJIT_RECORD": "r", "NOJIT_SERVE": "s"}
# what Python does with the folder where the package is installed; by then it has imported `sitecustomize`
ADD = f"import site; site.addsitedir({str(AUTOSERVE)!r}); "


def test_a_pth_file_waits_as_the_module_does(tmp_path):
    assert run(ADD + WAITING, BOTH, cwd=tmp_path) == AWAITED
    assert run(WAITING, environment({}, **BOTH), cwd=tmp_path) == AWAITED


@pytest.mark.parametrize("variable", ["NOJIT_RECORD", "NOJIT_SERVE"])
def test_a_pth_file_reads_either_variable(variable):
    assert run(ADD + "import sys; print('nojit_autoserve' in sys.modules)", {variable: "x"}) == "True"


@pytest.mark.parametrize("variables", [{}, {"NOJIT_RECORD": "", "NOJIT_SERVE": ""}, {"NOJIT_RECORD_FAKE": "sm_90"}])
def test_a_pth_file_imports_nothing_without_the_variables(variables):
    seen = "import sys; before = {*sys.modules}; " + ADD + "print(*{*sys.modules} - before - {'site'})"
    assert run("import site; " + seen, variables) == ""


def test_a_process_waits_once_where_the_module_came_before_the_pth_file(tmp_path):
    code = ADD + "import nojit_autoserve as n; print(n.__file__); " + WAITING
    place, waiting = run(code, environment({}, **BOTH), cwd=tmp_path).splitlines()
    assert (place, waiting) == (f"{FOLDER}/sitecustomize.py", AWAITED)


def test_a_process_waits_once_where_the_pth_file_came_before_the_module(tmp_path):
    # without -S, Python reads .pth files first
    code = f"import sys, site; {ADD} sys.path.insert(0, {FOLDER!r}); site.execsitecustomize(); {WAITING}"
    folder = hidden(tmp_path / "site")
    variables = {**BOTH, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code + "; import os; print(os.environ['HIDDEN'])"],
        env={**os.environ, **variables},
        capture_output=True,
        check=True,
        text=True,
    )
    assert (done.stdout.splitlines(), done.stderr) == ([AWAITED, "ran"], "")


@pytest.mark.parametrize("start", ["", ADD])
def test_a_working_directory_that_was_deleted_stops_no_python(tmp_path, start):
    child = start + "import os; print(os.environ['NOJIT_SERVE'], os.environ['NOJIT_RECORD'])"
    given = {**os.environ, **(BOTH if start else environment({}, **BOTH)), "NOJIT_SERVE": "./s"}
    folder = tmp_path / "gone"
    folder.mkdir()
    words = ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", sys.executable, "-c", child]
    done = subprocess.run(words, env=given, capture_output=True, check=False, text=True, cwd=folder)
    assert (done.stdout, done.stderr) == ("./s r\n", "")
