"""Entry points of installed distributions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nojit.runtime.discovery.installed import Provider, normalized, provided_name, provider_name, providers
from nojit.runtime.errors import BundleError

Find: TypeAlias = Callable[..., list[tuple[str, str, str]]]


def install(
    site: Path, name: str, entry_points: str | None, *, version: str = "1.0", suffix: str = "dist-info"
) -> None:
    """Lay out what an installer leaves of a distribution."""
    folder = site / f"{name.replace('-', '_')}-{version}.{suffix}"
    folder.mkdir(parents=True)
    metadata = "METADATA" if suffix == "dist-info" else "PKG-INFO"
    (folder / metadata).write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: body\n")
    if entry_points is not None:
        (folder / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, str, str]]]:
    def find(*sites: Path) -> list[tuple[str, str, str]]:
        monkeypatch.setattr(sys, "path", list(map(str, sites)))
        return [(one.name, one.package, one.distribution) for one in providers()]

    return find


POINTS = """\
[console_scripts]
acme = acme.main:run

[nojit.bundles]
# two of them
acme-kernels = acme_kernels
acme.extra=acme_kernels.extra

[other]
acme-kernels = wrong
"""


def test_what_is_installed_is_found(tmp_path: Path, found: Find) -> None:
    install(tmp_path, "acme-kernels", POINTS)
    install(tmp_path, "Zeta.Kernels", "[nojit.bundles]\nacme-kernels = zeta:object [extra]\n", suffix="egg-info")
    install(tmp_path, "nothing", None)
    install(tmp_path, "scripts", "[console_scripts]\nx = y:z\n")
    assert found(tmp_path) == [
        ("acme.extra", "acme_kernels.extra", "acme-kernels"),
        ("acme-kernels", "acme_kernels", "acme-kernels"),
        ("acme-kernels", "zeta", "Zeta.Kernels"),
    ]


def test_an_earlier_folder_hides_a_later_one(tmp_path: Path, found: Find) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    install(first, "acme-kernels", "[nojit.bundles]\na = first\n", version="1.0")
    install(second, "Acme_Kernels", "[nojit.bundles]\na = second\n", version="2.0")
    install(second, "other", "[nojit.bundles]\nb = other\n")
    assert [package for _, package, _ in found(first, second, first)] == ["first", "other"]
    assert [package for _, package, _ in found(second, first)] == ["second", "other"]
    # one that says nothing hides as well
    install(tmp_path / "zero", "acme-kernels", None)
    assert found(tmp_path / "zero", first) == []


def test_places_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "acme-kernels", "[nojit.bundles]\na = here\n")
    (tmp_path / "archive.zip").write_bytes(b"PK")
    (tmp_path / "broken-1.0.dist-info").write_text("a file")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "missing"), str(tmp_path)])
    assert providers() == [Provider("a", "here", "acme-kernels", str(tmp_path))]


def test_one_that_cannot_be_read_is_told(tmp_path: Path, found: Find) -> None:
    install(tmp_path, "acme-kernels", "[console_scripts]\nno value\n")
    with pytest.raises(BundleError, match=r"expected installed distributions with readable entry points, got .*value"):
        found(tmp_path)


words = st.from_regex(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,8}[A-Za-z0-9])?", fullmatch=True)


@given(words)
def test_names_are_compared_as_indexes_do(name: str) -> None:
    assert normalized(name) == normalized(name.upper()) == normalized(name.replace("-", "_").replace(".", "_"))
    assert normalized(normalized(name)) == normalized(name)


@pytest.mark.parametrize("label", ["sm75", "sm90", "sm100f", "gfx942", "gfx1201"])
def test_the_name_of_a_provider_holds_the_name_that_it_provides(label: str) -> None:
    assert provided_name(provider_name("acme-kernels", label)) == "acme-kernels"
    assert provided_name(provider_name("Acme_Kernels", label).replace("-", "_")) == "acme-kernels"


@pytest.mark.parametrize(
    "name", ["acme", "sm90", "acme-sm", "acme-gfx", "acme-gfx90a", "acme-sm90-kernels", "acmesm90"]
)
def test_other_names_provide_none(name: str) -> None:
    assert provided_name(name) is None
