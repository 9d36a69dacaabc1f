"""Every place keeps one contract: whole objects, one creator, no listing that is out of date."""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from nojit.aot.cache.store import Folder, Store
from nojit.aot.cache.store_urls import check_url, open_store
from nojit.runtime.errors import PackageError


class TestEveryPlace:
    def test_gives_back_what_was_written(self, store: Store) -> None:
        store.write("ab/one", b"\0data\xff")
        store.write("ab/empty", b"")
        assert (store.read("ab/one", 100), store.read("ab/empty", 100)) == (b"\0data\xff", b"")

    def test_replaces_an_object(self, store: Store) -> None:
        store.write("ab/one", b"old and long")
        store.write("ab/one", b"new")
        assert store.read("ab/one", 100) == b"new"

    def test_says_that_an_object_is_missing(self, store: Store) -> None:
        with pytest.raises(FileNotFoundError):
            store.read("ab/one", 100)
        store.write("ab/two", b"")
        with pytest.raises(FileNotFoundError):
            store.read("ab/one", 100)

    def test_reads_no_more_than_a_byte_too_many(self, store: Store) -> None:
        store.write("ab/huge", bytes(1000))
        if isinstance(store, Folder):
            with pytest.raises(OSError, match="1000 bytes, more than 10"):
                store.read("ab/huge", 10)
        else:
            assert len(store.read("ab/huge", 10)) == 11

    def test_lets_one_of_many_create_an_object(self, store: Store) -> None:
        won: list[int] = []
        start = threading.Barrier(8)

        def create(number: int) -> None:
            start.wait()
            if store.create("claims/one", str(number).encode()):
                won.append(number)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert store.read("claims/one", 100) == str(won[0]).encode()

    def test_creates_an_object_again_after_its_end(self, store: Store) -> None:
        assert store.create("claims/one", b"1")
        store.delete("claims/one")
        assert store.create("claims/one", b"2")
        assert store.read("claims/one", 9) == b"2"

    def test_deletes_what_is_missing_without_an_error(self, store: Store) -> None:
        store.delete("claims/one")
        store.write("claims/two", b"")
        store.delete("claims/one")
        assert [each.name for each in store.list()] == ["claims/two"]

    def test_lists_objects_as_they_are_now(self, store: Store) -> None:
        assert list(store.list()) == []
        assert list(store.list("claims")) == []
        store.write("ab/one", b"12345")
        assert [each.name for each in store.list()] == ["ab/one"]
        store.write("claims/two", b"1")
        listed = sorted(store.list())
        assert [(each.name, each.size_bytes) for each in listed] == [("ab/one", 5), ("claims/two", 1)]
        assert [each.name for each in store.list("claims")] == ["claims/two"]
        assert all(each.written_s > 1.7e9 for each in listed)


class TestFolder:
    def test_others_may_use_a_shared_one_as_far_as_the_umask_allows(self, tmp_path: Path) -> None:
        old = os.umask(0o002)
        try:
            Folder(tmp_path / "place").write("ab/one", b"")
            Folder(tmp_path / "place").create("claims/one", b"")
        finally:
            os.umask(old)
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "place").rglob("*")}
        assert {mode for path, mode in modes.items() if path.is_file()} == {0o664}
        assert {mode for path, mode in modes.items() if path.is_dir()} == {0o775}

    def test_leaves_nothing_else_behind(self, tmp_path: Path) -> None:
        place = Folder(tmp_path / "place")
        place.write("ab/one", b"1")
        assert place.create("claims/one", b"1")
        assert not place.create("claims/one", b"1")
        assert sorted(path.name for path in place.path.rglob("*") if path.is_file()) == ["one", "one"]

    def test_follows_no_link_to_an_object(self, tmp_path: Path) -> None:
        place = Folder(tmp_path / "place")
        place.write("ab/one", b"1")
        (place.path / "ab/two").symlink_to(place.path / "ab/one")
        with pytest.raises(OSError, match="a symbolic link"):
            place.read("ab/two", 9)
        assert [each.name for each in place.list()] == ["ab/one"]


class TestUrls:
    @pytest.mark.parametrize(
        "url", ["s3://bucket/prefix/", "s3://bucket", "gs://bucket//a:b", "file:///mnt/my cache/", "memory://name"]
    )
    def test_are_taken_without_a_final_slash(self, url: str) -> None:
        assert check_url(url) == url.rstrip("/")

    @pytest.mark.parametrize(
        "url",
        [
            "bucket",
            "/mnt/cache",
            "s3://",
            "file://",
            "file:///",
            "file://host/share",
            "ftp://host/x",
            "s3:bucket",
            "http://[",
        ],
    )
    def test_of_other_forms_are_refused_with_the_forms_that_are_taken(self, url: str) -> None:
        with pytest.raises(
            ValueError, match=r"expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, file:///FOLDER or memory"
        ):
            check_url(url)

    @pytest.mark.parametrize(
        "url",
        [
            "s3://me:secret@bucket/x",
            "s3://me@bucket/secret",
            "s3://AKIA:abc/def+secret@bucket/x",
            "s3://AKIA:secret",
            "s3://bucket/x@secret",
            "s3://bucket/x?token=secret",
            "s3://bucket/x?",
            "s3://bucket/x#secret",
            "s3://bucket/x::file:///secret",
            "https://me:p/secret@host",
            "file:///secret\nx",
            "s3://bucket/\x1b[2Jsecret",
            "//AKIA:secret@bucket",
        ],
    )
    def test_hold_no_password_and_no_query(self, url: str) -> None:
        with pytest.raises(ValueError, match="expected a URL without user, password, query and fragment") as caught:
            check_url(url)
        assert not {"secret", "AKIA", "def", "me", "token"} & set(re.findall(r"\w+", str(caught.value)))

    @pytest.mark.parametrize(
        ("url", "given"),
        [("ftp://host/secret", "one that starts with ftp://"), ("AKIA:secret", "one without a scheme")],
    )
    def test_that_are_refused_are_not_printed(self, url: str, given: str) -> None:
        with pytest.raises(ValueError, match="expected") as caught:
            check_url(url)
        assert str(caught.value).endswith(f", got {given}")

    def test_of_a_library_that_is_missing_say_how_to_install_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("nojit.aot.cache.store_urls.find_spec", lambda _name: None)
        with pytest.raises(
            PackageError, match=r"expected gcsfs to be installed, for gs://.*; pip install 'nojit\[farm\]'"
        ):
            open_store("gs://bucket/x", 1.0)


def test_a_missing_bucket_is_no_miss(new_url: Callable[[str], str]) -> None:
    new_url("s3")
    with pytest.raises(OSError, match="bucket does not exist") as caught:
        open_store("s3://no-such-bucket/x", 20.0).read("ab/one", 9)
    assert not isinstance(caught.value, FileNotFoundError)
