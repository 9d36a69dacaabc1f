from __future__ import annotations

import os

import pytest
import torch
from nojit.kernels import library, memos
from nojit.kernels.bmm import mm
from nojit.runtime import bundle
from nojit.runtime.errors import KernelNotFoundError
from nojit.runtime.loader import Bundle

from tests.support.bundles import kernel, make_bundle, target


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


def test_an_override_needs_a_device():
    with (
        pytest.raises(ValueError, match="devices: expected at least one device type"),
        library.override(Provider(), devices=frozenset()),
    ):
        pytest.fail("entered")


def test_without_a_bundle_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setattr("nojit.runtime.discover.bundles", list)
    with pytest.raises(KernelNotFoundError, match=r"set NOJIT_BUNDLES, .*, got none with 'gelu'"):
        library.get("gelu")


def test_for_each_arch_the_first_bundle_counts(tmp_path, monkeypatch):
    """Bundles of several places may hold the same kernel; one bundle object of them all would be refused."""
    paths = []
    for number, (arch, names) in enumerate([("sm_90a", ["add"]), ("sm_90a", ["add", "mul"]), ("sm_80", ["add"])]):
        kernels = [kernel(name, {"n": "i32"}, on=target(arch)) for name in names]
        paths.append(make_bundle(tmp_path / f"{number}.nojit", *kernels, on=target(arch)))
    monkeypatch.setattr("nojit.runtime.discover.bundles", lambda: paths)
    opened = []
    monkeypatch.setattr(library, "_open", lambda paths: opened.append(paths) or Bundle(paths))
    provider = library._from_bundles
    assert provider("add").name == "add"
    assert provider("mul").name == "mul"
    assert opened == [(paths[0], paths[2]), (paths[1],)]


def test_each_bundle_is_opened_once_for_all_names_and_again_where_it_was_built_anew(tmp_path, monkeypatch):
    path = make_bundle(tmp_path / "one.nojit", kernel("add", {"n": "i32"}), kernel("mul", {"n": "i32"}))
    monkeypatch.setattr("nojit.runtime.discover.bundles", lambda: [path])
    monkeypatch.setattr(library, "_open", Bundle)
    opened = []
    monkeypatch.setattr(
        "nojit.runtime.bundle.BundleFile", lambda path, plain=bundle.BundleFile: opened.append(path) or plain(path)
    )
    for name in ("add", "mul", "add"):
        library._from_bundles(name)
    assert opened == [path]
    os.utime(path, ns=(1, 1))
    library._from_bundles("add")
    assert opened == [path] * 2


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
        monkeypatch.setattr(memos, "Recording", None)
        mm(b, a)
        assert told == [("launch", "bmm")]


def test_a_rehearsal_ends_with_an_error_too():
    with library.override(Provider()):
        source = library.CURRENT.source
        with pytest.raises(AttributeError, match="warmup"), library.rehearsal():
            library.get("one")(1)
        assert library.CURRENT.source is source
