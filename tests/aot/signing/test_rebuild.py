"""Bundles that come out of their sources again, and such that do not, with the reason."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.cache.cache import Cache
from nojit.aot.pipeline.build import build
from nojit.aot.pipeline.debug_twins import FOLDER, twin_plans
from nojit.aot.plan.planner import make_plans
from nojit.aot.provenance.statement import Statement, open_signed, statement_path
from nojit.aot.provenance.write_statement import attest
from nojit.aot.signing.rebuild import rebuild
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import BundleIntegrityError, CompileError, PackageError
from nojit.runtime.trust.envelope import signed_path

from tests.aot.cli.conftest import MANIFEST, demo_compiler
from tests.aot.provenance.test_write_statement import FILE, INVOCATION
from tests.support.signing import Signer, envelope


def open_executor() -> AbstractContextManager[Any]:
    return ThreadPoolExecutor(1)


@pytest.fixture
def bundle(write_manifest: Callable[..., Path]) -> Path:
    """A bundle with its statement, whose manifest lies in the folder above."""
    manifest = write_manifest(MANIFEST)
    make(manifest)
    return manifest.parent / "out" / FILE


def make(manifest: Path, *, keep_going: bool = False, **facts: Any) -> None:
    folder = manifest.parent
    compiler = demo_compiler(folder, **facts)
    plans = make_plans([manifest], (), "full", compiler)
    result = build(plans, folder / "out", compiler, Cache(folder / "cache"), open_executor, keep_going=keep_going)
    attest(plans, result.reports, folder / "out", INVOCATION)


def again(bundle: Path, signed: Statement | None = None, **facts: Any) -> None:
    sources = bundle.parent.parent
    with BundleFile(bundle) as file:
        rebuild(file, sources, demo_compiler(sources, **facts), open_executor, signed)


def sign(bundle: Path, **changes: Any) -> Statement:
    """Sign the statement of a bundle, or another one, as `nojit verify --key` finds it then."""
    document = json.loads(statement_path(bundle).read_bytes()) | changes
    place = Path(signed_path(str(bundle)))
    place.write_bytes(envelope(document, Signer.of("release")))
    return open_signed(place.read_bytes(), place)


def test_nothing_outside_the_checkout_is_built(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    place, manifest = statement_path(bundle), tmp_path_factory.mktemp("elsewhere") / "evil.toml"
    statement = json.loads(place.read_text())
    (bundle.parent.parent / "link-evil.toml").symlink_to(manifest)
    for name in (str(manifest), f"../{manifest.parent.name}/{manifest.name}", "link-evil.toml", "\0evil.toml"):
        statement["predicate"]["buildDefinition"]["externalParameters"]["manifests"] = [name]
        place.write_text(json.dumps(statement))
        with pytest.raises(PackageError, match=r"expected manifests inside the checkout.*, got .*evil\.toml"):
            again(bundle)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (("externalParameters", "manifests"), "demo.toml"),
        (("externalParameters", "manifests", 0), 5),
        (("externalParameters", "kernels"), "neg"),
        (("resolvedDependencies", 0, "name"), 5),
        (("resolvedDependencies", 1, "name"), None),
    ],
)
def test_a_statement_of_another_shape_is_refused(bundle: Path, at: tuple[Any, ...], value: object) -> None:
    place = statement_path(bundle)
    statement = json.loads(place.read_text())
    inside = statement["predicate"]["buildDefinition"]
    for field in at[:-1]:
        inside = inside[field]
    inside[at[-1]] = value
    place.write_text(json.dumps(statement))
    with pytest.raises(
        PackageError, match=f"expected a statement that nojit build wrote: build .* again, got .* - at {place}$"
    ):
        again(bundle)


@pytest.mark.parametrize("name", ["\0", "n" * 300, "pipe"])
def test_a_file_that_none_can_be_is_another(bundle: Path, name: str) -> None:
    place, manifest = statement_path(bundle), bundle.parent.parent / "demo.toml"
    os.mkfifo(manifest.with_name("pipe"))
    statement = json.loads(place.read_text())
    statement["predicate"]["buildDefinition"]["resolvedDependencies"].append({"name": name, "digest": {"sha256": ""}})
    place.write_text(json.dumps(statement))
    manifest.write_text(manifest.read_text().replace("BLOCK = 256", "BLOCK = 512"))
    with pytest.raises(BundleIntegrityError, match=rf"got others: demo\.toml, {name}"):
        again(bundle)


def test_a_bundle_comes_out_again(bundle: Path) -> None:
    journal = bundle.parent.parent / "journal"
    journal.unlink()
    again(bundle)
    # nothing was taken from the cache
    assert len(journal.read_text().splitlines()) == 9


def test_another_toolchain_is_named_before_anything_is_compiled(bundle: Path) -> None:
    journal = bundle.parent.parent / "journal"
    journal.unlink()
    with pytest.raises(BundleIntegrityError, match=r"expected the bundle's toolchain: fake 1\.0, .*, got fake 2\.0"):
        again(bundle, version="2.0")
    assert not journal.exists()


def test_a_changed_manifest_is_named(bundle: Path) -> None:
    manifest = bundle.parent.parent / "demo.toml"
    manifest.write_text(manifest.read_text().replace("BLOCK = 256", "BLOCK = 512"))
    with pytest.raises(BundleIntegrityError, match=r"got others: demo\.toml"):
        again(bundle)


def test_a_manifest_whose_words_alone_changed_builds_the_same(bundle: Path) -> None:
    manifest = bundle.parent.parent / "demo.toml"
    manifest.write_text(f"# a comment\n{manifest.read_text()}")
    again(bundle)


def test_other_images_under_equal_inputs_are_found(bundle: Path) -> None:
    with pytest.raises(BundleIntegrityError, match=r"expected the rebuild to give bundle [0-9a-f]{12}, got bundle"):
        again(bundle, same_image=True)


def test_what_fails_to_build_is_no_rebuild(bundle: Path) -> None:
    with pytest.raises(CompileError, match="a fake failure"):
        again(bundle, mishaps={"neg": "fail"})


def test_a_bundle_without_some_variants_comes_out_without_them(bundle: Path) -> None:
    manifest = bundle.parent.parent / "demo.toml"
    folder = manifest.parent
    facts: dict[str, Any] = {"mishaps": {"neg": "fail"}}
    compiler = demo_compiler(folder, **facts)
    plans = make_plans([manifest], (), "full", compiler)
    result = build(plans, folder / "part", compiler, Cache(folder / "other"), open_executor, keep_going=True)
    attest(plans, result.reports, folder / "part", replace(INVOCATION, keep_going=True))
    again(folder / "part" / FILE, **facts)
    with pytest.raises(BundleIntegrityError):
        again(folder / "part" / FILE)


def test_from_elsewhere_the_option_is_named_that_says_where(bundle: Path) -> None:
    (bundle.parent.parent / "demo.toml").unlink()
    words = r"expected the checkout that the bundle was built from; --sources names its root, got no demo\.toml - at /"
    with pytest.raises(PackageError, match=words):
        again(bundle)


def test_the_statement_must_be_the_bundles(bundle: Path) -> None:
    place = statement_path(bundle)
    statement = json.loads(place.read_bytes())
    statement["subject"][0]["digest"]["nojitIndex"] = "0" * 64
    place.write_text(json.dumps(statement))
    with pytest.raises(
        PackageError, match=r"expected the provenance statement of bundle [0-9a-f]{12}; copy .*, got that of 000"
    ):
        again(bundle)
    place.unlink()
    with pytest.raises(PackageError, match="which nojit build writes"):
        again(bundle)


@pytest.mark.parametrize("there", [True, False])
def test_what_was_signed_is_built_again(bundle: Path, there: bool) -> None:
    signed = sign(bundle)
    if not there:
        # as in a wheel
        statement_path(bundle).unlink()
    again(bundle, signed)
    (bundle.parent.parent / "demo.toml").unlink()
    with pytest.raises(PackageError, match="--sources names its root"):
        again(bundle, signed)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("manifests", ["another.toml"], "manifests"), ("kernels", ["neg"], "kernels"), ("tuned", False, "tuned")],
)
def test_a_statement_that_says_other_than_what_was_signed_is_refused(
    bundle: Path, field: str, value: object, said: str
) -> None:
    signed, place = sign(bundle), statement_path(bundle)
    statement = json.loads(place.read_bytes())
    statement["predicate"]["buildDefinition"]["externalParameters"][field] = value
    # what no recipe is of may differ
    statement["predicate"]["buildDefinition"]["internalParameters"]["buildNumber"] = 7
    place.write_text(json.dumps(statement))
    words = rf"expected a statement that agrees with the signed one, or none; delete it or copy it again, got one with other {said} - at .*provenance\.json$"
    with pytest.raises(PackageError, match=words):
        again(bundle, signed)


def test_what_was_signed_must_say_what_to_build(bundle: Path) -> None:
    with pytest.raises(
        PackageError, match=r"expected a statement that nojit build wrote: .*, got .* - at .*intoto\.jsonl$"
    ):
        again(bundle, sign(bundle, predicate={}))
    other = [{"name": bundle.name, "digest": {"nojitIndex": "0" * 64}}]
    with pytest.raises(PackageError, match=r"got that of 0{12} - at .*intoto\.jsonl$"):
        again(bundle, sign(bundle, subject=other))


def test_manifests_of_another_bundle_are_refused(bundle: Path) -> None:
    manifest = bundle.parent.parent / "demo.toml"
    manifest.write_text(manifest.read_text().replace('name = "demo"', 'name = "another"'))
    with pytest.raises(
        PackageError, match=r"expected the manifests of bundle demo: .* --sources, got those of another"
    ):
        again(bundle)


def test_a_twin_comes_out_again_until_lines_move(bundle: Path) -> None:
    sources = bundle.parent.parent
    compiler, out = demo_compiler(sources), bundle.parent
    plans = make_plans([sources / "demo.toml"], (), "full", compiler)
    cache = Cache(sources / "cache")
    twins = twin_plans(plans, build(plans, out, compiler, cache, open_executor), out)
    result = build(twins, out / FOLDER, compiler, cache, open_executor)
    attest(twins, result.reports, out / FOLDER, INVOCATION)
    twin = out / FOLDER / twins[0].file_name
    with BundleFile(twin) as file:
        rebuild(file, sources, compiler, open_executor)
        with pytest.raises(BundleIntegrityError, match="in which 9 of"):
            rebuild(file, sources, demo_compiler(sources, first_line=9), open_executor)
