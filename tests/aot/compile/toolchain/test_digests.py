"""What a toolchain is by content, and what is set beside it: no image of one serves another."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.aot.backends.cuda.settings import KNOBS
from nojit.aot.backends.settings import Role
from nojit.aot.cli.group import cli
from nojit.aot.compile.processes.source_compiler import SourceCompiler
from nojit.aot.compile.toolchain import digests, triton_settings
from nojit.aot.compile.toolchain.digests import file_digest, files_in, toolchain_words, tree_digest
from nojit.aot.compile.toolchain.triton_settings import (
    VARIABLES,
    all_knobs,
    all_variables,
    knobs_in,
    setting_of,
    settings_words,
)
from nojit.aot.pipeline.build import inputs_of, toolchain_of
from nojit.aot.plan.planner import make_plans
from nojit.aot.provenance.statement import statement_path
from nojit.runtime.errors import CompileError, NojitError

from tests.aot.conftest import ROOT


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("NOJIT_CACHE_DIR", str(folder))
    digests._digests.cache_clear()
    yield folder
    digests._digests.cache_clear()
    triton_settings._knobs.cache_clear()


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


class TestTrees:
    def test_a_package_that_is_unpacked_twice_has_one_digest(self, tmp_path):
        one = write(tmp_path / "one", a_py="x = 1", sub__b_py="y = 2")
        time_of_day = (one / "a.py").stat().st_mtime_ns - 10**12
        other = write(tmp_path / "deep/er/other", sub__b_py="y = 2", a_py="x = 1")
        os.utime(other / "a.py", ns=(time_of_day, time_of_day))
        (other / "a.py").chmod(0o700)
        assert tree_digest([str(one)]) == tree_digest([str(other)])

    @pytest.mark.parametrize(
        "change",
        [
            lambda folder: write(folder, a_py="x = 2"),
            lambda folder: write(folder, c_py=""),
            lambda folder: (folder / "a.py").unlink(),
            lambda folder: (folder / "a.py").rename(folder / "c.py"),
            lambda folder: (folder / "sub").rename(folder / "bus"),
            lambda folder: write(folder, lib="\0elf"),
        ],
    )
    def test_a_file_that_is_another_makes_another(self, tmp_path, change):
        folder = write(tmp_path / "one", a_py="x = 1", sub__b_py="y = 2")
        before = tree_digest([str(folder)])
        change(folder)
        assert tree_digest([str(folder)]) != before

    def test_what_shapes_no_code_makes_none(self, tmp_path):
        folder = write(tmp_path / "one", a_py="x = 1")
        before = tree_digest([str(folder)], {"include": "", "bin/tool": ""})
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / "a.pyc").write_bytes(b"")
        write(folder, include__x="", bin__tool="")
        assert tree_digest([str(folder)], {"include": "", "bin/tool": ""}) == before

    def test_links_are_followed_and_never_round(self, tmp_path):
        real = write(tmp_path / "real", b_py="y = 2")
        folder = write(tmp_path / "one", a_py="x = 1")
        (folder / "sub").symlink_to(real)
        (real / "up").symlink_to(folder)
        (real / "nowhere").symlink_to("nothing")
        (folder / "c.py").symlink_to(folder / "a.py")
        assert sorted(name for name, _ in files_in(str(folder))) == ["a.py", "c.py", "sub/b.py"]

    def test_what_is_left_out_of_triton_is_there_to_be_left_out(self):
        import triton

        (folder,) = triton.__path__
        listed = {name for name, _ in files_in(folder)}
        assert {"knobs.py", "language/standard.py", "backends/nvidia/compiler.py", "compiler/compiler.py"} <= listed
        assert any(re.fullmatch(r"_C/libtriton.*\.so", name) for name in listed)
        assert "backends/nvidia/lib/libdevice.10.bc" in listed
        # what is hashed beside Python's files is a library that is loaded, or what is linked into kernels
        others = {name for name in listed if not name.endswith((".py", ".pyi", ".typed"))}
        assert {name.partition("/")[0] for name in others} <= {"_C", "backends", "experimental", "tools"}
        size = sum((Path(folder) / name).stat().st_size for name in others if "libtriton" not in name)
        assert size < 4e6, sorted(others)


class TestRecord:
    """Of files that have not been written for a while, the cache folder holds the digests."""

    def test_a_file_is_read_once_for_all_processes(self, cache_folder):
        first = file_digest(os.__file__)
        assert first == hashlib.sha256(Path(os.__file__).read_bytes()).hexdigest()
        digests._digests.cache_clear()
        rows = record(cache_folder)
        rows[os.__file__][-1] = "recorded"
        write_record(cache_folder, rows)
        assert file_digest(os.__file__) == "recorded"

    @pytest.mark.parametrize("fact", range(5))
    def test_one_of_which_stat_says_something_else_is_read_again(self, cache_folder, fact):
        first = file_digest(os.__file__)
        digests._digests.cache_clear()
        rows = record(cache_folder)
        rows[os.__file__][fact] += 1
        rows[os.__file__][-1] = "recorded"
        write_record(cache_folder, rows)
        assert file_digest(os.__file__) == first

    def test_one_that_was_written_just_now_is_not_recorded(self, cache_folder, tmp_path):
        path = tmp_path / "new"
        path.write_text("1")
        file_digest(str(path))
        file_digest(os.__file__)
        assert [*record(cache_folder)] == [os.__file__]

    def test_one_that_was_written_a_while_ago_is(self, cache_folder, tmp_path, monkeypatch):
        path = tmp_path / "old"
        path.write_text("1")
        later = time.time_ns() + 10**10
        monkeypatch.setattr(time, "time_ns", lambda: later)
        file_digest(str(path))
        assert [*record(cache_folder)] == [str(path)]

    def test_one_that_is_edited_has_another_digest_whatever_its_time_says(self, tmp_path, monkeypatch):
        path = tmp_path / "file"
        path.write_text("1")
        later = time.time_ns() + 10**10
        monkeypatch.setattr(time, "time_ns", lambda: later)
        before, status = file_digest(str(path)), path.stat()
        path.write_text("2")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert file_digest(str(path)) == hashlib.sha256(b"2").hexdigest() != before

    @settings(deadline=None, max_examples=50)
    @given(st.binary(max_size=40) | st.sampled_from([b"{}", b"[]", b'{"a":1}', b'{"a":[1]}', b"[" * 9999, b"\xff"]))
    def test_a_damaged_one_is_as_good_as_none(self, tmp_path_factory, data):
        folder = tmp_path_factory.mktemp("cache")
        folder.chmod(0o700)
        for text in (data, digests._MAGIC + hashlib.sha256(data).digest() + data):
            (folder / "files").write_bytes(text)
            assert digests._Digests(folder).of(os.__file__) == file_digest(os.__file__)

    @pytest.mark.parametrize("obstacle", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
    def test_nor_does_what_lies_in_its_place_matter(self, cache_folder, obstacle):
        obstacle(cache_folder / "files")
        assert file_digest(os.__file__) == hashlib.sha256(Path(os.__file__).read_bytes()).hexdigest()

    def test_a_folder_that_others_can_write_is_not_believed(self, cache_folder):
        file_digest(os.__file__)
        rows = record(cache_folder)
        rows[os.__file__][-1] = "recorded"
        write_record(cache_folder, rows)
        cache_folder.chmod(0o777)
        digests._digests.cache_clear()
        assert file_digest(os.__file__) != "recorded"

    def test_a_folder_that_is_not_there_is_not_made(self, monkeypatch, tmp_path):
        monkeypatch.setenv("NOJIT_CACHE_DIR", str(tmp_path / "other"))
        file_digest(os.__file__)
        assert not (tmp_path / "other").exists()

    def test_a_tool_that_is_no_file_is_an_error_and_no_wait(self, tmp_path):
        os.mkfifo(tmp_path / "tool")
        with pytest.raises(OSError, match="a FIFO, not a regular file"):
            file_digest(str(tmp_path / "tool"))


def record(folder: Path) -> dict[str, list[Any]]:
    data = (folder / "files").read_bytes()
    rows: dict[str, list[Any]] = json.loads(data[len(digests._MAGIC) + 32 :])
    return rows


def write_record(folder: Path, rows: dict[str, list[Any]]) -> None:
    data = json.dumps(rows).encode()
    (folder / "files").write_bytes(digests._MAGIC + hashlib.sha256(data).digest() + data)


class TestWords:
    def test_of_a_toolchain(self):
        tools = [("ptxas", "13.4"), ("ptxas.digest", "1f" * 32), ("settings", "A=1 B=2"), ("triton", "3.9.0")]
        assert toolchain_words(tools) == "ptxas 13.4 (1f1f1f1f1f1f), triton 3.9.0, with A=1 B=2"

    def test_of_settings(self):
        assert settings_words([("DISABLE_PTXAS_OPT", "1"), ("PTXAS_OPTIONS", "-O1 -v")]) == (
            "DISABLE_PTXAS_OPT=1 PTXAS_OPTIONS='-O1 -v'"
        )


SOURCE = """
import triton
import triton.language as tl

@triton.jit
def k(x_ptr, BLOCK: tl.constexpr):
    at = x_ptr + tl.arange(0, BLOCK)
    tl.store(at, tl.sigmoid(tl.load(at)))
"""
MANIFEST = """
schema = 1
[bundle]
name = "tiny"
version = "1.0"
archs = ["sm_80"]
[[kernel]]
name = "k"
source = "source.py:k"
params = { x_ptr = "*fp32" }
configs = [{ BLOCK = 128 }]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "source.py").write_text(SOURCE)
    (folder / "tiny.toml").write_text(MANIFEST)
    return folder


@pytest.fixture
def keys(project: Path) -> Callable[[], set[str]]:
    """Return the keys of the project's variants, as this process would build them now."""
    from nojit.aot.compile.triton import compiler
    from nojit.aot.compile.triton.keys import _environment

    def work_out() -> set[str]:
        _environment.cache_clear()
        (plan,) = make_plans([project / "tiny.toml"], [], "full", compiler)
        (kernel,) = plan.kernels
        found = {compiler.variant_key(one, kernel.source, kernel.place) for one in kernel.variants}
        return found | {inputs_of(plan, compiler)}

    return work_out


def set_in_environment() -> dict[str, str]:
    """Name the variable of each setting and what to set it to, by what is decided about it."""
    from triton import knobs

    found: dict[str, str] = {}
    for group, name in knobs_in(knobs):
        described = vars(type(getattr(knobs, group))).get(name)
        if variable := getattr(described, "key", ""):
            # no default is this: of booleans, which few are true, the other one
            found[variable] = "0" if getattr(described, "default", None) is True else "1"
    return found | dict.fromkeys(all_variables(), "1")


def role_of(variable: str) -> Role:
    from triton import knobs

    for group, name in knobs_in(knobs):
        if getattr(vars(type(getattr(knobs, group))).get(name), "key", "") == variable:
            setting = setting_of(group, name)
            assert setting is not None
            return setting.role
    return all_variables()[variable].role


BY_ROLE = {role: sorted(one for one in set_in_environment() if role_of(one) is role) for role in Role}


class TestSettings:
    def test_somebody_has_decided_on_every_knob_of_this_triton(self):
        from triton import knobs

        assert [f"{group}.{name}" for group, name in knobs_in(knobs) if setting_of(group, name) is None] == []
        # the walk finds those without a descriptor, too
        assert {("runtime", "add_stages_inspection_hook"), ("compilation", "instrumentation_mode")} <= {
            *knobs_in(knobs)
        }

    def test_the_table_names_the_variable_of_each_knob(self):
        from triton import knobs

        for group, name in knobs_in(knobs):
            setting = all_knobs().get(f"{group}.{name}")
            variable = getattr(vars(type(getattr(knobs, group))).get(name), "key", "")
            if setting is not None and variable:
                assert setting.variable == variable

    def test_somebody_has_decided_on_every_variable_that_its_library_reads(self):
        from triton import __path__, knobs

        (folder,) = __path__
        header = Path(folder, "include/triton/Tools/Sys/GetEnv.h")
        # wheels before 3.9 have no headers: look for names in the library that Triton's own list has elsewhere
        text = header.read_text() if header.exists() else ""
        names = set(re.findall(r'^    "([A-Za-z0-9_]+)",$', text, re.MULTILINE))
        assert len(names) > 30 or not header.exists()
        of_knobs = {getattr(vars(type(getattr(knobs, group))).get(name), "key", "") for group, name in knobs_in(knobs)}
        assert names - of_knobs - all_variables().keys() == set()

    def test_and_on_every_one_that_its_compiler_reads_past_the_knobs(self):
        from triton import __path__

        (folder,) = __path__
        read = re.compile(r"""os\.(?:environ\.get|environ|getenv)[(\[]\s*["']([A-Za-z0-9_]+)["']""")
        names = {
            name
            for part in ("backends", "compiler", "experimental/gluon", "language", "runtime")
            for path in Path(folder, part).rglob("*.py")
            for name in read.findall(path.read_text())
        }
        assert "CC" in names
        assert names - all_variables().keys() == set()

    def test_one_that_nobody_decided_on_is_part_of_the_key(self, keys, monkeypatch):
        before = keys()
        monkeypatch.delitem(KNOBS, "nvidia.libcuda_path")
        monkeypatch.delitem(VARIABLES, "MLIR_DUMP_PATH")
        triton_settings._knobs.cache_clear()
        assert setting_of("nvidia", "libcuda_path") is None
        monkeypatch.setenv("TRITON_LIBCUDA_PATH", "/somewhere")
        other = keys()
        monkeypatch.setenv("MLIR_DUMP_PATH", "/somewhere")
        assert len(before | other | keys()) == 6

    @pytest.mark.parametrize("variable", BY_ROLE[Role.KEYED] + BY_ROLE[Role.HASHED])
    def test_one_that_changes_code_changes_keys_and_bundles(self, keys, monkeypatch, variable):
        from nojit.aot.compile.triton import compiler

        before = keys()
        monkeypatch.setenv(variable, set_in_environment()[variable])
        assert keys().isdisjoint(before)
        assert dict(compiler.toolchain("sm_80"))["settings"].startswith(f"{variable}=")

    @pytest.mark.parametrize("variable", BY_ROLE[Role.REFUSED] + ["TRITON_INSTRUMENTATION_MODE", "STAGES"])
    def test_one_that_no_key_can_hold_is_refused_by_name(self, keys, monkeypatch, variable):
        from triton import knobs

        monkeypatch.setenv(variable, "1")
        # read when Triton is imported, and set by code alone
        if variable == "TRITON_INSTRUMENTATION_MODE":
            monkeypatch.setattr(type(knobs.compilation), "instrumentation_mode", "consan")
        if variable == "STAGES":
            monkeypatch.setattr(type(knobs.runtime), "add_stages_inspection_hook", print)
        name = "triton.knobs.runtime.add_stages_inspection_hook" if variable == "STAGES" else variable
        with pytest.raises(CompileError, match=f"expected {name} to be unset in a build, since it "):
            keys()

    def test_what_is_set_to_its_default_is_as_good_as_unset(self, keys, monkeypatch):
        before = keys()
        for variable, value in {"DISABLE_PTXAS_OPT": "0", "TRITON_DEFAULT_FP_FUSION": "1", "PTXAS_OPTIONS": ""}.items():
            monkeypatch.setenv(variable, value)
        assert keys() == before

    def test_what_code_sets_counts_as_well(self, keys):
        from triton import knobs

        before = keys()
        with knobs.nvidia.scope():
            knobs.nvidia.disable_ptxas_opt = True
            assert keys().isdisjoint(before)
        with knobs.language.scope():
            knobs.propagate_env = False
            knobs.language.fp32_default = "ieee"
            knobs.propagate_env = True
            assert keys().isdisjoint(before)
        assert keys() == before

    def test_what_a_source_sets_is_told_with_the_toolchain_and_in_no_other_source_s_key(self, project):
        (project / "other.py").write_text(f"{SOURCE}\ntriton.knobs.nvidia.disable_ptxas_opt = True\n")
        (project / "other.toml").write_text(
            MANIFEST.replace('"tiny"', '"other"').replace("source.py", "other.py").replace("schema = 1", "schema = 1\n")
        )
        compiler = SourceCompiler()
        with compiler.session(60, print):
            tiny, other = (
                make_plans([project / f"{name}.toml"], [], "full", compiler)[0] for name in ("tiny", "other")
            )
            told = [dict(toolchain_of(plan, compiler)).get("settings") for plan in (other, tiny)]
            assert told == ["DISABLE_PTXAS_OPT=1", None]
            assert inputs_of(tiny, compiler) != inputs_of(other, compiler)

    @pytest.mark.parametrize("knob", ["compilation.override", "runtime.interpret"])
    def test_a_source_that_sets_one_that_is_refused_is_refused(self, project, knob):
        (project / "source.py").write_text(f"import triton\ntriton.knobs.{knob} = True\n{SOURCE}")
        compiler = SourceCompiler()
        with (
            compiler.session(60, print),
            pytest.raises(NojitError, match=r"TRITON_(KERNEL_OVERRIDE|INTERPRET) to be unset"),
        ):
            make_plans([project / "tiny.toml"], [], "full", compiler)

    def test_a_file_that_one_names_counts_by_what_is_in_it(self, keys, monkeypatch, tmp_path):
        seen = []
        for name, text in (("one", "1"), ("other", "1"), ("one", "2")):
            (tmp_path / name).write_text(text)
            monkeypatch.setenv("LLVM_PASS_PLUGIN_PATH", str(tmp_path / name))
            seen.append(frozenset(keys()))
        assert seen[0] == seen[1] != seen[2]

    @pytest.mark.parametrize("value", ["a" * 5000, "line\nend", "\x1b[31m"])
    def test_a_value_that_cannot_be_shown_is_told_by_its_digest(self, monkeypatch, value):
        from nojit.aot.compile.triton import compiler

        monkeypatch.setenv("DISABLE_LLVM_OPT", value)
        told = dict(compiler.toolchain("sm_80"))["settings"]
        assert re.fullmatch(r"DISABLE_LLVM_OPT=sha256:[0-9a-f]{64}", told)

    def test_what_has_no_effect_has_none(self, project, tmp_path):
        """With each of them set, and a cache manager that returns what nobody stored, the image is the same."""
        (tmp_path / "evil.py").write_text(EVIL)
        ignored = {variable: set_in_environment()[variable] for variable in BY_ROLE[Role.WITHOUT_EFFECT]}
        ignored |= {"TRITON_REPRODUCER_PATH": str(tmp_path / "reproducer"), "TRITON_DEFAULT_BACKEND": "nvidia"}
        ignored |= {"MLIR_DUMP_PATH": str(tmp_path / "dump"), "TRITON_BACKENDS_IN_TREE": "0", "TRITON_DEBUG": "1"}
        own = {
            "TRITON_CACHE_MANAGER": "evil:CacheManager",
            "TRITON_STORE_BINARY_ONLY": "0",
            "TRITON_ALWAYS_COMPILE": "0",
        }
        plain, other = (compiled(project, tmp_path, changes) for changes in ({}, ignored | own))
        assert plain == other


EVIL = """
from triton.runtime.cache import FileCacheManager

class CacheManager(FileCacheManager):
    def put(self, data, filename, binary=True):
        return super().put(b"evil" if filename.endswith("cubin") else data, filename, binary)
"""


def compiled(project: Path, path: Path, changes: dict[str, str]) -> list[str]:
    """Compile the project's variants in a process of their own; return their keys and the digests of their images."""
    script = textwrap.dedent("""
        import hashlib, sys
        from pathlib import Path
        from nojit.aot.compile.triton import compiler
        from nojit.aot.plan.planner import make_plans
        (plan,) = make_plans([Path(sys.argv[1])], [], "full", compiler)
        for kernel in plan.kernels:
            for variant in kernel.variants:
                made = compiler.compile_variant(variant, kernel.place)
                print(made.key, hashlib.sha256(made.image).hexdigest())
    """)
    environment = os.environ | {"PYTHONPATH": str(path)} | changes
    command = [sys.executable, "-c", script, str(project / "tiny.toml")]
    done = subprocess.run(command, env=environment, cwd=path, check=True, timeout=600, capture_output=True, text=True)
    return done.stdout.splitlines()


class TestTools:
    def test_a_ptxas_that_is_a_script_is_another(self, keys, monkeypatch, tmp_path):
        from triton import knobs

        before, real = keys(), knobs.nvidia.ptxas.path
        script = tmp_path / "ptxas"
        for text in (f'exec {real} "$@"', f'exec {real} -O0 "$@"'):
            script.write_text(f"#!/bin/sh\n{text}\n")
            script.chmod(0o755)
            monkeypatch.setenv("TRITON_PTXAS_PATH", str(script))
            now = keys()
            assert now.isdisjoint(before)
            before |= now

    def test_the_same_ptxas_elsewhere_is_the_same(self, keys, monkeypatch, tmp_path):
        from triton import knobs

        before = keys()
        shutil.copy(knobs.nvidia.ptxas.path, tmp_path / "ptxas")
        monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "ptxas"))
        assert keys() == before

    def test_a_ptxas_that_is_asked_for_and_is_none_is_an_error(self, keys, monkeypatch, tmp_path):
        monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "none"))
        with pytest.raises(
            CompileError, match=r"expected TRITON_PTXAS_PATH to name a ptxas: change or unset it, got none - at .*/none"
        ):
            keys()


def copy_of_triton(folder: Path) -> Path:
    """Copy Triton's Python files, and link what is large."""
    import triton

    def copy(source: str, target: str) -> None:
        if source.endswith(".py"):
            shutil.copyfile(source, target)
        else:
            Path(target).symlink_to(source)

    (own,) = triton.__path__
    ignored = shutil.ignore_patterns("__pycache__", "include", "cupti*")
    shutil.copytree(own, folder / "triton", ignore=ignored, copy_function=copy)
    return folder


def test_an_edited_triton_builds_anew_and_never_serves_a_clean_one(project: Path, tmp_path: Path) -> None:
    site = copy_of_triton(tmp_path / "site")

    def build(**changes: str) -> tuple[dict[str, Any], bytes]:
        command = [sys.executable, "-m", "nojit", "build", str(project / "tiny.toml"), "--out", str(tmp_path / "out")]
        done = subprocess.run(
            [*command, "--jobs", "1", "--json"],
            env=os.environ | {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"} | changes,
            cwd=ROOT, check=True, timeout=600, capture_output=True, text=True,
        )  # fmt: skip
        (bundle,) = json.loads(done.stdout)["bundles"]
        return bundle, Path(bundle["path"]).read_bytes()

    clean, bytes_of_clean = build()
    standard = site / "triton/language/standard.py"
    text = standard.read_text()
    assert text.count("return 1 / (1 + math.exp(-x))") == 1
    standard.write_text(text.replace("return 1 / (1 + math.exp(-x))", "return 2 / (1 + math.exp(-x))"))
    edited, bytes_of_edited = build()
    assert not edited["up_to_date"]
    assert not any(variant["cached"] for variant in edited["variants"])
    assert bytes_of_edited != bytes_of_clean
    changed = {tool for tool, said in clean["toolchain"].items() if edited["toolchain"][tool] != said}
    assert changed == {"triton.digest"}

    standard.write_text(text)
    again, bytes_of_again = build()
    assert not again["up_to_date"]
    assert all(variant["cached"] for variant in again["variants"])
    assert bytes_of_again == bytes_of_clean

    slow, _ = build(DISABLE_PTXAS_OPT="1")
    assert not slow["up_to_date"]
    assert not any(variant["cached"] for variant in slow["variants"])
    path = Path(slow["path"])
    report = json.loads(path.with_suffix(".report.json").read_bytes())
    assert ["settings", "DISABLE_PTXAS_OPT=1"] in report["toolchain"]
    shown = CliRunner().invoke(cli, ["inspect", str(path)], prog_name="nojit").stdout
    assert re.search(r"toolchain +ptxas 1\S+ \([0-9a-f]{12}\), triton 3\S+ \([0-9a-f]{12}\), zstandard", shown)
    assert "with DISABLE_PTXAS_OPT=1" in shown
    said = json.loads(statement_path(path).read_bytes())["predicate"]["buildDefinition"]
    assert said["internalParameters"]["settings"] == "DISABLE_PTXAS_OPT=1"
    found = {one["name"]: one.get("digest") for one in said["resolvedDependencies"]}
    assert found["triton"] == {"nojitTree": slow["toolchain"]["triton.digest"]}
    assert found["ptxas"] == {"sha256": slow["toolchain"]["ptxas.digest"]}
