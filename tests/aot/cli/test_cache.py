"""`nojit cache`: counts, verification and deletion of entries, of the local cache and of a shared one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.aot.cli.conftest import Run
from tests.aot.fake_compiler import FakeCompiler

Document = Callable[..., dict[str, Any]]
DAY_S = 24 * 3600


@pytest.fixture
def place(
    run: Run, use_compiler: Callable[..., FakeCompiler], manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A shared folder with nine entries; the local cache has them, too."""
    # the fake's images are no machine code
    monkeypatch.setattr("nojit.aot.cli.commands.cache.verify.check_entry", lambda _data: None)
    monkeypatch.delenv("NOJIT_CACHE", raising=False)
    use_compiler()
    result = run("build", manifest, "--out", tmp_path / "out", "-j", 1, "--cache", f"file://{tmp_path}/place")
    assert result.exit_code == 0, result.output
    return tmp_path / "place"


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("??/*"))


@pytest.mark.parametrize("words", [("stats",), ("verify",), ("prune", "--older-than", "30d", "--yes")])
class TestPlace:
    def test_of_a_misspelt_name_is_an_error(self, run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
        for named in (("--cache-dir", f"{tmp_path}/mispelt"), (f"file://{tmp_path}/mispelt",)):
            result = run("cache", *words, *named)
            assert result.exit_code == 1
            assert f"expected the folder of a cache, got nothing there - at {named[-1]}" in result.stderr

    def test_has_one_name(self, run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
        result = run("cache", *words, f"file://{tmp_path}", "--cache-dir", tmp_path)
        assert result.exit_code == 2
        assert "expected either a URL or --cache-dir, got both" in result.stderr


class TestStats:
    def test_count_a_shared_cache(self, document: Document, place: Path) -> None:
        (facts,) = document("cache", "stats", f"file://{place}")["places"]
        assert (facts["path"], facts["entries"], facts["claims"]) == (f"file://{place}", 9, 0)
        assert facts["size_bytes"] == sum(path.stat().st_size for path in entries(place))
        assert facts["oldest"] <= facts["newest"]
        assert facts["newest"].endswith("Z")

    def test_count_the_local_cache_and_its_copies(self, document: Document, place: Path, tmp_path: Path) -> None:
        own, copies = document("cache", "stats")["places"]
        assert (own["path"], own["entries"], copies["entries"]) == (str(tmp_path / "cache"), 9, 0)
        assert copies["path"].startswith(str(tmp_path / "cache/shared/"))

    def test_of_an_empty_cache_are_zeros(self, document: Document, tmp_path: Path) -> None:
        # the default folder, which no build has made yet
        (facts,) = document("cache", "stats")["places"]
        assert (facts["entries"], facts["size_bytes"], facts["oldest"]) == (0, 0, "")
        assert not (tmp_path / "cache").exists()

    def test_are_a_table(self, run: Run, place: Path) -> None:
        result = run("cache", "stats", f"file://{place}")
        assert result.exit_code == 0, result.output
        assert result.stdout.split()[:6] == ["entries", "size", "claims", "oldest", "newest", "place"]

    def test_of_a_place_that_cannot_be_read_are_an_error(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        result = run("cache", "stats", f"file://{tmp_path}/file")
        assert result.exit_code == 1
        assert f"expected a cache that can be listed, got Not a directory - at file://{tmp_path}/file" in result.stderr

    def test_of_a_place_that_cannot_be_opened_are_an_error(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_folder: object) -> None:
            raise RuntimeError("no such profile")

        monkeypatch.setattr("nojit.aot.cache.store.Folder.open", fail)
        result = run("cache", "stats", f"file://{tmp_path}")
        assert result.exit_code == 1
        assert f"got no such profile - at file://{tmp_path}; check" in result.stderr


class TestVerify:
    def test_intact_entries_pass(self, document: Document, place: Path) -> None:
        assert document("cache", "verify", f"file://{place}") | {"schema": 0} == {
            "schema": 0,
            "command": "cache verify",
            "ok": True,
            "entries": 9,
            "refused": [],
        }
        assert document("cache", "verify")["entries"] == 9

    def test_each_refused_entry_is_named(self, run: Run, place: Path) -> None:
        first, second, *_ = entries(place)
        content = first.read_bytes()
        first.write_bytes(content[:-1])
        second.write_bytes(content)
        result = run("cache", "verify", f"file://{place}")
        assert result.exit_code == 3
        assert "2 of 9 entries refused" in result.stdout
        assert f"REFUSED file://{first.parent.parent}/{first.parent.name}/{first.name}: damaged" in result.stderr
        assert result.stderr.count("REFUSED") == 2

    def test_an_oversized_entry_is_refused_like_any_other(self, run: Run, place: Path) -> None:
        first, second, *_ = entries(place)
        with first.open("ab") as file:
            file.truncate(1 << 40)
        second.write_bytes(b"")
        result = run("cache", "verify", f"file://{place}")
        assert result.exit_code == 3
        assert "2 of 9 entries refused" in result.stdout
        assert f"{first.parent.name}/{first.name}: expected an entry, got {1 << 40} bytes, more than" in result.stderr

    def test_unsigned_entries_are_refused_where_a_key_is_given(self, run: Run, place: Path, tmp_path: Path) -> None:
        pytest.importorskip("securesystemslib")
        run("sign", "--new-key", tmp_path / "key")
        result = run("cache", "verify", f"file://{place}", "--cache-trust", tmp_path / "key.pub")
        assert result.exit_code == 3
        assert "9 of 9 entries refused" in result.stdout

    def test_local_entries_have_no_signatures(self, run: Run, tmp_path: Path) -> None:
        assert run("cache", "verify", "--cache-trust", tmp_path / "key.pub").exit_code == 2


class TestPrune:
    def test_deletes_entries_of_an_age(self, document: Document, place: Path) -> None:
        for path in entries(place)[:4]:
            os.utime(path, (time.time() - 40 * DAY_S,) * 2)
        kept = entries(place)[4:]
        written = document("cache", "prune", f"file://{place}", "--older-than", "30d", "--yes")
        assert (written["deleted"], written["places"][0]["kept"], len(written["places"][0]["names"])) == (True, 5, 4)
        assert entries(place) == kept

    def test_deletes_the_oldest_until_the_rest_is_small_enough(
        self, document: Document, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for age, path in enumerate(entries(place)):
            path.write_bytes(bytes(200_000))
            os.utime(path, (time.time() - age * 60,) * 2)
        newest = entries(place)[:5]
        document("cache", "prune", f"file://{place}", "--max-size", "1MB", "-y")
        assert entries(place) == newest

    def test_of_the_local_cache_touches_nothing_else(self, document: Document, place: Path, tmp_path: Path) -> None:
        others = {path for path in (tmp_path / "cache").rglob("*") if path.is_file()} - {*entries(tmp_path / "cache")}
        document("cache", "prune", "--max-size", "0MB", "-y")
        assert {path for path in (tmp_path / "cache").rglob("*") if path.is_file()} == others
        assert len(entries(place)) == 9

    def test_deletes_claims_that_were_left_a_day_ago(self, document: Document, place: Path) -> None:
        old, new = place / f"claims/{'a' * 64}.0", place / f"claims/{'b' * 64}.0"
        for path in (old, new):
            path.write_bytes(b"c" * 16)
        os.utime(old, (time.time() - 2 * DAY_S,) * 2)
        document("cache", "prune", f"file://{place}", "--older-than", "30d", "-y")
        assert (old.exists(), new.exists(), len(entries(place))) == (False, True, 9)

    def test_of_a_folder_with_other_objects_leaves_them_alone(self, document: Document, place: Path) -> None:
        heartbeat = "c" * 16
        others = ("builds/release-1.0.tar.gz", f"builds/{heartbeat}.txt", "claims/2024.csv", f"claims/{'A' * 64}.0")
        for name in (*others, f"builds/{heartbeat}", "ab/notes.txt"):
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_bytes(b"")
            os.utime(place / name, (time.time() - 40 * DAY_S,) * 2)
        assert document("cache", "stats", f"file://{place}")["places"][0]["claims"] == 0
        (pruned,) = document("cache", "prune", f"file://{place}", "--older-than", "30d", "-y")["places"]
        assert (pruned["names"], pruned["leftovers"]) == ([], [f"builds/{heartbeat}"])
        assert all((place / name).exists() for name in (*others, "ab/notes.txt"))

    def test_a_dry_run_deletes_nothing(self, run: Run, place: Path) -> None:
        result = run("cache", "prune", f"file://{place}", "--max-size", "0MB", "-n")
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[-1].split()[0] == "9"
        assert len(entries(place)) == 9

    def test_asks_on_a_terminal_only(self, run: Run, place: Path) -> None:
        result = run("cache", "prune", f"file://{place}", "--max-size", "0MB")
        assert result.exit_code == 2
        assert "expected --yes to delete entries" in result.stderr
        assert len(entries(place)) == 9

    @pytest.mark.parametrize(
        "words", [(), ("--older-than", "30"), ("--older-than", "3x"), ("--max-size", "10"), ("--max-size", "1kB")]
    )
    def test_wrong_limits_are_named(self, run: Run, place: Path, words: tuple[str, ...]) -> None:
        result = run("cache", "prune", f"file://{place}", *words, "-y")
        assert result.exit_code == 2
        assert "expected" in result.stderr
        assert len(entries(place)) == 9


def test_images_are_checked_without_their_variants(run: Run, tmp_path: Path) -> None:
    """An entry with a right checksum and another image than its facts describe is refused."""
    from nojit.aot.cache.entry import EntryError
    from nojit.aot.compile.image_checks import check_entry

    for data in (b"", b"{}\n", b"[" * 100_000 + b"\n", b'{"arch":"sm_90"}\nimage', b"\xff"):
        with pytest.raises(EntryError):
            check_entry(data)
