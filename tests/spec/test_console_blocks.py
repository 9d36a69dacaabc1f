"""What pages have people type works as printed, and does not compile for an hour without a word.

Each page's commands run in order in a folder of its own: over nojit's manifests, each kernel cut down to one variant, and the
examples, with a compiler that makes cubins at once. What needs a GPU, measurements or a reader's own files is left out.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime.target import arch_number, image_arch_of, is_gfx

from tests.spec.pages import PAGES, ROOT, blocks

pytest.importorskip("click")
pytest.importorskip("msgspec")
import click
from click.testing import CliRunner
from nojit.aot.cli.group import cli
from nojit.aot.manifest.archs import target_of
from nojit.aot.plan.function_facts import KernelSource, SourcePlace
from nojit.aot.variants.variant import CompiledVariant, Variant

from tests.aot.fake_compiler import FakeCompiler, FakeSource
from tests.support.cubins import CubinSpec, build_cubin
from tests.support.hsacos import HsacoKernel, build_hsaco
from tests.support.registry import FakeRegistry, serve

# commands that need a GPU, what it measured, torch, or files that readers bring
LEFT_OUT = re.compile(
    r"nojit (record|run|(build|coverage|diff|manifest) \S+\.nojitrec|tune|bench|completion)\b|make\b|(\.venv/bin/)?python (?!-m nojit\.)|\.venv/bin/pre-commit"
)
# where pages push to
_REGISTRY = "localhost:5000"
_SIZES = {"i64": 8, "u64": 8, "fp64": 8, "i32": 4, "u32": 4, "fp32": 4}


class PagesCompiler(FakeCompiler):
    """Knows every kernel of the folder's manifests, and makes cubins that verify."""

    def describe(self, place: SourcePlace, arch: str = "") -> KernelSource:
        known = PagesCompiler(self.journal, {**self.sources, place.spelling: _source_of(Path(), place.spelling)})
        return super(PagesCompiler, known).describe(place, arch)

    def compile_variant(self, variant: Variant, place: SourcePlace) -> CompiledVariant:
        compiled = super().compile_variant(variant, place)
        sizes = tuple(8 if slot.type.startswith("*") else _SIZES.get(slot.type, 1) for slot in compiled.launch.layout)
        if is_gfx(arch_number(variant.arch)):
            wave = target_of(variant.arch).warp_size
            kernel = HsacoKernel(variant.kernel, sizes, wave * compiled.launch.num_warps, wave, 0)
            return replace(compiled, image=build_hsaco(kernel, arch=variant.arch), registers=0)
        spec = CubinSpec(variant.kernel, sizes, compiled.launch.num_warps, code=compiled.image[:64])
        image = image_arch_of(variant.arch)
        cubin = build_cubin(spec, sm=arch_number(variant.arch), suffix=str(image)[-1] if str(image)[-1] in "af" else "")
        return replace(compiled, image=cubin, registers=0)


@cache
def _kernels(text: str) -> list[dict[str, Any]]:
    kernels: list[dict[str, Any]] = tomllib.loads(text).get("kernel", [])
    return kernels


def _source_of(folder: Path, spelling: str) -> FakeSource:
    """Make up the function that a manifest of the folder names: it takes what its entry says."""
    for path in folder.rglob("*.toml"):
        for entry in _kernels(path.read_text(encoding="utf-8")):
            if entry["source"] == spelling:
                types = {axis for kind in entry["params"].values() for axis in re.findall(r"{(\w+)}", kind)}
                rules = {"archs", "when", "requires", "num_warps", "num_stages", "num_ctas", "maxnreg", "launch_pdl"}
                names = [
                    *entry.get("matrix", {}),
                    *entry.get("derived", {}),
                    *[name for one in entry.get("configs", []) for name in one],
                ]
                return FakeSource(
                    tuple(entry["params"]), tuple(dict.fromkeys(name for name in names if name not in types | rules))
                )
    raise LookupError(spelling)


def _cut_down(text: str) -> str:
    """Write a manifest with its first kernel and those that pages name, each of one variant."""
    data = tomllib.loads(text)
    named = {word for block in blocks("console") for word in block.text.split()}
    bundle = "".join(f"{key} = {value!r}\n" for key, value in data["bundle"].items())
    kernels = []
    # the others would take as long, and say nothing more
    for entry in [one for place, one in enumerate(data["kernel"]) if place == 0 or one["name"] in named]:
        lines = f'[[kernel]]\nname = "{entry["name"]}"\nsource = "demo:{entry["name"]}"\nparams = {{ x_ptr = "*fp32", n = "i32" }}\n'
        space = (
            '[kernel.tuning]\nkey = ["n"]\nspace = [{ BLOCK = [128, 256] }]\n'
            if "space" in entry.get("tuning", {})
            else ""
        )
        kernels.append(f"{lines}configs = [{{ BLOCK = 64 }}]\n{space}")
    return f"schema = 1\n[bundle]\n{bundle}" + "".join(kernels)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The parts of a checkout that pages name."""
    folder = tmp_path_factory.mktemp("stage")
    (folder / "manifests").mkdir()
    for path in (ROOT / "manifests").glob("*.toml"):
        (folder / "manifests" / path.name).write_text(_cut_down(path.read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "LICENSE").write_text("a licence\n", encoding="utf-8")
    for block in blocks("toml"):
        if block.words == ("operators",):
            (folder / "own.toml").write_text(block.text, encoding="utf-8")
    return folder


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeRegistry]:
    """A registry in place of the reader's, and no credentials of this machine's user."""
    pytest.importorskip("requests")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "ORAS_USER", "ORAS_PASS"):
        monkeypatch.delenv(name, raising=False)
    with serve() as registry:
        yield registry


def command_lines(page: Path) -> list[str]:
    return [
        line.removeprefix("$ ") for block in blocks("console") if block.page == page for line in block.text.splitlines()
    ]


WITH_COMMANDS = [page for page in PAGES if any(not LEFT_OUT.match(line) for line in command_lines(page))]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_work_in_order(
    stage: Path, tmp_path: Path, page: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "checkout"
    shutil.copytree(stage, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NOJIT_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("NOJIT_BUNDLES", "NOJIT_TRUST", "NOJIT_TRUSTED_KEYS", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("nojit.runtime.discovery.discover._own_checkout", lambda: folder)
    compiler = PagesCompiler(tmp_path / "journal", {})
    monkeypatch.setattr("nojit.aot.cli.building.run_build.load_compiler", lambda *_: compiler)
    # there is nothing to compile that would take a process of its own
    monkeypatch.setattr("nojit.aot.cli.building.run_build.WorkerPool", lambda *_: ThreadPoolExecutor(1))
    monkeypatch.setattr("nojit.aot.compile.processes.pool.WorkerPool", lambda *_: ThreadPoolExecutor(1))
    problems: list[str] = []
    lines = [line.replace("$PWD", str(folder)) for line in command_lines(page) if not LEFT_OUT.match(line)]
    if any(_REGISTRY in line for line in lines):
        host = request.getfixturevalue("registry").host
        lines = [line.replace(_REGISTRY, host) for line in lines]
    for line in lines:
        words, _, into = line.partition(" > ")
        name, *rest = shlex.split(words)
        if name.endswith("python"):
            subprocess.run([sys.executable, *rest], check=True, stdout=subprocess.DEVNULL)
            continue
        result = CliRunner().invoke(cli, rest, prog_name="nojit")
        if into:
            Path(into).write_text(result.stdout, encoding="utf-8")
        if result.exit_code:
            problems.append(f"{line}\nexits {result.exit_code}: {result.output[-800:]} {result.exception!r}")
    assert not problems, "\n\n".join(problems)


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_compiles_everything_without_a_word(page: Path) -> None:
    """All manifests come to thousands of variants: pages build the core profile of them, or name kernels."""
    for line in command_lines(page):
        words = shlex.split(line)
        if "build" in words and "manifests" in words:
            assert {"--kernel", "--dry-run"} & {*words} or "core" in words, line


def _misspelled(words: list[str]) -> str:
    """Return the first word that no command takes; empty if there is none."""
    command: click.Command = cli
    context = click.Context(cli, info_name="nojit")
    while isinstance(command, click.Group) and words:
        name, *words = words
        found = command.get_command(context, name)
        if found is None:
            return name
        command, context = found, click.Context(found, parent=context, info_name=name)
    known = {spelling for param in command.params for spelling in param.opts}
    # what follows belongs to another program
    words = words[: words.index("--")] if "--" in words else words
    options = (word.partition("=")[0] for word in words if word.startswith("-"))
    return next((option for option in options if option not in known), "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_are_not_run_are_spelled_right(page: Path) -> None:
    """In the text, too: each names a command and options, a program or a target of make."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    inline = re.findall(r"`((?:\.venv/bin/)?nojit [a-z][^`]*)`", page.read_text(encoding="utf-8"))
    for line in [*command_lines(page), *inline]:
        name, *words = shlex.split(line.partition(" > ")[0])
        if name.endswith("nojit"):
            assert not _misspelled(words), line
        elif name.endswith("python"):
            assert all((ROOT / word).is_file() for word in words if word.endswith(".py")), line
        elif name == "make":
            targets = [word for word in words if "=" not in word]
            assert all(re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE) for target in targets), line
