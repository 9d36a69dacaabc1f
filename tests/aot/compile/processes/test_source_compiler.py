"""How a build treats the sources of kernels: each in processes of its own, whatever they do when they are imported."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.aot.projects import KERNEL, Project, entry

pytestmark = pytest.mark.triton

Make = Callable[[], Project]


# what a source may do to its process, and what another source must not see then
PATCHES = {
    "triton": ("import triton.language as tl\ntl.exp = tl.exp2\n", "tl.exp is tl.exp2"),
    "environment": ("import os\nos.environ['DISABLE_LLVM_OPT'] = '1'\n", "'DISABLE_LLVM_OPT' in os.environ"),
    "settings": ("import triton\ntriton.knobs.nvidia.disable_ptxas_opt = True\n", "triton.knobs.nvidia.disable_ptxas_opt"),
    "modules": ("import sys\nsys.modules['colorsys'] = 'mine'\n", "'colorsys' in sys.modules"),
    "path": ("import sys\nsys.path.insert(0, '/nowhere/of/mine')\n", "'/nowhere/of/mine' in sys.path"),
    "builtins": ("import builtins\nbuiltins.mine = 1\n", "hasattr(builtins, 'mine')"),
}  # fmt: skip


def test_no_source_sees_what_another_patches(project: Make) -> None:
    seen = " or ".join(f"({seen})" for _, seen in PATCHES.values())
    witness = f"{KERNEL}\nimport builtins, os, sys\nif {seen}:\n    raise RuntimeError('patched')\n"
    files = {f"{name}_py": text + KERNEL for name, (text, _) in PATCHES.items()}
    # a witness before all others and one behind, whatever the order of imports is
    entries = [entry(name, f"{name}.py:k") for name in PATCHES]
    entries += [entry("a", "first.py:k"), entry("z", "last.py:k")]
    built = project().write(first_py=witness, last_py=witness, **files).build(*entries)
    assert built.code == 0, built.stderr
    images = built.images()
    plain = project().write(exp_py=KERNEL, exp2_py=KERNEL.replace("tl.exp(", "tl.exp2("))
    alone = plain.build(entry("exp", "exp.py:k"), entry("exp2", "exp2.py:k")).images()
    assert images["a"] == images["z"] == alone["exp"] != images["settings"]
    # and each is compiled with what it patches itself
    assert images["triton"] == alone["exp2"] != alone["exp"]


def test_files_that_functions_are_taken_from_are_seen_by_their_kernel_alone(project: Make) -> None:
    kernel = KERNEL.replace("+ V)", "+ V(1))") + "\nimport os\nassert 'MINE' not in os.environ\n"
    one = "import os\nos.environ['MINE'] = '1'\nimport triton\n\n\n@triton.jit\ndef one(x):\n    return x\n"
    two = one.replace("os.environ['MINE'] = '1'", "assert 'MINE' not in os.environ").replace("def one", "def two")
    files = project().write(k_py=kernel, one_py=one, two_py=two)
    entries = [
        entry("a", "k.py:k").replace("V = 1", "V = { function = 'one.py:one' }"),
        entry("b", "k.py:k").replace("V = 1", "V = { function = 'two.py:two' }"),
    ]
    built = files.build(*entries, words=("--dry-run",))
    assert built.code == 0, built.stderr


def test_the_build_imports_neither_triton_nor_a_source(project: Make, tmp_path: Path) -> None:
    # written at the end of each process that imported Triton: a module that Python imports when it starts
    sites = tmp_path / "sites"
    sites.mkdir()
    (sites / "sitecustomize.py").write_text(
        "import atexit, os, sys\n"
        f"said = {str(tmp_path / 'said')!r}\n"
        "atexit.register(lambda: 'nojit' in ' '.join(sys.orig_argv) and 'build' in sys.argv and open(said, 'a').write("
        "f\"{'triton' in sys.modules} {any('nojit_source' in name for name in sys.modules)}\\n\"))\n",
        encoding="utf-8",
    )
    built = project().write(a_py=KERNEL).build(entry("a", "a.py:k"), PYTHONPATH=str(sites))
    assert built.code == 0, built.stderr
    assert (tmp_path / "said").read_text(encoding="utf-8") == "False False\n"


def test_what_a_source_prints_stays_off_standard_output(project: Make) -> None:
    loud = "import os, sys\nprint('printed')\nos.write(1, b'written\\n')\nsys.stderr.write('warned\\n')\n" + KERNEL
    built = project().write(a_py=loud).build(entry("a", "a.py:k"), words=("--json", "--dry-run"))
    assert built.code == 0, built.stderr
    assert json.loads(built.stdout)["command"] == "build"
    assert {"printed", "written", "warned"} <= set(built.stderr.splitlines())


def test_a_source_may_start_threads_read_its_input_and_leave_its_folder(project: Make) -> None:
    text = (
        "import os, sys, threading\nassert sys.stdin.read() == ''\nos.chdir('/')\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    # names of functions are in the image, names of files are not
    made = project().write(a_py=text + KERNEL, b_py=f"{KERNEL}# other lines\n\n")
    built = made.build(entry("a", "a.py:k"), entry("b", "a.py:k", "options = { num_warps = 8 }"), entry("c", "b.py:k"))
    assert built.code == 0, built.stderr
    images = built.images()
    assert images["a"] == images["c"] != images["b"]


# sources whose import fails, and what is said of it
FAILING = {
    "import os\nos.write(2, b'gone\\n')\nos._exit(3)\n": "expected to import a0.py, got exit code 3 of its process: gone - at",
    "import os, signal\nsignal.signal(11, signal.SIG_DFL)\nos.kill(os.getpid(), 11)\n": "expected to import a1.py, got SIGSEGV of its process - at",
    "import sys\nsys.exit(3)\n": "/a2.py, got SystemExit: 3 - at",
    "import triton\n@triton.jit\ndef k(out_ptr, V):\n    plain(out_ptr)\ndef plain(x):\n    pass\n": "expected a function that Triton can read, got RuntimeError: Unsupported function referenced",
}  # fmt: skip


def test_an_import_that_fails_is_told_and_ends_the_build(project: Make) -> None:
    made = project().write(**{f"a{number}_py": text for number, text in enumerate(FAILING)})
    built = made.build(*(entry(f"k{number}", f"a{number}.py:k") for number in range(len(FAILING))))
    assert (built.code, built.stdout) == (1, "")
    for message in FAILING.values():
        assert message in built.stderr


def test_an_import_that_does_not_end_is_ended(project: Make) -> None:
    built = project().write(a_py="while True:\n    pass\n").build(entry("a", "a.py:k"), words=("--timeout", "1"))
    assert (built.code, built.stdout) == (1, "")
    assert "expected the import of a.py to end within 1 s; --timeout S allows longer - at" in built.stderr


def test_a_source_whose_copies_end_at_once_is_named(project: Make) -> None:
    dying = "import os\nos.register_at_fork(after_in_child=lambda: (os.write(2, b'gone\\n'), os._exit(3)))\n"
    built = project().write(a_py=dying + KERNEL).build(entry("a", "a.py:k"))
    assert built.code == 1
    assert "expected to start a compile worker, got exit code 3 - at" in built.stderr


def test_an_import_that_fails_is_tried_once_for_all_kernels(project: Make) -> None:
    made = project().write(a_py="print('imported')\nraise ImportError('no such luck')\n")
    built = made.build(*(entry(f"k{number}", "a.py:k") for number in range(3)), words=("--dry-run",))
    assert built.code == 1
    assert built.stderr.splitlines().count("imported") == 1
    for number in range(3):
        assert re.search(rf"got ImportError: no such luck - at .*kernel.{number}..source", built.stderr)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupt_ends_an_import_and_leaves_nothing(project: Make, tmp_path: Path, jobs: str) -> None:
    fifo, temporary = tmp_path / "fifo", tmp_path / "temporary"
    os.mkfifo(fifo)
    temporary.mkdir()
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    waits = (
        f"import os, signal\nwith open({str(fifo)!r}, 'w') as f:\n    f.write(f'{{os.getpid()}}\\n')\nsignal.pause()\n"
    )
    made = project().write(a_py=waits, b_py=waits)
    command = made.command(entry("a", "a.py:k"), entry("b", "b.py:k"), words=("-j", jobs))
    # a suite that runs in a shell's background inherits a SIGINT that is ignored
    process = subprocess.Popen(
        ["env", "--default-signal=INT", *command],
        env=os.environ | {"TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert select.select([reading], [], [], 60)[0], "no source was imported"
        imports = [os.pidfd_open(int(line)) for line in os.read(reading, 100).split()]
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=600)
    finally:
        process.kill()
        os.close(reading)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert all(select.select([each], [], [], 60)[0] for each in imports)
    assert list(temporary.iterdir()) == []
