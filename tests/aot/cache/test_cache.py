from __future__ import annotations

import contextlib
import hashlib
import os
import re
import resource
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.aot.cache.cache import Cache
from nojit.aot.cache.folder import default_cache_folder
from nojit.runtime.errors import PackageError

from tests.aot.conftest import ROOT

KEY, OTHER = "a" * 64, "b" * 64
NOBODY = 65534


@contextlib.contextmanager
def _socket(path: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as listener:
        # a name of at most 107 bytes
        here = os.open(path.parent, os.O_PATH)
        try:
            listener.bind(f"/proc/self/fd/{here}/{path.name}")
        finally:
            os.close(here)
        yield


def _made(make: Callable[[Path], object]) -> Callable[[Path], contextlib.AbstractContextManager[None]]:
    @contextlib.contextmanager
    def made(path: Path) -> Iterator[None]:
        make(path)
        yield

    return made


OBSTACLES = {
    "empty folder": _made(Path.mkdir),
    "full folder": _made(lambda path: (path / "sub").mkdir(parents=True)),
    "FIFO": _made(os.mkfifo),
    "socket": _socket,
    "link to a file": _made(lambda path: path.symlink_to(__file__)),
    "link to a device that never ends": _made(lambda path: path.symlink_to("/dev/zero")),
    "link to nowhere": _made(lambda path: path.symlink_to("nowhere")),
    "link to itself": _made(lambda path: path.symlink_to(path)),
}
REASONS = {
    kind: f"a {'symbolic link' if 'link' in kind else kind.rpartition(' ')[2]}, not a regular file"
    for kind in OBSTACLES
}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def entry(cache: Cache, key: str = KEY) -> Path:
    return cache.folder / key[:2] / key[2:]


def files(cache: Cache) -> list[Path]:
    return [path for path in cache.folder.rglob("*") if not path.is_dir()]


class TestStoring:
    def test_round_trip(self, cache):
        cache.put(KEY, b"one")
        cache.put(OTHER, b"")
        assert (cache.get(KEY), cache.get(OTHER)) == (b"one", b"")

    def test_an_absent_key_is_a_miss(self, cache):
        assert cache.get(KEY) is None
        cache.put(KEY, b"one")
        assert cache.get("a" * 63 + "b") is None

    def test_an_empty_cache_is_listed_instead_of_looking_for_each_key(self, cache, monkeypatch):
        looked = []
        monkeypatch.setattr(type(cache._local), "read", lambda _self, name, _most: looked.append(name) or b"")
        assert not list(cache.find([KEY, OTHER], lambda _key, data: data))
        assert not looked
        cache.put(KEY, b"one")
        assert not list(cache.find([KEY, OTHER], lambda _key, data: data))
        assert looked == [f"{KEY[:2]}/{KEY[2:]}"]

    def test_the_last_writer_wins(self, cache):
        cache.put(KEY, b"one")
        cache.put(KEY, b"two")
        assert cache.get(KEY) == b"two"

    def test_another_process_finds_it(self, cache):
        cache.put(KEY, b"one")
        assert Cache(cache.folder).get(KEY) == b"one"

    def test_nothing_lies_beside_the_entry(self, cache):
        cache.put(KEY, b"one")
        assert files(cache) == [entry(cache)]

    @pytest.mark.parametrize("key", ["", "a" * 63, "A" * 64, "../" + "a" * 61, "a" * 64 + "\n", "g" * 64])
    def test_keys_are_digests_and_never_paths(self, cache, key):
        with pytest.raises(ValueError, match="expected a SHA-256 in hex as key"):
            cache.get(key)
        with pytest.raises(ValueError, match="expected a SHA-256 in hex as key"):
            cache.put(key, b"")

    @settings(deadline=None)
    @given(st.binary())
    def test_any_bytes(self, tmp_path_factory, data):
        cache = Cache(tmp_path_factory.mktemp("cache"))
        cache.put(KEY, data)
        assert cache.get(KEY) == data


class TestDamage:
    def test_every_truncation_is_a_miss(self, cache):
        cache.put(KEY, b"some machine code")
        whole = entry(cache).read_bytes()
        for length in range(len(whole)):
            entry(cache).write_bytes(whole[:length])
            assert cache.get(KEY) is None, length

    def test_every_flipped_bit_is_a_miss(self, cache):
        cache.put(KEY, b"code")
        whole = entry(cache).read_bytes()
        for place in range(8 * len(whole)):
            flipped = bytearray(whole)
            flipped[place // 8] ^= 1 << place % 8
            entry(cache).write_bytes(flipped)
            assert cache.get(KEY) is None, place

    def test_something_appended_is_a_miss(self, cache):
        cache.put(KEY, b"code")
        with entry(cache).open("ab") as file:
            file.write(b"\0")
        assert cache.get(KEY) is None

    def test_a_damaged_entry_is_replaced(self, cache):
        cache.put(KEY, b"code")
        entry(cache).write_bytes(b"garbage")
        cache.put(KEY, b"code")
        assert cache.get(KEY) == b"code"

    @pytest.mark.parametrize("kind", OBSTACLES)
    def test_what_is_no_file_is_a_miss_that_is_noted(self, cache, kind):
        entry(cache).parent.mkdir()
        with OBSTACLES[kind](entry(cache)):
            assert cache.get(KEY) is None
        assert [(one.path, one.reason) for one in cache.misfits] == [(str(entry(cache)), REASONS[kind])]

    @pytest.mark.parametrize("kind", OBSTACLES)
    def test_what_is_no_file_is_replaced_unless_it_is_a_folder(self, cache, kind):
        entry(cache).parent.mkdir()
        with OBSTACLES[kind](entry(cache)):
            cache.put(KEY, b"code")
        replaced = "folder" not in kind
        assert cache.get(KEY) == (b"code" if replaced else None)
        assert len(cache.misfits) == (not replaced)

    def test_a_huge_file_is_a_miss_and_is_not_read(self, cache):
        entry(cache).parent.mkdir()
        with entry(cache).open("wb") as file:
            file.truncate(1 << 40)
        assert cache.get(KEY) is None
        assert "1099511627776 bytes, more than" in cache.misfits[0].reason

    def test_an_entry_that_cannot_be_read_leaks_no_descriptor(self, cache):
        entry(cache).mkdir(parents=True)
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(3):
            assert cache.get(KEY) is None
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def test_a_file_in_place_of_a_folder_is_a_miss_and_stays(self, cache):
        entry(cache).parent.write_bytes(b"somebody's")
        assert cache.get(KEY) is None
        cache.put(KEY, b"code")
        assert entry(cache).parent.read_bytes() == b"somebody's"
        assert "cannot be replaced" in cache.misfits[0].reason

    @settings(deadline=None, max_examples=200)
    @given(st.data())
    def test_whatever_happens_to_an_entry_it_is_itself_or_a_miss(self, tmp_path_factory, data):
        cache = Cache(tmp_path_factory.mktemp("cache"))
        cache.put(KEY, b"some machine code")
        cache.put(OTHER, b"other machine code")
        stored = bytearray(entry(cache).read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            start, end = sorted((data.draw(st.integers(0, len(stored))), data.draw(st.integers(0, len(stored)))))
            stored[start:end] = data.draw(st.binary(max_size=12) | st.just(bytes(stored[start:end])))
        entry(cache).write_bytes(stored)
        assert cache.get(KEY) in {None, b"some machine code"}
        assert cache.get(OTHER) == b"other machine code"


class TestBinding:
    def test_entries_that_changed_places_are_misses(self, cache):
        cache.put(KEY, b"for aligned pointers")
        cache.put(OTHER, b"for any pointer")
        aside = cache.folder / "aside"
        entry(cache).rename(aside)
        entry(cache, OTHER).rename(entry(cache))
        aside.rename(entry(cache, OTHER))
        assert (cache.get(KEY), cache.get(OTHER)) == (None, None)
        assert [one.reason for one in cache.misfits] == [
            f"expected the entry of this key, got that of {key!r}" for key in (OTHER, KEY)
        ]

    def test_an_entry_that_is_linked_under_another_key_is_a_miss(self, cache):
        cache.put(KEY, b"code")
        entry(cache, OTHER).parent.mkdir()
        entry(cache, OTHER).hardlink_to(entry(cache))
        assert cache.get(OTHER) is None
        assert cache.get(KEY) == b"code"

    def test_the_key_cannot_be_changed_where_it_stands(self, cache):
        cache.put(KEY, b"code")
        entry(cache, OTHER).parent.mkdir()
        entry(cache, OTHER).write_bytes(entry(cache).read_bytes().replace(KEY.encode(), OTHER.encode()))
        assert cache.get(OTHER) is None

    def test_an_entry_says_what_it_is(self, cache):
        cache.put(KEY, b"code")
        form, key, checksum, content = entry(cache).read_bytes().split(b"\n")
        assert (form, key, content) == (b"nojit-cache 2", KEY.encode(), b"code")
        assert checksum.decode() == hashlib.sha256(f"{KEY}\ncode".encode()).hexdigest()

    def test_an_entry_of_another_format_is_a_miss(self, cache):
        cache.put(KEY, b"code")
        entry(cache).write_bytes(entry(cache).read_bytes().replace(b"cache 2", b"cache 3"))
        assert cache.get(KEY) is None


class TestPermissions:
    def test_only_the_owner_may_look(self, cache):
        old = os.umask(0)
        try:
            cache = Cache(cache.folder / "inner")
            cache.put(KEY, b"code")
        finally:
            os.umask(old)
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (cache.folder, entry(cache).parent, entry(cache))}
        assert list(modes.values()) == [0o700, 0o700, 0o600]

    def test_a_symbolic_link_for_a_folder_is_refused(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        with pytest.raises(PackageError, match=r"expected a cache folder, got a symbolic link - at .*/link"):
            Cache(tmp_path / "link")

    def test_a_dangling_link_too(self, tmp_path):
        (tmp_path / "link").symlink_to(tmp_path / "nowhere")
        with pytest.raises(PackageError, match="expected a cache folder"):
            Cache(tmp_path / "link")
        assert not (tmp_path / "nowhere").exists()

    def test_a_dangling_link_on_the_way_is_named(self, tmp_path):
        (tmp_path / "home").symlink_to(tmp_path / "absent")
        what = f"expected a cache folder, got a dangling symbolic link, {tmp_path}/home - at {tmp_path}/home/nojit"
        with pytest.raises(PackageError, match=re.escape(what)):
            Cache(tmp_path / "home/nojit")

    def test_a_symbolic_link_for_an_entry_is_not_followed(self, cache):
        cache.put(KEY, b"code")
        entry(cache).rename(cache.folder / "elsewhere")
        entry(cache).symlink_to(cache.folder / "elsewhere")
        assert cache.get(KEY) is None
        assert cache.misfits[0].reason == "a symbolic link, not a regular file"

    def test_a_put_replaces_the_link_and_not_what_it_points_at(self, cache):
        cache.put(OTHER, b"other")
        entry(cache).parent.mkdir()
        entry(cache).symlink_to(entry(cache, OTHER))
        cache.put(KEY, b"code")
        assert not entry(cache).is_symlink()
        assert (cache.get(KEY), cache.get(OTHER)) == (b"code", b"other")

    def test_a_folder_of_another_user_is_refused(self, tmp_path, monkeypatch):
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        with pytest.raises(
            PackageError, match=rf"expected a cache folder of user {me + 1}, got one of user {me} - at "
        ):
            Cache(tmp_path)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
    def test_a_folder_that_was_given_away_is_refused(self, tmp_path):
        folder = tmp_path / "cache"
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
        with pytest.raises(PackageError, match=f"got one of user {NOBODY}"):
            Cache(folder)

    @pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
    def test_a_folder_that_others_can_write_is_refused(self, tmp_path, mode):
        folder = tmp_path / "cache"
        folder.mkdir()
        folder.chmod(mode)
        with pytest.raises(PackageError, match=f"only its user can write, got mode {mode:o}"):
            Cache(folder)

    def test_a_file_for_a_folder_is_refused(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(PackageError, match="expected a cache folder, got a file, or a path through one - at "):
            Cache(tmp_path / "file")
        with pytest.raises(PackageError, match="expected a cache folder, got a file, or a path through one - at "):
            Cache(tmp_path / "file/cache")

    @pytest.mark.parametrize("mode", [0o500, 0o300, 0o600, 0])
    def test_a_folder_that_cannot_be_used_is_refused(self, public_folder, mode):
        said = unprivileged("Cache(Path(sys.argv[1]))", public_folder, mode)
        what = f"expected a cache folder to read and write, got no permission - at {public_folder}"
        assert said == f"PackageError {what}; choose another folder with --cache-dir"

    def test_an_entry_that_may_not_be_read_is_a_miss_and_is_replaced(self, public_folder):
        code = "c = Cache(Path(sys.argv[1])); c.put(KEY, b'x'); next(c.folder.rglob('a' * 62)).chmod(0); "
        code += "print(c.get(KEY), c.misfits[0].reason, end='; '); c.put(KEY, b'y'); print(c.get(KEY))"
        assert unprivileged(code, public_folder, 0o700) == "None Permission denied; b'y'"


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder whose parents everyone may enter, as pytest's own may not."""
    with tempfile.TemporaryDirectory() as outer:
        Path(outer).chmod(0o755)
        folder = Path(outer) / "cache"
        folder.mkdir()
        yield folder
        folder.chmod(0o700)


def unprivileged(code: str, folder: Path, mode: int) -> str:
    """Run `code` as a user that permissions hold for, the owner of `folder`; return the error that it ended with."""
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    folder.chmod(mode)
    script = textwrap.dedent(f"""
        import os, sys
        from pathlib import Path
        from nojit.aot.cache.cache import Cache
        KEY = "a" * 64
        # after the imports, which only root may be able to read
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
            os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
        try:
            {code}
        except Exception as error:
            print(type(error).__name__, error)
    """)
    return subprocess.check_output([sys.executable, "-c", script, folder], text=True).strip()


@contextlib.contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """Fail every write past `limit_bytes`, as a full disk would; Python ignores the signal that comes with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestFullDisk:
    def test_leaves_nothing_and_says_so(self, cache):
        with (
            file_size_limit(1000),
            pytest.raises(PackageError, match=r"expected to write a cache entry, got .*too large"),
        ):
            cache.put(KEY, bytes(5000))
        assert files(cache) == []
        assert cache.get(KEY) is None

    def test_leaves_the_entry_that_was_there(self, cache):
        cache.put(KEY, b"old")
        with file_size_limit(1000), pytest.raises(PackageError):
            cache.put(KEY, bytes(5000))
        assert files(cache) == [entry(cache)]
        assert cache.get(KEY) == b"old"

    def test_a_rename_that_fails_leaves_nothing(self, cache, monkeypatch):
        def fail(self: Path, target: Path) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", fail)
        with pytest.raises(PackageError, match="No space left on device"):
            cache.put(KEY, b"code")
        assert files(cache) == []

    def test_an_interrupt_leaves_nothing(self, cache, monkeypatch):
        def interrupt(self: Path, target: Path) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cache.put(KEY, b"code")
        assert files(cache) == []


def test_a_hundred_processes_share_one_key(tmp_path):
    """Each stores its own data under the one key and reads: no error, and always somebody's data, whole."""
    script = textwrap.dedent("""
        import os, signal, sys
        from pathlib import Path
        from nojit.aot.cache.cache import Cache

        def work(number):
            cache = Cache(Path(sys.argv[1]))
            for _ in range(5):
                cache.put("a" * 64, bytes([number]) * 20_000)
                data = cache.get("a" * 64)
                if len(data) != 20_000 or len(set(data)) != 1:
                    return 1
            return 0

        children = []
        for number in range(100):
            if (pid := os.fork()) == 0:
                signal.alarm(60)
                code = 2
                try:
                    code = work(number)
                finally:
                    os._exit(code)
            children.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        sys.exit(f"exit codes {codes}" if any(codes) else 0)
    """)
    folder = tmp_path / "new" / "cache"
    subprocess.run([sys.executable, "-c", script, folder], cwd=ROOT, check=True, timeout=600)
    assert len(files(Cache(folder))) == 1


def test_a_cleaner_beside_them_fails_no_builder(tmp_path):
    """Builders store and read while somebody takes away, as fast as that goes, whatever is there, the cache's own folder too."""
    script = textwrap.dedent("""
        import os, shutil, signal, sys
        from pathlib import Path
        from nojit.aot.cache.cache import Cache

        folder = Path(sys.argv[1])

        def build(number):
            cache = Cache(folder)
            for turn in range(60):
                key = f"{turn % 3:064x}"
                data = bytes([number]) * 2_000
                cache.put(key, data)
                found = cache.get(key)
                if found is not None and (len(found), len(set(found))) != (2_000, 1):
                    return 1
            return 1 if cache.misfits else 0

        def clean():
            while True:
                for root, folders, files in os.walk(folder, topdown=False):
                    for name in files:
                        try: os.unlink(os.path.join(root, name))
                        except OSError: pass
                    try: os.rmdir(root)
                    except OSError: pass

        def child(work, *args):
            if (pid := os.fork()) == 0:
                signal.alarm(60)
                code = 2
                try:
                    code = work(*args)
                finally:
                    os._exit(code)
            return pid

        cleaner = child(clean)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in [child(build, n) for n in range(8)]]
        os.kill(cleaner, signal.SIGKILL)
        sys.exit(f"exit codes {codes}" if any(codes) else 0)
    """)
    subprocess.run([sys.executable, "-c", script, tmp_path / "new" / "cache"], cwd=ROOT, check=True, timeout=600)


class TestDefaultFolder:
    def test_is_chosen_by_the_environment(self, monkeypatch):
        monkeypatch.setenv("NOJIT_CACHE_DIR", "/here")
        assert default_cache_folder() == Path("/here")

    def test_else_in_the_users_cache_folder(self, monkeypatch):
        monkeypatch.delenv("NOJIT_CACHE_DIR", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
        assert default_cache_folder() == Path("/cache/nojit")
        monkeypatch.setenv("XDG_CACHE_HOME", "")
        monkeypatch.setenv("HOME", "/home/someone")
        assert default_cache_folder() == Path("/home/someone/.cache/nojit")

    def test_is_not_made_by_asking(self, monkeypatch, tmp_path):
        monkeypatch.setenv("NOJIT_CACHE_DIR", str(tmp_path / "cache"))
        assert not default_cache_folder().exists()
