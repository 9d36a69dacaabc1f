"""Putting a file in place: old or new, never anything between, and nothing left beside it."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nojit.aot.base import files
from nojit.aot.base.files import check_folder, write_file, write_files
from nojit.aot.pack.bundle import pack
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import PackageError

from tests.aot.contents import bundle_content, kernel_content
from tests.aot.entries import spec


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A file that is already there, alone in its folder."""
    path = tmp_path / "out" / "demo.nojit"
    path.parent.mkdir()
    path.write_bytes(b"old")
    return path


def assert_untouched(place: Path) -> None:
    assert place.read_bytes() == b"old"
    assert list(place.parent.iterdir()) == [place]


def test_writes_and_makes_folders(tmp_path):
    path = tmp_path / "a" / "b" / "demo.nojit"
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


def test_replaces_without_touching_who_has_the_old_one_open(place):
    with place.open("rb") as old:
        write_file(place, b"new")
        assert old.read() == b"old"
    assert place.read_bytes() == b"new"
    assert list(place.parent.iterdir()) == [place]


def test_replaces_a_link_and_not_what_it_points_at(place):
    link = place.with_name("link")
    link.symlink_to(place)
    write_file(link, b"new")
    assert not link.is_symlink()
    assert (link.read_bytes(), place.read_bytes()) == (b"new", b"old")


def test_is_on_disk_before_it_is_in_place(place, monkeypatch):
    happened: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(descriptor: int) -> None:
        happened.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').resolve().name[:6]}")
        fsync(descriptor)

    def note_replace(self: Path, target: Path) -> Path:
        happened.append(f"rename {self.stat().st_size}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    write_file(place, b"new data")
    assert happened == ["fsync .demo.", "rename 8", "fsync out"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EXDEV, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_failure_leaves_the_old_file_and_nothing_else(place, monkeypatch, number, call):
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(*{"fsync": (os, "fsync", fail), "rename": (Path, "replace", fail)}[call])
    with pytest.raises(PackageError) as caught:
        write_file(place, b"new")
    assert str(caught.value) == f"expected to write a file, got {os.strerror(number)} - at {place}"
    assert_untouched(place)


def test_a_full_disk(place):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(PackageError, match="too large"):
            write_file(place, bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_untouched(place)


def test_an_interrupt(place, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_file(place, b"new")
    assert_untouched(place)


def test_a_folder_in_its_place(tmp_path):
    (tmp_path / "demo.nojit").mkdir()
    with pytest.raises(PackageError, match="expected to write a file"):
        write_file(tmp_path / "demo.nojit", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["demo.nojit"]


@pytest.mark.parametrize("kind", ["a FIFO", "a device"])
def test_a_special_file_is_never_replaced(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "special"
    if kind == "a FIFO":
        os.mkfifo(place)
    else:
        place.symlink_to(os.devnull)
    with pytest.raises(PackageError, match=f"expected to write a file, got {kind} - at "):
        write_file(place, b"new")
    assert not place.is_file()
    assert list(tmp_path.iterdir()) == [place]


def test_a_failure_to_sync_the_folder_is_told_though_the_file_is_whole(place, monkeypatch):
    def fail(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "sync", fail)
    with pytest.raises(PackageError, match="Input/output error"):
        write_file(place, b"new")
    assert place.read_bytes() == b"new"
    assert list(place.parent.iterdir()) == [place]


def test_of_several_files_none_is_renamed_if_one_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    with pytest.raises(PackageError, match=r"expected to write a file, got a folder - at .*/second"):
        write_files({first: b"1", second: b"2", third: b"3"})
    # nothing is renamed before every temporary file is there
    assert list(tmp_path.iterdir()) == [second]


# -- the kernel fails, or the process dies, at each call that writes ---------------------------------------------------

SCRIPT = """
import sys
from pathlib import Path
from nojit.aot.base.files import write_file
from nojit.runtime.errors import PackageError
try:
    write_file(Path(sys.argv[1]), Path(sys.argv[2]).read_bytes())
except PackageError as error:
    sys.exit(str(error))
"""


def strace_works() -> bool:
    """Whether strace is here and may trace, which containers can forbid."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0


needs_strace = pytest.mark.skipif(not strace_works(), reason="strace is absent or may not trace")


def inject(place: Path, new: Path, call: str, what: str) -> subprocess.CompletedProcess[str]:
    """Put `new` at `place` in a process that suffers `what` at one of its calls."""
    return subprocess.run(
        ["strace", "-f", "-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={call}:{what}",
         sys.executable, "-B", "-c", SCRIPT, place, new],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


@pytest.fixture
def bundles(tmp_path: Path) -> tuple[Path, Path, bytes, bytes]:
    """A bundle in its place, and the file of the one that is to replace it."""
    made = []
    for values in ([1], [1, 2, 3]):
        kernel = kernel_content(spec(matrix={"D": values}))
        assert kernel is not None
        made.append(pack(bundle_content(kernel)).data)
    place, new = tmp_path / "out" / "demo.nojit", tmp_path / "new"
    place.parent.mkdir()
    place.write_bytes(made[0])
    new.write_bytes(made[1])
    return place, new, made[0], made[1]


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EDQUOT"])
@pytest.mark.parametrize(("call", "nth"), [("write", 1), ("fsync", 1), ("rename", 1), ("fsync", 2)])
def test_an_error_of_the_kernel_at_each_call(bundles, call, nth, error):
    place, new, old_data, new_data = bundles
    ran = inject(place, new, call, f"error={error}:when={nth}")
    assert ran.returncode == 1, ran.stderr
    assert ran.stderr.startswith(f"expected to write a file, got {os.strerror(getattr(errno, error))} - at")
    # the folder is synced last: the new file is there, and whole
    assert place.read_bytes() == (new_data if (call, nth) == ("fsync", 2) else old_data)
    assert list(place.parent.iterdir()) == [place]


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("error", ["EXDEV", "EROFS"])
def test_a_rename_that_the_kernel_refuses(bundles, error):
    place, new, old_data, _ = bundles
    ran = inject(place, new, "rename", f"error={error}:when=1")
    assert ran.returncode == 1
    assert place.read_bytes() == old_data
    assert list(place.parent.iterdir()) == [place]


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_kill_at_each_call_leaves_the_old_bundle_or_the_new_one(bundles, call, nth):
    place, new, old_data, new_data = bundles
    ran = inject(place, new, call, f"signal=KILL:when={nth}")
    reached = {"write": 1, "fsync": 2, "rename": 1}[call] >= nth
    assert ran.returncode == (-9 if reached else 0), ran.stderr
    assert place.read_bytes() in {old_data, new_data}
    with BundleFile(place) as bundle:
        bundle.verify()
    # whatever a killed writer left beside it bothers no other
    write_file(place, new_data)
    assert place.read_bytes() == new_data


def test_a_file_that_cannot_be_written_is_called_by_its_own_name(place, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device", "other")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PackageError) as raised:
        write_file(place, b"new")
    assert str(raised.value) == f"expected to write a file, got No space left on device - at {place}"


def test_a_folder_that_takes_no_files_is_refused(place, monkeypatch):
    check_folder(place.parent)
    check_folder(place.parent / "not" / "yet")
    assert list(place.parent.iterdir()) == [place]
    for folder, got in ((place, "a file -"), (place / "in", f"a file at {place} -")):
        with pytest.raises(PackageError, match=f"expected a folder to write to, got {got} at {folder}$"):
            check_folder(folder)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PackageError, match=f"got one that cannot be written to at {place.parent} - at"):
        check_folder(place.parent / "sub")


def test_a_dangling_link_for_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    with pytest.raises(PackageError, match="expected a folder to write to, got a symbolic link - at"):
        check_folder(tmp_path / "link")


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_where_a_folder_is_to_be_is_named(place: Path, below: str) -> None:
    with pytest.raises(PackageError, match="expected a folder to write to, got a file") as raised:
        write_file(place / below / "new", b"new")
    assert raised.value.where == str(place / below)
    assert_untouched(place)
