"""Every block of Python on every page runs, on a fake driver; the example runs on a real one too, where there is one.

tests/kernels/test_pages.py runs the blocks that call operators.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from functools import partial
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from nojit.runtime import errors

from tests.fakecuda import FakeCuda
from tests.spec import stage
from tests.spec.pages import ROOT, Block, blocks, rows
from tests.support.digests import with_digests

PYTHON = blocks("python")
EXAMPLE = ROOT / "examples/vector_add"
# these need the real torch: tests/kernels/test_examples.py runs what is quoted of the models, test_pages.py calls of operators
OF_MODELS = [block for block in PYTHON if "file=examples/transformers" in " ".join(block.words)]
OF_OPERATORS = [block for block in PYTHON if "from nojit.kernels" in block.text and block not in OF_MODELS]
COMPILED = [block for block in PYTHON if "from nojit.torch" in block.text]
# what the build imports, and no program that launches
KERNELS = [block for block in PYTHON if any(word.endswith("/kernel.py") for word in block.words)]
# tests/spec/test_record_page.py and test_serve_page.py
RECORDED = [block for block in PYTHON if "nojit.record(" in block.text or block.page.name == "serve.md"]
ON_STAGE = [block for block in PYTHON if block not in OF_MODELS + OF_OPERATORS + COMPILED + KERNELS + RECORDED]
PAGES = {page.name: list(found) for page, found in groupby(ON_STAGE, key=lambda block: block.page)}


@pytest.fixture
def on_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fakecuda: FakeCuda, faketorch: ModuleType) -> FakeCuda:
    stage.set_bundles(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", stage.make_torch(faketorch))
    return fakecuda


def run(block: Block, names: dict[str, object]) -> None:
    # blank lines before it, so that a traceback points into the page
    code = compile("\n" * block.line + block.text, str(block.page), "exec")
    exec(code, names)


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run_in_order(page: str, on_stage: FakeCuda) -> None:
    names: dict[str, object] = {"__name__": page}
    for block in PAGES[page]:
        run(block, names)
    assert on_stage.launch_count() > 0


def test_the_pages_launches_are_what_they_say(on_stage: FakeCuda) -> None:
    names: dict[str, object] = {}
    launch = next(block for block in PAGES["runtime.md"] if "# Triton's way" in block.text)
    opening = PAGES["runtime.md"][0]
    for block in (opening, launch):
        run(block, names)
    launches = on_stage.launches()
    assert {launch.grid for launch in launches} == {(977, 1, 1)}
    assert len(launches) == sum(block.text.count(call) for block in (opening, launch) for call in ("add[", "add("))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("block", COMPILED, ids=lambda block: block.id)
def test_what_a_page_compiles_is_compiled_whole(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fakecuda: FakeCuda
) -> None:
    torch = pytest.importorskip("torch")
    stage.set_bundles(tmp_path)
    monkeypatch.chdir(tmp_path)
    # without a compiler for the host, whose memory the fake driver takes for its own
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    fakecuda.pin_memory(1 << 12, 1 << 47, 1 << 12)
    names: dict[str, Any] = {"__name__": str(block.page)}
    run(block, names)
    for _ in range(2):
        assert names["layer"](torch.zeros(8, 64), torch.zeros(8)).shape == (8, 64)
    assert [launch.ints()[3:6] for launch in fakecuda.launches()] == [(8, 64, 64)] * 2


def test_the_example_runs_on_the_fake_driver(on_stage: FakeCuda, capsys: pytest.CaptureFixture[str]) -> None:
    text = (EXAMPLE / "run.py").read_text(encoding="utf-8")
    exec(compile(text, "run.py", "exec"), {"__name__": "__main__"})
    assert on_stage.launch_count() == 1
    assert on_stage.last_launch().ints()[3] == 1_000_003
    printed = capsys.readouterr().out.strip()
    # the stage's compiler has no more options than it needs; their order is its own
    assert set(printed.split()) <= set(text.rpartition("# ")[2].split())


@pytest.mark.parametrize(
    "block", [block for block in PYTHON + blocks("toml") if block.words], ids=lambda block: block.id
)
def test_a_quoted_file_says_what_is_quoted(block: Block) -> None:
    (word, *rest) = block.words
    if not word.startswith("file="):
        assert word in {"part", "tuned", "wrong", "operators", "keys"}
        return
    assert not rest
    assert block.text in (ROOT / word.removeprefix("file=")).read_text(encoding="utf-8")


def test_the_table_of_errors_is_the_tree() -> None:
    said = rows(ROOT / "docs/runtime.md", "errors")
    for name, builtin, when in said:
        kind = getattr(errors, name)
        assert issubclass(kind, errors.NojitError)
        assert builtin in {base.__name__ for base in kind.__mro__}
        for attribute in when.split("`")[1::2]:
            assert f"{attribute}:" in (kind.__doc__ or "")
    runtime = importlib.import_module("nojit.runtime")
    assert {name for name, _, _ in said} <= set(runtime.__all__)
    leaves = {name for name in runtime.__all__ if name.endswith("Error")} - {"NojitError", "BundleError"}
    assert {name for name, _, _ in said} == leaves


@pytest.mark.triton
def test_the_example_builds(tmp_path: Path) -> None:
    build(tmp_path, "sm_90")
    assert [path.name for path in (tmp_path / "artifacts/example").glob("*.nojit")] == ["vector-add-1.0-sm_90.nojit"]


@pytest.mark.gpu
@pytest.mark.triton
def test_the_example_runs_on_a_gpu(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    major, minor = torch.cuda.get_device_capability()
    build(tmp_path, f"sm_{major}{minor}")
    ran = subprocess.run(
        [sys.executable, EXAMPLE / "run.py"], cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True
    )
    assert "dtype='fp32' BLOCK=1024 num_warps=4" in ran.stdout


def build(folder: Path, arch: str) -> None:
    """Run the README's build command in a folder of its own."""
    shutil.copytree(EXAMPLE, folder / "examples/vector_add")
    (line,) = {
        line.partition("$ ")[2].removeprefix(".venv/bin/")
        for block in blocks("console")
        for line in block.text.splitlines()
        if block.page == ROOT / "README.md" and "nojit build examples" in line
    }
    words = line.replace("sm_90", arch).split()[1:]
    environment = os.environ | {"NOJIT_CACHE_DIR": str(with_digests(folder / "cache"))}
    subprocess.run([sys.executable, "-m", "nojit", *words], cwd=folder, check=True, env=environment)
