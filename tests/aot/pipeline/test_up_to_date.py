"""Builds with nothing to do: they import no source, say the same, and any change ends that."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import triton
from nojit.aot.compile.sources.file_facts import (
    DISTRIBUTIONS,
    ENTRIES,
    MODULES,
    NAMES,
    SETTLED_NS,
    fact_of,
    listed,
    listing_of,
    still,
    with_digest,
)
from nojit.aot.pipeline import stamp_file
from nojit.aot.pipeline.stamp_file import asked_of
from nojit.aot.pipeline.up_to_date import changes, find_stamp

from tests.aot.projects import KERNEL, Project, entry

SOURCE = f"""
import importlib.util
import os
from pathlib import Path

import helper

here = Path(__file__).parent
with (here.parent / "imports.log").open("a") as log:
    log.write("imported\\n")
SCALE = int((here / "scale.txt").read_text())
NAMES = sorted(path.name for path in (here / "parts").iterdir())
SWITCH = (here / "switch").exists()
HAS = importlib.util.find_spec("might_be_there") is not None
LINKED = (here / "linked.txt").read_text()
SAME = (here / "same.txt").read_text()
print("imported by", NAMES)
{KERNEL}
"""
ENTRY = entry("k", "a.py:k", 'options = { extern_libs = { mine = "lib.bc" } }')
# bitcode of a module without functions
LIBRARY = Path(triton.__file__).parent / "backends/nvidia/lib/libdevice.10.bc"


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in an environment that is the same for all tests."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)


@dataclass(frozen=True)
class Stamped:
    """A project that was built once."""

    made: Project
    cache: Path
    command: list[str]

    @property
    def folder(self) -> Path:
        return self.made.folder

    def kept(self, number: int = 0) -> dict[str, Any]:
        """Read an existing stamp; 0 is the oldest."""
        paths = sorted((self.cache / "stamps").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        kept: dict[str, Any] = json.loads(paths[number].read_bytes()[len(stamp_file.MAGIC) + 32 :])
        return kept

    def asked(self) -> str:
        asked: str = self.kept()["asked"]
        return asked

    def again(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Build again; the manifest is not written anew."""
        command = [*self.command, *words]
        return run(command, self.folder.parent)

    def imports(self) -> int:
        return len((self.folder.parent / "imports.log").read_text().splitlines())


@pytest.fixture(scope="module")
def stamped(tmp_path_factory: pytest.TempPathFactory) -> Stamped:
    folder = tmp_path_factory.mktemp("stamped")
    made = Project(folder / "project").write(
        {
            "a.py": SOURCE,
            "helper.py": "X = 1\n",
            "scale.txt": "2",
            "parts/one": "",
            "same.txt": "1",
            "real.txt": "1",
        }
    )
    (made.folder / "linked.txt").symlink_to("real.txt")
    shutil.copy(LIBRARY, made.folder / "lib.bc")
    cache = folder / "cache"
    stamped = Stamped(made, cache, made.command(ENTRY, cache=cache))
    for _ in range(3):
        built = stamped.again()
        assert built.returncode == 0, built.stderr
        if (cache / "stamps").exists():
            break
        # something on the machine changed during the build, such as an installed package
    return stamped


def test_the_second_build_imports_nothing_and_says_what_it_would_have_said(stamped):
    assert changes(stamped.cache, stamped.asked()) == []
    before = stamped.imports()
    for words in ((), ("--json",), ("-q",), ("-v",)):
        fast = stamped.again(*words)
        assert stamped.imports() == before
        slow = stamped.again(*words, "--recheck")
        assert stamped.imports() > before
        before = stamped.imports()
        assert fast.returncode == slow.returncode == 0
        assert timeless(fast.stdout) == timeless(slow.stdout)
        assert fast.stderr == slow.stderr
    assert "imported by ['one']" in stamped.again().stderr


def timeless(text: str) -> str:
    return re.sub(r'\d+\.\d s\b|"seconds": [\d.]+', "?", text)


def test_everything_that_the_build_itself_reads_is_in_the_stamp(stamped, tmp_path):
    opened = tmp_path / "opened"
    code = f"""
        import atexit, os, sys
        seen = set()
        def hear(event, args):
            if event == "open" and isinstance(args[0], str) and args[2] & os.O_ACCMODE == os.O_RDONLY:
                seen.add(os.path.abspath(args[0]))
        sys.addaudithook(hear)
        atexit.register(lambda: open({str(opened)!r}, "w").write("\\n".join(seen)))
        sys.argv = {["nojit", *stamped.command[3:], "--recheck"]!r}
        from nojit.aot.cli import main
        main()
    """
    ran = run([sys.executable, "-c", textwrap.dedent(code)], stamped.folder.parent)
    assert ran.returncode == 0, ran.stderr
    kept = stamped.kept(-1)
    assert kept["asked"] != stamped.asked()
    known = {os.path.realpath(path) for path in (*kept["files"], *kept["outputs"])}
    own = (str(stamped.cache), str(stamped.folder / "out"), "/proc/", "/tmp/nojit-sources-")
    missing = [
        path
        for path in opened.read_text().splitlines()
        if not path.startswith(own) and "__pycache__" not in path and Path(path).is_file()
        if os.path.realpath(path) not in known
    ]
    assert missing == []


def edit(path: Path) -> None:
    """Change a byte, and nothing that a look at size and times of the content shows."""
    before = path.stat()
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(path: Path) -> None:
    """Put another file of the same content there."""
    shutil.copy2(path, path.with_name("other"))
    path.with_name("other").replace(path)


Act = Callable[[Path], object]


def touch(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.touch()


def package(path: Path) -> None:
    path.mkdir()
    (path / "__init__.py").touch()


# what is done, to what in the project's folder, and by what path that shows if not by this one
CHANGES: dict[str, tuple[Act, str, str]] = {
    "a source": (edit, "a.py", ""),
    "a module that it imports": (edit, "helper.py", ""),
    "a file that it opens": (edit, "scale.txt", ""),
    "a file that it opens, replaced by its like": (replace, "same.txt", ""),
    "a file where a link leads": (edit, "real.txt", "linked.txt"),
    "a file in a folder that it lists": (touch, "parts/two", "parts"),
    "a file that it looked for": (touch, "switch", ""),
    "a module that it looked for": (touch, "might_be_there.py", "."),
    "a package that hides a module": (package, "helper", "."),
    "a library that kernels are linked with": (edit, "lib.bc", ""),
    "a manifest": (edit, "demo.toml", ""),
    "another manifest beside it": (touch, "other.toml", "."),
    "a tuned table": (touch, "tuned/k.toml", "tuned"),
    "a bundle": (edit, "out/demo-1.0-sm_80.nojit", ""),
    "another bundle beside it": (touch, "out/x.nojit", "out"),
    "a report": (Path.unlink, "out/demo-1.0-sm_80.report.json", ""),
    "a statement": (edit, "out/demo-1.0-sm_80.provenance.json", ""),
    "a signed statement": (touch, "out/demo-1.0-sm_80.intoto.jsonl", ""),
}


@pytest.fixture(scope="module")
def changed(stamped: Stamped) -> Stamped:
    """The project, to be changed: one change after another, and never back."""
    assert changes(stamped.cache, stamped.asked()) == []
    return stamped


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_ends_it(changed, what):
    act, name, shown = CHANGES[what]
    before = set(changes(changed.cache, changed.asked()))
    path = changed.folder / name
    act(path)
    found = set(changes(changed.cache, changed.asked()))
    assert str(changed.folder / (shown or name)) in found - before
    assert find_stamp(changed.cache, changed.asked()) is None
    if act is touch:
        path.unlink()
    elif act is package:
        shutil.rmtree(path)


def test_the_toolchain_and_nojit_itself_are_in_the_stamp(stamped):
    files = stamped.kept()["files"]
    package = Path(triton.__file__).parent
    for path in (
        package / "_C/libtriton.so",
        package / "language/core.py",
        package / "backends/nvidia/bin/ptxas",
        package / "backends/nvidia/bin/ptxas-blackwell",
        Path(stamp_file.__file__),
        Path(stamp_file.__file__).parents[1] / "compile/triton/compiler.py",
        Path(stamp_file.__file__).parents[1] / "plan/planner.py",
        Path(sys.modules["msgspec"].__file__),
        Path(sys.modules["zstandard"].__file__),
        sys.executable,
    ):
        assert str(path) in files, path
    assert (ENTRIES, str(package)) in {(kind, path) for kind, path, _ in stamped.kept()["folders"]}


# -- what is asked -----------------------------------------------------------------------------------------------------


def test_the_environment_counts_but_for_what_tells_of_the_terminal(monkeypatch):
    before = asked_of({})
    monkeypatch.setenv("TERM", "vt52")
    monkeypatch.setenv("COLUMNS", "17")
    assert asked_of({}) == before
    monkeypatch.setenv("ANY_OTHER", "secret")
    assert asked_of({}) != before
    assert "secret" not in asked_of({})


def test_the_folder_counts_and_the_request_and_where_python_looks(monkeypatch, tmp_path):
    before = asked_of({"jobs": 1})
    assert asked_of({"jobs": 2}) != before
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        assert asked_of({"jobs": 1}) != before
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert asked_of({"jobs": 1}) != before


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def copied(stamped: Stamped, tmp_path: Path) -> Path:
    """A valid stamp in its own cache folder."""
    kept = stamped.kept() | {"files": {}, "links": {}, "folders": [], "outputs": {}, "reports": [[], []]}
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    stamp_file.write_stamp(cache, kept["asked"], kept)
    assert find_stamp(cache, kept["asked"]) is not None
    return cache


def test_a_damaged_stamp_is_none(copied, stamped):
    (path,) = (copied / "stamps").iterdir()
    whole = path.read_bytes()
    for data in (b"", whole[:-1], whole[:40], whole[:100] + b"x" + whole[101:], b"\0" * 300):
        path.write_bytes(data)
        assert find_stamp(copied, stamped.asked()) is None


@pytest.mark.parametrize("inside", [".", "stamps"])
def test_a_folder_that_others_can_write_to_has_no_stamps(copied, stamped, inside):
    (copied / inside).chmod(0o777)
    assert find_stamp(copied, stamped.asked()) is None


def test_a_link_is_no_stamp(copied, stamped):
    (path,) = (copied / "stamps").iterdir()
    path.rename(copied / "elsewhere")
    path.symlink_to(copied / "elsewhere")
    assert find_stamp(copied, stamped.asked()) is None


def test_old_stamps_go(copied, stamped, monkeypatch):
    monkeypatch.setattr(stamp_file, "_STAMPS_MAX", 3)
    for number in range(5):
        stamp_file.write_stamp(copied, str(number), {})
    assert len([*(copied / "stamps").iterdir()]) == 3


# -- what cannot be noted ----------------------------------------------------------------------------------------------

TRACE = """
import sys
from pathlib import Path
from nojit.aot.compile.sources import reads
reads.start((), Path("/nowhere"))
reads.source_begins()
{code}
notes = reads.take_notes()
import json
print(json.dumps([notes.refused, list(notes.files), list(notes.links), [list(k) for k in notes.folders], sorted(notes.names)]))
"""


def noted(code: str, folder: Path) -> tuple[list[str], list[str], list[str], list[list[str]], list[str]]:
    ran = subprocess.run(
        [sys.executable, "-c", TRACE.format(code=textwrap.dedent(code))],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    found: tuple[list[str], list[str], list[str], list[list[str]], list[str]] = tuple(
        json.loads(ran.stdout.splitlines()[-1])
    )
    return found


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import os; os.fork() or os._exit(0)",
        "import os; os.posix_spawn('/bin/true', ['true'], {})",
        "import socket; socket.getaddrinfo('127.0.0.1', 80)",
        "import socket; socket.gethostname()",
        "import ctypes; ctypes.CDLL('libc.so.6')",
        "import ctypes; ctypes.pythonapi.Py_GetVersion",
        "import sqlite3; sqlite3.connect('x.db')",
        "import os; os.listdir(os.open('.', os.O_RDONLY))",
        "import os; os.stat('x', dir_fd=os.open('.', os.O_RDONLY)) if False else os.open('.', 0, dir_fd=os.open('/', 0))",
        "open('/dev/urandom').close()",
    ],
)
def test_what_cannot_be_noted_is_refused(code, tmp_path):
    refused, *_ = noted(code, tmp_path)
    assert refused


def test_what_can_be_noted_is(tmp_path):
    (tmp_path / "data").write_text("")
    (tmp_path / "link").symlink_to("data")
    (tmp_path / "dangling").symlink_to("nowhere")
    code = """
    import os, glob, importlib.metadata, numpy, pathlib
    pathlib.Path("dangling").is_symlink(); list(importlib.metadata.distributions())
    open("data").close()
    open("written", "w").close()
    open("/proc/self/maps").close()
    os.path.exists("absent"); os.path.islink("link"); os.listdir("."); glob.glob("sub/*")
    try:
        import no_such_module
    except ImportError:
        pass
    """
    refused, files, links, folders, names = noted(code, tmp_path)
    here = str(tmp_path)
    assert refused == []
    assert {f"{here}/data", f"{here}/absent"} <= {*files}
    assert f"{here}/written" not in files
    # which differ from process to process
    assert "/proc/self/maps" not in files
    assert {f"{here}/link", f"{here}/dangling"} <= {*links}
    assert [DISTRIBUTIONS, f"{here}/."] in folders
    assert [NAMES, f"{here}/."] in folders
    assert {"no_such_module", "numpy"} <= {*names}
    # not what Python makes of it
    assert not [path for path in files if path.endswith(".pyc")]


# -- facts -------------------------------------------------------------------------------------------------------------


def test_a_file_that_was_written_just_now_is_known_by_content(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("one")
    fresh = fact_of(str(path))
    assert len(fresh) == 8
    monkeypatch.setattr("nojit.aot.compile.sources.file_facts.SETTLED_NS", -SETTLED_NS)
    assert len(fact_of(str(path))) == 6
    assert still(str(path), fresh)
    assert not still(str(path), [*fresh[:7], "0" * 64])
    assert not still(str(tmp_path / "gone"), fresh)


def test_a_new_link_to_a_file_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("nojit.aot.compile.sources.file_facts.SETTLED_NS", -SETTLED_NS)
    path = tmp_path / "file"
    path.write_text("one")
    digest = hashlib.sha256(b"one").hexdigest()
    kept = with_digest(fact_of(str(path)), digest)
    assert still(str(path), kept) is kept
    (tmp_path / "other").hardlink_to(path)
    renewed = still(str(path), kept)
    assert renewed == with_digest(fact_of(str(path)), digest)
    assert renewed != kept
    edit(path)
    assert still(str(path), kept) is None


def test_a_stamp_of_which_inodes_changed_is_written_anew(copied, stamped, tmp_path, monkeypatch):
    monkeypatch.setattr("nojit.aot.compile.sources.file_facts.SETTLED_NS", -SETTLED_NS)
    path = tmp_path / "file"
    path.write_text("one")
    fact = with_digest(fact_of(str(path)), hashlib.sha256(b"one").hexdigest())
    kept = stamped.kept() | {"files": {str(path): fact}, "links": {}, "folders": [], "outputs": {}, "reports": [[], []]}
    stamp_file.write_stamp(copied, kept["asked"], kept)
    (tmp_path / "other").hardlink_to(path)
    assert find_stamp(copied, kept["asked"]) is not None
    edit(path)
    assert find_stamp(copied, kept["asked"]) is None


def test_files_that_the_kernel_makes_up_are_known_by_content():
    assert "content" in fact_of("/proc/version")


def test_of_a_folder_of_modules_what_is_imported_counts(tmp_path):
    def listing() -> str:
        return listed(listing_of(str(tmp_path), MODULES), MODULES, {"wanted", "other"})

    before = listing()
    (tmp_path / "stranger.py").touch()
    (tmp_path / "__pycache__").mkdir()
    assert listing() == before
    for change in (
        (tmp_path / "wanted").mkdir,
        (tmp_path / "wanted/__init__.py").touch,
        (tmp_path / "other.so").touch,
        (tmp_path / "any.pth").touch,
    ):
        change()
        assert listing() != before
        before = listing()
    assert listed(listing_of(str(tmp_path), MODULES, {"wanted", "other"}), MODULES, {"wanted", "other"}) == before
