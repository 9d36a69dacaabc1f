"""Twins with line info, loaded instead of the bundles that they belong to; and every other bundle as ever."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from nojit.runtime import loader
from nojit.runtime.discovery.debug_twins import twin_inputs
from nojit.runtime.errors import BundleError, BundleTrustError

from tests.fakecuda import FakeCuda
from tests.support.bundles import Parts, SyntheticKernel, kernel, make_bundle, target
from tests.support.open_files import open_files

ADD = kernel("add", {"n": "i32"})
ONE, TWO = "1" * 64, "2" * 64


def make(path: Path, *kernels: SyntheticKernel, inputs: str = ONE, name: str = "acme", arch: str = "sm_90a") -> Path:
    """Write a bundle that is made of certain inputs."""
    path.parent.mkdir(exist_ok=True)
    parts = Parts.of(*(kernels or (ADD,)), name=name, on=target(arch))
    path.write_bytes(replace(parts, index=replace(parts.index, inputs=inputs)).seal())
    return path


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make(tmp_path / "a.nojit")


@pytest.fixture
def twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = make(tmp_path / "debug" / "a-debug.nojit", inputs=twin_inputs(ONE), name="acme-debug")
    monkeypatch.setenv("NOJIT_DEBUG_INFO", str(path.parent))
    return path


def paths(bundle: loader.Bundle) -> list[str]:
    return [file.path for file in bundle.files]


def test_a_twin_stands_in_for_its_bundle(bundle: Path, twin: Path, fakecuda: FakeCuda) -> None:
    with loader.load(bundle) as opened:
        assert paths(opened) == [str(twin)]
        opened.kernel("add")[(1,)](1)
        assert str(opened.files[0].id) in opened.kernel("add").warmup(1).variant
    assert fakecuda.launch_count() == 1


def test_without_the_variable_nobody_looks(bundle: Path, twin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOJIT_DEBUG_INFO")
    assert paths(loader.load(bundle)) == [str(bundle)]


def test_other_bundles_stay_as_they_are(bundle: Path, twin: Path) -> None:
    other = make(bundle.with_name("b.nojit"), kernel("mul", {"n": "i32"}), inputs=TWO, name="another")
    assert paths(loader.load(bundle.parent)) == [str(twin), str(other)]


def test_what_is_no_twin_is_refused(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOJIT_DEBUG_INFO", str(bundle))
    with pytest.raises(BundleError, match=f"expected a debug twin.*, got bundle acme - at NOJIT_DEBUG_INFO: {bundle}"):
        loader.load(bundle)


def test_files_and_folders_are_named_as_in_path(bundle: Path, twin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = bundle.parent / "more"
    other = make(empty / "b.nojit", inputs=twin_inputs(TWO), name="another-debug")
    monkeypatch.setenv("NOJIT_DEBUG_INFO", os.pathsep.join([str(other), "", str(twin)]))
    assert paths(loader.load(bundle)) == [str(twin)]


def test_the_twin_of_another_build_is_refused(bundle: Path, twin: Path) -> None:
    make(bundle, inputs=TWO)
    with pytest.raises(
        BundleError, match=r"expected a debug twin of bundle \w{12}: nojit build --debug-info=twin, got that"
    ):
        loader.load(bundle)


def test_twins_of_another_arch_are_no_mistake(bundle: Path, twin: Path) -> None:
    on = target("sm_80")
    old = make(bundle.with_name("b.nojit"), kernel("add", {"n": "i32"}, on=on), inputs=TWO, arch="sm_80")
    assert paths(loader.load(bundle.parent)) == [str(twin), str(old)]


def test_a_twin_with_other_kernels_is_refused(bundle: Path, twin: Path) -> None:
    make(twin, kernel("add", {"n": "i32"}, hints=[{"n": 16}]), inputs=twin_inputs(ONE), name="acme-debug")
    with pytest.raises(BundleError, match="expected the kernels of"):
        loader.load(bundle)


def test_two_twins_are_one_too_many(bundle: Path, twin: Path) -> None:
    make(twin.with_name("b.nojit"), inputs=twin_inputs(ONE), name="acme-debug")
    with pytest.raises(
        BundleError, match=r"expected one twin of each bundle; delete one, got .*a-debug\.nojit and .*b\.nojit"
    ):
        loader.load(bundle)


@pytest.mark.parametrize("content", [None, "empty", "file"])
def test_a_place_without_twins_is_refused(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    place = tmp_path / "place"
    if content == "empty":
        place.mkdir()
    elif content == "file":
        place.write_bytes(b"no bundle")
    monkeypatch.setenv("NOJIT_DEBUG_INFO", str(place))
    with pytest.raises(BundleError, match=rf"got [^\[]* - at .*{place}(;|$)"):
        loader.load(bundle)
    assert open_files(tmp_path) == []


@pytest.mark.parametrize("place", ["a.nojit/none", "debug"])
def test_a_twin_that_cannot_be_opened_is_named(
    bundle: Path, twin: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (twin.parent / "z.nojit").symlink_to("none")
    monkeypatch.setenv("NOJIT_DEBUG_INFO", str(bundle.parent / place))
    with pytest.raises(
        BundleError,
        match=r"expected the file of a debug twin: nojit build --debug-info=twin, got N[^\[]* - at NOJIT_DEBUG_INFO: .*/(none|z\.nojit)$",
    ):
        loader.load(bundle)
    assert open_files(bundle.parent) == []


def test_nothing_stays_open_but_what_is_used(bundle: Path, twin: Path) -> None:
    opened = loader.load(bundle)
    assert open_files(bundle.parent) == [str(twin)]
    opened.close()
    assert open_files(bundle.parent) == []


def test_a_twin_is_trusted_by_its_own_statement(bundle: Path, twin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography")
    from nojit.runtime.trust.envelope import signed_path

    from tests.support.signing import Signer, envelope, make_statement, trusted_keys

    signer = Signer.of("release")
    monkeypatch.setenv("NOJIT_TRUST", "signed")
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(trusted_keys(bundle.with_name("trusted.toml"), signer)))
    Path(signed_path(str(bundle))).write_bytes(envelope(make_statement(bundle), signer))
    with pytest.raises(BundleTrustError, match="a-debug") as error:
        loader.load(bundle)
    assert error.value.reason == "unsigned"
    Path(signed_path(str(twin))).write_bytes(envelope(make_statement(twin), signer))
    assert paths(loader.load(bundle)) == [str(twin)]


def test_a_bundle_is_its_own_where_nothing_is_made_of_its_inputs(tmp_path: Path, twin: Path) -> None:
    other = make_bundle(tmp_path / "c.nojit", ADD, name="third")
    assert paths(loader.load(other)) == [str(other)]
