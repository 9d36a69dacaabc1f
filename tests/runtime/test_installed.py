"""Entry points as `importlib.metadata` reads them, without it."""

from __future__ import annotations

import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nojit.runtime import installed
from nojit.runtime.installed import ENTRY_POINTS, Provider, normalized, providers


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


def found(*sites: Path) -> list[tuple[str, str, str]]:
    return [(one.name, one.package, one.distribution) for one in providers(map(str, sites))]


def found_by_metadata(*sites: Path) -> list[tuple[str, str, str]]:
    """List the same with the standard library, whose `entry_points` has the first distribution of a name hide others."""
    seen: set[str] = set()
    points = []
    for one in distributions(path=list(map(str, sites))):
        if normalized(one.name) not in seen:
            seen.add(normalized(one.name))
            points += [
                (point.name, point.module, one.name) for point in one.entry_points if point.group == ENTRY_POINTS
            ]
    return sorted(points, key=lambda point: (normalized(point[0]), normalized(point[2]), point[1]))


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


def test_what_is_installed_is_found(tmp_path: Path) -> None:
    install(tmp_path, "acme-kernels", POINTS)
    install(tmp_path, "Zeta.Kernels", "[nojit.bundles]\nacme-kernels = zeta:object [extra]\n", suffix="egg-info")
    install(tmp_path, "nothing", None)
    install(tmp_path, "scripts", "[console_scripts]\nx = y:z\n")
    assert found(tmp_path) == [
        ("acme.extra", "acme_kernels.extra", "acme-kernels"),
        ("acme-kernels", "acme_kernels", "acme-kernels"),
        ("acme-kernels", "zeta", "Zeta.Kernels"),
    ]
    assert found(tmp_path) == found_by_metadata(tmp_path)


def test_an_earlier_folder_hides_a_later_one(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    install(first, "acme-kernels", "[nojit.bundles]\na = first\n", version="1.0")
    install(second, "Acme_Kernels", "[nojit.bundles]\na = second\n", version="2.0")
    install(second, "other", "[nojit.bundles]\nb = other\n")
    assert [package for _, package, _ in found(first, second, first)] == ["first", "other"]
    assert [package for _, package, _ in found(second, first)] == ["second", "other"]
    # one that says nothing hides as well
    install(tmp_path / "zero", "acme-kernels", None)
    assert found(tmp_path / "zero", first) == found_by_metadata(tmp_path / "zero", first) == []


def test_places_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "acme-kernels", "[nojit.bundles]\na = here\n")
    (tmp_path / "archive.zip").write_bytes(b"PK")
    (tmp_path / "broken-1.0.dist-info").write_text("a file")
    monkeypatch.chdir(tmp_path)
    places = ["", str(tmp_path / "missing"), str(tmp_path / "archive.zip")]
    assert providers(places) == [Provider("a", "here", "acme-kernels", str(tmp_path))]


def test_this_environment_is_read_alike() -> None:
    assert [(one.name, one.package, one.distribution) for one in providers()] == found_by_metadata(*map(Path, sys.path))


def test_a_group_of_this_environment_is_read_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """No provider need be installed here; scripts are."""
    monkeypatch.setattr(installed, "_HEADER", "[console_scripts]")
    monkeypatch.setattr(sys.modules[__name__], "ENTRY_POINTS", "console_scripts")
    read = [(one.name, one.package, one.distribution) for one in providers()]
    assert len(read) > 10
    assert read == found_by_metadata(*map(Path, sys.path))


words = st.from_regex(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,8}[A-Za-z0-9])?", fullmatch=True)


@given(words)
def test_names_are_compared_as_indexes_do(name: str) -> None:
    assert normalized(name) == normalized(name.upper()) == normalized(name.replace("-", "_").replace(".", "_"))
    assert normalized(normalized(name)) == normalized(name)
