from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from nojit.kernels import library
from nojit.kernels.bmm import mm
from nojit.kernels.calls import memos
from nojit.runtime.bundle import file as bundle
from nojit.runtime.discovery.discover import Found
from nojit.runtime.errors import BundleError, BundleFormatError, BundleTrustError, KernelNotFoundError
from nojit.runtime.loader import Bundle
from nojit.runtime.trust.envelope import signed_path

from tests.support.bundles import kernel, make_bundle, target
from tests.support.wheels import put_provider


class Provider:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, name: str):
        self.asked.append(name)
        return lambda *args, **constexprs: (name, args, constexprs)


def test_a_provider_is_asked_once_for_each_kernel():
    provider = Provider()
    with library.override(provider):
        assert library.get("one")(1, B=2) == ("one", (1,), {"B": 2})
        assert library.get("one") is library.get("one")
        library.get("two")
    assert provider.asked == ["one", "two"]


def test_overrides_nest_and_end_with_an_error_too():
    outer, inner = Provider(), Provider()
    with library.override(outer):
        kernel = library.get("k")
        with library.override(inner, devices=frozenset({"xpu", "cpu"})):
            assert library.devices() == {"xpu", "cpu"}
            assert library.get("k") is not kernel
        with pytest.raises(ZeroDivisionError), library.override(inner):
            raise ZeroDivisionError
        assert library.devices() == {"cpu"}
        assert library.get("k") is kernel
    assert library.devices() == {"cuda"}


def test_a_provider_that_fails_is_asked_again():
    provider = Provider()
    attempts = []

    def flaky(name: str):
        attempts.append(name)
        if len(attempts) == 1:
            raise LookupError(name)
        return provider(name)

    with library.override(flaky):
        with pytest.raises(LookupError):
            library.get("k")
        assert library.get("k")()[0] == "k"


def test_a_provider_is_asked_once_whether_it_has_a_kernel():
    asked = []

    def provide(name):
        asked.append(name)
        if name == "slow":
            return len
        raise KernelNotFoundError("expected a bundle that holds the kernel", got=f"none with {name!r}")

    with library.override(provide):
        assert [library.has(name) for name in ("slow", "fast") * 2] == [True, False] * 2
        assert asked == ["slow", "fast"]
        with pytest.raises(KernelNotFoundError, match="none with 'fast'"):
            library.get("fast")


def test_an_override_needs_a_device():
    with (
        pytest.raises(ValueError, match="devices: expected at least one device type"),
        library.override(Provider(), devices=frozenset()),
    ):
        pytest.fail("entered")


def test_without_a_bundle_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setattr("nojit.runtime.discovery.discover.survey", lambda _: ([], [], []))
    with pytest.raises(KernelNotFoundError, match=r"set NOJIT_BUNDLES, .*, got none with 'gelu'"):
        library.get("gelu")


def test_for_each_arch_the_first_bundle_counts(tmp_path, monkeypatch):
    """Bundles of several places may hold the same kernel; one bundle object of them all would be refused."""
    paths = []
    for number, (arch, names) in enumerate([("sm_90a", ["add"]), ("sm_90a", ["add", "mul"]), ("sm_80", ["add"])]):
        kernels = [kernel(name, {"n": "i32"}, on=target(arch)) for name in names]
        paths.append(make_bundle(tmp_path / f"{number}.nojit", *kernels, on=target(arch)))
    monkeypatch.setattr(
        "nojit.runtime.discovery.discover.survey", lambda _: ([Found(path, "test") for path in paths], [], [])
    )
    opened = []
    monkeypatch.setattr(
        library, "_open", lambda files, names: opened.append(tuple(Path(file.path) for file in files)) or Bundle(files)
    )
    provider = library._from_bundles
    assert provider("add").name == "add"
    assert provider("mul").name == "mul"
    assert opened == [(paths[0], paths[2]), (paths[1],)]


def test_operators_take_kernels_from_the_newest_version_of_a_folder(tmp_path, monkeypatch, caplog):
    made = kernel("gelu", {"n": "i32"})
    for version in ("0.9", "0.10"):
        make_bundle(tmp_path / f"nojit-kernels-{version}.nojit", made, name="nojit-kernels", version=version)
    monkeypatch.setenv("NOJIT_BUNDLES", str(tmp_path))
    assert "nojit-kernels-0.10.nojit" in str(library._from_bundles("gelu")._bundles.bundle_for(90))
    assert [
        line for line in caplog.messages if "nojit-kernels-0.9.nojit: nojit-kernels-0.10.nojit, a newer version" in line
    ]


def test_each_bundle_is_opened_once_for_all_names_and_again_where_it_was_built_anew(tmp_path, monkeypatch):
    path = make_bundle(tmp_path / "one.nojit", kernel("add", {"n": "i32"}), kernel("mul", {"n": "i32"}))
    monkeypatch.setattr("nojit.runtime.discovery.discover.survey", lambda _: ([Found(path, "test")], [], []))
    monkeypatch.setattr(library, "_open", lambda files, names: Bundle(files))
    opened = []
    monkeypatch.setattr(
        "nojit.runtime.bundle.file.BundleFile",
        lambda path, *rest, plain=bundle.BundleFile: opened.append(path) or plain(path, *rest),
    )
    for name in ("add", "mul", "add"):
        library._from_bundles(name)
    assert opened == [path]
    os.utime(path, ns=(1, 1))
    library._from_bundles("add")
    assert opened == [path] * 2


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of the path for wheels, with nothing of bundles anywhere else."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr("nojit.runtime.discovery.discover._own_checkout", lambda: None)
    monkeypatch.delenv("NOJIT_BUNDLES", raising=False)
    return tmp_path / "site"


def fill(package, *names: str, arch: str = "sm_90a"):
    on = target(arch)
    return make_bundle(package / f"b-{arch}.nojit", *(kernel(name, {"n": "i32"}, on=on) for name in names), on=on)


def files_of(name: str) -> list[str]:
    return [bundle.images.file.path for bundle in library._from_bundles(name)._bundles.bundles]


def test_a_foreign_wheel_takes_no_kernel_of_the_library(site, monkeypatch, tmp_path):
    """It comes first by name, and has an image that fits some devices better."""
    acme = put_provider(site, "acme-kernels")
    for arch in ("sm_89", "sm_90a"):
        fill(acme, "add", "own", arch=arch)
    library_file = fill(put_provider(site, "nojit-kernels-sm80", "nojit-kernels"), "add", arch="sm_80")
    assert files_of("add") == [str(library_file)]
    assert files_of("own") == [str(acme / "b-sm_89.nojit"), str(acme / "b-sm_90a.nojit")]
    # what is said outright comes before both
    said = fill(tmp_path, "add")
    monkeypatch.setenv("NOJIT_BUNDLES", str(said))
    assert files_of("add") == [str(said), str(library_file)]


def test_broken_foreign_wheels_are_passed_over_with_a_warning(site, caplog):
    put_provider(site, "a-empty")
    damaged = put_provider(site, "b-damaged") / "b.nojit"
    damaged.write_bytes(b"no bundle")
    put_provider(site, "c-gone").rmdir()
    held = fill(put_provider(site, "nojit-kernels"), "add", "mul")
    for name in ("add", "mul"):
        assert files_of(name) == [str(held)]
    said = [
        (record.levelname, record.getMessage()) for record in caplog.records if "passed over" in record.getMessage()
    ]
    assert [level for level, _ in said] == ["WARNING"] * 3
    reasons = [
        "passed over: expected *.nojit files, got none - at wheel a-empty, package a_empty",
        "passed over: expected the package that holds the bundles, got none - at wheel c-gone, package c_gone",
        f"passed over: expected a header of 64 bytes, got 9 - at {damaged}, of wheel b-damaged",
    ]
    assert [text for _, text in said] == reasons
    with pytest.raises(KernelNotFoundError) as raised:
        library.get("own")
    assert all(reason in str(raised.value) for reason in reasons)


def test_what_operators_ask_for_must_be_whole(site, monkeypatch, tmp_path):
    fill(put_provider(site, "acme-kernels"), "add")
    package = put_provider(site, "nojit-kernels-sm90", "nojit-kernels")
    with pytest.raises(BundleError, match="at wheel nojit-kernels-sm90, package nojit_kernels_sm90"):
        library.get("add")
    (package / "b.nojit").write_bytes(b"no bundle")
    with pytest.raises(BundleFormatError, match=r"nojit_kernels_sm90/b\.nojit"):
        library.get("add")
    (package / "b.nojit").unlink()
    fill(package, "add")
    files_of("add")
    (tmp_path / "damaged.nojit").write_bytes(b"no bundle")
    monkeypatch.setenv("NOJIT_BUNDLES", str(tmp_path / "damaged.nojit"))
    with pytest.raises(BundleFormatError, match=r"damaged\.nojit"):
        library.get("add")


def test_a_foreign_wheel_that_is_refused_serves_nobody_and_hinders_nobody(site, monkeypatch, tmp_path):
    signing = pytest.importorskip("tests.support.signing")
    signer = signing.Signer.of("release")
    refused = fill(put_provider(site, "a-kernels"), "one", "other")
    signed = fill(put_provider(site, "b-kernels"), "one")
    Path(signed_path(str(signed))).write_bytes(signing.envelope(signing.make_statement(signed), signer))
    monkeypatch.setenv("NOJIT_TRUST", "signed")
    monkeypatch.setenv("NOJIT_TRUSTED_KEYS", str(signing.trusted_keys(tmp_path / "trusted.toml", signer)))
    assert files_of("one") == [str(signed)]
    with pytest.raises(
        KernelNotFoundError, match=rf"passed over: expected a signed .* - at {refused}, of wheel a-kernels"
    ):
        library.get("other")
    # the library's own is asked for: no other one stands in for it
    own = fill(put_provider(site, "nojit-kernels"), "one")
    with pytest.raises(BundleTrustError, match=str(own)):
        library.get("one")


def test_a_thin_wheel_alone_says_what_brings_kernels(site):
    about = site / "nojit_kernels-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: nojit-kernels\nVersion: 1.0\nProvides-Extra: all\n")
    with pytest.raises(KernelNotFoundError, match=r"pip install 'nojit-kernels\[all\]'"):
        library.get("gelu")


class Watched:
    """A kernel that tells what it is asked for."""

    def __init__(self, name: str, told: list[tuple[str, ...]]) -> None:
        self._name, self._told = name, told

    def __call__(self, *args, **constexprs):
        self._told.append(("launch", self._name))

    def __getitem__(self, grid):
        return self

    def warmup(self, *args, **constexprs):
        self._told.append(("warmup", self._name))


def test_a_rehearsal_launches_nothing_and_calls_like_it_are_known(monkeypatch):
    a, b = torch.randn(2, 8, 8)
    told: list[tuple[str, ...]] = []
    with library.override(lambda name: Watched(name, told)):
        source = library.CURRENT.source
        with library.rehearsal(), library.rehearsal():
            assert library.devices() == {"cpu"}
            for _ in range(2):
                assert mm(a, b).shape == (8, 8)
            library.get("own")[1,](a)
        assert told == [("warmup", "bmm"), ("warmup", "bmm"), ("warmup", "own")]
        assert library.CURRENT.source is source
        told.clear()
        monkeypatch.setattr(memos, "RecipeWriter", None)
        mm(b, a)
        assert told == [("launch", "bmm")]


@pytest.mark.parametrize("is_unbuilt", [True, False])
def test_a_rehearsal_knows_which_kernels_are_left_to_tritons_jit(is_unbuilt):
    """Calls like it launch what it chose: tiles that only tuned tables have would not be found."""
    kernel = Watched("one", [])
    kernel.is_unbuilt = is_unbuilt
    with library.override(lambda _: kernel):
        assert library.is_built("one") != is_unbuilt
        with library.rehearsal():
            assert library.is_built("one") != is_unbuilt


def test_a_rehearsal_ends_with_an_error_too():
    with library.override(Provider()):
        source = library.CURRENT.source
        with pytest.raises(AttributeError, match="warmup"), library.rehearsal():
            library.get("one")(1)
        assert library.CURRENT.source is source
