"""`nojit build --cache`: what a second machine gets, what the report says, and which options are mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.aot.cli.conftest import Run
from tests.aot.fake_compiler import FakeCompiler
from tests.aot.projects import Project, entry

Use = Callable[..., FakeCompiler]
Document = Callable[..., dict[str, Any]]
BUNDLE = "demo-1.0-sm_90.nojit"


@pytest.fixture
def words(manifest: Path, tmp_path: Path) -> Callable[[str], tuple[object, ...]]:
    """The command line of a build on a machine with an empty local cache."""

    def make(machine: str) -> tuple[object, ...]:
        folder = tmp_path / machine
        return "build", manifest, "--out", folder / "out", "-j", 1, "--cache-dir", folder / "cache"

    return make


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOJIT_CACHE", "NOJIT_CACHE_READONLY", "NOJIT_CACHE_SIGN", "NOJIT_CACHE_TRUST"):
        monkeypatch.delenv(name, raising=False)


Words = Callable[[str], tuple[object, ...]]


def test_a_second_machine_compiles_nothing_and_says_so(
    run: Run, use_compiler: Use, words: Words, tmp_path: Path
) -> None:
    compiler = use_compiler()
    url = f"file://{tmp_path}/place"
    first = run(*words("first"), "--cache", url)
    assert first.exit_code == 0, first.output
    assert first.stdout.splitlines()[-1].endswith("; cache: 0 local, 0 shared, 9 missed (0% hits), 9 put, 0 refused")
    second = run(*words("second"), "--cache", url)
    assert second.stdout.splitlines()[-1].endswith("; cache: 0 local, 9 shared, 0 missed (100% hits), 0 put, 0 refused")
    assert "9 variants (9 cached)" in second.stdout
    assert len(compiler.compiled()) == 9
    assert (tmp_path / "second/out" / BUNDLE).read_bytes() == (tmp_path / "first/out" / BUNDLE).read_bytes()


def test_the_document_counts(document: Document, use_compiler: Use, words: Words, tmp_path: Path) -> None:
    use_compiler()
    url = f"file://{tmp_path}/place"
    assert document(*words("first"), "--cache", url)["cache"] == {
        "url": url,
        "local_hits": 0,
        "shared_hits": 0,
        "misses": 9,
        "puts": 9,
        "refused": 0,
        "faults": 0,
    }
    for path in (tmp_path / "place").glob("??/*"):
        path.write_bytes(path.read_bytes()[:-1])
        break
    second = document(*words("second"), "--cache", url)
    assert second["cache"] | {"url": ""} == {
        "url": "",
        "local_hits": 0,
        "shared_hits": 8,
        "misses": 1,
        "puts": 1,
        "refused": 1,
        "faults": 0,
    }
    (misfit,) = second["cache_misfits"]
    assert misfit["path"].startswith(f"{url}/")
    assert document(*words("third"))["cache"]["misses"] == 9


def test_the_environment_names_the_cache(
    run: Run, use_compiler: Use, words: Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_compiler()
    monkeypatch.setenv("NOJIT_CACHE", f"file://{tmp_path}/place")
    run(*words("first"))
    monkeypatch.setenv("NOJIT_CACHE_READONLY", "1")
    second = run(*words("second"))
    assert "9 shared" in second.stdout
    monkeypatch.setenv("NOJIT_CACHE", f"file://{tmp_path}/empty")
    assert run(*words("third")).exit_code == 0
    assert not (tmp_path / "empty").exists()
    monkeypatch.setenv("NOJIT_CACHE", "")
    assert "cache:" not in run(*words("fourth")).stdout


def test_trusted_builds_take_only_what_the_key_signed(
    run: Run, use_compiler: Use, words: Words, tmp_path: Path
) -> None:
    pytest.importorskip("securesystemslib")
    compiler = use_compiler()
    url, key = f"file://{tmp_path}/place", tmp_path / "key"
    assert run("sign", "--new-key", key).exit_code == 0
    run(*words("anybody"), "--cache", url)
    options = ("--cache", url, "--cache-trust", f"{key}.pub")
    first = run(*words("first"), *options, "--cache-sign", key)
    assert first.stdout.splitlines()[-1].endswith("9 missed (0% hits), 9 put, 9 refused")
    assert "9 cache entries could not be used: " in first.stderr, first.stderr
    second = run(*words("second"), *options)
    assert second.stdout.splitlines()[-1].endswith("9 shared, 0 missed (100% hits), 0 put, 0 refused")
    assert len(compiler.compiled()) == 18


def test_bundles_of_builds_that_trusted_other_keys_are_built_again(
    run: Run, document: Document, use_compiler: Use, words: Words, tmp_path: Path
) -> None:
    pytest.importorskip("securesystemslib")
    use_compiler()
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    run("sign", "--new-key", ours)
    run("sign", "--new-key", theirs)
    url = ("--cache", f"file://{tmp_path}/place")
    trust = ("--cache-trust", f"{ours}.pub")

    def build(*options: object) -> bool:
        (report,) = document(*words("first"), *url, *options)["bundles"]
        assert bool(report["trusted"]) == bool(options) or report["up_to_date"]
        return bool(report["up_to_date"])

    assert not build()
    assert build()
    assert not build(*trust)
    assert build(*trust)
    # one that trusts more accepts it, one that trusts another key does not
    assert build(*trust, "--cache-trust", f"{theirs}.pub")
    assert not build("--cache-trust", f"{theirs}.pub")
    assert build()


def test_a_place_that_cannot_be_used_is_told_and_not_repeated(
    run: Run, use_compiler: Use, words: Words, tmp_path: Path
) -> None:
    use_compiler()
    (tmp_path / "place").write_bytes(b"a file")
    result = run(*words("first"), "--cache", f"file://{tmp_path}/place")
    assert result.exit_code == 0
    assert result.stderr.count("the shared cache") == 1
    assert "the build goes on" in result.stderr
    assert (tmp_path / "first/out" / BUNDLE).exists()
    assert "the shared cache" not in run(*words("first"), "--cache", f"file://{tmp_path}/place").stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--cache", "bucket"), "expected s3://BUCKET/PREFIX"),
        (("--cache", "s3://me:secret@bucket/x"), "expected a URL without user"),
        (("--cache-readonly",), "expected --cache URL, or NOJIT_CACHE, with --cache-readonly"),
        (("--cache-trust", "key.pub"), "expected --cache URL, or NOJIT_CACHE, with --cache-trust"),
        (("--cache-sign", "key"), "expected --cache URL, or NOJIT_CACHE, with --cache-sign"),
    ],
)
def test_wrong_usage_is_named(run: Run, words: Words, given: tuple[str, ...], message: str) -> None:
    result = run(*words("first"), *given)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "secret" not in result.stderr


def test_wrong_variables_are_named(run: Run, words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOJIT_CACHE", "bucket")
    result = run(*words("first"))
    assert (result.exit_code, "NOJIT_CACHE: expected s3://BUCKET/PREFIX" in result.stderr) == (2, True)
    monkeypatch.setenv("NOJIT_CACHE", "memory://x")
    monkeypatch.setenv("NOJIT_CACHE_READONLY", "yes")
    result = run(*words("first"))
    assert (result.exit_code, "NOJIT_CACHE_READONLY: expected 0 or 1, got 'yes'" in result.stderr) == (2, True)


def test_a_key_that_cannot_be_used_ends_the_build_before_it_compiles(
    run: Run, use_compiler: Use, words: Words, tmp_path: Path
) -> None:
    compiler = use_compiler()
    for option in ("--cache-trust", "--cache-sign"):
        result = run(*words("first"), "--cache", f"file://{tmp_path}/place", option, tmp_path / "none")
        assert result.exit_code != 0
        assert str(tmp_path / "none") in result.stderr
    assert compiler.compiled() == []


def test_help_and_builds_without_a_cache_import_no_fsspec() -> None:
    script = "import sys; from nojit.aot.cli.commands import build; from nojit.aot.cli.building import run_build; "
    script += "print(*[name for name in ('fsspec', 's3fs', 'cryptography') if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == ""


SOURCE = """
import triton
import triton.language as tl

SCALE = tl.constexpr(2.0)


@triton.jit(noinline=True)
def far(x):
    return x * SCALE


@triton.jit
def near(x):
    return tl.exp(far(x))


@triton.jit
def k(out_ptr, V: tl.constexpr):
    tl.store(out_ptr, near(tl.load(out_ptr)) + V)
"""


@pytest.mark.triton
def test_keys_hold_no_path_no_user_and_no_machine(tmp_path: Path) -> None:
    """Two users with checkouts in different folders share every entry: the second build compiles nothing."""
    keys, bundles = [], []
    for user, folder in (("alice", "src/deep/inside"), ("bob", "work")):
        home = tmp_path / user
        one = Project(home / folder).write(a_py=SOURCE)
        (home / "tmp").mkdir()
        facts = {
            "HOME": str(home),
            "USER": user,
            "LOGNAME": user,
            "TMPDIR": str(home / "tmp"),
            "HOSTNAME": f"of-{user}",
        }
        words = ("--cache", f"file://{tmp_path}/place", "--json")
        built = one.build(entry("k", "a.py:k"), words=words, cwd=home, XDG_CACHE_HOME=str(home / "x"), **facts)
        assert built.code == 0, built.stderr
        document = json.loads(built.stdout)
        keys.append([variant["key"] for variant in document["bundles"][0]["variants"]])
        bundles.append((built.out / "demo-1.0-sm_80.nojit").read_bytes())
    assert keys[0] == keys[1]
    assert document["cache"]["shared_hits"] == len(keys[1])
    assert document["cache"]["misses"] == 0
    assert bundles[0] == bundles[1]
    stored = b"".join(path.read_bytes() for path in (tmp_path / "place").rglob("*") if path.is_file())
    assert not any(word in stored for word in (b"alice", b"bob", str(tmp_path).encode()))
