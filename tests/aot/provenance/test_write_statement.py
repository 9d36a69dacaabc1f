"""What stands in the statement beside a bundle, and what never stands in the bundle."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.cache.cache import Cache
from nojit.aot.pipeline.build import BuildResult, build
from nojit.aot.plan.plan import Plan
from nojit.aot.plan.planner import make_plans
from nojit.aot.provenance.checkout import read_checkout
from nojit.aot.provenance.statement import read_statement, statement_path
from nojit.aot.provenance.write_statement import LOCAL_BUILDER, Invocation, attest
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import PackageError

from tests.aot.cli.conftest import MANIFEST, demo_compiler
from tests.aot.projects import KERNEL, Project, entry

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
INVOCATION = Invocation(
    tuned=True,
    keep_going=False,
    min_driver=None,
    build_number=7,
    builder="https://builder.example/1",
    started=NOW,
    finished=NOW,
)
FILE = "demo-1.0-sm_90.nojit"
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="asks git")


@pytest.fixture
def manifest(write_manifest: Callable[..., Path]) -> Path:
    return write_manifest(MANIFEST)


def built(
    manifest: Path, profile: str = "full", kernels: tuple[str, ...] = (), **facts: Any
) -> tuple[list[Plan], BuildResult, Path]:
    folder = manifest.parent
    compiler = demo_compiler(folder, **facts)
    plans = make_plans([manifest], (), profile, compiler, kernels)
    cache = Cache(folder / "cache")
    return plans, build(plans, folder / "out", compiler, cache, lambda: ThreadPoolExecutor(1)), folder / "out"


def attested(
    manifest: Path,
    profile: str = "full",
    kernels: tuple[str, ...] = (),
    reached: tuple[tuple[str, str], ...] = (),
    **changes: Any,
) -> dict[str, Any]:
    plans, result, out = built(manifest, profile, kernels, reached=reached)
    attest(plans, result.reports, out, replace(INVOCATION, **changes))
    document: dict[str, Any] = json.loads(statement_path(out / FILE).read_bytes())
    return document


def test_a_statement_pins_its_bundle(manifest: Path) -> None:
    statement = attested(manifest)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    path = manifest.parent / "out" / FILE
    with BundleFile(path) as bundle:
        digests = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "nojitIndex": bundle.digest}
    assert statement["subject"] == [{"name": FILE, "digest": digests}]


def test_a_statement_says_how_it_was_built(manifest: Path) -> None:
    predicate = attested(manifest, profile="core", kernels=("add",), keep_going=True, min_driver=12040)["predicate"]
    assert predicate["buildDefinition"]["externalParameters"] == {
        "bundle": {"name": "demo", "version": "1.0"},
        "arch": "sm_90",
        "manifests": ["demo.toml"],
        "profile": "core",
        "kernels": ["add"],
        "tuning": False,
        "tuned": True,
        "keepGoing": True,
        "minDriver": "12.4",
        "lineInfo": False,
    }
    assert predicate["buildDefinition"]["internalParameters"] == {"buildNumber": 7, "failures": 0}
    assert predicate["runDetails"]["builder"]["id"] == "https://builder.example/1"
    assert set(predicate["runDetails"]["builder"]["version"]) == {"nojit", "python"}
    assert predicate["runDetails"]["metadata"] == dict.fromkeys(("startedOn", "finishedOn"), "2026-01-02T03:04:05Z")


def test_a_statement_lists_what_went_in(manifest: Path) -> None:
    listed = attested(manifest)["predicate"]["buildDefinition"]["resolvedDependencies"]
    found = {each["name"]: each for each in listed}
    assert found["demo.toml"]["digest"]["sha256"] == hashlib.sha256(manifest.read_bytes()).hexdigest()
    assert found["add"]["annotations"] == {"source": "demo:add_kernel"}
    assert len(found["neg"]["digest"]["nojitSource"]) == 64
    assert found["fake"]["uri"] == "pkg:generic/fake@1.0"
    assert found["zstandard"]["uri"].startswith("pkg:pypi/zstandard@")


def test_no_path_of_the_machine_is_written_down(manifest: Path) -> None:
    assert str(manifest.parent) not in json.dumps(attested(manifest))


def test_a_bundle_holds_nothing_of_its_statement(manifest: Path) -> None:
    attested(manifest)
    path = manifest.parent / "out" / FILE
    before = path.read_bytes()
    path.unlink()
    attested(manifest, build_number=8, builder="https://another.example", started=datetime.now(UTC))
    assert path.read_bytes() == before


def test_a_statement_that_stands_is_left_alone(manifest: Path) -> None:
    first = attested(manifest)
    later = datetime(2027, 1, 1, tzinfo=UTC)
    assert attested(manifest, finished=later) == first
    assert attested(manifest, finished=later, build_number=8) != first


def test_what_is_not_asked_for_stays_as_it_was_said(manifest: Path) -> None:
    def said(**asked: Any) -> tuple[int, str]:
        predicate = attested(manifest, **asked)["predicate"]
        number = predicate["buildDefinition"]["internalParameters"]["buildNumber"]
        return number, predicate["runDetails"]["builder"]["id"]

    assert said(build_number=None, builder=None) == (0, LOCAL_BUILDER)
    assert said(build_number=41, builder="https://ci.example") == (41, "https://ci.example")
    assert said(build_number=None, builder=None) == (41, "https://ci.example")
    assert said(build_number=None, builder="https://other.example") == (41, "https://other.example")
    # other bytes are another build, of whoever built them, and of no earlier release
    (manifest.parent / "out" / FILE).unlink()
    assert said(build_number=None, builder=None) == (41, LOCAL_BUILDER)
    assert said(build_number=7, builder=None) == (7, LOCAL_BUILDER)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"subject": [{"digest": 1}]}'])
def test_a_damaged_statement_is_written_anew(manifest: Path, content: bytes) -> None:
    first = attested(manifest)
    statement_path(manifest.parent / "out" / FILE).write_bytes(content)
    assert attested(manifest) == first


def test_a_failed_build_has_no_statement(manifest: Path) -> None:
    plans, result, out = built(manifest, mishaps={"neg": "fail"})
    assert attest(plans, result.reports, out, INVOCATION) == []
    assert list(out.glob("*.provenance.json")) == []


# -- the checkout ----------------------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", "-C", folder, *identity, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(manifest: Path) -> Path:
    root = manifest.parent
    (root / ".gitignore").write_text("out/\ncache/\njournal\n")
    git(root, "init", "-q")
    git(root, "add", ".gitignore", "demo.toml")
    git(root, "commit", "-q", "-m", "first")
    return root


@needs_git
def test_a_checkout_is_clean_or_dirty(repository: Path) -> None:
    clean = read_checkout(repository)
    assert clean is not None
    assert (clean.commit, clean.dirty) == (git(repository, "rev-parse", "HEAD"), False)
    (repository / "new.py").touch()
    untracked = read_checkout(repository)
    assert untracked is not None
    assert untracked.dirty
    (repository / "new.py").unlink()
    (repository / "demo.toml").write_text("changed")
    changed = read_checkout(repository)
    assert changed is not None
    assert changed.dirty


@needs_git
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://user:secret@git.example/a/b.git", "git+https://git.example/a/b.git"),
        ("https://git.example:8443/a.git?token=secret", "git+https://git.example:8443/a.git"),
        ("git@git.example:a/b.git", "git+ssh://git.example/a/b.git"),
        ("ssh://git@git.example/a.git", "git+ssh://git.example/a.git"),
        ("/srv/secret/a.git", ""),
        ("file:///srv/secret/a.git", ""),
        ("https://[broken", ""),
        ("https://git.example:port/a.git", ""),
    ],
)
def test_a_remote_is_named_without_secrets(repository: Path, url: str, said: str) -> None:
    git(repository, "remote", "add", "origin", url)
    checkout = read_checkout(repository)
    assert checkout is not None
    assert checkout.uri == said


@needs_git
def test_a_statement_names_the_commit_and_paths_from_its_root(repository: Path) -> None:
    inner = repository / "kernels"
    inner.mkdir()
    shutil.move(repository / "demo.toml", inner / "demo.toml")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "second")
    (inner / "out").mkdir()
    statement = attested(inner / "demo.toml")
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["manifests"] == ["kernels/demo.toml"]
    source = definition["resolvedDependencies"][0]
    assert source["digest"] == {"gitCommit": git(repository, "rev-parse", "HEAD")}
    assert source["annotations"] == {"dirty": False}


def test_without_git_there_is_no_checkout(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(manifest.parent))
    assert read_checkout(manifest.parent) is None
    definition = attested(manifest)["predicate"]["buildDefinition"]
    assert "source" not in {each["name"] for each in definition["resolvedDependencies"]}


# -- reading them ----------------------------------------------------------------------------------------------------


def test_a_statement_is_read_back(manifest: Path) -> None:
    attested(manifest)
    statement = read_statement(statement_path(manifest.parent / "out" / FILE))
    recipe = statement.recipe()
    assert (recipe.name, recipe.arch, recipe.manifests, recipe.profile) == ("demo", "sm_90", ("demo.toml",), "full")
    assert set(recipe.kernel_sources) == {"add", "neg"}
    assert set(recipe.files) == {"demo.toml"}
    assert json.loads(statement.canonical()) == statement.document


def test_what_is_no_statement_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.provenance.json"
    with pytest.raises(PackageError, match="expected the bundle's provenance statement, which nojit build writes"):
        read_statement(path)
    path.write_text("no JSON")
    with pytest.raises(PackageError, match="expected ASCII JSON"):
        read_statement(path)
    for content in ("[]", "{}", '{"subject": [], "predicate": 1}', '{"subject": [{"digest": {"nojitIndex": 3}}]}'):
        path.write_text(content)
        with pytest.raises(PackageError, match="expected a statement that nojit build wrote"):
            read_statement(path).recipe()


def test_it_is_what_in_toto_and_slsa_say_a_statement_is(manifest: Path) -> None:
    json_format = pytest.importorskip("google.protobuf.json_format")
    provenance = pytest.importorskip("in_toto_attestation.predicates.provenance.v1.provenance_pb2")
    statement_pb2 = pytest.importorskip("in_toto_attestation.v1.statement_pb2")
    statement = pytest.importorskip("in_toto_attestation.v1.statement")
    document = attested(manifest)
    # refuses fields that the schemas do not have
    parsed = json_format.ParseDict(document, statement_pb2.Statement())
    statement.Statement.copy_from_pb(parsed).validate()
    predicate = json_format.ParseDict(document["predicate"], provenance.Provenance())
    assert json_format.MessageToDict(predicate) == document["predicate"]


# a distribution as installers leave it, whose import name is another
METADATA = "Metadata-Version: 2.1\nName: Acme_Tiles\nVersion: 1.2+cu13\n"
RECORD = "acme/__init__.py,,\nacme/tiles.py,,\nAcme_Tiles-1.2+cu13.dist-info/METADATA,,\nAcme_Tiles-1.2+cu13.dist-info/RECORD,,\n"
INSTALLED = {
    "acme/__init__.py": "",
    "acme/tiles.py": "import json\n",
    "Acme_Tiles-1.2+cu13.dist-info/METADATA": METADATA,
    "Acme_Tiles-1.2+cu13.dist-info/RECORD": RECORD,
}
EDITABLE = {
    "loose-3.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: loose\nVersion: 3.0\n",
    "loose-3.0.dist-info/top_level.txt": "loose\n",
    "loose-3.0.dist-info/direct_url.json": '{"url": "file://{folder}", "dir_info": {"editable": true}}',
}


@pytest.mark.triton
def test_a_statement_names_the_distributions_and_files_that_sources_import(
    project: Callable[[], Project], tmp_path: Path
) -> None:
    made, editable = project(), project().write({"loose/__init__.py": "", "loose/more.py": ""})
    site = Project(tmp_path / "site").write(INSTALLED)
    site.write({name: text.replace("{folder}", str(editable.folder)) for name, text in EDITABLE.items()})
    made.write(helper_py="import colorsys, loose.more\n", a_py=f"import acme.tiles, helper, other\n{KERNEL}")
    made.write(other_py="")
    built = made.build(entry("a", "a.py:k"), cwd=made.folder, PYTHONPATH=f"{site.folder}{os.pathsep}{editable.folder}")
    assert built.code == 0, built.stderr
    bundle = built.out / "demo-1.0-sm_80.nojit"
    listed = json.loads(statement_path(bundle).read_bytes())["predicate"]["buildDefinition"]["resolvedDependencies"]
    imported = [each for each in listed if each.get("annotations", {}).get("imported")]
    assert [each for each in imported if "uri" in each] == [
        {"name": name, "uri": uri, "annotations": {"imported": True, "editable": editable}}
        for name, uri, editable in (
            ("acme-tiles", "pkg:pypi/acme-tiles@1.2%2Bcu13", False),
            ("loose", "pkg:pypi/loose@3.0", True),
        )
    ]
    files = {each["name"]: each["digest"] for each in imported if "uri" not in each}
    names = ("a.py", "helper.py", "other.py")
    assert files == {name: {"sha256": hashlib.sha256((made.folder / name).read_bytes()).hexdigest()} for name in names}
    assert str(tmp_path) not in statement_path(bundle).read_text()
    shown = subprocess.run(
        [sys.executable, "-m", "nojit", "inspect", str(bundle)], capture_output=True, text=True, check=True
    )
    assert "acme-tiles 1.2+cu13, loose 3.0 (editable)" in shown.stdout


@pytest.mark.triton
def test_a_module_that_hides_an_installed_one_is_not_of_its_distribution(
    project: Callable[[], Project], tmp_path: Path
) -> None:
    site = Project(tmp_path / "site").write(INSTALLED)
    made = project().write({"acme/__init__.py": "", "acme/tiles.py": ""}, a_py=f"import acme.tiles\n{KERNEL}")
    # the standard library and PYTHONPATH stand before the project: the kernel's own folder before both
    built = made.build(entry("a", "a.py:k"), cwd=made.folder, PYTHONPATH=str(site.folder))
    assert built.code == 0, built.stderr
    facts = read_statement(statement_path(built.out / "demo-1.0-sm_80.nojit")).facts("", signed=False)
    assert facts.distributions == ()
