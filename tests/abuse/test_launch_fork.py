"""Processes that fork after CUDA was initialised: every way in is a typed error in the child, at once and never a hang."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import VECTOR_ADD
from tests.support.bundles import kernel, make_bundle

ROOT = Path(__file__).parents[2]

START = """
import os, sys, threading, multiprocessing
sys.path.insert(0, {root!r})
from pathlib import Path
from nojit import runtime
from nojit.runtime.errors import DriverError, NojitError
from tests.fakecuda import FakeCuda
from tests.support.tensors import InterfaceTensor, PointerTensor
driver = FakeCuda(Path({driver!r}))
driver.add_memory(0x4000_0000, 4096)
bundle = runtime.load({path!r})
add, other = bundle.kernel("add"), bundle.kernel("other")
x, y = PointerTensor(0x1000), PointerTensor(0x2000)

def in_child(work):
    # what the child says; a child that hangs is killed by its alarm
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        import signal
        signal.alarm(20)
        try:
            said = f"returned {{work()}}"
        except BaseException as error:
            said = f"{{type(error).__name__}} {{getattr(error, 'code', None)}} {{error}}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(status, os.read(read, 4096).decode())
"""


@pytest.fixture(scope="module")
def bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "add.nojit"
    return make_bundle(path, kernel("add", **VECTOR_ADD), kernel("other", {"n": "i32"}))


def run(body: str, path: Path, driver: FakeCuda) -> list[str]:
    script = START.format(root=str(ROOT), driver=str(driver.path), path=str(path)) + body
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
        env=driver.environment(90, 90),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


WAYS_IN = {
    "a launch with its plan": "lambda: add[(1,)](x, y, 5)",
    "a launch without a plan": "lambda: add[(1,)](x, y, 16)",
    "the bundle's grid": "lambda: add(x, y, 5)",
    "another device": "lambda: add[(1,)](PointerTensor(0x1000, device='cuda:1'), PointerTensor(0, device='cuda:1'), 5)",
    "no tensor": "lambda: other[(1,)](5)",
    "an address to look up": "lambda: add[(1,)](InterfaceTensor(0x4000_0000), y, 5)",
    "preload": "lambda: add.preload()",
    "preload of another kernel": "lambda: other.preload(0)",
    "fits": "lambda: add.fits()",
    "a bundle opened anew": "lambda: runtime.load({path!r}).kernel('add')[(1,)](x, y, 5)",
}


@pytest.mark.parametrize("way", WAYS_IN)
def test_a_forked_child_is_told_to_spawn(fakecuda: FakeCuda, bundle_path: Path, way: str) -> None:
    work = WAYS_IN[way].format(path=str(bundle_path))
    said, healthy, parent = run(
        f"""
add[(1,)](x, y, 5)
in_child({work})
in_child(lambda: runtime.healthy())
add[(1,)](x, y, 5)
print(runtime.healthy(), driver.violations())
""",
        bundle_path,
        fakecuda,
    )
    assert said.startswith("0 DriverError 3 CUDA was initialised before fork; use spawn"), said
    assert healthy == "0 returned False"
    assert parent == "True []", "the parent is not harmed"


def test_a_zero_grid_and_explain_need_no_driver_in_a_child(fakecuda: FakeCuda, bundle_path: Path) -> None:
    body = """
add[(1,)](x, y, 5)
in_child(lambda: add[(0,)](x, y, 5))
in_child(lambda: add.explain(x, y, 5, arch="sm_90").chosen is not None)
"""
    assert run(body, bundle_path, fakecuda) == ["0 returned None", "0 returned True"]


def test_a_fork_while_another_thread_loads_cannot_hang(fakecuda: FakeCuda, bundle_path: Path) -> None:
    # the thread holds the lock on images, and one of the driver's, when the process forks
    body = """
other[(1,)](1)
with driver.hold("cuLibraryLoadData") as held:
    thread = threading.Thread(target=lambda: add[(1,)](x, y, 5))
    thread.start()
    held.wait()
    in_child(lambda: add[(1,)](x, y, 5))
    in_child(lambda: add.preload(0))
thread.join()
add[(1,)](x, y, 5)
print(driver.launch_count(), driver.violations())
"""
    first, second, parent = run(body, bundle_path, fakecuda)
    assert first.startswith("0 DriverError 3 CUDA was initialised before fork"), first
    assert second.startswith("0 DriverError 3 CUDA was initialised before fork"), second
    assert parent == "3 []"


def test_a_fork_while_another_thread_initialises_cannot_hang(fakecuda: FakeCuda, bundle_path: Path) -> None:
    body = """
with driver.hold("cuInit") as held:
    thread = threading.Thread(target=lambda: add[(1,)](x, y, 5))
    thread.start()
    held.wait()
    in_child(lambda: add[(1,)](x, y, 5))
thread.join()
print(driver.launch_count())
"""
    child, parent = run(body, bundle_path, fakecuda)
    assert child.startswith("0 DriverError 3 CUDA was initialised before fork"), child
    assert parent == "1"


def test_a_spawned_process_starts_over(fakecuda: FakeCuda, bundle_path: Path) -> None:
    body = """
add[(1,)](x, y, 5)
import subprocess
script = "import sys; from nojit import runtime; runtime.load(sys.argv[1]).kernel('other')[(1,)](5); print('launched')"
print(subprocess.run([sys.executable, "-c", script, sys.argv[-1]], capture_output=True, text=True, check=True).stdout)
""".replace("sys.argv[-1]", repr(str(bundle_path)))
    assert run(body, bundle_path, fakecuda)[0] == "launched"
