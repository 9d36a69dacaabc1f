"""The pages of the command line and of its JSON describe the commands."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from nojit.aot.cli import exit_codes, group
from nojit.aot.cli.building.build_results import build_document, plan_document
from nojit.aot.cli.group import cli
from nojit.aot.inspect.contents import KernelFacts, VariantFacts, definition
from nojit.aot.inspect.diff import BundleDiff
from nojit.aot.pipeline.build import BuildResult

from tests.aot.tune.synthetic import write_database
from tests.spec.cli_reference import FACTS, command_of
from tests.spec.pages import ROOT, blocks, rows
from tests.spec.tiny import TABLE
from tests.support.bundles import kernel, make_bundle
from tests.support.registry import serve

PAGE = ROOT / "docs/cli.md"
JSON_PAGE = ROOT / "docs/json-output.md"
TEXT = JSON_PAGE.read_text(encoding="utf-8")
SAID = dict(rows(JSON_PAGE, "documents"))
# what these write has types of its own, which the page explains field by field
MEASURED = ("coverage", "manifest", "bench launch", "bench cold-start", "bench bundles", "tune run", "tune report")
# tests/spec/test_record_page.py
RECORDED = ("record",)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    scale = kernel("scale", {"x_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}, configs=[{"BLOCK": 256}])
    return make_bundle(tmp_path / "some.nojit", scale, attachments=(("a.txt", b"a"),))


def run(*words: object, code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(cli, [*map(str, words), "--json"], prog_name="nojit")
    assert result.exit_code == code, result.output
    written: dict[str, Any] = json.loads(result.stdout)
    return written


def tuning_documents(folder: Path) -> dict[str, Any]:
    database = write_database(folder / "toy.db")
    configs = folder / "device_name=NVIDIA_H200.json"
    configs.write_text(json.dumps({"1": {"BLOCK_SIZE_M": 16}}))
    facts = ("--kernel", "moe", "--key", "n", "--arch", "sm_90", "--multiprocessors", 132, "--memory-bytes", 1)
    evaluate = ("tune", "evaluate", database, "--kernel", "toy")
    return {
        "tune select": run("tune", "select", database, "--out", folder / "tuned"),
        "tune evaluate": run(*evaluate, "--tables", folder / "tuned") | run(*evaluate, "--repeat", database),
        "tune import": run("tune", "import", configs, *facts, "--out", folder / "imported"),
    }


def registry_documents(bundle: Path, folder: Path) -> dict[str, Any]:
    pytest.importorskip("requests")
    saved, out = folder / "saved", folder / "pulled"
    with serve() as registry:
        address = f"oci://{registry.host}/acme:1"
        return {
            "push": run("push", address, bundle),
            "pull": run("pull", address, "--arch", "all", "--out", out),
            "save": run("save", bundle, saved),
            "load": run("load", saved, address),
            "load --out": run("load", saved, "--arch", "all", "--out", out),
        }


def test_the_page_names_the_documents(bundle: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.nojit"
    damaged.write_bytes(bundle.read_bytes()[:-1])
    (cache := tmp_path / "cache").mkdir()
    documents = {
        "build --dry-run": plan_document([], []),
        "build": build_document(BuildResult((), stopped=False), [], None, Path(), 0.0),
        "init": run("init", ROOT / "examples/vector_add/kernel.py:add_kernel"),
        "inspect": run("inspect", bundle),
        "inspect --kernel": run("inspect", bundle, "--kernel", "scale"),
        "verify": run("verify", bundle, damaged, code=3),
        "sign": run("sign", "--new-key", tmp_path / "key.pem"),
        "diff": run("diff", bundle, bundle),
        "extract": run("extract", bundle, "--kernel", "scale", "--out", tmp_path / "out"),
        "extract --attachment": run("extract", bundle, "--attachment", "a.txt", "--out", tmp_path / "out"),
        "wheel": run("wheel", bundle, "--out", tmp_path / "dist"),
        "cache stats": run("cache", "stats", "--cache-dir", cache),
        "cache verify": run("cache", "verify", "--cache-dir", cache),
        "cache prune": run("cache", "prune", "--older-than", "1d", "--cache-dir", cache),
        "completion": run("completion", "bash"),
        "help": run("help", "build"),
        **tuning_documents(tmp_path),
        **registry_documents(bundle, tmp_path),
    }
    assert documents.keys() | {"doctor", *MEASURED, *RECORDED} == SAID.keys()
    for command, document in documents.items():
        for field in set(document) - {"schema", "command"} - set(BundleDiff.__slots__):
            same = re.fullmatch(r"the fields of `(\w+)`", SAID[command])
            assert f"`{field}`" in SAID[same[1] if same else command], f"{command}: {field}"


def test_the_page_names_what_is_inside(bundle: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.nojit"
    damaged.write_bytes(bundle.read_bytes()[:-1])
    good, bad = run("verify", bundle, damaged, code=3)["bundles"]
    for field in (*good, *bad, *bad["error"]):
        assert f"`{field}`" in SAID["verify"]
    (file,) = run("extract", bundle, "--kernel", "scale", "--out", tmp_path / "out")["files"]
    for field in file:
        assert f"`{field}`" in SAID["extract"]
    facts = json.loads(Path(file["facts"]).read_text(encoding="utf-8"))
    for field in facts.keys() - set(VariantFacts.__slots__):
        assert f"`{field}`" in TEXT.partition("`extract` writes")[2].partition("\n\n")[0]
    for field in registry_documents(bundle, tmp_path)["push"]["bundles"][0]:
        assert f"`{field}`" in SAID["push"]
    for field in run("wheel", bundle, "--out", tmp_path / "dist")["files"][0]:
        assert f"`{field}`" in SAID["wheel"]
    one = run("inspect", bundle, "--kernel", "scale")["kernel"]
    assert one.keys() == {*KernelFacts.__slots__, *definition(TABLE)}
    for field in definition(TABLE):
        assert f"`{field}`" in TEXT.partition("The definition of a kernel")[2].partition("\n\n")[0]


def test_the_page_names_what_doctor_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NOJIT_LIBCUDA", str(tmp_path / "none.so"))
    monkeypatch.setenv("NOJIT_CACHE_DIR", str(tmp_path / "cache"))
    result = CliRunner().invoke(cli, ["doctor", "--json"], prog_name="nojit")
    for field in json.loads(result.stdout).keys() - {"schema", "command"}:
        assert f"`{field}`" in SAID["doctor"]


def test_the_page_names_what_an_error_says(tmp_path: Path) -> None:
    broken = tmp_path / "broken.nojit"
    broken.write_bytes(b"no bundle")
    error = run("inspect", broken, code=3)["error"]
    paragraph = TEXT.partition("An error is")[2].partition("\n\n")[0]
    for field in {*error, *group._ERROR_FACTS}:
        assert f"`{field}`" in paragraph


def test_every_type_that_the_table_names_is_explained() -> None:
    known = {kind.__name__ for kind in FACTS}
    named = {word for text in SAID.values() for word in re.findall(r"\b[A-Z][a-z]+[A-Z][a-z]+\b", text)}
    assert named <= known
    for kind in known:
        assert f"### {kind}\n" in TEXT


def test_the_exit_codes_are_the_codes() -> None:
    codes = {int(code): meaning for code, meaning in rows(PAGE, "codes")}
    exits = {value for name, value in vars(exit_codes).items() if name.startswith("EXIT_")}
    # 0 and 2 are click's own, and the row of 130 names 143
    assert set(codes) == exits - {exit_codes.EXIT_TERMINATED} | {0, 2}


# they start before nojit is imported
SCRIPTS = {"runtime/autostart/sitecustomize.py", "aot/bench/start.py"}
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for room in ("aot", "runtime", "kernels", "package", "autoserve")
    for path in (ROOT / room).rglob("*.[pch]*")
    if path.suffix in {".py", ".c", ".h", ".hpp"} and not path.is_symlink()
}
# versions, guards of headers, and the version NOJIT_0.1 of symbols
PREPROCESSOR = r"NOJIT_(VERSION_\w+|PRIVATE\w*|\w*H|HPP|0|)"


def own_variables() -> dict[str, tuple[str, set[str]]]:
    """Read nojit's variables: the constant of each, its name, and the files that its docstring lists."""
    text = SOURCES["runtime/base/environment.py"]
    entries = re.findall(r'^([A-Z_]+): Final = "(NOJIT_\w+)"[^\n]*\n"""(.*?)"""', text, re.MULTILINE | re.DOTALL)
    return {constant: (name, set(re.findall(r"`(\S+)`", said))) for constant, name, said in entries}


def foreign_variables() -> Iterator[str]:
    """Find the other environment variables that the code asks for."""
    for path, text in SOURCES.items():
        # the stand-in for Triton reads Triton's own variables
        if not path.startswith("runtime/serve/standin/"):
            yield from re.findall(r'environ(?:\.get\(|\[)"(\w+)"', text)
            yield from re.findall(r'getenv\("(\w+)"\)', text)
            yield from re.findall(r'"(\w+)" in os\.environ', text)


def test_every_environment_variable_is_named() -> None:
    own = {name for name, _ in own_variables().values()}
    assert {row[0] for row in rows(PAGE, "variables")} == own | set(foreign_variables())


def test_every_variable_of_nojit_is_one_of_the_list() -> None:
    own = {name for name, _ in own_variables().values()}
    for path, text in SOURCES.items():
        named = {name for name in re.findall(r"(?<!_)\bNOJIT_[A-Z0-9_]*", text) if not re.fullmatch(PREPROCESSOR, name)}
        assert named <= own, path


def test_python_spells_a_variable_once() -> None:
    for path, text in SOURCES.items():
        if path.endswith(".py") and path not in SCRIPTS | {"runtime/base/environment.py"}:
            assert not re.search(r'(?<!")"NOJIT_\w+"(?!")', text), path


def test_the_list_names_the_readers_of_each_variable() -> None:
    for constant, (name, said) in own_variables().items():
        imported = rf"^ *from nojit\.runtime\.base\.environment import [^#]*?\b{constant}\b(?!\w)[^#\n]*$"
        spelled = rf'"{name}"'
        readers = {
            path
            for path, text in SOURCES.items()
            if path != "runtime/base/environment.py"
            and re.search(imported if path.endswith(".py") and path not in SCRIPTS else spelled, text, re.MULTILINE)
        }
        assert readers == said, name


COMMAND_LINES = [
    (block.id, line.removeprefix("$ ").removeprefix(".venv/bin/"))
    for block in blocks("console")
    for line in block.text.splitlines()
    if re.match(r"\$ (\.venv/bin/)?nojit ", line)
]


@pytest.mark.parametrize("line", [line for _, line in COMMAND_LINES], ids=[name for name, _ in COMMAND_LINES])
def test_a_command_line_parses(line: str) -> None:
    _, name, *words = shlex.split(line.replace("$PWD", "/folder").partition(" > ")[0])
    assert name in group.cli.list_commands(click.Context(group.cli))
    command = command_of(name)
    if isinstance(command, click.Group):
        command = command_of(name, words.pop(0))
    # parses every option and argument, and runs nothing
    command.make_context("nojit", words, help_option_names=["-h", "--help"])


def test_there_are_command_lines() -> None:
    assert len(COMMAND_LINES) >= 8
